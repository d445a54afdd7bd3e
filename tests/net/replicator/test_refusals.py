"""What the application refuses is named to the peers that have it, and theirs to us, over drivers joined in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from gossiplog import Log, Signer, core
from gossiplog.errors import NetworkError
from gossiplog.net import events
from gossiplog.net.replicator import refusals as module
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.service import background
from gossiplog.net.transport.network import Connection, Network
from gossiplog.protocol import refusals as protocol
from gossiplog.protocol import wire
from tests.net.support import QUICK, Heard, carry, connect_pair, guest, joined, until_equal, until_longer

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two frames."""
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(protocol, "INTERVAL", 0.0)


def only_texts(payload: Any) -> None:
    if not isinstance(payload, str):
        raise TypeError(f"{payload} is no text\x1b[2J")


async def test_who_pushes_a_refused_message_is_told_which_and_why(
    network: Network, opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs, heard, told = opened(signer=signer), opened(payload=only_texts), Heard(), Heard()
    async with (
        Driver(ours, broadcast=QUICK, on_event=heard) as client,
        Driver(theirs, broadcast=QUICK, on_event=told) as server,
        joined(network, client, server),
    ):
        await heard.wait(events.Connected)
        ours.append("good")
        await until_longer(theirs, 0)
        bad = ours.append(5)
        (report,) = await heard.wait(events.RefusalsReported)
        reason = "its payload is refused: 5 is no text\\x1b[2J"
        assert report == events.RefusalsReported("the server", ((bad.id, reason),), 0)
        (event,) = told.of(events.MessagesRefused)
        assert (event.peer, [id for id, _ in event.refused], event.more) == ("the client", [bad.id], 0)
        assert isinstance(event.refused[0][1].__cause__, TypeError)
        assert (client.counters.reported, server.counters.reported) == (1, 0)
        assert (client.counters.refused, server.counters.refused) == (0, 1)
        # What descends from it is skipped, and nobody is blamed.
        ours.append("after")
        while not any(event.refused for event in told.of(events.SyncEnded)):
            await told.changed()
        # Without syncs that the end of the connection cuts off.
        ended = told.of(events.SyncEnded)
        assert client.counters.dropped == server.counters.dropped == 0
        assert len(client.peers) == len(server.peers) == 1
    lines = [record.getMessage() for record in caplog.records if bad.id in record.getMessage()]
    assert lines[:2] == [
        f"the client: the application refuses 1 message that it sent: message {bad.id}: {reason}",
        f'the server: it says that it refuses 1 message of this log: message {bad.id}: "{reason}"',
    ]
    for event in ended:
        assert [id for id, _ in event.reasons] == ([bad.id] if event.refused else [])


async def test_a_sync_says_what_was_refused_of_it_and_why(network: Network, opened: Open, signer: Signer) -> None:
    ours, theirs, heard, told = opened(signer=signer), opened(payload=only_texts), Heard(), Heard()
    bad = [ours.append(number) for number in range(3)]
    ours.append("descends from them")
    async with (
        Driver(ours, on_event=heard) as client,
        Driver(theirs, on_event=told) as server,
        joined(network, client, server),
    ):
        (report,) = await heard.wait(events.RefusalsReported)
        (ended, *_) = await told.wait(events.SyncEnded)
    assert [id for id, _ in report.refused] == [message.id for message in bad]
    assert (ended.complete, ended.refused) == (True, 4)
    assert [id for id, _ in ended.reasons] == [message.id for message in bad]
    assert {reason.partition(":")[0] for _, reason in ended.reasons} == {"its payload is refused"}


async def test_a_sync_that_ends_while_refused_messages_are_tried_again_says_why_too(
    network: Network, opened: Open, signer: Signer
) -> None:
    ours, theirs, told = opened(signer=signer), opened(payload=only_texts), Heard()
    bad = ours.append(5)
    ours.append("descends from it")
    often = replace(QUICK, retry=1e-6, longest_retry=1e-6)
    async with (
        Driver(ours) as client,
        Driver(theirs, broadcast=often, on_event=told) as server,
        joined(network, client, server),
    ):
        ended = await told.wait(events.SyncEnded, 5)
    assert [(event.refused, [id for id, _ in event.reasons]) for event in ended] == len(ended) * [(2, [bad.id])]


async def test_all_that_have_a_refused_message_are_told_and_nobody_else(
    network: Network, opened: Open, signer: Signer
) -> None:
    author, holder, reader, theirs = opened(signer=signer), opened(), opened(), opened(payload=only_texts)
    bad = author.append(5)
    author.append("after")
    holder.pull(author)
    first, second, third = Heard(), Heard(), Heard()
    async with (
        Driver(author, on_event=first) as a,
        Driver(holder, on_event=second) as b,
        Driver(reader, on_event=third) as c,
        Driver(theirs) as server,
        joined(network, c, server),
        joined(network, a, server),
    ):
        await first.wait(events.RefusalsReported)
        # It is not asked for the message, which another peer sent before.
        async with joined(network, b, server):
            (report,) = await second.wait(events.RefusalsReported)
            assert [id for id, _ in report.refused] == [bad.id]
        theirs.pull(reader)
        assert first.of(events.RefusalsReported) == [events.RefusalsReported("the server", report.refused, 0)]
        assert third.of(events.RefusalsReported) == []
        assert server.counters.refused == 1


async def test_a_peer_that_does_not_speak_the_protocol_is_exchanged_with_as_before(
    network: Network, opened: Open, signer: Signer, other_signer: Signer
) -> None:
    ours, theirs, heard = opened(signer=signer), opened(payload=only_texts, signer=other_signer), Heard()
    async with Driver(ours, on_event=heard) as client, Driver(theirs) as server, background() as tasks:
        spoken = [client.protocols.push, client.protocols.sync]
        here, there = network.attach(spoken, client=True), network.attach(server.protocols.all, client=False)
        tasks.start_soon(carry, here, there)
        tasks.start_soon(carry, there, here)
        tasks.start_soon(partial(client.exchange, here, "the server", dialer=True))
        tasks.start_soon(partial(server.exchange, there, "the client", dialer=False))
        await heard.wait(events.Connected)
        ours.append(5)
        while not server.counters.refused:
            await anyio.sleep(0.01)
        theirs.append("theirs")
        await until_longer(ours, 1)
        assert len(client.peers) == len(server.peers) == 1
        assert heard.of(events.RefusalsReported) == []
        assert (client.counters.dropped, server.counters.dropped) == (0, 0)


def frame(*refused: tuple[bytes, str], more: int = 0) -> bytes:
    return wire.encode_refusals(wire.Refusals(refused, more))


@asynccontextmanager
async def lying(network: Network, driver: Driver) -> AsyncIterator[tuple[Connection, Any]]:
    """A peer that has joined, and a refusals stream of its own."""
    async with guest(network, driver, "the liar") as liar:
        await liar.open_stream(driver.protocols.push)
        yield liar, await liar.open_stream(driver.protocols.refusals)


async def test_what_this_log_does_not_hold_is_passed_over(network: Network, opened: Open, signer: Signer) -> None:
    ours, heard = opened(signer=signer), Heard()
    message = ours.append("mine")
    async with Driver(ours, on_event=heard) as driver, lying(network, driver) as (_, stream):
        unknown = core.decode_id(message.id)[:-1] + b"\0"
        await stream.send(frame((unknown, "never heard of")))
        await stream.send(frame((core.decode_id(message.id), "ugly")))
        (report,) = await heard.wait(events.RefusalsReported)
        assert report == events.RefusalsReported("the liar", ((message.id, "ugly"),), 0)
        (peer,) = driver.peers
        assert peer.refusals.reported == {message.id: "ugly"}


@pytest.mark.parametrize("data", [b"\xff\xff\x7f", frame(), frame((b"x" * 20, "a"), (b"x" * 20, "a"))])
async def test_who_breaks_the_rules_is_dropped(network: Network, opened: Open, data: bytes) -> None:
    heard = Heard()
    async with Driver(opened(), on_event=heard) as driver, lying(network, driver) as (liar, stream):
        await stream.send(data)
        await liar.wait_closed()
        (event,) = await heard.wait(events.Disconnected)
        assert event.blamed
        assert event.reason.startswith("it broke the refusals protocol: ")


async def test_what_came_before_a_violation_is_reported(network: Network, opened: Open, signer: Signer) -> None:
    ours, heard = opened(signer=signer), Heard()
    message = ours.append("mine")
    async with Driver(ours, on_event=heard) as driver, lying(network, driver) as (_, stream):
        await stream.send(frame((core.decode_id(message.id), "ugly")) + b"\xff\xff\x7f")
        await heard.wait(events.Disconnected)
    assert [event.refused for event in heard.of(events.RefusalsReported)] == [((message.id, "ugly"),)]


@pytest.mark.parametrize("ended", [True, False])
async def test_a_second_stream_breaks_the_rules(network: Network, opened: Open, ended: bool) -> None:
    """Otherwise each would name as many messages as one may."""
    heard = Heard()
    async with Driver(opened(), on_event=heard) as driver, lying(network, driver) as (liar, stream):
        if ended:
            await stream.aclose()
            await anyio.wait_all_tasks_blocked()
        # The connection may end before the stream is agreed on; the stream may be reset first.
        with suppress(NetworkError):
            await liar.open_stream(driver.protocols.refusals)
        (event,) = await heard.wait(events.Disconnected)
        assert (event.blamed, event.reason) == (True, "it opened a second refusals stream")


async def test_a_flood_is_read_at_a_pace(network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 3600.0)
    heard = Heard()
    async with Driver(opened(), on_event=heard) as driver, lying(network, driver) as (_, stream):
        with anyio.move_on_after(0.2):
            for count in range(1, 2**20):
                await stream.send(frame(more=count))
        await heard.wait(events.RefusalsReported)
        await anyio.wait_all_tasks_blocked()
        # One event for all that had come, and then nothing is read.
        assert len(heard.of(events.RefusalsReported)) == 1
        assert driver.telemetry.counters.dropped == 0


async def test_a_liar_keeps_nobody_from_syncing(
    network: Network, opened: Open, signer: Signer, other_signer: Signer
) -> None:
    ours, theirs, heard = opened(signer=signer), opened(signer=other_signer), Heard()
    message = ours.append("mine")
    async with (
        Driver(ours, broadcast=QUICK, on_event=heard) as client,
        Driver(theirs, broadcast=QUICK) as server,
        lying(network, client) as (_, stream),
    ):
        await stream.send(frame((core.decode_id(message.id), "no"), more=2**32 - 1))
        await heard.wait(events.RefusalsReported)
        async with joined(network, client, server):
            ours.append("more")
            theirs.append("theirs")
            await until_equal(ours, theirs)
        honest = [peer for peer in client.peers if peer.name != "the liar"]
        assert all(peer.refusals.reported == {} for peer in honest)


def session(network: Network, reported: dict[str, str], more: int = 0) -> PeerSession:
    peer = PeerSession(1, "the hub", connect_pair(network, [])[0], may_write=True)
    peer.refusals.reported, peer.refusals.more = reported, more
    return peer


async def test_the_error_names_the_way_back(network: Network, opened: Open) -> None:
    refusals = Driver(opened(), rebase_command=lambda peer: f"rebase {len(peer.refusals.reported)}").refusals
    assert refusals.error_for(session(network, {}), "the hub") is None
    reported = {f"{number:032}": f"reason {number}" for number in range(7)}
    error = refusals.error_for(session(network, reported, 3), "the hub")
    assert error is not None
    assert (error.peer, error.refused, error.more) == ("the hub", tuple(reported.items()), 3)
    text = str(error)
    assert text.startswith("the hub refuses 10 messages of this log, and so lacks what descends from them: message 000")
    assert '"reason 4"; and 5 more' in text
    assert text.endswith(". To go on without what it refuses: rebase 7")
