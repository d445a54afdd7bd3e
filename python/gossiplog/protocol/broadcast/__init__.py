"""Reliable causal broadcast: one machine for all peers of a log.

`machine` states the rules: what is forwarded and synced, what gossip is answered, who is blamed for messages and syncs.
"""
