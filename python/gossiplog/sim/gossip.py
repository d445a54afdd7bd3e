"""A stand-in for gossipsub: every message goes once to every neighbour, over packets that may be lost.

It keeps to the part of gossipsub that the broadcast machine depends on: a message is held back until it was
validated, and what has been seen is not looked at again, whatever the answer was. It has no mesh and repairs no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from gossiplog.protocol.broadcast_events import Gossip, PeerId

_REJECTIONS = 3
"""Invalid messages after which a neighbour is cut off, as gossipsub's peer score does."""


@dataclass(frozen=True, slots=True)
class GossipPacket:
    """A message on its way."""

    key: bytes
    value: bytes


class FloodGossip:
    """One node's router.

    Args:
        send: sends a packet to a neighbour.
        validate: takes (source, key, value, ticket) of a message; `validated` is called with the ticket later.
        cut_off: called with a neighbour that sent too many invalid messages.
    """

    def __init__(
        self,
        send: Callable[[PeerId, GossipPacket], object],
        validate: Callable[[PeerId, bytes, bytes, Hashable], object],
        cut_off: Callable[[PeerId, str], object],
    ) -> None:
        self._send = send
        self._validate = validate
        self._cut_off = cut_off
        self._neighbours: dict[PeerId, int] = {}
        self._seen: set[bytes] = set()
        self._held: dict[bytes, bytes] = {}

    def add(self, neighbour: PeerId) -> None:
        """A neighbour that speaks gossip."""
        self._neighbours[neighbour] = 0

    def remove(self, neighbour: PeerId) -> None:
        """It is gone."""
        self._neighbours.pop(neighbour, None)

    def publish(self, key: bytes, value: bytes) -> None:
        """An own message."""
        if key not in self._seen:
            self._seen.add(key)
            self._flood(key, value, None)

    def receive(self, source: PeerId, packet: GossipPacket) -> None:
        """A neighbour's packet."""
        if source in self._neighbours and packet.key not in self._seen:
            self._seen.add(packet.key)
            self._held[packet.key] = packet.value
            self._validate(source, packet.key, packet.value, packet.key)

    def validated(self, source: PeerId, ticket: Hashable, answer: Gossip) -> None:
        """What is to become of a message that was held back."""
        if not isinstance(ticket, bytes) or ticket not in self._held:
            return
        value = self._held.pop(ticket)
        if answer is Gossip.ACCEPT:
            self._flood(ticket, value, source)
        elif answer is Gossip.REJECT and source in self._neighbours:
            self._neighbours[source] += 1
            if self._neighbours[source] >= _REJECTIONS:
                self._cut_off(source, f"it sent {_REJECTIONS} invalid messages by gossip")

    def _flood(self, key: bytes, value: bytes, source: PeerId | None) -> None:
        packet = GossipPacket(key, value)
        for neighbour in self._neighbours:
            if neighbour != source:
                self._send(neighbour, packet)
