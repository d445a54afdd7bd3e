"""The broadcast machine among peers that do whatever verification accepts, in any order: Hypothesis' stateful testing.

A real log judges the messages. Peers 1 and 2 are honest, and hold more and more of the history; 3 and 4 send what they
like. Whatever happens, the machine raises nothing, keeps its promises and its limits, and forgets who left.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import gossiplog
from gossiplog import MemoryStorage, core
from gossiplog.log.log import replica_of
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    ACCEPTED,
    AnnounceDue,
    Appended,
    Delivery,
    Disconnect,
    GossipAnswer,
    GossipAnswered,
    HeadsReceived,
    InEvent,
    Insert,
    Judged,
    OrphansDue,
    OutEvent,
    OverlapDue,
    PeerBehind,
    PeerCaughtUp,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    RetryDue,
    SendInsert,
    SendUpdate,
    ServingAborted,
    SetTimer,
    StartSync,
    StopSync,
    SyncAdvanced,
    SyncCheck,
    SyncDue,
    SyncEnded,
    SyncOver,
    SyncResult,
    Timer,
    TimerExpired,
    Verdict,
)
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.protocol.sync import SyncStatistics
from gossiplog.replication.verdicts import report_sync
from gossiplog.sim.whole.peer import insert
from tests.sim import broken
from tests.strategies import TOPIC, sign_as_given

CONFIG = BroadcastConfig(advertised=3, skipped=4, backoff=2, retry=2, orphans=4, orphan_bytes=700, orphan_wait=20)
HONEST, HOSTILE = (1, 2), (3, 4)


@dataclass(frozen=True, slots=True)
class Message:
    """One of the history.

    Attributes:
        parents: keys, as they stand in it.
        is_valid: whether an honest peer can have it.
        is_refused: whether the application refuses it, when it does refuse.
    """

    key: bytes
    value: bytes
    parents: tuple[bytes, ...]
    is_valid: bool = True
    is_refused: bool = False


def write_history() -> list[Message]:
    """Messages, parents first; parents may be repeated, unsorted, and ancestors of each other."""
    random, history = Random(8), list[Message]()
    for number in range(24, 56):
        recent = history[-7:]
        parents = [random.choice(recent).key for _ in range(random.randrange(4))] if recent else []
        value = sign_as_given(TOPIC, parents, {"n": number}, bytes([number % 3 + 1]) * 32)
        message = Message(key_of(value), value, tuple(parents), is_refused=number % 4 == 1)
        history.append(message)
        if number % 5 == 0:
            # The same signed content, its number as a float.
            value = value[:-2] + b"\xfb" + struct.pack(">d", number)
            history.append(Message(key_of(value), value, tuple(parents), is_refused=message.is_refused))
    return history


def write_lies() -> list[Message]:
    """What no honest peer has: bad signatures, and descendants of messages that nobody has."""
    lies = [
        Message(key_of(value), value, message.parents, is_valid=False)
        for message in HISTORY[5:8]
        for value in [message.value[:-1] + b"\x17"]
    ]
    ghost = b"\3" + bytes(19)
    for parents in ([ghost], [ghost, HISTORY[3].key, ghost], [HISTORY[20].key, ghost]):
        value = sign_as_given(TOPIC, parents, {"n": 99}, bytes([9]) * 32)
        lies.append(Message(key_of(value), value, tuple(parents), is_valid=False))
    return lies


def key_of(value: bytes) -> bytes:
    (key,) = core.read_batch([value], TOPIC).keys
    return key


HISTORY = write_history()
LIES = write_lies()
KEYS = [message.key for message in HISTORY + LIES]
PARENTS = {message.key: message.parents for message in HISTORY + LIES}

peers = st.sampled_from(HONEST + HOSTILE)
numbers = st.integers(0, 1000)
several = st.lists(numbers, min_size=1, max_size=6)


@dataclass(slots=True)
class Sync:
    order: StartSync
    inserted: int = 0
    is_orphaned: bool = False


class Peers(RuleBasedStateMachine):
    """A machine, its log, and the peers around it."""

    make: Callable[[Random, BroadcastConfig], Broadcast] = Broadcast

    def __init__(self) -> None:
        super().__init__()
        self.refuses = True
        self.log = gossiplog.open(MemoryStorage(), TOPIC, payload=self.check)
        self.config = CONFIG
        self.machine = type(self).make(Random(1), CONFIG)
        self.now = 0.0
        self.held = dict.fromkeys(HONEST, 5)
        # Connected peers: whether gossip reaches them. Those that the machine has dropped leave later.
        self.connected: dict[int, bool] = {}
        self.dropped: set[int] = set()
        self.behind: dict[int, bool] = {}
        self.guilty: set[int] = set()
        self.paused: dict[int, float] = {}
        self.waiting: list[Delivery] = []
        self.tickets: dict[int, Message] = {}
        self.syncs: dict[int, Sync] = {}
        self.timers: dict[Timer, float] = {}
        self.stored: set[bytes] = set()
        self.count = 0

    def check(self, payload: Any) -> None:
        if self.refuses and payload["n"] % 4 == 1:
            raise ValueError("not now")

    def has(self, key: bytes) -> bool:
        return key in self.stored

    def look(self) -> None:
        """Something may have been stored."""
        self.stored = set(replica_of(self.log).known(KEYS))

    def lacking(self, peer: int) -> list[Message]:
        """What an honest peer holds and the log lacks."""
        return [message for message in HISTORY[: self.held[peer]] if not self.has(message.key)]

    @initialize(syncs=st.integers(1, 2))
    def choose_limits(self, syncs: int) -> None:
        self.config = replace(CONFIG, syncs=syncs)
        self.machine = type(self).make(Random(1), self.config)

    # What happens

    @rule(peer=peers, gossips=st.booleans())
    def connect(self, peer: int, gossips: bool) -> None:
        if peer in self.connected or peer in self.dropped:
            return
        self.connected[peer] = gossips
        assert SendUpdate((peer,)) in self.tell(PeerConnected(peer, gossips))

    @precondition(lambda self: self.connected or self.dropped)
    @rule(number=numbers)
    def leave_some(self, number: int) -> None:
        there = [*self.connected, *self.dropped]
        self.leave(there[number % len(there)])

    def leave(self, peer: int) -> None:
        own = [number for number, sync in self.syncs.items() if sync.order.peer == peer and not sync.is_orphaned]
        self.forget(peer)
        self.dropped.discard(peer)
        outs = self.tell(PeerDisconnected(peer))
        assert [StopSync(number) for number in own] == [out for out in outs if isinstance(out, StopSync)]

    @precondition(lambda self: self.connected)
    @rule(number=numbers)
    def fall_behind(self, number: int) -> None:
        peer = list(self.connected)[number % len(self.connected)]
        self.behind.setdefault(peer, False)
        self.tell(PeerBehind(peer))

    @precondition(lambda self: self.behind)
    @rule(number=numbers)
    def catch_up_some(self, number: int) -> None:
        self.catch_up(list(self.behind)[number % len(self.behind)])

    def catch_up(self, peer: int) -> None:
        missed = self.behind.pop(peer, False)
        outs = self.tell(PeerCaughtUp(peer))
        assert not missed or SendUpdate((peer,)) in outs

    @precondition(lambda self: self.connected)
    @rule(peer=peers)
    def abort_serving(self, peer: int) -> None:
        self.tell(ServingAborted(peer))

    @rule(peer=st.sampled_from(HONEST), count=st.integers(1, 8))
    def learn(self, peer: int, count: int) -> None:
        self.held[peer] = min(self.held[peer] + count, len(HISTORY))

    @rule(refuses=st.booleans())
    def change_mind(self, refuses: bool) -> None:
        self.refuses = refuses

    @precondition(lambda self: self.connected)
    @rule(which=numbers, chosen=several, by_gossip=st.booleans(), stores=st.booleans())
    def send_some(self, which: int, chosen: list[int], by_gossip: bool, stores: bool) -> None:
        peer = list(self.connected)[which % len(self.connected)]
        for number in chosen:
            self.send(peer, number, by_gossip)
        if stores:
            self.store(len(self.waiting))

    @rule(peer=peers, chosen=several)
    def gossip(self, peer: int, chosen: list[int]) -> None:
        for number in chosen:
            self.send(peer, number, by_gossip=True)

    def send(self, peer: int, number: int, by_gossip: bool) -> None:
        """By push from who is connected; by gossip from anybody."""
        lacking = self.lacking(peer) if peer in HONEST else [item for item in HISTORY if not self.has(item.key)]
        # Few of them have all their parents in the log.
        near = lacking[:8] or HISTORY[:3]
        self.receive(peer, near[number % len(near)], by_gossip)

    @precondition(lambda self: self.connected.keys() & set(HOSTILE))
    @rule(chosen=several, by_gossip=st.booleans())
    def lie(self, chosen: list[int], by_gossip: bool) -> None:
        hostile = [peer for peer in self.connected if peer in HOSTILE]
        for number in chosen:
            self.receive(hostile[number % len(hostile)], LIES[number % len(LIES)], by_gossip)

    def receive(self, peer: int, message: Message, by_gossip: bool) -> None:
        ticket: int | None = None
        self.count += 1
        if by_gossip and self.count % 3 == 0 and message.is_valid and all(map(self.has, message.parents)):
            # The router accepts it by itself, and has it stored.
            self.waiting.append(Delivery(peer, message.key, message.value, ACCEPTED))
            return
        if by_gossip:
            ticket = self.count
            self.tickets[ticket] = message
        elif peer not in self.connected:
            return
        self.tell(Received(Delivery(peer, message.key, message.value, ticket)))

    @precondition(lambda self: self.connected or self.dropped)
    @rule(which=numbers, chosen=several, unchecked=st.booleans())
    def tell_some_heads(self, which: int, chosen: list[int], unchecked: bool) -> None:
        there = [*self.connected, *self.dropped]
        self.tell_heads(there[which % len(there)], chosen, unchecked)

    def tell_heads(self, peer: int, chosen: list[int], unchecked: bool) -> None:
        if peer in HONEST:
            lacking = self.lacking(peer)
            keys = [lacking[number % len(lacking)].key for number in chosen] if lacking else []
            unchecked = unchecked and len(lacking) > len(keys)
        else:
            keys = [(HISTORY + LIES)[number % len(HISTORY)].key for number in chosen]
            keys = [key for key in dict.fromkeys(keys) if not self.has(key)]
        if keys or unchecked:
            self.tell(HeadsReceived(peer, tuple(dict.fromkeys(keys)), int(unchecked)))

    @rule(number=numbers)
    def append(self, number: int) -> None:
        """Somebody else writes to the log."""
        ready = [item for item in HISTORY if not self.has(item.key) and all(map(self.has, item.parents))]
        if ready:
            message = ready[number % len(ready)]
            outcome = replica_of(self.log).insert(replica_of(self.log).verify([message.value]))
            self.look()
            if outcome.inserted:
                self.miss(None)
                self.tell(Appended([(message.key, message.value)]))

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 5))
    def store(self, count: int) -> None:
        """Some of what waits is stored together, each with all that the driver must say of it."""
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        reports = insert(replica_of(self.log), batch)
        self.look()
        for event in reports:
            assert isinstance(event, Judged)
            delivery, verdict = event.delivery, event.verdict
            if verdict is Verdict.INVALID and delivery.ticket is None:
                self.guilty.add(delivery.source)
            if verdict is Verdict.INSERTED:
                self.miss(delivery.source)
            was_connected = delivery.source in self.connected
            if verdict is Verdict.ORPHAN and len(self.waiting) % 2:
                # As the message names them.
                event = replace(event, missing=[parent for parent in PARENTS[delivery.key] if not self.has(parent)])
            outs = self.tell(event)
            if verdict is Verdict.INSERTED:
                expected = {
                    peer
                    for peer, gossips in self.connected.items()
                    if not gossips and peer not in self.behind and peer != delivery.source
                }
                sent = [out.peers for out in outs if isinstance(out, SendInsert)]
                assert sent == ([tuple(peer for peer in self.connected if peer in expected)] if expected else [])
            if verdict is Verdict.INVALID and delivery.ticket is None and was_connected:
                assert delivery.source not in self.connected

    def miss(self, source: int | None) -> None:
        """Peers that are behind are sent nothing."""
        for peer in self.behind:
            if peer != source and not self.connected[peer]:
                self.behind[peer] = True

    @precondition(lambda self: self.syncs)
    @rule(which=numbers, chosen=several, advances=st.booleans())
    def bring(self, which: int, chosen: list[int], advances: bool) -> None:
        """A sync brings some messages: from an honest peer the next that are lacking, parents first."""
        sync = list(self.syncs.values())[which % len(self.syncs)]
        peer, number = sync.order.peer, sync.order.sync
        assert isinstance(peer, int)
        if advances:
            self.tell(SyncAdvanced(number, SyncStatistics()))
        if peer in HONEST:
            found = sorted((item for item in self.lacking(peer) if item.key not in sync.order.skip), key=key_first)
            found = found[: len(chosen)]
        else:
            pool = HISTORY + LIES
            found = sorted({item.key: item for item in (pool[n % len(pool)] for n in chosen)}.values(), key=key_first)
        if not found:
            return
        outcome = replica_of(self.log).insert(replica_of(self.log).verify([message.value for message in found]))
        self.look()
        if peer in HOSTILE and (outcome.invalid or outcome.orphans):
            self.guilty.add(peer)
        sync.inserted += len(outcome.inserted)
        self.tell(report_sync(number, outcome))

    @precondition(lambda self: self.syncs)
    @rule(which=numbers, result=st.sampled_from(SyncResult), cooldown=st.sampled_from([0.0, 1.0, 1000.0]))
    def end(self, which: int, result: SyncResult, cooldown: float) -> None:
        sync = list(self.syncs.values())[which % len(self.syncs)]
        self.end_sync(sync, result, cooldown)

    def end_sync(self, sync: Sync, result: SyncResult, cooldown: float = 0.0) -> None:
        peer = sync.order.peer
        assert isinstance(peer, int)
        if peer in HONEST:
            left = [item for item in self.lacking(peer) if item.key not in sync.order.skip]
            if result is SyncResult.VIOLATION or (result is SyncResult.FINISHED and left):
                result = SyncResult.ABORTED
        elif result in (SyncResult.VIOLATION, SyncResult.FINISHED):
            # It may not have had what it advertised.
            self.guilty.add(peer)
        del self.syncs[sync.order.sync]
        held = tuple(key for key in sync.order.advertised if self.has(key))
        if sync.inserted:
            for other in self.behind:
                self.behind[other] |= other != peer
        others = [other for other in self.connected if other != peer and other not in self.behind]
        was_connected = peer in self.connected and not sync.is_orphaned
        outs = self.tell(SyncEnded(sync.order.sync, result, held, cooldown=cooldown, reason="its end"))
        if sync.inserted and others:
            assert SendUpdate(tuple(others)) in outs
        if was_connected and result is SyncResult.VIOLATION:
            assert peer not in self.connected
        if was_connected and result is SyncResult.FAILED and peer in self.connected:
            self.paused[peer] = self.now + CONFIG.backoff / 2
        assert not self.paused.get(peer) or not any(isinstance(out, StartSync) and out.peer == peer for out in outs)

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 5.0, 40.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and min(self.timers.values()) <= until:
            self.wait_for_a_timer()
        self.now = until

    @precondition(lambda self: self.timers)
    @rule()
    def wait_for_a_timer(self) -> None:
        timer = min(self.timers, key=lambda timer: self.timers[timer])
        self.now = max(self.now, self.timers.pop(timer))
        self.expire(timer)

    @rule(peer=peers, number=st.integers(0, 9))
    def expire_late(self, peer: int, number: int) -> None:
        """A timer that an earlier machine has set."""
        for timer in (SyncDue(peer), SyncCheck(number), RetryDue(peer), AnnounceDue(), OrphansDue(), OverlapDue()):
            self.expire(timer)

    def expire(self, timer: Timer) -> None:
        outs = self.tell(TimerExpired(timer))
        if timer == AnnounceDue():
            gossiping = tuple(peer for peer, gossips in self.connected.items() if gossips and peer not in self.behind)
            assert not gossiping or SendUpdate(gossiping) in outs

    # What the machine asks for

    def forget(self, peer: int) -> None:
        self.connected.pop(peer, None)
        self.behind.pop(peer, None)
        self.paused.pop(peer, None)
        self.guilty.discard(peer)
        for sync in self.syncs.values():
            sync.is_orphaned |= sync.order.peer == peer

    def tell(self, event: InEvent) -> list[OutEvent]:
        outs = self.machine.handle(event, self.now)
        for out in outs:
            self.take(out)
        return outs

    def take(self, out: OutEvent) -> None:
        match out:
            case SendUpdate(targets):
                assert targets
                assert all(peer in self.connected and peer not in self.behind for peer in targets)
            case SendInsert(targets, key):
                assert targets
                assert self.has(key)
                assert not any(self.connected[peer] or peer in self.behind for peer in targets)
            case Publish(key):
                assert self.has(key)
            case GossipAnswered(ticket=int() as ticket, answer=answer):
                message = self.tickets.pop(ticket)
                assert answer is not GossipAnswer.ACCEPT or self.has(message.key)
                assert answer is not GossipAnswer.REJECT or not message.is_valid
            case Insert(delivery):
                assert delivery.ticket is None or delivery not in self.waiting
                self.waiting.append(delivery)
            case StartSync(number, int() as peer, wanted, skip):
                assert peer in self.connected
                assert peer not in {sync.order.peer for sync in self.syncs.values()}
                assert self.now >= self.paused.pop(peer, self.now)
                assert len(wanted) <= CONFIG.advertised
                assert len(skip) <= CONFIG.skipped * len(self.connected)
                self.syncs[number] = Sync(out)
                assert len(self.syncs) <= self.config.syncs
            case StopSync(number):
                assert number in self.syncs
            case Disconnect(int() as peer):
                assert peer in self.guilty
                self.forget(peer)
                self.dropped.add(peer)
            case SetTimer(timer, at):
                assert at > self.now
                self.timers[timer] = at
            case SyncOver():
                assert out.inserted >= 0

    # What must always hold

    @invariant()
    def limits_are_kept_and_nothing_contradicts_itself(self) -> None:
        machine, members = self.machine, self.connected.keys()
        schedule, refusals, orphans = machine._schedule, machine._rejected, machine._orphans
        assert machine._peers.keys() == schedule._sources.keys() == refusals._sets.keys() == members
        assert machine._out == []
        queued = [*schedule._queue, *schedule._mesh_queue]
        told = Counter(key for source in schedule._sources.values() for key in source.advertised)
        assert {key: len(by) for key, by in schedule._advertised_by.items()} == told
        for peer, source in schedule._sources.items():
            assert len(source.advertised) <= CONFIG.advertised
            assert all(schedule._advertised_by[key][peer] is source for key in source.advertised)
            assert (source.queued_at is not None) == (source in queued)
        assert all(source is schedule._sources[source.peer] for source in queued)
        assert len(queued) == len(set(map(id, queued))) <= len(members)
        assert all(source.gossips for source in schedule._mesh_queue)
        has_room = len(schedule._running) < self.config.syncs
        assert not (schedule._mesh_queue and has_room) or OverlapDue() in self.timers
        assert schedule._running.keys() == self.syncs.keys()
        assert all(len(sync.skipped) <= CONFIG.skipped for sync in schedule._running.values())
        sets = refusals._sets.values()
        assert refusals._set_of == {key: rejected for rejected in sets for key in rejected.keys}
        assert refusals._tried_by == {key: rejected for rejected in sets for key in rejected.trying}
        assert all(len(rejected.keys) <= CONFIG.skipped >= len(rejected.trying) for rejected in sets)
        assert sum(len(rejected.keys) for rejected in sets) == len(refusals._set_of)
        assert refusals.keys() == refusals._set_of.keys()
        kept = orphans._orphans
        assert len(kept) <= CONFIG.orphans
        assert orphans._size == sum(len(orphan.delivery.value) for orphan in kept.values()) <= CONFIG.orphan_bytes
        waiting = {(parent, key) for key, orphan in kept.items() for parent in orphan.missing}
        assert sorted((parent, key) for parent, keys in orphans._children.items() for key in keys) == sorted(waiting)
        assert all(orphan.missing for orphan in kept.values())
        assert not kept or OrphansDue() in self.timers
        assert len(self.timers) <= 2 * len(HONEST + HOSTILE) + len(schedule._running) + 40

    @invariant()
    def every_ticket_is_under_way(self) -> None:
        waiting = {delivery.ticket for delivery in self.waiting}
        orphans = {orphan.delivery.ticket for orphan in self.machine._orphans._orphans.values()}
        assert self.tickets.keys() == (waiting | orphans) - {None, ACCEPTED}

    def settle(self) -> None:
        """Everything that is under way comes to its end."""
        while self.waiting:
            self.store(5)
        for sync in list(self.syncs.values()):
            self.end_sync(sync, SyncResult.ABORTED)
        self.limits_are_kept_and_nothing_contradicts_itself()

    def teardown(self) -> None:
        self.recover()
        for peer in HONEST + HOSTILE:
            self.leave(peer)
        while self.waiting or self.syncs or self.timers:
            self.settle()
            self.wait(10_000)
        machine = self.machine
        state = [machine._peers, machine._announcing, machine._out]
        schedule, refusals, orphans = machine._schedule, machine._rejected, machine._orphans
        state += [
            schedule._sources,
            schedule._advertised_by,
            schedule._running,
            len(schedule._queue),
            len(schedule._mesh_queue),
        ]
        state += [refusals._sets, refusals._set_of, refusals._tried_by]
        state += [orphans._orphans, orphans._children, orphans._size, self.tickets]
        assert not any(state), state

    def recover(self) -> None:
        """With an application that takes everything, what an honest peer advertised comes in."""
        self.refuses = False
        for peer in list(self.behind):
            self.catch_up(peer)
        for peer in HOSTILE:
            self.leave(peer)
        (peer, _) = HONEST
        self.held[peer] = len(HISTORY)
        if peer in self.dropped:
            return
        if peer not in self.connected:
            self.connect(peer, gossips=True)
        self.tell_heads(peer, [*range(len(HISTORY))], unchecked=True)
        for _ in range(60):
            if not self.lacking(peer):
                return
            while self.waiting:
                self.store(5)
            for sync in list(self.syncs.values()):
                index = list(self.syncs.values()).index(sync)
                if sync.order.peer == peer:
                    self.bring(index, [0] * 12, advances=True)
                self.end_sync(sync, SyncResult.ABORTED)
            self.wait(400)
        assert not self.lacking(peer)


def key_first(message: Message) -> bytes:
    return message.key


@pytest.mark.parametrize(
    ("examples", "steps"), [(15, 30), pytest.param(200, 50, marks=pytest.mark.integration)], ids=["few", "many"]
)
def test_whatever_peers_do(examples: int, steps: int) -> None:
    run_state_machine_as_test(Peers, settings=settings(max_examples=examples, stateful_step_count=steps))


@pytest.mark.integration
@pytest.mark.parametrize("make", [make for make, _, _ in broken.BROKEN], ids=lambda make: make.__name__)
def test_machines_without_one_of_their_rules_are_caught(make: Callable[[Random, BroadcastConfig], Broadcast]) -> None:
    machine = type("Broken", (Peers,), {"make": make})
    with pytest.raises((AssertionError, KeyError, ValueError)):
        run_state_machine_as_test(
            machine, settings=settings(max_examples=300, stateful_step_count=40, phases=[Phase.generate])
        )
