"""The sync protocol: `Client` asks, `Server` answers. Their modules state the rules."""

from gossiplog.protocol.sync.client import Client
from gossiplog.protocol.sync.events import (
    Aborted,
    Event,
    Finished,
    Local,
    Received,
    Send,
    SyncClientConfig,
    SyncStatistics,
)
from gossiplog.protocol.sync.server import Served, Server, SyncServerConfig

__all__ = [
    "Aborted",
    "Client",
    "Event",
    "Finished",
    "Local",
    "Received",
    "Send",
    "Served",
    "Server",
    "SyncClientConfig",
    "SyncServerConfig",
    "SyncStatistics",
]
