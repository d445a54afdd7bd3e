"""The gossipsub router in conversation with rust-libp2p's and with canvas-js's, on `/meshsub/1.0.0`.

The router is a state machine, so somebody has to carry its packets: a libp2p peer without gossipsub of its own
(`js/transport.mjs`).
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

import pytest

from gossiplog import Signer, core
from gossiplog._core import Host
from gossiplog.net.transport.limits import Limits
from gossiplog.protocol import gossip
from gossiplog.protocol.wire import MAX_FRAME, FrameReader
from gossiplog.pubsub.authorship import Anonymous
from gossiplog.pubsub.events import (
    Deliver,
    Join,
    Leave,
    PeerConnected,
    Publish,
    Received,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.gossipsub import Config, GossipConfig, GossipSub, Peering
from gossiplog.pubsub.rpc import GOSSIPSUB, Message, Rpc
from gossiplog.pubsub.wire import decode, encode
from tests.integration.conftest import Start
from tests.integration.javascript import JavaScriptPeer, SharedProcess, Transport

pytestmark = pytest.mark.integration

T = TypeVar("T")
# Seconds; only a conversation that has come to a halt takes so long.
DEADLINE = 120.0


class Remote(Protocol):
    """The other side: a peer in the same topic, with another implementation of gossipsub."""

    def address(self) -> str: ...
    def publish(self, number: int) -> bytes:
        """Publishes a message, and returns its data."""

    def has_in_mesh(self) -> bool:
        """Whether the router's transport is in its mesh."""

    def got(self, data: bytes) -> bool:
        """Whether a message came by gossip."""


def written(topic: str, number: int) -> bytes:
    """The data of a message that every log accepts: canvas-js passes on nothing else."""
    return gossip.encode(*Signer(bytes([99]) * 32).sign(topic, 1, [], {"number": number}))


class Rust:
    """rust-libp2p's."""

    def __init__(self, topic: str) -> None:
        self.host = Host(
            identity=secrets.token_bytes(32),
            topic=topic,
            protocols=[],
            listen=["/ip4/127.0.0.1/tcp/0/ws"],
            bootstrap=[],
            gossip=GossipConfig(heartbeat_interval=0.2),
            limits=Limits(),
        )
        self._topic = topic
        self._got: set[bytes] = set()

    def address(self) -> str:
        while not (addresses := self.host.addresses()):
            time.sleep(0.01)
        return addresses[0]

    def publish(self, number: int) -> bytes:
        data = written(self._topic, number)
        assert self.host.publish(data)
        return data

    def has_in_mesh(self) -> bool:
        return any(peer.in_mesh for peer in self.host.peers())

    def got(self, data: bytes) -> bool:
        for message in self.host.gossip():
            self._got.add(message.data)
            self.host.validate([(message.ticket, "accept")])
        return data in self._got


class Original:
    """canvas-js's, with a log behind it."""

    def __init__(self, peer: JavaScriptPeer, topic: str) -> None:
        self._peer = peer
        self._topic = topic
        self._join = iter(peer.join())

    def address(self) -> str:
        return next(self._join)

    def publish(self, number: int) -> bytes:
        id = self._peer.append({"number": number})
        (value,) = (value for value in self._peer.values() if core.verify(value, self._topic).id == id)
        return gossip.encode(core.decode_id(id), value)

    def has_in_mesh(self) -> bool:
        links = self._peer.events("graft", "prune")
        return bool(links) and links[-1].name == "graft"

    def got(self, data: bytes) -> bool:
        message = {"id": core.encode_id(gossip.decode(data)[0]), "source": "pubsub"}
        return any(event.fields == message for event in self._peer.events("message"))


class Conversation:
    """A router, and the peer that carries its packets.

    Attributes:
        peer: the other side's id.
        packets: that came.
        deaf: drops messages, until there is an IHAVE.
    """

    def __init__(self, transport: Transport, remote: Remote, topic: str, config: Config) -> None:
        self._transport = transport
        self._readers: dict[str, FrameReader] = {}
        self._timers: dict[Any, float] = {}
        self._delivered: set[bytes] = set()
        self.deaf = False
        self.packets: list[Rpc] = []
        self.router = GossipSub("own", Random(1), Anonymous(), config, id_of=content_hash)
        self._perform(self.router.start(time.monotonic()))
        self.do(Join(topic))
        self.peer = transport.dial(remote.address())
        self.do(PeerConnected(self.peer, GOSSIPSUB))

    def do(self, event: Any) -> None:
        self._perform(self.router.handle(event, time.monotonic()))

    def until(self, reached: Callable[[], bool]) -> None:
        """Lets the conversation go on until something has come about."""
        end = time.monotonic() + DEADLINE
        while not reached():
            assert time.monotonic() < end, self.packets[-20:]
            # Short, because what the other side thinks is not told.
            arrived = self._transport.read(0.02)
            if arrived is not None:
                self._take(*arrived)
            for timer, at in list(self._timers.items()):
                if at <= time.monotonic():
                    del self._timers[timer]
                    self.do(TimerExpired(timer))

    def delivered(self, data: bytes) -> bool:
        return data in self._delivered

    def _take(self, peer: str, data: bytes) -> None:
        reader = self._readers.setdefault(peer, FrameReader(MAX_FRAME))
        reader.feed(data)
        while (content := reader.next()) is not None:
            packet = decode(content)
            self.packets.append(packet)
            if packet.control is not None and packet.control.ihave:
                self.deaf = False
            if not self.deaf or not packet.messages:
                self.do(Received(peer, packet))

    def _perform(self, orders: Any) -> None:
        for order in orders:
            match order:
                case Send(peers, packet):
                    for peer, frame in itertools.product(peers, encode(packet)):
                        self._transport.write(peer, frame)
                case SetTimer(timer, at):
                    self._timers[timer] = at
                case Deliver(data=data):
                    self._delivered.add(data)


def content_hash(message: Message) -> bytes:
    """The id of a message without an author, as rust-libp2p's peers here and canvas-js have it."""
    return hashlib.sha256(message.data).digest()


@pytest.fixture(params=["rust", "javascript"])
def remote(request: pytest.FixtureRequest, start: Start, topic: str) -> Iterator[Remote]:
    if request.param == "javascript":
        yield Original(start("javascript"), topic)
    else:
        rust = Rust(topic)
        yield rust
        rust.host.stop()


@pytest.fixture
def transport(javascript: SharedProcess) -> Iterator[Transport]:
    with Transport(javascript.get(), GOSSIPSUB) as transport:
        yield transport


def test_it_grafts_and_delivers_both_ways(remote: Remote, transport: Transport, topic: str) -> None:
    talk = Conversation(transport, remote, topic, Config(heartbeat_interval=0.2))
    talk.until(lambda: talk.router.mesh(topic) == (talk.peer,) and remote.has_in_mesh())
    for number in range(3):
        talk.until(partial(talk.delivered, remote.publish(number)))
        ours = written(topic, 100 + number)
        talk.do(Publish((topic,), ours))
        talk.until(partial(remote.got, ours))
    assert talk.router.peers == {talk.peer: GOSSIPSUB}
    assert talk.router.peering(talk.peer, topic) is Peering.FULL_MESSAGE
    talk.do(Leave(topic))
    talk.until(lambda: not remote.has_in_mesh())


def test_of_several_topics_others_read_the_last(remote: Remote, transport: Transport, topic: str) -> None:
    """So a router among such peers publishes to one."""
    talk = Conversation(transport, remote, topic, Config(heartbeat_interval=0.2))
    talk.until(lambda: talk.router.mesh(topic) == (talk.peer,) and remote.has_in_mesh())
    first, last, alone = (written(topic, number) for number in range(3))
    talk.do(Publish((topic, "other"), first))
    talk.do(Publish(("other", topic), last))
    talk.do(Publish((topic,), alone))
    talk.until(partial(remote.got, last))
    talk.until(partial(remote.got, alone))
    assert not remote.got(first)
    careful = GossipSub("own", Random(1), Anonymous(), Config(max_recipients=1), id_of=content_hash)
    with pytest.raises(ValueError, match="a message to 2 topics; this router's limit is 1"):
        careful.handle(Publish((topic, "other"), first), 0.0)


def test_it_answers_who_asks_and_asks_who_has(remote: Remote, transport: Transport, topic: str) -> None:
    # Nobody is to be in its mesh, so messages come and go by gossip alone.
    talk = Conversation(transport, remote, topic, Config(d=0, d_low=0, d_high=0, d_lazy=6, heartbeat_interval=0.2))
    talk.until(lambda: remote.has_in_mesh() or talk.router.mesh(topic) != ())
    talk.until(lambda: not remote.has_in_mesh())
    ours = written(topic, 100)
    talk.do(Publish((topic,), ours))
    talk.until(lambda: remote.got(ours))
    controls = [packet.control for packet in talk.packets if packet.control is not None]
    assert [id for control in controls for id in control.iwant] == [content_hash(Message((topic,), ours))]
    # What it publishes the other side gives to everybody; this is lost, and only heard of.
    talk.deaf = True
    theirs = remote.publish(1)
    talk.until(lambda: talk.delivered(theirs))
    assert not talk.deaf
