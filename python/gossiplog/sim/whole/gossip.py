"""The gossipsub router of a simulated peer: its packets go as bytes over a stream to each peer that speaks gossip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import inf
from random import Random
from typing import Any

from gossiplog.core import Batch, GossipValidator
from gossiplog.errors import ProtocolError
from gossiplog.protocol import gossip
from gossiplog.protocol.broadcast.events import Delivery, GossipAnswer
from gossiplog.protocol.wire import MAX_FRAME, FrameReader
from gossiplog.pubsub import wire
from gossiplog.pubsub.events import (
    Deliver,
    GossipAnswered,
    Join,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Publish,
    Received,
    Rejected,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.gossipsub import GossipConfig, Unsent
from gossiplog.pubsub.log_routers import REJECTIONS, Penalties, make_gossipsub
from gossiplog.pubsub.rpc import GOSSIPSUB, Rpc
from gossiplog.sim.whole.network import Network, StreamEnd
from gossiplog.sim.whole.syncs import TOPIC


@lru_cache(maxsize=1024)
def _decode_data(data: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value of a message, which peers decode again and again.

    Raises:
        ProtocolError: data that no honest peer publishes.
    """
    return gossip.decode(data)


@dataclass(slots=True)
class _Session:
    stream: StreamEnd
    frames: FrameReader
    free: float = 0.0  # when the queue of packets to it is empty


class MeshGossip:
    """Drives the router of one life of a peer.

    Nothing is lost on a stream, but a packet may find no room in the queue to a peer, and packets may wait there, as
    `Faults` says.

    Args:
        number: of the peer.
        network: that it is on.
        random: of the router.
        config: of the router.
        deliver: takes the messages of others, with the ticket for `validated`.
        forwards: takes the key of each message that goes out, and to how many peers.
        drop: called with a peer that broke a rule, and why.
        validator: accepts messages before they are stored; None where all wait for `validated`.
        store: takes those that it accepts, with the peers that passed them on.
        known: returns which of some keys the log has.
    """

    def __init__(
        self,
        number: int,
        network: Network,
        random: Random,
        config: GossipConfig,
        deliver: Callable[[Delivery], object],
        forwards: Callable[[bytes, int], object],
        drop: Callable[[PeerId, str], object],
        validator: GossipValidator | None = None,
        store: Callable[[Batch, Sequence[int]], object] = lambda batch, sources: None,
        known: Callable[[Sequence[bytes]], Iterable[bytes]] = lambda keys: (),
    ) -> None:
        self._network = network
        self._kernel = network.kernel
        self._deliver = deliver
        self._validator = validator
        self._store = store
        self._known = known
        self._forwards = forwards
        self._drop = drop
        self._sessions: dict[PeerId, _Session] = {}
        self._penalties = Penalties()
        self._alive = True
        # The messages that the validator has not decided about, and when it is to be called again.
        self._tickets = count(1)
        self._undecided: dict[int, Deliver] = {}
        self._validated_at = inf
        self._router = make_gossipsub(number, random, config)
        self._perform(self._router.start(self._kernel.now))
        self._handle(Join(TOPIC))

    @property
    def mesh(self) -> Sequence[PeerId]:
        """The peers that all messages are exchanged with."""
        return self._router.mesh(TOPIC)

    def stop(self) -> None:
        """Handle nothing more: the life of the peer has ended."""
        self._alive = False

    def add(self, stream: StreamEnd) -> None:
        """Speak gossip with the peer at the other end of a stream."""
        peer = stream.connection.there
        if peer in self._sessions:
            stream.close()
            return
        session = self._sessions[peer] = _Session(stream, FrameReader(MAX_FRAME))
        stream.on_data = lambda data: self._receive(peer, session, data)
        stream.on_end = lambda: self._remove(peer)
        self._handle(PeerConnected(peer, GOSSIPSUB))

    def hold_up(self, peer: PeerId, seconds: float) -> None:
        """Have packets to a peer wait for some seconds, if it speaks gossip."""
        if peer in self._sessions:
            session = self._sessions[peer]
            session.free = max(session.free, self._kernel.now + seconds)

    def publish(self, key: bytes, value: bytes) -> None:
        """Publish an own message."""
        self._handle(Publish((TOPIC,), gossip.encode(key, value)))

    def validated(self, ticket: object, answer: GossipAnswer) -> None:
        """Say what is to become of a message that was delivered."""
        if isinstance(ticket, bytes):
            self._handle(GossipAnswered(ticket, answer))

    def _remove(self, peer: PeerId) -> None:
        if self._alive:
            del self._sessions[peer]
            self._handle(PeerDisconnected(peer))

    def _receive(self, peer: PeerId, session: _Session, data: bytes) -> None:
        if not self._alive:
            return
        try:
            session.frames.feed(data)
            while (frame := session.frames.next()) is not None:
                self._handle(Received(peer, wire.decode(frame)))
        except ProtocolError as error:
            self._drop(peer, str(error))

    def _handle(self, event: Any) -> None:
        self._perform(self._router.handle(event, self._kernel.now))

    def _perform(self, orders: Sequence[Any]) -> None:
        delivered = []
        for order in orders:
            match order:
                case Send(peers, packet):
                    self._send(peers, packet)
                case SetTimer(timer, at):
                    self._kernel.at(at, self._expire, timer)
                case Deliver(source=source) if source is not None:
                    delivered.append(order)
                case Rejected(peers):
                    for peer in peers:
                        self._penalise(peer)
        # Last: an answer may come at once, and what follows from it is to go out after the packets above.
        if self._validator is None:
            for order in delivered:
                self._pass_on(order)
        elif delivered:
            self._validate(self._validator, delivered)

    def _pass_on(self, order: Deliver) -> None:
        try:
            key, value = _decode_data(order.data)
        except ProtocolError:
            self._handle(GossipAnswered(order.id, GossipAnswer.REJECT))
        else:
            self._deliver(Delivery(order.source, key, value, order.id))

    def _validate(self, validator: GossipValidator, orders: Sequence[Deliver]) -> None:
        """Accept the messages that the validator accepts, or knows; pass on the others that it does not have wait."""
        messages: list[tuple[int, int, bytes]] = []
        for order in orders:
            ticket = next(self._tickets)
            self._undecided[ticket] = order
            messages.append((ticket, order.source if isinstance(order.source, int) else 0, order.data))
        decisions = validator.validate(messages, self._kernel.now)
        if (taken := validator.take()) is not None:
            self._store(*taken)
        decided = [(self._undecided.pop(ticket), decision) for ticket, decision in decisions]
        # As the host has its caller do.
        while keys := validator.take_missing():
            validator.stored([*self._known(keys)])
        self.validate_when_due()
        for order, decision in decided:
            if decision == "defer":
                self._pass_on(order)
            else:
                self._handle(GossipAnswered(order.id, GossipAnswer.ACCEPT))

    def validate_when_due(self) -> None:
        """Have the validator decide again about what waits, as soon as it can: it may know of more messages now."""
        due = self._validator.due(self._kernel.now) if self._validator is not None else None
        if due is not None and self._kernel.now + due < self._validated_at:
            self._validated_at = self._kernel.now + due
            self._kernel.at(self._validated_at, self._validate_again, self._validator, self._validated_at)

    def _validate_again(self, validator: GossipValidator, at: float) -> None:
        if self._alive and at == self._validated_at:
            self._validated_at = inf
            self._validate(validator, ())

    def _send(self, peers: Sequence[PeerId], packet: Rpc) -> None:
        faults, random, now = self._network.faults, self._kernel.random, self._kernel.now
        data = b"".join(wire.encode(packet))
        sent = 0
        for peer in peers:
            session = self._sessions[peer]
            if faults.no_room and random.random() < faults.no_room:
                self._kernel.after(0.0, self._return, peer, session, packet)
                continue
            sent += 1
            at = max(now, session.free)
            if faults.stalling and random.random() < faults.stalling:
                at += random.uniform(0.0, faults.longest_stall)
            if at > now or session.free == now:
                session.free = at
                self._kernel.at(at, session.stream.write, data)
            else:
                session.stream.write(data)
        for message in packet.messages:
            self._forwards(_decode_data(message.data)[0], sent)

    def _return(self, peer: PeerId, session: _Session, packet: Rpc) -> None:
        if self._alive and self._sessions.get(peer) is session:
            self._handle(Unsent(peer, packet))

    def _expire(self, timer: object) -> None:
        if self._alive:
            self._handle(TimerExpired(timer))

    def _penalise(self, peer: PeerId) -> None:
        if self._penalties.add(peer, self._kernel.now):
            self._drop(peer, f"it sent {REJECTIONS} invalid messages by gossip")
