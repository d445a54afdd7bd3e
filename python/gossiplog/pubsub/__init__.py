# Imports go one way: events, checks; then floodsub, gossipsub, simsub, episub, which know nothing of each other.
"""Routers that spread messages among peers: state machines without I/O, under one vocabulary."""
