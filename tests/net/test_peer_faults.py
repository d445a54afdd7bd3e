"""Peers of a mesh on sockets that lose, cut and lie: the honest ones end with one root, the others are cut off."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest

from gossiplog import Hub, Log, Peer, Signer, core
from gossiplog.errors import NetworkError
from gossiplog.net import events
from gossiplog.net import peer as peer_module
from gossiplog.net.client import connect
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.host import Answer, Host, Publication, open_host
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol import gossip, wire
from gossiplog.protocol.sync import Server
from gossiplog.protocol.sync import client as sync_client
from gossiplog.protocol.wire import Protocols
from gossiplog.sim.whole.hostile import Forged
from tests.net.meshes import QUICK_PEER, key_of, line, member, running, signers
from tests.net.support import GOSSIP, LISTEN, TOPIC, Heard, serving, until_equal
from tests.protocol.endless import Endless

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.usefixtures("quick_gossip")]

Open = Callable[..., Log]


# The network


async def test_a_partition_and_its_end(opened: Open) -> None:
    """Two peers on this side; on the other one that dials over a line, and is a hub for a client. Nobody over there
    listens, and what a peer that was dialled by a name says of addresses on this machine is not heeded: so the line is
    the only way."""
    near, further, far, furthest = logs = [opened(signer=signer) for signer in signers(4)]
    heard = [Heard() for _ in logs]
    options = [{"broadcast": QUICK_PEER, "on_event": each, "on_message": each.message} for each in heard]
    with anyio.fail_after(120):
        async with (
            Peer(near, listen=[LISTEN], **options[0]) as here,
            Peer(further, listen=[], bootstrap=here.addresses, **options[1]),
            line(here.addresses[0]) as between,
            Peer(far, listen=[], bootstrap=[f"/dns4/localhost/tcp/{between.port}/ws"], **options[2]) as there,
            serving(Hub(far, peer=there)) as url,
            connect(furthest, url, **options[3]),
        ):
            for listener in heard[1:3]:
                await listener.wait(events.Grafted)
            for log in logs:
                log.append("together")
            await until_equal(*logs)
            between.cut()
            await heard[2].wait(events.Disconnected)
            while there.peer_id in {peer.name for peer in here.peers}:
                await anyio.sleep(0.01)
            for log in logs:
                log.append_many(["apart", "apart"])
            for half in ((near, further), (far, furthest)):
                await until_equal(*half)
            assert [len(log) for log in logs] == [8] * 4
            assert near.root != far.root
            between.mend()
            await until_equal(*logs)
            assert len(near) == 12
            # And gossip goes both ways again.
            for log, other in ((near, there), (far, here)):
                before = other.counters.inserted.get("gossip", 0)
                while other.counters.inserted.get("gossip", 0) == before:
                    log.append("together again")
                    await until_equal(*logs)
            for listener in heard:
                await listener.wait_for_messages(len(near))


def lossy(random: Random, lost: list[int], **options: Any) -> Host:
    """A host whose gossip loses a tenth of what goes out and of what comes in, doubles as much, and keeps no order."""
    host = open_host(**options | {"gossip": GOSSIP})
    send, take = host.publish, host.gossip

    def publish(data: bytes) -> bool:
        if random.random() < 0.1:
            lost.append(len(data))
            return True
        return send(data)

    async def come() -> list[Publication]:
        found = await take()
        kept = [publication for publication in found if random.random() >= 0.1]
        gone: list[tuple[int, Answer]] = [(item.ticket, "ignore") for item in found if item not in kept]
        host.validate(gone)
        lost.extend(ticket for ticket, _ in gone)
        kept += [publication for publication in kept if random.random() < 0.1]
        random.shuffle(kept)
        return kept

    host.publish, host.gossip = publish, come  # type: ignore[method-assign]
    return host


@pytest.mark.parametrize("forward", ["verified", "stored"])
async def test_gossip_that_is_lost_doubled_and_out_of_order(
    opened: Open, monkeypatch: pytest.MonkeyPatch, forward: str
) -> None:
    lost: list[int] = []
    monkeypatch.setattr(peer_module, "open_host", partial(lossy, Random(1), lost))
    logs = [opened(signer=signer) for signer in signers(4)]
    async with running(*logs, forward=forward) as (_, heard):
        for number in range(15):
            for log in logs:
                log.append(number)
            # So that they come one by one, and not all by the first sync.
            await heard[number % 4].wait_for_messages(4 * number)
        await until_equal(*logs)
        for listener in heard:
            await listener.wait_for_messages(60)
    assert {len(log) for log in logs} == {60}
    assert {len({message.id for message in listener.messages}) for listener in heard} == {60}
    assert lost


# Those who lie

Serve = Callable[[], Callable[[bytes], bytes]]


class Swapped(Forged):
    """Honest, but that each value is another key's."""

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        others = dict(zip(self._entries, reversed(self._entries.values()), strict=True))
        return [others[key] for key in keys]


def forged(number: int) -> tuple[bytes, bytes]:
    """A message whose signature does not hold."""
    value = Signer(bytes(32)).sign(TOPIC, 1, [], f"true {number:04}")[1].replace(b"true", b"lies")
    return key_of(value), value


def orphan(number: int) -> tuple[bytes, bytes]:
    return Signer(bytes(32)).sign(TOPIC, 2, [core.encode_id(b"\1" + bytes(19))], number)


def snapshot(entries: Sequence[tuple[bytes, bytes]], kind: type[Forged] = Forged) -> Serve:
    """What serves a tree with these messages."""

    def begin() -> Callable[[bytes], bytes]:
        server = Server(kind(dict(entries)), now=0.0)

        def receive(data: bytes) -> bytes:
            answers = []
            while answer := server.receive(data, 0.0):
                answers.append(answer)
                data = b""
            return b"".join(answers)

        return receive

    return begin


def endless() -> Callable[[bytes], bytes]:
    """What serves a tree without an end."""
    tree, frames = Endless(), wire.FrameReader(wire.MAX_FRAME)

    def receive(data: bytes) -> bytes:
        frames.feed(data)
        requests = map(wire.decode_request, iter(frames.next, None))
        return b"".join(wire.encode_answer(tree.answer(request)) for request in requests)

    return receive


async def serve(connection: Connection, begin: Serve) -> None:
    """Serves whatever is asked for."""

    async def answer(stream: Stream) -> None:
        with contextlib.suppress(NetworkError):
            receive = begin()
            while data := await stream.receive():
                await stream.send(receive(data))

    async with anyio.create_task_group() as tasks:
        async for protocol, stream in connection:
            if protocol == Protocols(TOPIC).sync:
                tasks.start_soon(answer, stream)


async def push_forged(host: Host, push: Stream) -> None:
    await push.send(wire.encode_push(wire.Insert(*forged(0))))


async def push_orphans(host: Host, push: Stream) -> None:
    for number in itertools.count():
        await push.send(wire.encode_push(wire.Insert(*orphan(number))))
        await anyio.sleep(0.05)


async def gossip_orphans(host: Host, push: Stream) -> None:
    for number in itertools.count():
        host.publish(gossip.encode(*orphan(number)))
        await anyio.sleep(0.05)


async def tell_of_heads(host: Host, push: Stream) -> None:
    for number in itertools.count(1):
        await push.send(wire.encode_push(wire.Update([core.encode_clock(9) + number.to_bytes(19)])))
        await anyio.sleep(0.05)


HONEST = [Signer(bytes([9] * 32)).sign(TOPIC, 1, [], number) for number in range(20)]


@pytest.mark.parametrize(
    ("misdeed", "begin", "reason"),
    [
        pytest.param(push_forged, snapshot([]), "it pushed an invalid message: ", id="an invalid message"),
        pytest.param(push_orphans, snapshot([]), "it advertised messages that it does not have, 3 times", id="orphans"),
        pytest.param(
            gossip_orphans, snapshot([]), "it advertised messages that it does not have, 3 times", id="gossip"
        ),
        pytest.param(tell_of_heads, snapshot([]), "it advertised messages that it does not have, 3 times", id="heads"),
        pytest.param(tell_of_heads, endless, "it broke the sync protocol: the value for message ", id="endless tree"),
        pytest.param(
            tell_of_heads, snapshot(HONEST, Swapped), "it broke the sync protocol: the value for ", id="wrong values"
        ),
        pytest.param(tell_of_heads, snapshot([forged(0)]), "its log has an invalid message: ", id="an invalid log"),
    ],
)
async def test_who_lies_is_dropped_and_the_honest_converge(
    opened: Open,
    misdeed: Callable[[Host, Stream], Awaitable[None]],
    begin: Serve,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Look at the first messages of an endless tree after 128, not 4,096.
    monkeypatch.setattr(sync_client, "_BATCH_MESSAGES", 128)
    logs = [opened(signer=signer) for signer in signers(3)]
    async with running(*logs) as ((victim, *_), (heard, *_)), member(victim) as (host, arrival):
        push = await arrival.connection.open_stream(Protocols(TOPIC).push)

        async def misbehave() -> None:
            # Until the connection ends.
            with contextlib.suppress(NetworkError):
                await misdeed(host, push)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(misbehave)
            tasks.start_soon(serve, arrival.connection, begin)
            while not (gone := [event for event in heard.of(events.Disconnected) if event.peer == host.peer_id]):
                for log in logs:
                    log.append("meanwhile")
                await anyio.sleep(0.1)
                assert victim.counters.held <= Limits().peer_bytes
            tasks.cancel_scope.cancel()
        assert gone[0].blamed
        assert gone[0].reason.startswith(reason)
        what = gone[0].reason.removeprefix("it broke the sync protocol: ")
        assert [what in line for line in caplog.messages].count(True) == 1
        await until_equal(*logs)
        for log in logs:
            log.append("as ever")
        await until_equal(*logs)
        assert [event.peer for event in heard.of(events.Connected)].count(host.peer_id) == 1
        assert not {message.payload for message in logs[0]} - {"meanwhile", "as ever", *range(20)}


@pytest.mark.parametrize("forward", ["verified", "stored"])
async def test_who_gossips_forgeries_is_dropped_and_the_honest_converge(opened: Open, forward: str) -> None:
    logs = [opened(signer=signer) for signer in signers(3)]
    async with running(*logs, forward=forward) as ((victim, *_), _), member(victim) as (host, _):
        for number in itertools.count():
            host.publish(gossip.encode(*forged(number)))
            logs[number % 3].append("meanwhile")
            if victim.counters.dropped:
                break
            await anyio.sleep(0.05)
        await until_equal(*logs)
        for log in logs:
            log.append("as ever")
        await until_equal(*logs)
        assert {message.payload for message in logs[0]} == {"meanwhile", "as ever"}
        assert victim.counters.invalid >= 7
