"""Reliable causal broadcast: one machine for all peers of a log. `machine` states the rules."""
