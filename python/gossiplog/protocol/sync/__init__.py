"""The sync protocol: `Client` asks, `Server` answers. Their modules state the rules."""

from gossiplog.protocol.sync.client import Client
from gossiplog.protocol.sync.events import (
    Aborted,
    ClientConfig,
    Event,
    Finished,
    Local,
    Received,
    Send,
    Statistics,
)
from gossiplog.protocol.sync.server import Served, Server, ServerConfig

__all__ = [
    "Aborted",
    "Client",
    "ClientConfig",
    "Event",
    "Finished",
    "Local",
    "Received",
    "Send",
    "Served",
    "Server",
    "ServerConfig",
    "Statistics",
]
