"""Hubs as ASGI applications, by themselves and mounted, on both event loops."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message

import gossiplog
from gossiplog import Hub, Log, Signer
from gossiplog.errors import ConnectionLost, LogClosed, StorageError
from gossiplog.log import writing as writing_module
from gossiplog.net import events
from gossiplog.net import hub as hub_module
from gossiplog.net.http.access import Access, Token
from gossiplog.net.http.addresses import USUAL_CONNECTIONS, Addresses
from gossiplog.net.http.message_json import CONTENT_TYPES
from gossiplog.net.hub import _Socket
from gossiplog.net.rate_limited_log import LINES, VIOLATION_KEY
from gossiplog.net.replicator import log_writer
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import Network, open_network
from gossiplog.protocol.sync import SyncServerConfig
from gossiplog.protocol.wire import Protocols
from tests.net.asgi import call
from tests.net.support import TOPIC, Heard, serving, until_longer

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


def in_starlette(hub: Hub, *, enters: bool = True) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with hub:
            yield

    return Starlette(routes=[Mount("/log", app=hub)], lifespan=lifespan if enters else None)


def in_fastapi(hub: Hub) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with hub:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/log", hub)
    return app


@pytest.mark.parametrize("mount", [in_starlette, in_fastapi])
async def test_mounted_in_another_application(opened: Open, signer: Signer, mount: Callable[[Hub], Any]) -> None:
    ours, theirs = opened(), opened(signer=signer)
    theirs.append_many(range(10))
    async with serving(mount(Hub(theirs))) as url, gossiplog.connect(ours, f"{url}/log/") as client:
        await client.synced()
    assert ours.root == theirs.root


@pytest.mark.parametrize("mount", [in_starlette, in_fastapi])
async def test_a_client_that_left_out_the_slash_of_a_mounted_hub_learns_it(
    opened: Open, mount: Callable[[Hub], Any]
) -> None:
    async with (
        serving(mount(Hub(opened()))) as url,
        gossiplog.connect(opened(), f"{url}/log?token=secret-secret-secret", reconnect=False) as client,
    ):
        with pytest.raises(ConnectionLost, match="403") as caught:
            await client.synced()
    assert str(caught.value).endswith(f"(a hub that is mounted in an application has a slash at its end: {url}/log/?…)")
    assert caught.value.cause == "refused"


async def test_a_hub_shows_its_log_and_whether_it_runs(opened: Open, tmp_path: Path) -> None:
    log = opened(tmp_path / "log.db")
    hub = Hub(log)
    assert repr(hub) == f"<Hub of {log!r}, not running>"
    async with hub:
        assert repr(hub) == f"<Hub of {log!r}, running, clients: 0>"
    async with serving(hub) as url, gossiplog.connect(opened(), url) as client:
        await client.synced()
        assert repr(hub) == f"<Hub of {log!r}, running, clients: 1>"
    assert repr(hub) == f"<Hub of {log!r}, not running>"


@pytest.mark.parametrize("is_opened_so", [True, False], ids=["opened so", "the file is read-only"])
async def test_a_log_that_cannot_be_written_is_served_to_readers(
    opened: Open,
    signer: Signer,
    other_signer: Signer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_opened_so: bool,
) -> None:
    writing = opened(tmp_path / "log.db", signer=signer)
    writing.append_many(range(10))
    ours, heard = opened(signer=other_signer), Heard()
    with monkeypatch.context() as patched:
        if not is_opened_so:
            patched.setattr(os, "access", lambda path, mode: mode == os.R_OK)
        hub = Hub(opened(tmp_path / "log.db", read_only=is_opened_so), on_event=heard)
    async with serving(hub) as url, gossiplog.connect(ours, url) as client:
        await client.synced()
        assert client.may_write is False
        value = ours.append("not taken").value
        headers = [("Host", "localhost"), ("Content-Type", CONTENT_TYPES[0])]
        answer = await call(hub, "/api/messages", "POST", headers=headers, body=value)
        assert (answer.status, answer.error) == (403, "this hub takes no messages: its log cannot be written")
        # What the hub reads next has come after what was pushed to it.
        writing.append("taken from the file")
        await until_longer(ours, 11)
        # What it does not write either is the index, which is due.
        monkeypatch.setattr(writing_module, "INDEX_LAG", 4)
        writing.append("taken from the file, too")
        await until_longer(ours, 12)
        await client._driver.root_of(client._driver.peers[0])
        assert hub.obstacle == ""
    assert len(writing) == 12
    assert heard.of(events.Failed) == []


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"requests": 10}, {"bytes": 16_000}])
async def test_streams_that_end_early_still_bring_everything(
    opened: Open, signer: Signer, limits: dict[str, int]
) -> None:
    ours, theirs = opened(), opened(signer=signer)
    theirs.append_many(range(1500))
    async with (
        serving(Hub(theirs, sync_server=SyncServerConfig(**limits))) as url,
        gossiplog.connect(ours, url) as client,
    ):
        await client.synced()
    assert ours.root == theirs.root


async def test_before_it_is_entered_it_answers_503(opened: Open, network: Network) -> None:
    hub = Hub(opened())
    async with serving(in_starlette(hub, enters=False)) as url:
        with pytest.raises(ConnectionLost, match="503"):
            await network.dial(f"{url}/log/", ["/a"])
        async with hub:
            await (await network.dial(f"{url}/log/", ["/a"])).aclose()
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await hub(scope("websocket"), receive, send)
    assert sent.pop() == {"type": "websocket.close", "code": 1013}
    await hub(scope("http"), receive, send)
    assert sent[0]["status"] == 503
    assert b"has not started" in sent[1]["body"]


async def test_entered_twice_at_a_time_is_an_error_and_one_after_the_other_is_not(opened: Open) -> None:
    hub = Hub(opened())
    for _ in range(2):
        async with hub:
            with pytest.raises(RuntimeError, match="running already"):
                async with hub:
                    pass


async def test_the_server_hears_of_a_log_that_is_closed(opened: Open) -> None:
    log = opened()
    started, sent = anyio.Event(), []

    async def receive() -> Any:
        if not sent:
            return {"type": "lifespan.startup"}
        started.set()
        return await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    async def close() -> None:
        await started.wait()
        log.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        with pytest.raises(LogClosed):
            await Hub(log)({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
    sent.clear()
    with pytest.raises(LogClosed):
        await Hub(log)({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]


async def test_too_many_connections_are_refused(
    opened: Open, network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    hub = Hub(opened(), limits=Limits(connections=2))
    async with serving(hub) as url:
        for _ in range(2):
            await network.dial(url, ["/a"])
        with pytest.raises(ConnectionLost, match="503"):
            await network.dial(url, ["/a"])
        assert hub.counters.refused_connections == {"limit": 1}
        found = hub.counters
        assert (found.open_connections, found.connection_limits) == ({"hub": 2}, {"hub": 2})
        ready = await call(hub, "/readyz", headers=[("Host", "10.0.0.1")])
        assert (ready.status, ready.error) == (503, "2 clients are connected, as many as there may be")
        assert (await call(hub, "/healthz", headers=[("Host", "10.0.0.1")])).status == 200
    assert "not let in: the network has its 2 connections" in caplog.text


async def test_a_hub_is_ready_while_it_runs(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=Token("a-token-0123456789")))
    headers = [("Host", "10.0.0.1")]
    assert (await call(hub, "/readyz", headers=headers)).status == 503
    async with hub:
        answer = await call(hub, "/readyz", headers=headers)
        assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
        assert hub.obstacle == ""
    assert (await call(hub, "/readyz", headers=headers)).status == 503


async def test_a_hub_whose_log_is_damaged_is_not_ready(
    opened: Open, signer: Signer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.db"
    with opened(path, signer=signer) as log:
        log.append_many(range(300))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 150")
    heard = Heard()
    hub = Hub(opened(path), access=Access(read_token=Token("a-token-0123456789")), on_event=heard)
    reader = ("Authorization", "Bearer a-token-0123456789")
    async with serving(hub) as url, gossiplog.connect(opened(), url, token="a-token-0123456789"):
        await heard.wait(events.Failed)
        assert hub.obstacle.startswith("the log is damaged: the tree: the leaves loaded for the node")
        answer = await call(hub, "/readyz", headers=[("Host", "localhost"), reader])
        assert (answer.status, answer.error) == (503, hub.obstacle)
        # What is damaged names messages.
        answer = await call(hub, "/readyz", headers=[("Host", "10.0.0.1")])
        assert (answer.status, answer.error) == (503, "the log is damaged")
        assert (await call(hub, "/healthz", headers=[("Host", "10.0.0.1")])).status == 200
    (first, *_) = [text for text in caplog.messages if "damaged" in text]
    assert f"`gossiplog repair {path} --from SOURCE`" in first


@pytest.mark.parametrize("by", ["deletion", "a rename", "a copy"])
async def test_a_hub_whose_log_is_another_file_is_not_ready(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It was until the next message could not be stored."""
    monkeypatch.setattr(log_writer, "LOOK_SECONDS", 0.0)
    path, other, heard = tmp_path / "log.db", tmp_path / "other.db", Heard()
    log = gossiplog.open(path, TOPIC, signer=Signer(bytes(32)))
    log.backup(other)
    log.append("only in the write-ahead log")
    hub = Hub(log, access=Access(read_token=Token("a-token-0123456789")), on_event=heard)
    async with hub:
        match by:
            case "deletion":
                path.unlink()
            case "a rename":
                other.replace(path)
            case _:
                path.write_bytes(other.read_bytes())
        await heard.wait(events.Failed)
        reader = ("Authorization", "Bearer a-token-0123456789")
        answer = await call(hub, "/readyz", headers=[("Host", "localhost"), reader])
        assert answer.status == 503
        assert answer.error.startswith(f"the log cannot be written: the file {path} was ")
        answer = await call(hub, "/readyz", headers=[("Host", "10.0.0.1")])
        assert (answer.status, answer.error) == (503, "the log cannot be written")
    with pytest.raises(StorageError, match="while the log was open"):
        log.close()


async def test_damage_that_a_request_meets_is_reported(
    opened: Open, signer: Signer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was in no line of the log, and the caller learned nothing either."""
    path = tmp_path / "log.db"
    with opened(path, signer=signer) as log:
        log.append_many(range(10))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 5")
    async with Hub(opened(path)) as hub:
        answer = await call(hub, "/api/messages", headers=[("Host", "localhost")])
        assert (answer.status, answer.error) == (503, "the log cannot be used at the moment")
        assert hub.obstacle.startswith("the log is damaged: the stored message ")
        assert hub.counters.errors == {"CorruptLog": 1}
    assert "answering a request: the log is damaged" in caplog.text
    assert f"`gossiplog repair {path} --from SOURCE`" in caplog.text


async def test_who_is_not_let_in_is_counted(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=Token("a-token-0123456789")))
    async with hub:
        assert (await call(hub, "/metrics", headers=[("Host", "localhost")])).status == 401
        assert hub.counters.refused_requests == {"token": 1}
        assert (await call(hub, "/metrics", headers=[("Host", "evil.example.org")])).status == 403
        assert hub.counters.refused_connections == {}
        await Socket()(hub, headers=[(b"host", b"evil.example.org")])
    assert hub.counters.refused_requests == {"token": 1, "host": 1}
    assert hub.counters.refused_connections == {"host": 1}


async def test_a_client_of_another_topic_is_a_line_of_the_log(
    opened: Open, network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves at once, so that the refusal of its stream may not be reported."""
    async with serving(Hub(opened())) as url:
        client = await network.dial(url, ["/a"])
        await client.aclose()
        with anyio.fail_after(60):
            while not caplog.messages:
                await anyio.sleep(0.01)
    (line,) = caplog.messages
    assert f": it left without opening /canvas/v1/{TOPIC}/push, a stream of this log: its topic may be" in line


async def test_requests_over_http_count_against_the_memory_of_all(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    log.append("x" * 1_000_000)
    hub = Hub(log, limits=Limits(peer_bytes=8 * 2**20, total_bytes=8 * 2**20))
    held: list[int] = []

    async def receive() -> Any:
        return await anyio.sleep_forever()

    async def send(message: Any) -> None:
        held.append(hub.counters.held)

    async with hub:
        await hub({**scope("http"), "path": "/api/messages"}, receive, send)
        assert max(held) > 1_000_000
        assert hub.counters.held == 0


async def test_too_many_connections_of_one_address_are_refused(
    opened: Open, network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    hub = Hub(opened(), limits=Limits(connections_per_address=2))
    async with serving(hub) as url:
        first = await network.dial(url, ["/a"])
        await network.dial(url, ["/a"])
        with pytest.raises(ConnectionLost, match=r"429|403"):
            await network.dial(url, ["/a"])
        assert hub.counters.refused_connections == {"address": 1}
        await first.aclose()
        with anyio.fail_after(60):
            while sum(hub._addresses._counts.values()) > 1:
                await anyio.sleep(0.01)
        await network.dial(url, ["/a"])
    assert "not let in: 127.0.0.1 has its 2 connections: close one first" in caplog.text


async def test_an_address_that_broke_a_rule_is_let_in_after_a_pause(opened: Open) -> None:
    async with Hub(opened()) as hub:
        now = anyio.current_time()
        hub._addresses._clock = lambda: now
        refused = []
        for pause in (0, 10, 0):
            socket = Socket()
            socket.receive(text="hello")
            await socket(hub, client=("10.0.0.1", 1234))
            refused.append(socket.sent[0] == {"type": "websocket.close", "code": 1013})
            now += pause
        assert refused == [False, True, False]
        assert (hub.counters.dropped, hub.counters.refused_connections) == (2, {"banned": 1})
        socket = Socket()
        await socket(hub, client=("10.0.0.1", 1234), extensions={"websocket.http.response": {}})
        start, body = socket.sent
        assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
        assert (b"retry-after", b"20") in start["headers"]
        assert b"10.0.0.1 is let in again in 20 s: a client there broke a rule" in body["body"]


async def test_an_address_that_opens_connections_without_end_waits(opened: Open) -> None:
    async with Hub(opened()) as hub:
        now = anyio.current_time()
        hub._addresses = Addresses(clock=lambda: now)

        async def joins() -> bool:
            socket = Socket()
            socket.give.send_nowait({"type": "websocket.disconnect", "code": 1005})
            await socket(hub, client=("10.0.0.1", 1234))
            return socket.sent[0]["type"] == "websocket.accept"

        assert [await joins() for _ in range(USUAL_CONNECTIONS + 2)] == [True] * USUAL_CONNECTIONS + [False] * 2
        assert hub.counters.refused_connections["rate"] == 2
        now += 10
        assert await joins()


@pytest.mark.parametrize(
    ("headers", "kind", "query"),
    [
        ([(b"host", b"evil.example.org")], "host", b""),
        ([(b"host", b"localhost"), (b"origin", b"https://evil.example.org")], "origin", b""),
        ([(b"host", b"localhost"), (b"authorization", b"Bearer wrong-token-0123456789")], "token", b""),
        ([(b"host", b"localhost")], "token", b"token=wrong-token-0123456789"),
        ([(b"host", b"localhost")], "token", b""),
    ],
    ids=["host", "origin", "token", "token in the address", "no token"],
)
async def test_websockets_that_are_refused_count_as_opened(
    opened: Open, headers: list[tuple[bytes, bytes]], kind: str, query: bytes
) -> None:
    token = "right-token-0123456789"
    right = [(b"host", b"localhost"), (b"authorization", b"Bearer " + token.encode())]
    async with Hub(opened(), access=Access(read_token=token)) as hub:
        now = anyio.current_time()
        hub._addresses._clock = hub._addresses._opened._clock = lambda: now

        async def status(headers: list[tuple[bytes, bytes]], host: str = "10.0.0.1", query: bytes = query) -> int:
            socket = Socket()
            socket.give.send_nowait({"type": "websocket.disconnect", "code": 1005})
            extensions = {"websocket.http.response": {}}
            await socket(hub, client=(host, 1234), headers=headers, query_string=query, extensions=extensions)
            return int(socket.sent[0].get("status", 101))

        found = [await status(headers) for _ in range(USUAL_CONNECTIONS + 2)]
        assert set(found[:USUAL_CONNECTIONS]) <= {401, 403}
        assert found[USUAL_CONNECTIONS:] == [429, 429]
        assert hub.counters.refused_connections == {kind: USUAL_CONNECTIONS, "rate": 2}
        # So do those that are let in, of the same address; others do not notice.
        assert await status(right, query=b"") == 429
        assert await status(right, "10.0.0.2", b"") == 101
        assert await status(headers, "127.0.0.1") in (401, 403)
        now += 10
        assert await status(right, query=b"") == 101
        assert not hub._addresses._counts


async def test_a_page_that_breaks_a_rule_does_not_lock_its_visitor_out(opened: Open) -> None:
    async def joins(origin: str | None, text: str | None = None) -> bool:
        socket = Socket()
        if text is not None:
            socket.receive(text=text)
        socket.give.send_nowait({"type": "websocket.disconnect", "code": 1000})
        headers = [(b"host", b"localhost")] + ([(b"origin", origin.encode())] if origin else [])
        await socket(hub, client=("10.0.0.1", 1234), headers=headers)
        return bool(socket.sent[0] == ACCEPT)

    async with Hub(opened(), access=Access(origins=frozenset(["*", "https://app.example"]))) as hub:
        assert await joins("https://evil.example", "hello")
        assert not await joins("https://evil.example")
        assert [await joins(origin) for origin in (None, "https://app.example", "https://other.example")] == [True] * 3
        # A program that claims to be an allowed page, or one of the hub's own, is paused as that.
        await joins("https://app.example", "hello")
        assert not await joins("https://app.example")
        await joins("http://localhost", "hello")
        assert not await joins("http://localhost")
        # Without a page, the address pays, whatever it claims to be later.
        await joins(None, "hello")
        assert [await joins(origin) for origin in (None, "https://other.example")] == [False] * 2


@pytest.mark.parametrize("client", [("127.0.0.1", 1234), None])
@pytest.mark.parametrize("limit", [None, 5])
async def test_local_clients_are_not_paused(opened: Open, client: tuple[str, int] | None, limit: int | None) -> None:
    async with Hub(opened(), limits=Limits(connections_per_address=limit)) as hub:
        for _ in range(2):
            socket = Socket()
            socket.receive(text="hello")
            await socket(hub, client=client)
            assert socket.sent[0] == ACCEPT


async def test_a_proxy_that_was_not_named_is_logged_once(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    forwarded = (b"x-forwarded-for", b"10.0.0.1")
    async with Hub(opened()) as hub:
        for address, headers in (
            ("10.0.0.1", [forwarded]),
            ("127.0.0.1", []),
            ("127.0.0.1", [forwarded]),
            ("127.0.0.1", [forwarded]),
        ):
            socket = Socket()
            socket.receive(text="hello")
            await socket(hub, client=(address, 1234), headers=[(b"host", b"localhost"), *headers])
    assert [line for line in caplog.messages if "--trusted-proxy" in line] == [
        f"127.0.0.1:1234: {hub_module._UNNAMED_PROXY}"
    ]


async def test_both_topics_are_in_the_log(opened: Callable[..., Log], caplog: pytest.LogCaptureFixture) -> None:
    """However long what a stranger calls its topic, and whatever it has in it."""
    for topic in (b"elsewhere", b"\x1b[2Jforged\xff" + b"x" * 4000):
        async with Hub(opened()) as hub:
            socket = Socket()
            await socket(hub, headers=[(b"host", b"localhost"), (b"gossiplog-topic", topic)])
        assert socket.sent == [ACCEPT, {"type": "websocket.close", "code": 1008}]
    first, second = caplog.messages
    assert first == f"127.0.0.1:1234: its log has the topic 'elsewhere'; this hub serves {TOPIC!r}"
    assert r"'\x1b[2Jforged" in second
    assert second.isprintable()
    assert len(second) < 400


async def test_a_proxy_that_was_named_is_not_logged(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Where a proxy is believed, servers have no port for its client, which may be a program of this machine."""
    async with Hub(opened()) as hub:
        socket = Socket()
        socket.receive(text="hello")
        headers = [(b"host", b"localhost"), (b"x-forwarded-for", b"127.0.0.1")]
        await socket(hub, client=("127.0.0.1", 0), headers=headers)
        assert socket.sent[0] == ACCEPT
    assert "--trusted-proxy" not in caplog.text


async def test_clients_without_a_port_have_numbers(opened: Open) -> None:
    heard = Heard()
    async with Hub(opened(), on_event=heard) as hub:
        for client in (("192.0.2.7", 0), ("192.0.2.8", 7), ("2001:db8::1", 0)):
            socket = Socket()
            socket.receive(text="hello")
            await socket(hub, client=client)
        await heard.wait(events.Rejected, 3)
    assert [event.peer for event in heard.of(events.Rejected)] == ["192.0.2.7#1", "192.0.2.8:7", "[2001:db8::1]#3"]


ACCEPT = {
    "type": "websocket.accept",
    "headers": [(b"gossiplog-topic", TOPIC.encode()), (b"gossiplog-access", b"write")],
}


def scope(kind: str) -> dict[str, Any]:
    """Of a request, as a server shows it to an application."""
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws" if kind == "websocket" else "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1234),
        "server": ("127.0.0.1", 80),
    }


class Socket:
    """A client's WebSocket, as a server shows it to an application."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.give, self._given = anyio.create_memory_object_stream[dict[str, Any]](1000)
        self.give.send_nowait({"type": "websocket.connect"})

    async def __call__(self, hub: Hub, **fields: Any) -> None:
        with self.give, self._given:
            await hub(scope("websocket") | fields, self._given.receive, lambda message: self._send(message))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    def receive(self, **data: object) -> None:
        self.give.send_nowait({"type": "websocket.receive", **data})


async def test_text_is_refused_and_blamed(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with Hub(opened()) as hub:
        socket = Socket()
        socket.receive(text="hello")
        await socket(hub)
        assert socket.sent[0] == ACCEPT
        assert socket.sent[-1] == {"type": "websocket.close", "code": 1003}
        assert hub.counters.dropped == 1
    assert "127.0.0.1:1234: dropped: it sent text on the WebSocket" in caplog.text


async def test_bytes_that_are_no_frame_are_blamed(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with Hub(opened()) as hub:
        socket = Socket()
        socket.receive(bytes=b"GET / HTTP/1.1\r\n\r\n")
        await socket(hub)
        assert socket.sent[-1] == {"type": "websocket.close", "code": 1008}
        assert hub.counters.dropped == 1
        assert hub.counters.bytes_received == 18
    assert "127.0.0.1:1234: dropped: " in caplog.text
    assert "no yamux frame" in caplog.text


async def test_who_breaks_a_rule_before_it_joins_is_an_event(opened: Open) -> None:
    """What the server says of the WebSocket is held against the client at the address that the proxy names."""
    heard = Heard()
    client = ("192.0.2.1", 1)
    async with Hub(opened(), on_event=heard) as hub:
        socket = Socket()
        reason = "it sent what no client may: incorrect masking on the WebSocket"
        socket.give.send_nowait({"type": "websocket.disconnect", "code": 1007, VIOLATION_KEY: reason})
        await socket(hub, client=client)
        await heard.wait(events.Rejected)
        assert hub.counters.dropped == 1
        again = Socket()
        await again(hub, client=client)
        assert [message["type"] for message in again.sent] == ["websocket.close"]
    assert heard.of(events.Rejected) == [events.Rejected("192.0.2.1:1", reason)]
    assert not heard.of(events.Disconnected)


async def test_a_client_that_vanishes_in_a_frame(opened: Open) -> None:
    async with Hub(opened()) as hub:
        socket = Socket()
        socket.receive(bytes=bytes([0, 1, 0]))
        socket.give.send_nowait({"type": "websocket.disconnect", "code": 1006})
        await socket(hub)
        assert [message["type"] for message in socket.sent][-1] != "websocket.close"
        assert hub.counters.dropped == 0


@pytest.mark.slow
async def test_200_clients_that_never_speak_are_dropped(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    async with Hub(opened(), push_timeout=0.2, on_event=heard) as hub:
        sockets = [Socket() for _ in range(200)]
        async with anyio.create_task_group() as tasks:
            for number, socket in enumerate(sockets):
                # Some stop in the middle of agreeing on a protocol.
                if number % 2:
                    socket.receive(bytes=bytes([0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3]) + b"\x13/m")
                tasks.start_soon(socket, hub)
        assert hub.counters.dropped == 200
        assert {socket.sent[-1]["code"] for socket in sockets} == {1008}
    assert caplog.text.count("it opened no push stream within 0.2 s") == LINES
    assert heard.of(events.Connected) == []


def frame(flags: int, stream: int, body: bytes) -> bytes:
    """A data frame of yamux."""
    return bytes([0, 0]) + flags.to_bytes(2) + stream.to_bytes(4) + len(body).to_bytes(4) + body


async def test_streams_in_vain_are_counted_and_told(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(streams=2, negotiation_seconds=0.05)
    async with Hub(opened(), limits=limits) as hub, anyio.create_task_group() as tasks:
        socket = Socket()
        tasks.start_soon(socket, hub)
        # Three at once, of which two stop in the middle of agreeing on a protocol.
        socket.receive(bytes=b"".join(frame(1, stream, b"\x13/m") for stream in (1, 3, 5)))
        with anyio.fail_after(60):
            while hub.counters.network.get("negotiations_timed_out", 0) < 2:
                await anyio.sleep(0.01)
            socket.receive(bytes=frame(5, 7, b"\x13/multistream/1.0.0\n\x07/other\n"))
            while not any("offered here" in line for line in caplog.messages):
                await anyio.sleep(0.01)
        assert hub.counters.network["streams_over_limit"] == 1
        assert hub.counters.dropped == 0
        tasks.cancel_scope.cancel()
    # Where both were late at once, one line says so.
    assert {line.partition(" (")[0].partition(": /")[0] for line in caplog.messages} == {
        "127.0.0.1:1234: it did not agree on a stream's protocol within 0.05 s",
        "127.0.0.1:1234: it opened a stream and spoke none of the protocols offered here",
        "127.0.0.1:1234: it opened a stream beyond the 2 that it may have",
    }
    assert hub.counters.network["streams_over_limit"] == 1


PLAIN = "the peer closed the connection"
LOST = "the bytes of the connection ended without a farewell"


async def join(hub: Hub, socket: Socket, heard: Heard, tasks: anyio.abc.TaskGroup) -> None:
    """Opens a push stream."""
    name = f"{Protocols(TOPIC).push}\n".encode()
    socket.receive(bytes=frame(1, 1, b"\x13/multistream/1.0.0\n" + bytes([len(name)]) + name))
    tasks.start_soon(socket, hub)
    await heard.wait(events.Connected)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"code": 1000, "reason": ""}, PLAIN),
        ({"code": 1001}, PLAIN),
        ({"code": 1005, "reason": ""}, PLAIN),
        # As uvicorn says it of a connection that was lost.
        ({"code": 1005}, LOST),
        ({"code": 1006}, LOST),
        ({}, LOST),
        # As uvicorn says it when it is stopped.
        ({"code": 1012}, "this side ended the connection"),
    ],
)
async def test_the_end_of_a_websocket_says_who_left_in_which_way(
    opened: Open, end: dict[str, Any], reason: str
) -> None:
    """Without a word of yamux, as canvas-js and pages do."""
    heard, socket = Heard(), Socket()
    async with Hub(opened(), on_event=heard) as hub, anyio.create_task_group() as tasks:
        await join(hub, socket, heard, tasks)
        socket.give.send_nowait({"type": "websocket.disconnect", **end})
        (left,) = await heard.wait(events.Disconnected)
    assert left.reason == reason


async def test_what_a_client_sent_before_it_left_is_read(opened: Open, signer: Signer) -> None:
    """Its farewell waits to be read while the hub finds that nobody takes what it sends."""
    heard, socket, failed = Heard(), Socket(), anyio.Event()

    async def send(message: Message) -> None:
        failed.set()
        raise OSError("gone")

    log = opened(signer=signer)
    async with Hub(log, on_event=heard) as hub, anyio.create_task_group() as tasks:
        await join(hub, socket, heard, tasks)
        socket._send = send  # type: ignore[method-assign]
        log.append(1)
        await failed.wait()
        await anyio.wait_all_tasks_blocked()
        # Yamux's GoAway without an error.
        socket.receive(bytes=bytes([0, 3, *bytes(10)]))
        socket.give.send_nowait({"type": "websocket.disconnect", "code": 1006})
        (left,) = await heard.wait(events.Disconnected)
    assert left.reason == PLAIN


async def test_leaving_closes_the_clients_in_order(opened: Open) -> None:
    socket = Socket()
    async with anyio.create_task_group() as tasks:
        async with Hub(opened()) as hub:
            tasks.start_soon(socket, hub)
            await anyio.wait_all_tasks_blocked()
        assert socket.sent[-1] == {"type": "websocket.close", "code": 1001}


async def test_more_than_the_window_takes_is_blamed(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with Hub(opened()) as hub:
        socket = Socket()
        # The window of a new stream has 256 KiB; this is one frame of data for it.
        size = 2**19
        socket.receive(bytes=bytes([0, 0, 0, 1]) + (1).to_bytes(4) + size.to_bytes(4) + b"\x13/multistream/1.0.0\n")
        for _ in range(8):
            socket.receive(bytes=bytes(2**16))
        await socket(hub)
        assert socket.sent[-1]["code"] == 1008
        assert hub.counters.dropped == 1
    assert "127.0.0.1:1234: dropped: " in caplog.text
    assert "window" in caplog.text


async def test_what_waits_for_a_client_that_is_gone_holds_nothing_up(opened: Open) -> None:
    """A connection that this side closes waits for its bytes to be taken: for an hour, if nobody does."""
    begun, gone, held = anyio.Event(), anyio.Event(), anyio.Event()
    sent: list[bytes] = []

    async def receive() -> Message:
        await gone.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(message: Message) -> None:
        # What yamux begins with; the farewell comes when this client is gone.
        sent.append(message["bytes"])
        begun.set()
        await held.wait()

    async with (
        open_network(Limits(closing_seconds=3600)) as network,
        Driver(opened()) as driver,
        network.attach(["/a"], client=False) as connection,
        anyio.create_task_group() as tasks,
    ):
        client = _Socket(receive, send, driver)
        tasks.start_soon(client.drain, connection)
        await begun.wait()
        connection.close()
        gone.set()
        await client.feed(connection)
        held.set()
        closed = await connection.wait_closed()
    assert closed.cause == "local"
    assert len(sent) == 1
