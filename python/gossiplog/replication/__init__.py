"""From verified values to what the broadcast machine learns of them, without I/O and without a clock.

Messages from outside are verified and checked (`VerifiedBatch`), inserted (`InsertOutcome`) and reported (`verdicts`):
docs/design/replication.md. A driver (`net`, `sim`, `Log.pull`) chooses the thread of each step, and decides nothing.
"""
