# Imports go one way: messages, encoding, config, events; views; joining, active, passive, membership; broadcast;
# router.
"""Episub: a proximity-aware overlay with a broadcast tree on it, for few sources and many listeners."""
