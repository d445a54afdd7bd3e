# Imports go one way: wire_pb2, wire, then push alone, and sync_events, sync_hints, sync_client, sync_server, sync; from
# sync_events: broadcast_config, broadcast_events, broadcast_schedule, broadcast_refusals, broadcast.
"""The protocols between two peers, without I/O: bytes in, bytes and events out."""
