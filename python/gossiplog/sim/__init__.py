"""Simulations under virtual time: the protocols of `gossiplog` on networks that delay, lose, part and lie.

Its layers, each over those before:

    kernel, latency                 virtual time, and how long bytes travel
    whole                           whole peers, each with a log, in scenarios drawn from a seed
    routers                         bare routers, of one kind or several, by plan; knows nothing of `whole`
"""
