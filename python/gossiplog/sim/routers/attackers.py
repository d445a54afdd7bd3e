"""The machine of a hostile node. `tactics` has what it says, `plan` why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gossiplog.pubsub.events import (
    Connect,
    ConnectFailed,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Received,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.sim.routers.kinds import RouterKind, Seat, Wiring
from gossiplog.sim.routers.plan import NUMBER_BYTES, SPAM_SECONDS

_REDIAL_SECONDS = 1.0
_SPAM = "spam"
_NOBODYS = b"\xff"  # begins what nobody published


class Hostile:
    """A node that honest ones forward messages to, and that passes nothing on.

    Args:
        seat: with the honest nodes to connect to as contacts.
        kind: of the honest routers.
        spam: bytes of each message that it publishes; None if it does not.
    """

    def __init__(self, seat: Seat, kind: RouterKind, spam: int | None) -> None:
        self._seat = seat
        self._wiring = kind.wiring
        self._tactics = kind.tactics
        self._spam = spam
        # A dictionary without values: a set, but in an order that does not depend on hashes.
        self._peers: dict[PeerId, None] = {}
        self._sent = 0
        self._published = 0

    def start(self, now: float) -> Sequence[Any]:
        """Return the first orders, which approach its contacts."""
        orders: list[Any] = []
        if self._wiring is Wiring.OPEN:
            self._peers = dict.fromkeys(self._seat.contacts)
            orders += self._send(self._peers, self._tactics.ask)
        elif self._wiring is Wiring.OWN:
            orders += map(Connect, self._seat.contacts)
        if self._spam is not None:
            orders.append(SetTimer(_SPAM, now + self._seat.random.uniform(0.0, SPAM_SECONDS)))
        return orders

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Return what follows from an event."""
        if type(event) is Received:
            said = self._tactics.answer(self._seat.node, event.peer, event.packet, self._seat.random)
            return self._send((event.peer,), said) if said else ()
        match event:
            case PeerConnected(peer):
                self._peers[peer] = None
                return self._send((peer,), self._tactics.ask)
            case PeerDisconnected(peer) | ConnectFailed(peer):
                self._peers.pop(peer, None)
                if self._wiring is Wiring.OWN and peer in self._seat.contacts:
                    return (SetTimer(peer, now + _REDIAL_SECONDS),)
            case TimerExpired(timer):
                if timer == _SPAM and self._spam is not None:
                    return [*self._publish(self._spam), SetTimer(_SPAM, now + SPAM_SECONDS)]
                return (Connect(timer),)
        return ()

    def _send(self, peers: Iterable[PeerId], packets: Iterable[Any]) -> list[Send]:
        targets = tuple(peers)
        sends = []
        for packet in packets:
            sends.append(Send(targets, self._tactics.seal(self._seat.node, self._sent, packet)))
            self._sent += 1
        return sends

    def _publish(self, size: int) -> list[Send]:
        if not self._peers:
            return []
        number = self._published
        self._published += 1
        head = _NOBODYS + (self._seat.node << 32 | number).to_bytes(NUMBER_BYTES - 1, "big")
        data = head + bytes(size - NUMBER_BYTES)
        return self._send(self._peers, [self._tactics.spam(self._seat.node, number, data)])
