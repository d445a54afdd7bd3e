"""Bare routers on a simulated network: plans, attacks, and figures of how messages spread."""
