"""Which classes users make, and which have methods for the package alone."""

from __future__ import annotations

MADE_BY_USERS = frozenset(
    {
        *("Access", "AsyncLog", "BroadcastConfig", "CID", "Counter", "Driver", "GossipConfig", "Hub", "Limits", "List"),
        *("Listener", "Map", "MemoryStorage", "Node", "Objects", "Peer", "PostgresURL", "RateLimitedLog", "Register"),
        *("ElementSet", "FunctionFold", "LastWriter", "Layout", "Recipe"),
        *("SQLiteStorage", "Set", "Signer", "SyncServerConfig", "TLS", "Token"),
    }
)
"""Classes whose constructors programs call. Others are returned, so that their constructors are nobody's business."""
LOW_LEVEL = frozenset(
    {"Driver", "Listener", "MemoryStorage", "RateLimitedLog", "Replica", "SQLiteStorage", "Snapshot", "Storage"}
)
"""Classes whose methods are for the package: `gossiplog.storage.base`, for one, says what a back end has to do."""
