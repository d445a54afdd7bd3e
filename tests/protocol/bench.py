"""A broadcast machine on a bench: what it asks for, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from gossiplog.protocol.broadcast import events
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    Delivery,
    HeadsReceived,
    Insert,
    Judged,
    OutEvent,
    PeerConnected,
    Received,
    SetTimer,
    StartSync,
    SyncOver,
    SyncProgress,
    SyncStarted,
    Verdict,
)
from gossiplog.protocol.broadcast.machine import Broadcast


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


class Bench:
    """A machine, and what came out of it; quiet things are left out."""

    def __init__(self, *peers: str, gossiping: Sequence[str] = (), config: BroadcastConfig | None = None) -> None:
        self.machine = Broadcast(Random(1), config)
        self.now = 0.0
        for peer in (*peers, *gossiping):
            self.tell(PeerConnected(peer, peer in gossiping))

    def tell(self, event: events.InEvent) -> list[OutEvent]:
        quiet = SyncStarted | SyncProgress | SyncOver | SetTimer
        return [out for out in self.machine.handle(event, self.now) if not isinstance(out, quiet)]

    def all(self, event: events.InEvent) -> list[OutEvent]:
        return self.machine.handle(event, self.now)

    def receive(self, source: str, number: int, ticket: object = None) -> Delivery:
        delivery = Delivery(source, key(number), b"value", ticket)
        assert self.tell(Received(delivery)) == [Insert(delivery)]
        return delivery

    def judged(
        self, source: str, number: int, verdict: Verdict, ticket: object = None, **more: object
    ) -> list[OutEvent]:
        return self.tell(Judged(self.receive(source, number, ticket), verdict, **more))  # type: ignore[arg-type]

    def sync(self, peer: str, *numbers: int) -> int:
        """Makes it sync with a peer, and returns the number of the sync."""
        return only(StartSync, self.tell(HeadsReceived(peer, [key(number) for number in numbers]))).sync


def only(kind: type, outs: Iterable[OutEvent]) -> object:
    (found,) = (out for out in outs if isinstance(out, kind))
    return found


def timers(outs: Iterable[OutEvent]) -> dict[events.Timer, float]:
    return {out.timer: out.at for out in outs if isinstance(out, SetTimer)}
