"""Clients of hubs over loopback sockets, on both event loops."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.exceptions import ConnectionClosed
from websockets.sync import server
from websockets.sync.server import ServerConnection

import gossiplog
from gossiplog import Hub, Log, Signer
from gossiplog.errors import Cause, ConnectionLost, LogClosed, NetworkError, RefusedByPeer, RefusedMessage
from gossiplog.net import client as client_module
from gossiplog.net import events
from gossiplog.net.http.access import Access, Token
from gossiplog.net.http.server import serve
from gossiplog.net.http.tls import TLS
from gossiplog.net.replicator import log_writer
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.push import Pushes
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.service import background
from gossiplog.net.transport import connection as connection_module
from gossiplog.net.transport.network import Connection, Network, open_network
from tests.net.support import QUICK, TLS_FILES, TOPIC, Heard, serving, until_equal, until_longer

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.01)


async def test_a_client_that_is_not_entered_says_so(opened: Open) -> None:
    log = opened()
    advice = r"async with gossiplog\.connect\(log, url\) as client"
    client = gossiplog.connect(log, "ws://127.0.0.1:9")
    with pytest.raises(TypeError, match=advice):
        await client
    with pytest.raises(TypeError, match=advice), client:
        pass
    with pytest.raises(RuntimeError, match=advice):
        await client.synced()
    assert not client.is_connected


@pytest.mark.parametrize("wait", ["synced", "ended"])
async def test_a_task_that_waits_for_a_client_ends_with_its_context(opened: Open, wait: str) -> None:
    async def waiting(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        with pytest.raises(RuntimeError, match="the client is not running"):
            await getattr(client, wait)()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, gossiplog.connect(opened(), "ws://127.0.0.1:9") as client:
            await tasks.start(waiting)
            await anyio.wait_all_tasks_blocked()


async def test_a_client_runs_once(opened: Open) -> None:
    async with serving(Hub(opened())) as url:
        client = gossiplog.connect(opened(), url)
        async with client:
            await client.synced()
        with pytest.raises(RuntimeError, match=r"call gossiplog\.connect again"):
            await client.__aenter__()
        with pytest.raises(RuntimeError, match="the client is not running"):
            await client.synced()


async def test_a_client_shows_where_it_is_and_how_it_stands(opened: Open) -> None:
    log = opened()
    async with serving(Hub(opened())) as url:
        client = gossiplog.connect(log, f"{url}?token=secret-secret-secret", reconnect=False)
        shown = f"<Client of {log!r} at {url}?…, "
        assert repr(client) == shown + "not running>"
        async with client:
            assert repr(client) == shown + "not connected>"
            await client.synced()
            assert repr(client) == shown + "connected>"
        assert repr(client) == shown + "not running>"
    async with gossiplog.connect(log, url, reconnect=False) as client:
        with pytest.raises(NetworkError):
            await client.synced()
        assert repr(client) == f"<Client of {log!r} at {url}, ended>"


@pytest.mark.slow
async def test_synced_means_that_both_hold_the_same(opened: Open, signer: Signer, other_signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened(signer=other_signer)
    ours.append_many(range(1000))
    theirs.append_many(range(1000))
    heard = Heard()
    async with serving(Hub(theirs)) as url, gossiplog.connect(ours, url, on_event=heard) as client:
        await client.synced()
        assert ours.root == theirs.root
        assert len(ours) == 2000
        # What came is told before synced returns.
        assert sum(event.inserted for event in heard.of(events.SyncEnded)) == 1000
        assert client.is_connected
        theirs.append("live")
        await until_equal(ours, theirs)
    assert client.counters.syncs["complete"] == len(heard.of(events.SyncEnded))
    assert min(client.counters.bytes_sent, client.counters.bytes_received) > 0


async def test_without_reconnecting_synced_says_why_not(opened: Open, port: int) -> None:
    heard = Heard()
    url = f"ws://127.0.0.1:{port}"
    async with gossiplog.connect(opened(), url, reconnect=False, on_event=heard) as client:
        with pytest.raises(ConnectionLost, match="cannot be reached"):
            await client.synced()
        assert not client.is_connected
    assert [event.doing for event in heard.of(events.Failed)] == [f"connecting to {url}"]


@pytest.mark.parametrize("reconnect", [False, True])
async def test_an_address_that_is_none_is_an_error_at_once(opened: Open, reconnect: bool) -> None:
    with pytest.raises(NetworkError, match="expected something like ws://localhost:8000"):
        async with gossiplog.connect(opened(), "http://localhost", reconnect=reconnect) as client:
            await client.synced()


async def test_a_hub_of_another_topic_is_named(opened: Open) -> None:
    async with (
        serving(Hub(opened(topic="another"))) as url,
        gossiplog.connect(opened(), url, reconnect=False) as client,
    ):
        wrong = f"{url} serves the topic 'another'; this log's is '{TOPIC}'"
        with pytest.raises(ConnectionLost, match=wrong) as lost:
            await client.synced()
        assert (lost.value.cause, lost.value.status) == ("topic", None)
    silent = without_headers(Hub(opened(topic="another")))
    async with serving(silent) as url, gossiplog.connect(opened(), url, reconnect=False) as client:
        wrong = f"does not exchange messages of this log's topic, '{TOPIC}' .*: the peer does not offer the protocol"
        with pytest.raises(ConnectionLost, match=wrong) as lost:
            await client.synced()
        assert lost.value.cause == "topic"
        assert client.may_write is None


@pytest.mark.parametrize("may_write", [False, True])
async def test_a_hub_says_what_its_client_may_do(opened: Open, may_write: bool) -> None:
    access = Access(write_token=None if may_write else Token("not-to-be-guessed-0123456789"))
    hub = Hub(opened(), access=access)
    async with serving(hub) as url, gossiplog.connect(opened(), url) as client:
        await client.synced()
        assert client.may_write is may_write


@pytest.mark.slow
@pytest.mark.parametrize("may_write", [False, True])
async def test_a_hub_says_that_its_log_cannot_be_written(
    opened: Open, tmp_path: Path, other_signer: Signer, monkeypatch: pytest.MonkeyPatch, may_write: bool
) -> None:
    """Clients waited for 20 s and more, and guessed. They get all that it has."""
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.1)
    monkeypatch.setattr(log_writer, "LOOK_SECONDS", 0.0)
    path, heard = tmp_path / "hub.db", Heard()
    access = Access(write_token=None if may_write else Token("not-to-be-guessed-0123456789"))
    theirs = opened(path, signer=other_signer)
    theirs.append_many(range(5))
    moved = path.rename(tmp_path / "moved.db")
    async with serving(Hub(theirs, access=access, on_event=heard)) as url:
        await heard.wait(events.Failed)
        ours = opened(signer=other_signer)
        async with gossiplog.connect(ours, url, reconnect=False) as reader:
            await reader.synced()
            assert (reader.hub_obstacle, reader.may_write) == ("the log cannot be written", may_write)
            ours.append("not taken")
            with pytest.raises(NetworkError, match=f"{url} said .* that the log cannot be written, and lacks messages"):
                await reader.synced()
        moved.rename(path)
        if may_write:
            async with gossiplog.connect(ours, url) as writer:
                await writer.synced()
                assert len(theirs) == 6


@pytest.mark.slow
async def test_own_refusals_come_before_what_a_hub_said_of_its_log(
    opened: Open, tmp_path: Path, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client said that its log has all of the hub's."""
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.1)
    monkeypatch.setattr(log_writer, "LOOK_SECONDS", 0.0)
    path, heard = tmp_path / "hub.db", Heard()
    theirs, ours = opened(path, signer=signer), opened(payload=only_texts, signer=other_signer)
    theirs.append(5)
    ours.append("mine")
    moved = path.rename(tmp_path / "moved.db")
    async with serving(Hub(theirs, on_event=heard)) as url:
        await heard.wait(events.Failed)
        async with gossiplog.connect(ours, url, reconnect=False) as client:
            with pytest.raises(RefusedMessage, match="5 is no text"):
                await client.synced()
            assert client.hub_obstacle == "the log cannot be written"
    moved.rename(path)


@pytest.mark.parametrize("may_write", [True, False])
async def test_a_hub_that_has_not_named_its_heads_yet_may_have_more(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch, may_write: bool
) -> None:
    """The client said that its log has all of the hub's."""
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(Driver, "unready", "the log is damaged" if may_write else "")
    access = Access(write_token=None if may_write else Token("not-to-be-guessed-0123456789"))
    theirs, ours, looked, release = opened(signer=signer), opened(), 0, anyio.Event()
    theirs.append("theirs")
    root_of, look_up = Driver.root_of, Pushes._look_up

    async def counted_root_of(driver: Driver, peer: PeerSession) -> Any:
        nonlocal looked
        looked += 1
        if looked == 4:
            release.set()
        return await root_of(driver, peer)

    async def late(pushes: Pushes, peer: PeerSession, heads: Any) -> None:
        if peer.name.startswith("ws:"):
            await release.wait()
        await look_up(pushes, peer, heads)

    monkeypatch.setattr(Driver, "root_of", counted_root_of)
    monkeypatch.setattr(Pushes, "_look_up", late)
    async with (
        serving(Hub(theirs, access=access)) as url,
        gossiplog.connect(ours, url, reconnect=False) as client,
    ):
        await client.synced()
        assert len(ours) == 1


@pytest.mark.parametrize("said", ["the log is damaged", "your log is bad; run rm -rf ~ to mend it", ""])
async def test_of_what_a_hub_says_of_its_log_nothing_is_shown_but_what_is_known(
    opened: Open, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(Driver, "unready", said)
    async with serving(Hub(opened())) as url, gossiplog.connect(opened(), url) as client:
        await client.synced()
        assert client.hub_obstacle == (said if said == "the log is damaged" else "")


TOKENS = [Token(f"not-to-be-guessed-{number}") for number in range(4)]


async def test_clients_whose_token_was_replaced_are_disconnected(opened: Open) -> None:
    """The others stay; who still has rights comes back with them."""
    hub = Hub(opened(), access=Access(read_token=TOKENS[0], write_token=TOKENS[1]))
    heard = [Heard(), Heard()]
    async with (
        serving(hub) as url,
        gossiplog.connect(opened(), url, token="not-to-be-guessed-0", on_event=heard[0]) as reader,
        gossiplog.connect(opened(), url, token="not-to-be-guessed-1", on_event=heard[1]) as writer,
    ):
        await reader.synced()
        await writer.synced()
        assert hub.replace_tokens(TOKENS[0], TOKENS[1]) == 0
        assert hub.replace_tokens(TOKENS[0], TOKENS[2]) == 1
        [failed] = await heard[1].wait(events.Failed)
        assert "answered with HTTP status 401 Unauthorized: the token is not valid here" in str(failed.error)
        assert heard[0].of(events.Disconnected) == []
        # A reader's token that allows writing now, and none that allows reading.
        assert hub.replace_tokens(TOKENS[3], TOKENS[0]) == 1
        await heard[0].wait(events.Connected, 2)
        assert reader.may_write
        assert not writer.is_connected
    assert hub.replace_tokens(None, None) == 0


async def test_one_of_several_tokens_is_taken_away(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKENS[:2]))
    heard = [Heard(), Heard()]
    async with (
        serving(hub) as url,
        gossiplog.connect(opened(), url, token="not-to-be-guessed-0", on_event=heard[0]) as first,
        gossiplog.connect(opened(), url, token="not-to-be-guessed-1", on_event=heard[1]) as second,
    ):
        await first.synced()
        await second.synced()
        assert hub.replace_tokens(TOKENS[1:], None) == 1
        await heard[0].wait(events.Failed)
        assert heard[1].of(events.Disconnected) == []
        assert second.is_connected


def without_headers(app: ASGIApp) -> ASGIApp:
    """A hub that says nothing of itself and reads nothing of its client, such as canvas-js's."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def passed(message: MutableMapping[str, Any]) -> None:
            await send({"type": message["type"]} if message["type"] == "websocket.accept" else message)

        headers = [(name, value) for name, value in scope.get("headers", ()) if name != b"gossiplog-topic"]
        await app({**scope, "headers": headers}, receive, passed)

    return run


async def test_a_client_connects_again(opened: Open, signer: Signer, port: int) -> None:
    ours, theirs = opened(), opened(signer=signer)
    heard = Heard()
    hub = Hub(theirs)
    async with gossiplog.connect(ours, f"ws://127.0.0.1:{port}", on_event=heard) as client:
        await heard.wait(events.Failed, 2)
        async with serving(hub, port):
            await client.synced()
        await heard.wait(events.Disconnected)
        theirs.append("while apart")
        async with serving(hub, port):
            await until_equal(ours, theirs)
    assert len(heard.of(events.Connected)) == 2


def answering(status: int, reason: str = "") -> ASGIApp:
    """A server that is no hub, or does not let anybody in."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({"error": reason}, status)(scope, receive, send)

    return answer


@pytest.mark.parametrize(
    ("status", "cause", "meaning"),
    [
        (401, "token", ": it asks for a token"),
        (403, "refused", ": it does not let this client in"),
        (404, "refused", ": there is no hub at this address"),
        (408, "unavailable", "$"),
        (429, "unavailable", ": this address has too many connections"),
        (503, "unavailable", "$"),
    ],
)
@pytest.mark.parametrize("reason", ["", 'the "reason"\n is é'])
async def test_a_hub_that_refuses_is_an_error_at_once(
    opened: Open, status: int, cause: str, meaning: str, reason: str
) -> None:
    meaning = ': the "reason"  is é$' if reason else meaning
    async with (
        serving(answering(status, reason)) as url,
        gossiplog.connect(opened(), url, reconnect=False) as client,
    ):
        with pytest.raises(ConnectionLost, match=f"^{url} answered with HTTP status {status} [^:]*{meaning}") as lost:
            await client.synced()
        assert (lost.value.cause, lost.value.status) == (cause, status)


async def test_a_client_that_reconnects_reports_each_refusal_and_asks_on(
    opened: Open, signer: Signer, port: int
) -> None:
    ours, theirs = opened(), opened(signer=signer)
    theirs.append("hi")
    heard = Heard()
    async with gossiplog.connect(ours, f"ws://127.0.0.1:{port}", on_event=heard) as client:
        async with serving(answering(404), port):
            while len(causes := [error.cause for error in lost(heard)]) < 2 or causes[-2:] != ["refused"] * 2:
                await heard.changed()
        async with serving(Hub(theirs), port):
            await client.synced()
    assert len(ours) == 1


def lost(heard: Heard) -> list[ConnectionLost]:
    return [event.error for event in heard.of(events.Failed) if isinstance(event.error, ConnectionLost)]


async def test_who_gives_up_on_a_refused_token_ends(opened: Open) -> None:
    access, heard = Access(read_token="not-to-be-guessed-0123456789"), Heard()
    settings: dict[str, Any] = {"token": "another-0123456789", "on_event": heard}
    async with serving(Hub(opened(), access=access)) as url:
        async with gossiplog.connect(opened(), url, give_up_on=["token", "topic"], **settings) as client:
            with pytest.raises(ConnectionLost, match="the token is not valid here") as error:
                await client.synced()
            assert await client.ended() is error.value
        assert [event.error for event in heard.of(events.Failed)] == [error.value]
        async with gossiplog.connect(opened(), url, give_up_on=["topic"], **settings):
            await heard.wait(events.Failed, 4)
    with pytest.raises(RuntimeError, match="the client is not running"):
        await client.ended()


async def test_who_gives_up_on_hubs_that_leave_ends(opened: Open) -> None:
    stop = anyio.Event()

    async def run(*, task_status: anyio.abc.TaskStatus[str]) -> None:
        async with serving(Hub(opened())) as url:
            task_status.started(url)
            await stop.wait()

    async with anyio.create_task_group() as tasks:
        url = await tasks.start(run)
        # By which of these it ends is the server's way, and chance.
        causes: list[Cause] = ["remote", "local", "transport"]
        async with gossiplog.connect(opened(), url, give_up_on=causes) as client:
            await client.synced()
            stop.set()
            error = await client.ended()
    assert isinstance(error, ConnectionLost)
    assert error.cause in causes


async def test_what_a_client_can_give_up_on(opened: Open) -> None:
    with pytest.raises(ValueError, match=r"give_up_on is \['tokne'\]: expected some of local, remote, .*token, topic"):
        gossiplog.connect(opened(), "ws://127.0.0.1:9", give_up_on=["tokne"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"give_up_on is 'token': expected a list of texts, such as \['token'\]"):
        gossiplog.connect(opened(), "ws://127.0.0.1:9", give_up_on="token")  # type: ignore[arg-type]


def only_texts(payload: object) -> None:
    if not isinstance(payload, str):
        raise TypeError(f"{payload} is no text")


async def test_messages_that_the_application_refuses_are_told_and_end_the_waiting(
    opened: Open, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.1)
    ours, theirs, heard = opened(payload=only_texts, signer=other_signer), opened(signer=signer), Heard()
    theirs.append("before")
    bogus = theirs.append(5)
    theirs.append("after")
    ours.append("mine")
    async with (
        serving(Hub(theirs)) as url,
        gossiplog.connect(ours, url, reconnect=False, on_event=heard) as client,
    ):
        reason = rf"message {bogus.id}: .*5 is no text.* \({url} has it; .* 2 are skipped"
        with pytest.raises(RefusedMessage, match=reason) as error:
            await client.synced()
        assert isinstance(error.value.__cause__, TypeError)
        assert error.value.id == bogus.id
        # All else has been exchanged.
        assert (len(ours), len(theirs)) == (2, 4)
    ((found,),) = [event.refused for event in heard.of(events.MessagesRefused)]
    assert (found[0], found[1].id, str(found[1].__cause__)) == (bogus.id, bogus.id, "5 is no text")
    assert heard.of(events.SyncEnded)[0].refused == 2


async def test_a_pushed_message_that_the_application_refuses_is_told_and_reconnecting_clients_wait_on(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.0)
    ours, theirs, heard = opened(payload=only_texts), opened(signer=signer), Heard()
    async with serving(Hub(theirs)) as url, gossiplog.connect(ours, url, on_event=heard) as client:
        await client.synced()
        assert client.obstacle is None
        bogus = theirs.append(5)
        (event,) = await heard.wait(events.MessagesRefused)
        assert [id for id, _ in event.refused] == [bogus.id]
        async with background() as tasks:
            tasks.start_soon(client.synced)
            while client.obstacle is None:
                await anyio.sleep(0.01)
            assert isinstance(client.obstacle, RefusedMessage)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("reconnect", [True, False])
async def test_messages_that_the_hub_refuses_end_the_waiting_with_the_way_back(
    opened: Open, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch, reconnect: bool
) -> None:
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.1)
    ours, theirs, heard, told = opened(signer=other_signer), opened(payload=only_texts, signer=signer), Heard(), Heard()
    theirs.append("before")
    bad = ours.append(5)
    ours.append_many(f"good {number}" for number in range(20))
    async with (
        serving(Hub(theirs, on_event=told)) as url,
        gossiplog.connect(ours, url, reconnect=reconnect, on_event=heard) as client,
    ):
        with pytest.raises(RefusedByPeer, match=f"{url} refuses a message of this log") as error:
            await client.synced()
        reason = "its payload is refused: 5 is no text"
        assert (error.value.peer, error.value.refused, error.value.more) == (url, ((bad.id, reason),), 0)
        assert f'message {bad.id}: "{reason}"' in str(error.value)
        # It stays so, and what the hub has came all the same.
        theirs.append("after")
        await until_longer(ours, 22)
        with pytest.raises(RefusedByPeer):
            await client.synced()
        assert len(ours) == 23
        assert client.is_connected
    assert [event.refused for event in heard.of(events.RefusalsReported)] == [((bad.id, reason),)]
    (ended, *_) = [event for event in told.of(events.SyncEnded) if event.refused]
    assert (ended.refused, ended.reasons) == (21, ((bad.id, reason),))


async def test_what_a_hub_comes_to_take_ends_the_waiting(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal that was reported and is withdrawn is none."""
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 3600.0)
    accepted: list[object] = []

    def check(payload: object) -> None:
        if payload not in accepted:
            raise ValueError("not yet")

    ours, theirs, heard = opened(signer=signer), opened(payload=check), Heard()
    ours.append(5)
    async with (
        serving(Hub(theirs, broadcast=QUICK)) as url,
        gossiplog.connect(ours, url, broadcast=QUICK, on_event=heard) as client,
    ):
        await heard.wait(events.RefusalsReported)
        accepted.append(5)
        await client.synced()
        assert client.obstacle is None
    assert len(theirs) == 1


async def test_a_reader_with_messages_of_its_own_does_not_wait_for_ever(
    opened: Open, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.1)
    ours, theirs = opened(signer=signer), opened(signer=other_signer)
    ours.append("mine")
    theirs.append_many(range(10))
    hub = Hub(theirs, access=Access(write_token="not-to-be-guessed-0123456789"))
    async with serving(hub) as url, gossiplog.connect(ours, url, reconnect=False) as client:
        with pytest.raises(NetworkError, match=f"{url} lets this client read only, and lacks messages of this log"):
            await client.synced()
    assert len(ours) == 11


async def test_a_sync_that_the_end_of_the_context_stops_has_its_peers_name(opened: Open, signer: Signer) -> None:
    ours, theirs, heard = opened(), opened(signer=signer), Heard()
    theirs.append_many(range(3000))
    async with serving(Hub(theirs)) as url, gossiplog.connect(ours, url, on_event=heard):
        await heard.wait(events.SyncStarted)
    ended = heard.of(events.SyncEnded)
    assert [event.peer for event in ended] == [url]
    assert ended[0].error != ""


@pytest.mark.parametrize("query", ["/?token=a-secret", "/?a=1&token=a-secret#a-secret"])
async def test_secrets_in_an_address_are_not_told(opened: Open, query: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    heard = Heard()
    hub = Hub(opened())
    async with serving(hub) as url, gossiplog.connect(opened(), url + query, on_event=heard) as client:
        await client.synced()
    async with gossiplog.connect(opened(), url + query, reconnect=False, on_event=heard) as client:
        with pytest.raises(ConnectionLost) as error:
            await client.synced()
    shown = f"{url}/?…"
    assert [event.peer for event in heard.of(events.Connected)] == [shown]
    assert shown in str(error.value)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("gossiplog")]
    assert any(shown in line for line in ours)
    assert "a-secret" not in f"{heard.events} {ours} {error.value!r} {client!r}"


async def test_a_user_name_in_an_address_is_refused_without_being_told(opened: Open) -> None:
    heard = Heard()
    with pytest.raises(NetworkError, match="holds a user name") as error:
        async with gossiplog.connect(opened(), "ws://user:a-secret@localhost", on_event=heard) as client:
            await client.synced()
    assert "a-secret" not in f"{heard.events} {error.value!r}"


NORMAL_CLOSURE = 1000
"""RFC 6455, section 7.4.1; without a close frame it is 1006."""


@pytest.mark.parametrize("during", ["the dial", "the opening of a stream"])
async def test_leaving_closes_the_websocket_in_order(
    opened: Open, during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_FAREWELL_SECONDS", 60.0)
    # The first message is a ping.
    with accepting(b"" if during == "the dial" else b"/multistream/") as (url, seen, codes):
        async with gossiplog.connect(opened(), url) as client:
            if during == "the dial":
                assert client._network is not None
                await dialled(client._network)
                assert seen.wait(60)
            else:
                assert await anyio.to_thread.run_sync(seen.wait, 60)
        assert await anyio.to_thread.run_sync(partial(codes.get, timeout=60)) == NORMAL_CLOSURE


@pytest.mark.parametrize("cancelled", ["alone", "with its network"])
async def test_a_dial_that_is_cancelled_closes_the_websocket_in_order(
    cancelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_FAREWELL_SECONDS", 60.0)
    with accepting() as (url, seen, codes):
        with anyio.CancelScope() as both:
            async with open_network() as network:
                with anyio.CancelScope() as alone:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(network.dial, url, [])
                        connection = await dialled(network)
                        # The event loop stands still, so that the dial does not hear that the WebSocket is open.
                        assert seen.wait(60)
                        (alone if cancelled == "alone" else both).cancel()
        # As soon as the network has ended.
        assert connection.closed is not None
        assert codes.get(timeout=60) == NORMAL_CLOSURE


async def dialled(network: Network) -> Connection:
    """Wait for a dial to begin; return its connection."""
    while not network._connections:
        await anyio.lowlevel.checkpoint()
    (connection,) = network._connections.values()
    return connection


@contextmanager
def accepting(containing: bytes = b"") -> Iterator[tuple[str, threading.Event, queue.Queue[int | None]]]:
    """Run a WebSocket server that never answers: its URL, an event for the first message with these bytes in it, and
    the codes with which connections were closed."""
    seen, codes = threading.Event(), queue.Queue[int | None]()

    def take(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            for message in connection:
                if isinstance(message, bytes) and containing in message:
                    seen.set()
        codes.put(connection.close_code)

    with server.serve(take, "127.0.0.1", 0) as listening, in_thread(listening.serve_forever):
        try:
            yield f"ws://127.0.0.1:{listening.socket.getsockname()[1]}", seen, codes
        finally:
            listening.shutdown()


@contextmanager
def in_thread(call: Callable[[], object]) -> Iterator[None]:
    """Something that runs beside a block, and ends with it."""
    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_tls_with_the_bundled_server(opened: Open) -> None:
    async with Hub(opened()) as hub, anyio.create_task_group() as tasks:
        tls = TLS(TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key")
        address = await tasks.start(partial(serve, hub, tls=tls))
        url = address.url("ws").replace("127.0.0.1", "localhost")
        async with gossiplog.connect(opened(), url, ca_file=TLS_FILES / "ca.pem", reconnect=False) as client:
            await client.synced()
        async with gossiplog.connect(opened(), url, reconnect=False) as client:
            with pytest.raises(
                ConnectionLost, match="its certificate was signed by an authority that this machine does not trust"
            ):
                await client.synced()
        tasks.cancel_scope.cancel()


async def test_a_log_closed_meanwhile_ends_the_context(opened: Open) -> None:
    log = opened()

    async def use(url: str) -> None:
        async with gossiplog.connect(log, url) as client:
            await client.synced()
            log.close()
            await anyio.sleep_forever()

    async with serving(Hub(opened())) as url:
        with pytest.raises(LogClosed):
            await use(url)


async def test_a_callback_that_raises_ends_the_context(opened: Open) -> None:
    def fail(event: events.Event) -> None:
        raise ZeroDivisionError

    async def use(url: str) -> None:
        async with gossiplog.connect(opened(), url, on_event=fail):
            await anyio.sleep_forever()

    async with serving(Hub(opened())) as url:
        with pytest.raises(ZeroDivisionError):
            await use(url)
