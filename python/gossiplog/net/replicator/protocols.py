"""The names of the protocols of a log (wire format, "Protocols")."""

from __future__ import annotations

from gossiplog.reprs import frozen

TOPIC_HEADER = "gossiplog-topic"
"""By which a client names its log's topic when it opens a WebSocket, and a hub its own when it lets the client in."""
SHOWN_TOPIC = 200
"""Characters of a topic in a message or in a line of a log."""
ACCESS_HEADER = "gossiplog-access"
"""By which it says then whether the client may "write", or "read" only."""


@frozen
class Protocols:
    """What peers of a topic speak on their streams.

    Attributes:
        topic: of the log.
    """

    topic: str

    @property
    def push(self) -> str:
        """Heads and new messages; the dialer opens one stream."""
        return f"/canvas/v1/{self.topic}/push"

    @property
    def sync(self) -> str:
        """Merkle sync; either side opens streams, and asks on them."""
        return f"/canvas/v1/{self.topic}/sync"

    @property
    def refusals(self) -> str:
        """Which messages the opener refuses, and why; canvas-js does not speak it."""
        return f"/gossiplog/v1/{self.topic}/refusals"

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (self.push, self.sync, self.refusals)
