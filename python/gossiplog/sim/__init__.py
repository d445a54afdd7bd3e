# Imports go one way: kernel, latency, then network, then gossip, checks, syncs, peer, hostile; scenario, run; __main__.
"""Simulations under virtual time: the protocols of `gossiplog` on networks that delay, lose, part and lie."""
