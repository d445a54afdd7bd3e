"""Whole peers on a simulated network: what ships, under invariants that are checked at every step."""
