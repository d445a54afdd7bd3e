"""Keeps one log in step with its peers: drives the broadcast machine, and moves messages between log and streams."""
