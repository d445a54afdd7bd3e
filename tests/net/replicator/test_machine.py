"""The machine that all peers share, and the one that takes its place when it has a defect."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest

from gossiplog._core import PanicException
from gossiplog.net import events
from gossiplog.net.replicator import defects
from gossiplog.net.replicator.defects import Defects
from gossiplog.net.replicator.machine import MOST_REBUILDS, SharedMachine
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import (
    AnnounceDue,
    Appended,
    Delivery,
    HeadsReceived,
    Insert,
    Judged,
    PeerConnected,
    Received,
    SendInsert,
    SendUpdate,
    StartSync,
    SyncBrought,
    SyncEnded,
    SyncResult,
    TimerExpired,
    Verdict,
)
from gossiplog.protocol.broadcast.machine import Broadcast
from tests.net.support import Heard

pytestmark = pytest.mark.anyio

MARK = b"marked".ljust(20)
ERRORS = [KeyError("a key"), RuntimeError("a state"), PanicException("a panic")]


class Fragile(Broadcast):
    """A machine that raises where it meets the mark, after it has done what it had to."""

    error: BaseException = ERRORS[0]

    def handle(self, event: broadcast.InEvent, now: float) -> list[broadcast.OutEvent]:
        outs = super().handle(event, now)
        if MARK in repr(event).encode() or event == TimerExpired(AnnounceDue()):
            raise self.error
        return outs


class Line:
    """Stands for a connection."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Bench:
    """A shared machine, and what it asks for."""

    def __init__(self, *names: str, machine: type[Broadcast] = Fragile) -> None:
        self.heard = Heard()
        self.telemetry = Telemetry(self.heard)
        self.peers: dict[int, PeerSession] = {}
        self.defects = Defects(self.telemetry, self.peers)
        self.done: list[broadcast.OutEvent] = []
        self.stopped: list[Sequence[int]] = []
        self.told = 0
        self.passed_over: list[Delivery] = []
        self.given_up: list[BaseException] = []
        self.machine = SharedMachine(
            partial(machine, Random(1), None, itertools.count(1)),
            self.done.append,
            self.defects,
            members=lambda: tuple(self.peers.values()),
            start_over=self.stopped.append,
            update_all=self.update_all,
            pass_over=self.passed_over.append,
            give_up=self.given_up.append,
        )
        for number, name in enumerate(names, 1):
            self.join(number, name)

    def update_all(self) -> None:
        self.told += 1

    def join(self, number: int, name: str) -> None:
        connection: Any = Line()
        self.peers[number] = PeerSession(number, name, connection, may_write=True, origin=name)
        self.machine.report(PeerConnected(number))

    def leave(self, number: int) -> None:
        self.defects.leave(self.peers.pop(number))

    def tell(self, *happened: broadcast.InEvent) -> list[broadcast.OutEvent]:
        quiet = broadcast.SetTimer | broadcast.SyncStarted | broadcast.SyncOver
        del self.done[:]
        self.machine.report(*happened)
        return [out for out in self.done if not isinstance(out, quiet)]

    def told_of(self) -> list[events.Defect]:
        self.telemetry.flush()
        return self.heard.of(events.Defect)


def push(source: int, key: bytes) -> Delivery:
    return Delivery(source, key, b"value")


@pytest.mark.parametrize("error", ERRORS)
async def test_a_new_machine_knows_the_others_and_requests_what_each_had_advertised(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(Fragile, "error", error)
    bench = Bench("a", "b", "c", "d")
    bench.peers[3].behind = True
    bench.peers[4].may_write = False
    outs = bench.tell(HeadsReceived(1, (MARK,)))
    assert outs == [
        SendUpdate((2,)),
        StartSync(2, 2, (), frozenset()),
        SendUpdate((3,)),
        StartSync(3, 3, (), frozenset()),
        SendUpdate((4,)),
    ]
    assert bench.tell(Appended([(bytes(20), b"value")]))[0] == SendInsert((2, 4), bytes(20), b"value")
    assert [peer.connection.closed for peer in bench.peers.values()] == [True, False, False, False]
    (told,) = bench.told_of()
    assert told == events.Defect("a", "reporting HeadsReceived to the broadcast machine", error, 1)
    assert bench.telemetry.counters.defects == {"broadcast": 1}
    assert bench.given_up == []


async def test_syncs_of_the_old_machine_are_stopped_and_what_they_brought_is_told() -> None:
    bench = Bench("a", "b")
    assert StartSync(1, 2, (bytes(20),), frozenset()) in bench.tell(HeadsReceived(2, (bytes(20),)))
    assert StartSync(3, 2, (), frozenset()) in bench.tell(HeadsReceived(1, (MARK,)))
    assert bench.stopped == [(1,)]
    assert bench.tell(SyncBrought(1, [bytes(20)], 1)) == []
    assert bench.told == 0
    bench.tell(SyncEnded(1, SyncResult.ABORTED))
    assert bench.told == 1
    bench.tell(SyncEnded(3, SyncResult.FINISHED))
    assert bench.told == 1


async def test_a_sync_that_brings_a_defect_to_light_is_its_sources() -> None:
    bench = Bench("a", "b")
    (order,) = [out for out in bench.tell(HeadsReceived(2, (bytes(20),))) if isinstance(out, StartSync)]
    bench.tell(SyncBrought(order.sync, [MARK], 1))
    assert [told.peer for told in bench.told_of()] == ["b"]


async def test_what_a_peer_sent_before_it_is_gone_costs_no_more_machines() -> None:
    bench = Bench("a", "b")
    deliveries = [push(1, MARK), push(1, bytes(20)), push(1, MARK)]
    outs = bench.tell(*map(Received, deliveries), HeadsReceived(1, (MARK,)), Judged(deliveries[1], Verdict.INSERTED))
    assert Insert(deliveries[1]) not in outs
    assert len(bench.told_of()) == 1
    assert bench.passed_over == [deliveries[1], deliveries[2], deliveries[1]]


async def test_peers_that_are_about_to_be_reported_are_reported_once() -> None:
    bench = Bench("a")
    connection: Any = Line()
    bench.peers[2] = PeerSession(2, "b", connection, may_write=True, origin="b")
    outs = bench.tell(HeadsReceived(1, (MARK,)), PeerConnected(2))
    assert outs.count(SendUpdate((2,))) == 1
    assert len(bench.told_of()) == 1


async def test_a_peer_that_has_left_is_held_to_it_all_the_same() -> None:
    bench = Bench("a", "b")
    for times in (1, 2, 3):
        delivery = push(1, MARK)
        bench.leave(1)
        bench.tell(Judged(delivery, Verdict.INSERTED))
        assert bench.told_of()[-1].times == times
        assert bench.defects.bans("a") is (times == 3)
        del bench.defects._faulty[1]
        bench.join(1, "a")
    assert not bench.defects.bans("b")


async def test_defects_of_nobodys_input_end_it_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("a")
    for _ in range(MOST_REBUILDS):
        assert SendUpdate((1,)) in bench.tell(TimerExpired(AnnounceDue()))
    assert bench.given_up == []
    assert bench.tell(TimerExpired(AnnounceDue()), HeadsReceived(1, (bytes(20),))) == []
    assert bench.given_up == [Fragile.error]
    assert [told.peer for told in bench.told_of()] == [""] * (MOST_REBUILDS + 1)
    assert bench.tell(HeadsReceived(1, (bytes(20),))) == []


async def test_defects_of_nobodys_input_long_after_each_other_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(anyio, "current_time", lambda: now[0])
    bench = Bench("a")
    for _ in range(3 * MOST_REBUILDS):
        now[0] += 60 / MOST_REBUILDS
        bench.tell(TimerExpired(AnnounceDue()))
    assert bench.given_up == []


async def test_a_machine_that_raises_when_it_learns_of_peers_is_of_no_use() -> None:
    is_broken = False

    class Useless(Broadcast):
        def handle(self, event: broadcast.InEvent, now: float) -> list[broadcast.OutEvent]:
            if is_broken:
                raise ERRORS[1]
            return super().handle(event, now)

    bench = Bench("a", "b", machine=Useless)
    is_broken = True
    bench.tell(HeadsReceived(1, (bytes(20),)))
    assert bench.given_up == [ERRORS[1]]


async def test_what_is_no_defect_goes_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "error", SystemExit(3))
    bench = Bench("a")
    with pytest.raises(SystemExit):
        bench.tell(HeadsReceived(1, (MARK,)))
    assert bench.told_of() == []
    assert defects.defect_in(SystemExit(3)) is None
