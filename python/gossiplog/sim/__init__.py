# Imports go one way: kernel, latency; then whole peers: network, gossip, checks, syncs, peer, hostile, scenario, run,
# __main__; and beside them bare routers: geography, conditions, attacks, plan, tactics, routers, mixture, attackers,
# tally, summary, overlay, simulation; named, comparison, sweep; deliveries, plots.
"""Simulations under virtual time: the protocols of `gossiplog` on networks that delay, lose, part and lie."""
