"""What happens to messages between a source and a log, without I/O and without a clock.

Every message from outside takes the same steps, whether it was pushed, gossiped, synced, pulled or inserted:

    verify    values become a `VerifiedBatch`: signatures and encodings are checked, known messages are marked
    check     the application's payload check marks what it refuses
    insert    one or more transactions of the log turn the batch into an `InsertOutcome`
    report    the outcome becomes the events that the broadcast machine is given (`verdicts`)

The log takes the first three steps; its drivers (`net`, `sim` and `Log.pull`) differ in the threads that they use.
"""
