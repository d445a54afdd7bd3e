"""A whole peer on the simulated network: a log, and the broadcast, push and sync machines around it.

`Peer` is what survives a crash: the storage, the keys, the address book. `Driver` is one life of it, from a start to
a crash: it does what the machines ask for, as a driver on real sockets would, with real logs and real bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import gossiplog
from gossiplog import core
from gossiplog.errors import ProtocolError
from gossiplog.log.log import replica_of
from gossiplog.log.replica import Replica
from gossiplog.protocol.broadcast import events
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.protocol.push import Deliver, Heads, Push, unknown_heads
from gossiplog.protocol.sync import SyncClientConfig, SyncServerConfig
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.replication.batches import NOT_MARKED, VerifiedBatch
from gossiplog.replication.verdicts import Judgement, accepted_deliveries, report_deliveries
from gossiplog.sim.kernel import Kernel
from gossiplog.sim.whole.checks import Checks
from gossiplog.sim.whole.gossip import MeshGossip
from gossiplog.sim.whole.network import ConnectionEnd, Network, StreamEnd
from gossiplog.sim.whole.syncs import GOSSIP, PUSH, SYNC, TOPIC, Syncs, serve

_STEP_SECONDS = 0.005
"""A transaction takes up to so long."""
_REDIAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Habits:
    """How the peers of a run behave.

    Attributes:
        broadcast: limits and delays of the machine.
        sync_server: limits of a sync stream that is served.
        sync_client: how a sync asks.
        gossip: the parameters of gossipsub.
        machine: makes the machine; tests make a broken one.
    """

    broadcast: BroadcastConfig
    sync_server: SyncServerConfig
    sync_client: SyncClientConfig
    gossip: GossipConfig
    machine: Callable[[Random, BroadcastConfig], Broadcast] = Broadcast


class Peer:
    """A peer over all its lives.

    Args:
        number: its address.
        refuse_until: the time before which its application refuses payloads that have `"odd": true`.
    """

    def __init__(
        self, number: int, network: Network, checks: Checks, habits: Habits, refuse_until: float = 0.0
    ) -> None:
        self.number = number
        self.network = network
        self.kernel: Kernel = network.kernel
        self.checks = checks
        self.habits = habits
        self.banned: dict[int, str] = {}
        self.dials: dict[int, None] = {}  # whom it keeps a connection to
        self.gossips: dict[int, None] = {}  # with whom it speaks gossip
        self.driver: Driver | None = None
        self._refuse_until = refuse_until
        self._signer = gossiplog.Signer(number.to_bytes(32, "big"))
        self._storage = gossiplog.MemoryStorage()
        self.log = self._open()
        checks.add(number)

    @property
    def forwards_early(self) -> bool:
        """Whether it accepts gossip before it is stored: every other peer does whose application refuses nothing."""
        return self._refuse_until == 0.0 and self.number % 2 == 0

    def start(self) -> None:
        """Begin a life: open the log, and dial."""
        if self.driver is not None:
            return
        self.log.close()
        self.log = self._open()
        self.checks.restart(self.number, len(self.log))
        self.driver = Driver(self, self.log)
        self.network.nodes[self.number] = self.driver
        for other in self.dials:
            self.driver.dial(other)

    def crash(self) -> None:
        """End a life, at once: what is not in the storage is lost."""
        if self.driver is not None:
            self.driver.stop()
            self.driver = None
            self.network.stop(self.number)

    def append(self, payload: Any) -> None:
        """Append a message, if the peer is up."""
        if self.driver is not None:
            message = self.log.append(payload)
            self.checks.acknowledged[self.number].append(message.key)
            if self.kernel.tracing:
                self.kernel.log(self.number, f"appends {message.id}")
            self.driver.handle(events.Appended([(message.key, message.value)]))

    def _open(self) -> gossiplog.Log:
        return gossiplog.open(self._storage, TOPIC, apply=self._apply, signer=self._signer)

    def _apply(self, message: gossiplog.SignedMessage, transaction: object) -> None:
        if self.kernel.now < self._refuse_until and message.payload.get("odd"):
            raise ValueError("odd")
        self.checks.apply(self.number, message)


class Driver:
    """One life of a peer."""

    def __init__(self, peer: Peer, log: gossiplog.Log) -> None:
        self.alive = True
        self._peer = peer
        self._replica = replica_of(log)
        self._kernel = peer.kernel
        self._random = peer.kernel.random
        self._machine = peer.habits.machine(Random(self._random.getrandbits(32)), peer.habits.broadcast)
        self._connections: dict[int, ConnectionEnd] = {}
        self._pushes: dict[int, tuple[Push, StreamEnd]] = {}
        self._timers: dict[events.Timer, float] = {}
        # What happened and was not reported to the machine yet, and what the writer has to do.
        self._inbox: deque[events.InEvent] = deque()
        self._handling = False
        self._work: deque[Callable[[], object]] = deque()
        self._deliveries: list[events.Delivery] = []
        self._validator = core.GossipValidator(TOPIC) if peer.forwards_early else None
        if self._validator is not None:
            self._validator.stored(self._replica.heads())
        self._syncs = Syncs(self._replica, peer.habits.sync_client, self.handle, self._enqueue)
        self._gossip: MeshGossip | None = None
        if peer.gossips:
            self._gossip = MeshGossip(
                peer.number,
                peer.network,
                Random(self._random.getrandbits(32)),
                peer.habits.gossip,
                lambda delivery: self.handle(events.Received(delivery)),
                lambda key, copies: peer.checks.forward(peer.number, key, copies),
                self._drop,
                self._validator,
                self._accept,
                self._replica.known,
            )

    def stop(self) -> None:
        """End the life."""
        self.alive = False
        if self._gossip is not None:
            self._gossip.stop()

    # The network

    def dial(self, other: int) -> None:
        """Connect to another node, and again later where that fails."""
        if self.alive and other not in self._connections and other not in self._peer.banned:
            self._peer.network.dial(self._peer.number, other, lambda: self._redial(other))

    def connected(self, end: ConnectionEnd, dialled: bool) -> None:
        other = end.there
        if other in self._connections or other in self._peer.banned:
            end.close()
            return
        self._connections[other] = end
        end.on_end = lambda: self._disconnected(end)
        if dialled:
            self._join_push(other, end.open(PUSH))
            if self._gossip is not None and other in self._peer.gossips:
                self._gossip.add(end.open(GOSSIP))

    def opened(self, stream: StreamEnd, protocol: str) -> None:
        other = stream.connection.there
        if self._connections.get(other) is not stream.connection:
            stream.close()
        elif protocol == PUSH and other not in self._pushes:
            self._join_push(other, stream)
        elif protocol == SYNC:
            serve(stream, self._replica, self._peer.habits.sync_server, lambda reason: self._drop(other, reason))
        elif protocol == GOSSIP:
            if self._gossip is not None and other in self._peer.gossips:
                self._gossip.add(stream)
            else:
                stream.close()

    def _redial(self, other: int) -> None:
        if self.alive and other in self._peer.dials:
            self._kernel.after(_REDIAL_SECONDS * self._random.uniform(0.5, 1.5), self.dial, other)

    def _disconnected(self, end: ConnectionEnd) -> None:
        other = end.there
        if self.alive and self._connections.get(other) is end:
            del self._connections[other]
            self._syncs.forget(other)
            if self._pushes.pop(other, None) is not None:
                self._trace(f"loses {other}")
                self.handle(events.PeerDisconnected(other))
            self._redial(other)

    def _drop(self, peer: events.PeerId, reason: str) -> None:
        other = _number(peer)
        if other not in self._peer.banned:
            self._trace(f"drops {other}: {reason}")
            self._peer.checks.blame(self._peer.number, other, reason)
            self._peer.banned[other] = reason
            end = self._connections.get(other)
            if end is not None:
                end.close()

    def lag(self, other: int, seconds: float) -> None:
        """Let what is written to another node pile up for some seconds, if it is connected."""
        if other in self._pushes:
            self._trace(f"cannot write to {other} for {seconds:.1f} s")
            self.handle(events.PeerBehind(other))
            if self._gossip is not None:
                self._gossip.hold_up(other, seconds)
            self._kernel.after(seconds, self._catch_up, other)

    def _catch_up(self, other: int) -> None:
        if self.alive:
            self.handle(events.PeerCaughtUp(other))

    # Push

    def _join_push(self, other: int, stream: StreamEnd) -> None:
        push = Push()
        self._pushes[other] = push, stream
        stream.on_data = lambda data: self._pushed(other, push, data)
        stream.on_end = stream.connection.close
        gossips = other in self._peer.gossips
        self._trace(f"meets {other}{' with gossip' if gossips else ''}")
        self.handle(events.PeerConnected(other, gossips))

    def _pushed(self, other: int, push: Push, data: bytes) -> None:
        if not self.alive:
            return
        try:
            for event in push.receive(data):
                match event:
                    case Deliver(key, value):
                        self.handle(events.Received(events.Delivery(other, key, value)))
                    case Heads() if (unknown := unknown_heads(event, self._replica.known(event.keys))) is not None:
                        self.handle(events.HeadsReceived(other, unknown.keys, unknown.unchecked))
        except ProtocolError as error:
            self._drop(other, str(error))

    # The machine

    def handle(self, event: events.InEvent) -> None:
        """Report to the machine what happened, after whatever is being reported just now."""
        if self._validator is not None:
            self._validator.stored(_held(event))
            self._validate_when_due()
        self._inbox.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox and self.alive:
                for out in self._machine.handle(self._inbox.popleft(), self._kernel.now):
                    self._do(out)
        finally:
            self._handling = False

    def _do(self, event: events.OutEvent) -> None:
        match event:
            case events.SendInsert(peers, key, value):
                self._peer.checks.forward(self._peer.number, key, len(peers))
                self._write(peers, lambda push: push.insert(key, value))
            case events.Publish(key, value):
                if self._gossip is not None:
                    self._gossip.publish(key, value)
            case events.Insert(delivery):
                self._deliveries.append(delivery)
                if len(self._deliveries) == 1:
                    self._enqueue(self._insert)
            case events.SendUpdate(peers):
                heads = self._replica.heads()
                self._write(peers, lambda push: push.update(heads))
            case events.SetTimer(timer, at):
                self._timers[timer] = at
                self._kernel.at(at, self._expire, timer, at)
            case events.GossipAnswered(_, ticket, answer):
                if self._gossip is not None:
                    self._gossip.validated(ticket, answer)
            case events.StartSync():
                self._start_sync(event)
            case events.StopSync(number):
                self._syncs.stop(number)
            case events.Disconnect(peer, reason):
                self._drop(peer, reason)
            case events.SyncOver(peer, complete, inserted, refused, statistics, error, _):
                if self._kernel.tracing:
                    cost = f"{statistics.requests} requests, {statistics.bytes_received} bytes"
                    state = "complete" if complete else "incomplete"
                    counts = f"{inserted} inserted, {len(refused)} refused"
                    self._trace(f"ends a sync with {peer}: {state}, {counts}, {cost} {error}".rstrip())
            case events.SyncStarted(peer):
                self._trace(f"syncs with {peer}")

    def _start_sync(self, order: events.StartSync) -> None:
        source = _number(order.peer)
        limit = self._peer.habits.broadcast.syncs
        self._peer.checks.sync(self._peer.number, source, self._syncs.sources, limit, self._kernel.now)
        self._syncs.start(order, self._connections.get(source))

    def _write(self, peers: Sequence[events.PeerId], data: Callable[[Push], bytes]) -> None:
        encoded: bytes | None = None
        for peer in map(_number, peers):
            if peer in self._pushes:
                push, stream = self._pushes[peer]
                if encoded is None:
                    encoded = data(push)
                stream.write(encoded)

    def _expire(self, timer: events.Timer, at: float) -> None:
        if self.alive and self._timers.get(timer) == at:
            del self._timers[timer]
            self.handle(events.TimerExpired(timer))

    # The writer: one transaction after the other

    def _enqueue(self, work: Callable[[], object]) -> None:
        self._work.append(work)
        if len(self._work) == 1:
            self._kernel.after(_STEP_SECONDS * self._random.random(), self._step)

    def _step(self) -> None:
        if not self.alive:
            return
        batch = list(self._work)
        for work in batch:
            work()
        for _ in batch:
            self._work.popleft()
        if self._work:
            self._kernel.after(_STEP_SECONDS * self._random.random(), self._step)

    def _insert(self) -> None:
        """Insert all deliveries that wait, in one transaction."""
        deliveries, self._deliveries = self._deliveries, []
        self._report(deliveries, lambda: insert(self._replica, deliveries))

    def _accept(self, batch: core.Batch, sources: Sequence[int]) -> None:
        for message in batch:
            if isinstance(message, core.SignedMessage):
                self._peer.checks.accept(self._peer.number, message)
        deliveries = accepted_deliveries(batch, sources)
        self._enqueue(lambda: self._store(batch, deliveries))

    def _store(self, batch: core.Batch, deliveries: Sequence[events.Delivery]) -> None:
        """Store what was accepted, in one transaction."""
        verified = VerifiedBatch(batch, NOT_MARKED)
        self._report(deliveries, lambda: report_deliveries(deliveries, self._replica.insert(verified)))
        if self._validator is not None:
            self._validator.finish(batch)
            self._validate_when_due()

    def _validate_when_due(self) -> None:
        if self._gossip is not None:
            self._gossip.validate_when_due()

    def _report(self, deliveries: Sequence[events.Delivery], insert: Callable[[], Sequence[Judgement]]) -> None:
        for delivery in deliveries:
            self._peer.checks.arrive(_number(delivery.source), delivery.value, TOPIC)
        for event in insert():
            if isinstance(event, events.Judged):
                self._watch(event)
            self.handle(event)

    def _watch(self, event: events.Judged) -> None:
        source, key = _number(event.delivery.source), event.delivery.key
        if self._kernel.tracing:
            self._trace(f"gets {core.encode_id(key)} from {source}: {event.verdict.value} {event.reason}".rstrip())
        if event.verdict is events.Verdict.ORPHAN:
            self._peer.checks.orphan(self._peer.number, source, key, event.missing)

    def _trace(self, what: str) -> None:
        if self._kernel.tracing:
            self._kernel.log(self._peer.number, what)


def insert(replica: Replica, deliveries: Sequence[events.Delivery]) -> Sequence[Judgement]:
    """Insert deliveries, and return what the machine is to learn of them."""
    return report_deliveries(deliveries, replica.insert(replica.verify([delivery.value for delivery in deliveries])))


def _held(event: events.InEvent) -> Sequence[bytes]:
    """Return keys that an event shows to be in the log."""
    match event:
        case events.Appended(messages):
            return [key for key, _ in messages]
        case events.Judged(delivery, events.Verdict.INSERTED | events.Verdict.DUPLICATE):
            return [delivery.key]
        case events.SyncBrought():
            return event.held
        case _:
            return ()


def _number(peer: events.PeerId) -> int:
    """Return the address that a peer's id is in a simulation."""
    if not isinstance(peer, int):
        raise TypeError(f"{peer!r} is no node's number")
    return peer
