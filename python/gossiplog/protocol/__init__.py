"""The protocols between two peers, without I/O: bytes in, bytes and events out.

Its layers, each over those before:

    wire            frames, and the messages in them
    push, sync, refusals
                    a machine for each end of a stream
    gossip          the data of one publication
    broadcast       one machine for all peers, which joins the others
"""
