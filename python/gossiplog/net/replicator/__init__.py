"""Keeps one log in step with its peers: drives the broadcast machine, and moves messages between log and streams.

The way of a message into the log:

    push, gossip    read it from a stream, or take it from the router, and report it to the machine
    inserts         queues what the machine lets in, and reports the verdicts
    log_writer      has it verified and stored, by `gossiplog.log.replica`
    change_feed     reports what is committed: to the application, and of others to the machine
    sync            does all this for the batches of a sync
"""
