"""Runs the routers of `gossiplog.pubsub` on real connections, in the place of the host's own gossip.

A router has no I/O and reads no clock: `kinds` says how each is made, and how its packets are written; `sessions` keeps
the streams to one peer; `router_host` reports to the router what happens, and does what it asks for.
"""
