"""Gossip, as a transport offers it: a router that spreads messages, and holds each back until it has an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gossiplog.net.transport.connection import Connection

Answer = Literal["accept", "ignore", "reject"]


@dataclass(frozen=True, slots=True)
class Publication:
    """A message that the router holds back.

    Attributes:
        ticket: that names it to the router.
        connection: to the peer that it came from, who need not be its author; None if that one is gone.
        name: of that peer.
        data: as it was published.
    """

    ticket: int
    connection: Connection | None
    name: str
    data: bytes


class Router(Protocol):
    """Spreads messages among peers by gossip. No call waits."""

    def publish(self, data: bytes) -> bool:
        """Publish a message; return False if it was sent to nobody.

        Raises:
            NetworkError: it is too large, or there is no router any more.
        """

    def validate(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Decide what is to become of messages (by their tickets) that the router holds back.

        Raises:
            NetworkError: there is no router any more.
        """
