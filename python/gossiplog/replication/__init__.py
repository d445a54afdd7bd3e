"""From verified values to what the broadcast machine learns of them, without I/O and without a clock.

Messages from outside are verified, checked (`VerifiedBatch`) and inserted (`InsertOutcome`) by `gossiplog.log.replica`,
and reported (`verdicts`) to `gossiplog.protocol.broadcast.machine`, which decides what they say of their peer, and
which answer gossip gets: docs/design/replication.md. A driver (`net`, `sim`, `Log.pull`) chooses the thread of each
step. It blames peers itself only for what never becomes a message: bytes that break a protocol, defects, limits.
"""
