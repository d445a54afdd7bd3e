"""`gossiplog.net.routing.router_host`: routers on connections, in memory and between real peers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count, pairwise
from random import Random
from typing import Any

import anyio
import pytest

from gossiplog import Log, Peer, Signer
from gossiplog.errors import ConnectionLost, NetworkError, StreamReset
from gossiplog.net import events
from gossiplog.net.peer import _Running
from gossiplog.net.routing import router_host, sessions
from gossiplog.net.routing.kinds import DecodedFrame, RouterKind, RouterName, episub, floodsub, gossipsub
from gossiplog.net.routing.router_host import RouterHost
from gossiplog.net.service import background
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.host import Publication, open_host
from gossiplog.net.transport.network import Network
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol import gossip
from gossiplog.protocol.wire import Protocols
from gossiplog.pubsub.authorship import peer_id_of
from gossiplog.pubsub.episub.messages import Envelope, GetTopics
from gossiplog.pubsub.events import PeerConnected, Received, RoundTrip
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.pubsub.log_routers import REJECTIONS
from gossiplog.pubsub.rpc import FLOODSUB, Message, Rpc, Subscription
from gossiplog.pubsub.wire import encode
from gossiplog.reference.multiformats import base58_encode
from tests.net.meshes import running
from tests.net.support import LISTEN, TOPIC, Heard, connect_pair, until_equal

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]

KINDS = ("gossipsub", "floodsub", "episub")


def kind_of(name: str) -> RouterKind:
    match name:
        case "gossipsub":
            return gossipsub(GossipConfig(heartbeat_interval=0.1))
        case "floodsub":
            return floodsub()
    return episub()


def id_of(number: int) -> str:
    return base58_encode(peer_id_of(bytes([number]) * 32))


class Member:
    """A router host in memory, with its answers: all is accepted unless a test says otherwise.

    Attributes:
        delivered: what came.
        heard: how peers stand with the topic, as it changed.
        blamed: the rules that peers broke.
        answer: to what comes; None to hold it back.
        unknown: peers that cannot be dialled.
    """

    def __init__(self, net: Net, number: int, kind: RouterKind) -> None:
        self.peer_id = id_of(number)
        self.delivered: list[bytes] = []
        self.held: list[Publication] = []
        self.heard: list[tuple[str, str]] = []
        self.blamed: list[str] = []
        self.answer: Any = "accept"
        self.net = net
        self.host = RouterHost(kind, TOPIC, self, Random(number), self.hear)

    def hear(self, name: str, change: str) -> None:
        self.heard.append((name, change))

    async def dial_peer(self, peer_id: str) -> None:
        if peer_id not in self.net.members or self.net.members[peer_id] is self:
            raise ConnectionLost("transport", "nobody knows it")
        self.net.join(self, self.net.members[peer_id])

    def rtt(self, peer_id: str) -> float | None:
        return self.net.rtt

    async def run(self) -> None:
        async with background() as tasks:
            tasks.start_soon(self.host.run)
            while True:
                for publication in await self.host.gossip():
                    self.delivered.append(publication.data)
                    if self.answer is None:
                        self.held.append(publication)
                    else:
                        self.host.validate([(publication.ticket, self.answer)])


async def speak(member: Member, peer_id: str, end: Connection) -> None:
    # What ends the connection is seen by who waits for it.
    with suppress(ConnectionLost):
        await member.host.attend(end, peer_id, member.blamed.append)


class Net:
    """Members that are joined by pipes."""

    def __init__(self, network: Network, tasks: Any, kind: RouterKind) -> None:
        self.members: dict[str, Member] = {}
        self.rtt: float | None = 0.001
        self.kind = kind
        self._network = network
        self._tasks = tasks
        self.lines: dict[frozenset[str], tuple[Connection, Connection]] = {}

    def add(self, number: int, kind: RouterKind | None = None) -> Member:
        member = Member(self, number, kind or self.kind)
        self.members[member.peer_id] = member
        self._tasks.start_soon(member.run)
        return member

    def join(self, one: Member, other: Member) -> None:
        key = frozenset((one.peer_id, other.peer_id))
        if key in self.lines:
            return
        protocols = [*dict.fromkeys((*one.host.protocols, *other.host.protocols))]
        ends = self.lines[key] = connect_pair(self._network, protocols)
        for member, peer, end in ((one, other, ends[0]), (other, one, ends[1])):
            self._tasks.start_soon(self._attend, member, peer, end)

    async def _attend(self, member: Member, peer: Member, end: Connection) -> None:
        async with background() as tasks:
            tasks.start_soon(self._accept, member, peer, end)
            tasks.start_soon(speak, member, peer.peer_id, end)
            await end.wait_closed()

    async def _accept(self, member: Member, peer: Member, end: Connection) -> None:
        async for protocol, stream in end:
            if protocol in member.host.protocols:
                member.host.accept(peer.peer_id, stream)
            else:
                stream.reset()

    def cut(self, one: Member, other: Member) -> None:
        """Close the connection from one end: two that close at once wait five seconds for each other."""
        self.lines.pop(frozenset((one.peer_id, other.peer_id)))[0].close()


@asynccontextmanager
async def net(network: Network, name: str = "floodsub") -> AsyncIterator[Net]:
    with anyio.fail_after(60):
        async with background() as tasks:
            yield Net(network, tasks, kind_of(name))


async def until(reached: Callable[[], bool]) -> None:
    while not reached():
        await anyio.sleep(0.005)


def meshed(*members: Member) -> bool:
    return all(member.host.links.mesh for member in members)


@pytest.mark.parametrize("name", KINDS)
async def test_messages_go_round_and_are_delivered_once(network: Network, name: str) -> None:
    async with net(network, name) as test:
        members = [test.add(number) for number in range(3)]
        assert not members[0].host.publish(b"to nobody")
        for one, other in ((0, 1), (1, 2)):
            test.join(members[one], members[other])
        # Whoever joins a mesh later has to sync what was sent before.
        await until(lambda: meshed(*members) and len(members[1].host.links.mesh) == 2)
        for number, member in enumerate(members):
            assert member.host.publish(bytes([number]))
        for number, member in enumerate(members):
            await until(lambda member=member: len(member.delivered) == 2)  # type: ignore[misc]
            assert sorted(member.delivered) == sorted(bytes([other]) for other in range(3) if other != number)
            counts = member.host.counts
            assert (counts["gossip_received"], counts["gossip_accepted"]) == (2, 2)
        # What both publish is one message.
        for member in members[:2]:
            member.host.publish(b"same")
        await until(lambda: members[2].delivered.count(b"same") == 1)
        await anyio.sleep(0.05)
        assert members[2].delivered.count(b"same") == 1


@pytest.mark.parametrize("name", KINDS)
async def test_a_message_is_held_back_until_it_is_accepted(network: Network, name: str) -> None:
    async with net(network, name) as test:
        first, middle, last = (test.add(number) for number in range(3))
        middle.answer = None
        test.join(first, middle)
        test.join(middle, last)
        await until(lambda: len(middle.host.links.mesh) == 2 and meshed(first, last))
        if name == "episub":
            # They are to know each other through the one in the middle alone.
            test.members.clear()
            if frozenset((first.peer_id, last.peer_id)) in test.lines:
                test.cut(first, last)
                await until(lambda: last.peer_id not in first.host.links.subscribed)
        for data in (b"good", b"late", b"bad"):
            first.host.publish(data)
        await until(lambda: len(middle.held) == 3)
        assert [publication.name for publication in middle.held] == [first.peer_id] * 3
        assert last.delivered == []
        good, late, bad = (publication.ticket for publication in middle.held)
        middle.host.validate([(bad, "reject"), (late, "ignore"), (good, "accept"), (good, "accept"), (999, "accept")])
        await until(lambda: last.delivered == [b"good"])
        assert middle.host.score(first.peer_id) == -10.0
        counts = middle.host.counts
        assert [counts[f"gossip_{what}"] for what in ("accepted", "ignored", "rejected")] == [1, 1, 1]


async def test_a_peer_whose_messages_are_rejected_is_blamed(network: Network) -> None:
    async with net(network) as test:
        first, second = test.add(1), test.add(2)
        second.answer = "reject"
        test.join(first, second)
        await until(lambda: meshed(first, second))
        for number in range(REJECTIONS):
            assert second.blamed == []
            first.host.publish(bytes([number]))
            await until(lambda number=number: len(second.delivered) == number + 1)  # type: ignore[misc]
        assert second.blamed == [f"{REJECTIONS} of its messages were rejected"]


@pytest.mark.parametrize("name", KINDS)
async def test_links_are_reported_as_they_change(network: Network, name: str) -> None:
    async with net(network, name) as test:
        first, second = test.add(1), test.add(2)
        test.join(first, second)
        await until(lambda: meshed(first, second))
        assert first.heard == [(second.peer_id, "subscribe"), (second.peer_id, "graft")]
        test.members.clear()
        test.cut(first, second)
        await until(lambda: not first.host.links.subscribed)
        assert first.heard[2:] == [(second.peer_id, "prune"), (second.peer_id, "unsubscribe")]


async def test_what_is_too_large_is_refused(network: Network) -> None:
    async with net(network) as test:
        member = test.add(1)
        with pytest.raises(NetworkError, match="floodsub publishes 4128768 at most"):
            member.host.publish(bytes(gossip.MAX_DATA + 1))


@pytest.mark.parametrize("name", ["gossipsub", "floodsub"])
async def test_a_peer_that_never_reads_loses_gossip_and_nobody_else_does(
    network: Network, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sessions, "MAX_QUEUED", 2**20)
    async with net(network, name) as test, background() as tasks:
        member, reader = test.add(1), test.add(2)
        test.join(member, reader)
        here, there = connect_pair(network, [FLOODSUB])
        tasks.start_soon(speak, member, id_of(9), here)
        hello = await there.open_stream(FLOODSUB)
        await hello.send(b"".join(encode(Rpc(subscriptions=(Subscription(TOPIC, True),)))))
        member.host.accept(id_of(9), (await here.accept())[1])
        await until(lambda: len(member.host.links.mesh) == 2)
        for number in range(40):
            member.host.publish(bytes([number]) * 100_000)
            await until(lambda number=number: len(reader.delivered) == number + 1)  # type: ignore[misc]
        assert member.host.counts["gossip_dropped"] > 0
        assert member.host.held <= 2**20
        assert member.blamed == []
        here.release("gone")
        await until(lambda: member.host.held == 0)


@pytest.mark.parametrize("limit", [{"MAX_WAITING": 10}, {"MAX_WAITING_BYTES": 1000}])
async def test_messages_that_nobody_answers_are_bounded(
    network: Network, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(router_host, name, value, raising=False)
    kind = gossipsub(GossipConfig())
    numbers = count()
    async with net(network) as test, background() as tasks:
        host = RouterHost(kind, TOPIC, Member(test, 1, kind), Random(1), lambda name, change: None)

        def send(messages: int) -> None:
            data = [next(numbers).to_bytes(100, "big") for _ in range(messages)]
            host._handle(Received("peer", Rpc(tuple(Message((TOPIC,), each) for each in data))))

        tasks.start_soon(host.run)
        await until(lambda: host._has_joined)
        host._handle(PeerConnected("peer", FLOODSUB))
        for _ in range(3):
            send(20)
        assert host.counts["gossip_received"] == 60
        assert host.held == 1000
        assert host.counts["gossip_dropped"] == 50
        publications = await host.gossip()
        assert [int.from_bytes(each.data, "big") for each in publications] == list(range(10))
        # Taking makes no room, answering does.
        send(1)
        assert host._publications == []
        host.validate([(each.ticket, "accept") for each in publications[:1]])
        assert host.held == 900
        send(1)
        assert len(await host.gossip()) == 1
        assert host.held == 1000


async def test_who_refuses_the_protocol_is_asked_again_ever_more_rarely(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_host, "_RETRY_SECONDS", 0.02)
    async with net(network) as test, background() as tasks:
        member = test.add(1)
        here, there = connect_pair(network, ["/other"])
        times: list[float] = []
        opening = here.open_stream

        async def open_stream(protocol: str) -> Stream:
            times.append(anyio.current_time())
            return await opening(protocol)

        monkeypatch.setattr(here, "open_stream", open_stream)
        tasks.start_soon(speak, member, id_of(9), here)
        await until(lambda: len(times) == 4)
        gaps = [after - before for before, after in pairwise(times)]
        assert gaps[0] >= 0.02
        assert gaps[2] >= 0.08
        assert member.host.links.subscribed == frozenset()
        there.release("done")


async def test_streams_that_end_are_opened_again(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_host, "_RETRY_SECONDS", 0.01)
    async with net(network) as test, background() as tasks:
        member = test.add(1)
        here, there = connect_pair(network, [FLOODSUB])
        tasks.start_soon(speak, member, id_of(9), here)
        for _ in range(3):
            _, stream = await there.accept()
            assert await stream.receive()
            stream.reset()


async def test_a_stream_of_nobody_is_reset(network: Network) -> None:
    async with net(network) as test:
        member = test.add(1)
        here, there = connect_pair(network, [FLOODSUB])
        stream = await there.open_stream(FLOODSUB)
        member.host.accept(id_of(9), (await here.accept())[1])
        with pytest.raises(StreamReset):
            await stream.receive()


# Episub


@pytest.mark.slow
async def test_episub_finds_all_through_one_and_mends_what_fails(network: Network) -> None:
    async with net(network, "episub") as test:
        members = [test.add(number) for number in range(6)]
        for member in members[1:]:
            test.join(member, members[0])
        await until(lambda: all(len(member.host.links.subscribed) >= 3 for member in members))
        for number in range(20):
            members[1].host.publish(bytes([number]))
            for member in (members[0], *members[2:]):
                await until(lambda member=member, number=number: len(member.delivered) == number + 1)  # type: ignore[misc]
        # The one that all know fails.
        del test.members[members[0].peer_id]
        for member in members[1:]:
            if frozenset((member.peer_id, members[0].peer_id)) in test.lines:
                test.cut(member, members[0])
        members[1].host.publish(b"after")
        await until(lambda: all(member.delivered[-1] == b"after" for member in members[2:]))


async def test_who_repeats_packets_of_episub_is_blamed(network: Network) -> None:
    async with net(network, "episub") as test:
        first, second = test.add(1), test.add(2)
        test.join(first, second)
        await until(lambda: meshed(first, second))
        replayed = DecodedFrame(Envelope(episub().peer_of(second.peer_id), 0, GetTopics()), (), 0)
        for number in range(1, REJECTIONS + 1):
            assert first.blamed == []
            first.host._take(first.host._sessions[second.peer_id], replayed)
            assert first.host.score(second.peer_id) == -10.0 * number**2
        assert first.blamed == [f"{REJECTIONS} of its messages were rejected"]


async def test_episub_gives_up_whom_nobody_knows(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_host, "_DIAL_PAUSES", (0.01, 0.01))
    async with net(network, "episub") as test:
        first, second = test.add(1), test.add(2)
        test.join(first, second)
        await until(lambda: meshed(first, second))
        peer = episub().peer_of(id_of(9))
        first.host._connect(peer)
        assert id_of(9) in first.host._asked_for
        await until(lambda: id_of(9) not in first.host._asked_for and not first.host._dialling)
        # A name that is no peer's id.
        first.host._connect(b"nobody")
        await until(lambda: not first.host._asked_for)


async def test_a_dial_ends_when_the_session_comes_up(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked ten times a second."""
    monkeypatch.setattr(router_host, "_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(router_host, "_DIAL_SECONDS", 3600.0)
    async with net(network, "episub") as test:
        first, second = test.add(1), test.add(2)
        await until(lambda: first.host._tasks is not None and second.host._tasks is not None)
        first.host._connect(episub().peer_of(second.peer_id))
        assert first.host._dialling == {second.peer_id}
        await until(lambda: not first.host._dialling)
        assert first.host._sessions[second.peer_id].is_up


@pytest.mark.parametrize("rtt", [None, 0.25])
async def test_a_ping_is_answered_by_what_the_host_knows(
    network: Network, monkeypatch: pytest.MonkeyPatch, rtt: float | None
) -> None:
    monkeypatch.setattr(router_host, "_PING_SECONDS", 0.05)
    async with net(network, "episub") as test:
        first, second = test.add(1), test.add(2)
        test.join(first, second)
        await until(lambda: meshed(first, second))
        test.rtt = rtt
        handled: list[Any] = []
        monkeypatch.setattr(first.host, "_handle", handled.append)
        await first.host._ping(episub().peer_of(second.peer_id))
        # Timers expire meanwhile.
        assert [event.seconds for event in handled if isinstance(event, RoundTrip)] == [rtt]


# Real peers


@pytest.mark.slow
@pytest.mark.parametrize("router", KINDS)
async def test_peers_exchange_messages_by_a_router_of_their_own(
    opened: Open, signer: Signer, router: RouterName
) -> None:
    logs = [opened() for _ in range(3)]
    async with running(*logs, router=router) as (peers, heard):
        await until(lambda: all(any(info.in_mesh and info.subscribed for info in peer.peers) for peer in peers))
        for number in range(5):
            await anyio.to_thread.run_sync(lambda number=number: logs[0].append({"number": number}, signer=signer))
            await until_equal(*logs)
        # What was appended before all were in the mesh may have come by a sync.
        assert all(peer.counters.inserted.get("gossip", 0) > 0 for peer in peers[1:])
        counts = peers[0].counters
        assert counts.network["published"] == 5
        assert counts.mesh == sum(bool(info.in_mesh) for info in peers[0].peers) > 0
        assert all(info.score == 0.0 for info in peers[0].peers)
    assert all(listener.of(events.Pruned) for listener in heard)


@pytest.mark.slow
async def test_own_routers_and_a_hosts_are_in_one_mesh(opened: Open, signer: Signer, quick_gossip: None) -> None:
    first, *others = logs = [opened() for _ in range(3)]
    async with alone(first, "gossipsub") as (peer, _):
        known = {"bootstrap": peer.addresses}
        async with (
            Peer(others[0], listen=[LISTEN], **known) as hosts,
            Peer(others[1], listen=[LISTEN], router="floodsub", **known) as flooding,
        ):
            peers = (peer, hosts, flooding)
            await until(lambda: len(peer.peers) == 2 and all(info.in_mesh or info.subscribed for info in peer.peers))
            await until(lambda: all(any(info.subscribed for info in each.peers) for each in peers))
            for number, log in enumerate(logs):
                await anyio.to_thread.run_sync(lambda log=log, number=number: log.append(number, signer=signer))
                await until_equal(*logs)
            assert all(each.counters.inserted.get("gossip", 0) > 0 for each in peers)


class Stranger:
    """A host whose gossip a test writes."""

    def __init__(self, host: Any, connection: Connection) -> None:
        self.host = host
        self.connection = connection


@asynccontextmanager
async def stranger(peer: Peer, protocol: str) -> AsyncIterator[Stranger]:
    protocols = [*Protocols(TOPIC).all, protocol]
    async with open_host(identity=bytes(range(32)), topic=TOPIC, protocols=protocols, gossips=False) as host:
        await host.dial(peer.addresses[0])
        yield Stranger(host, (await host.accept()).connection)


@asynccontextmanager
async def alone(log: Log, router: RouterName) -> AsyncIterator[tuple[Peer, Heard]]:
    heard = Heard()
    with anyio.fail_after(60):
        async with Peer(log, listen=[LISTEN], router=router, on_event=heard) as peer:
            yield peer, heard


def running_peer(peer: Peer) -> _Running:
    return peer._there


FRAMES = {
    "garbage": b"\x05hello",
    "oversized": b"\xff\xff\xff\x7f",
    "too many messages": b"".join(encode(Rpc((Message((TOPIC,), b""),) * 4097))),
}


@pytest.mark.parametrize("what", FRAMES)
async def test_who_breaks_the_protocol_is_dropped_and_shunned(opened: Open, what: str) -> None:
    async with alone(opened(), "gossipsub") as (peer, heard), stranger(peer, FLOODSUB) as test:
        stream = await test.connection.open_stream(FLOODSUB)
        # So that it reads what comes here.
        await test.connection.accept()
        await stream.send(FRAMES[what])
        await test.connection.wait_closed()
        (rejected, *_) = await heard.wait(events.Rejected)
        assert "it broke the protocol of gossip" in rejected.reason
        assert running_peer(peer).shuns(test.host.peer_id)


async def test_an_invalid_message_is_rejected_and_goes_nowhere(opened: Open, signer: Signer) -> None:
    first, second = opened(), opened()
    async with running(first, second, router="floodsub") as (peers, _):
        async with stranger(peers[0], FLOODSUB) as test:
            stream = await test.connection.open_stream(FLOODSUB)
            key, value = signer.sign(TOPIC, 1, [], "forged")
            for number in range(REJECTIONS):
                data = gossip.encode(key, value)[:-1] + bytes([number])
                assert hashlib.sha256(data).digest()
                await stream.send(b"".join(encode(Rpc((Message((TOPIC,), data),)))))
            await test.connection.wait_closed()
        assert peers[0].counters.network["gossip_rejected"] == REJECTIONS
        assert peers[1].counters.network["gossip_received"] == 0
        assert peers[0].counters.invalid == REJECTIONS
        assert len(first) == len(second) == 0


async def test_what_cannot_be_combined_is_refused(opened: Open) -> None:
    log = opened()
    with pytest.raises(ValueError, match="forward is 'verified', and the router 'episub': only 'libp2p' passes"):
        Peer(log, router="episub", forward="verified")
    with pytest.raises(ValueError, match="router is 'other'; expected one of libp2p"):
        Peer(log, router="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gossip has parameters of gossipsub"):
        Peer(log, router="floodsub", gossip=GossipConfig())
    assert Peer(log, router="gossipsub", gossip=GossipConfig(), forward="stored")
