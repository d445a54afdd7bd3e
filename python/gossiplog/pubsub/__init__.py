"""Routers that spread messages among peers: machines without I/O, under one vocabulary (`events`)."""
