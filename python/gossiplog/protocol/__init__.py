# Imports go one way: wire_pb2, wire, then push alone, and sync_events, sync_hints, sync_client, sync_server, sync.
"""The protocols between two peers, without I/O: bytes in, bytes and events out."""
