"""`gossiplog.dashboard.stream`: in memory, and over a socket where the pace of a reader matters."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.types import ASGIApp, Message

from gossiplog.dashboard import feed, stream
from gossiplog.dashboard.events import MOST_RATE, Committed, Delivered, Event, Noted
from gossiplog.dashboard.feed import MOST_PENDING
from gossiplog.dashboard.stream import Dashboard, access_at, player
from gossiplog.errors import NetworkError
from gossiplog.net.http import event_stream
from tests.net.asgi import call, scope
from tests.net.http.event_streams import Sent, read

pytestmark = pytest.mark.anyio

JSON = ("Content-Type", "application/json")
OWN = ("Host", "127.0.0.1:5000")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Recorded:
    """Controls that note what they were told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def append(self, peer: str) -> None:
        if peer == "gone":
            raise NetworkError("no peer is called gone")
        self.calls.append(("append", peer))

    async def stop(self, peer: str) -> None:
        self.calls.append(("stop", peer))

    async def start(self, peer: str) -> None:
        self.calls.append(("start", peer))

    async def cut(self, peer: str, other: str) -> None:
        self.calls.append(("cut", peer, other))

    async def partition(self) -> None:
        self.calls.append(("partition",))

    async def heal(self) -> None:
        self.calls.append(("heal",))

    async def add_peer(self) -> None:
        self.calls.append(("add_peer",))

    async def auto_append(self, rate: float) -> None:
        self.calls.append(("auto_append", rate))


class Reader:
    """A page's end of the stream of an application that is called in this process."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._reads = anyio.Event()
        self._reads.set()
        self._received: asyncio.Queue[bytes] = asyncio.Queue()

    async def run(self, app: ASGIApp, headers: list[tuple[str, str]]) -> None:
        async def receive() -> Message:
            await anyio.sleep_forever()
            return {}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                self._received.put_nowait(message["body"])
                await self._reads.wait()

        await app(scope("http", "/events", headers=[OWN, *headers]), receive, send)

    def pause(self) -> None:
        """Take no more than one piece, as a connection does that is full."""
        self._reads = anyio.Event()

    def resume(self) -> None:
        self._reads.set()

    async def next_piece(self) -> bytes:
        return await self._received.get()

    async def next(self) -> list[Sent]:
        """The events that come next."""
        while not (found := read(await self._received.get())):
            pass
        return found


@asynccontextmanager
async def reading(dashboard: Dashboard, *headers: tuple[str, str]) -> AsyncIterator[Reader]:
    reader = Reader()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dashboard.run)
        tasks.start_soon(reader.run, dashboard.application(), list(headers))
        yield reader
        tasks.cancel_scope.cancel()


async def test_a_page_gets_the_state_and_then_what_changes() -> None:
    dashboard = Dashboard()
    dashboard.publish(Committed(1, "a", 1, "aa"))
    dashboard.snapshot()
    async with reading(dashboard) as reader:
        (first,) = await reader.next()
        assert (first.kind, first.data["peers"]["a"]["root"]) == ("state", "aa")
        dashboard.publish(Committed(2, "a", 2, "bb"))
        (second,) = await reader.next()
        assert (second.kind, second.data["events"][0]["root"]) == ("changes", "bb")
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert reader.headers["cache-control"] == "no-store"
    assert dashboard.snapshot()["peers"]["a"]["root"] == "bb"


async def test_a_page_that_comes_back_resumes() -> None:
    dashboard = Dashboard()
    async with reading(dashboard) as reader:
        dashboard.publish(Noted(2, "two"))
        last = (await reader.next())[-1]
        while last.data.get("at", 2) != 2:
            last = (await reader.next())[-1]
    dashboard.publish(Noted(3, "three"))
    async with reading(dashboard, ("Last-Event-ID", last.id)) as reader:
        (sent,) = await reader.next()
        assert sent.kind == "changes"
        assert [event["text"] for event in sent.data["events"]] == ["three"]
    async with reading(dashboard, ("Last-Event-ID", "another-1")) as reader:
        assert (await reader.next())[0].kind == "state"


async def test_a_batch_that_publish_or_snapshot_has_made_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard()
    async with reading(dashboard) as reader:
        await reader.next()
        # The stream waits for what is announced.
        await anyio.wait_all_tasks_blocked()
        dashboard.publish(Noted(1, "before a snapshot"))
        dashboard.snapshot()
        with anyio.fail_after(5):
            assert (await reader.next())[0].data["events"][0]["text"] == "before a snapshot"
        await anyio.wait_all_tasks_blocked()
        monkeypatch.setattr(feed, "MOST_PENDING", 1)
        dashboard.publish(Noted(2, "too many wait"))
        with anyio.fail_after(5):
            assert (await reader.next())[0].data["events"][0]["text"] == "too many wait"


async def test_readers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_READERS", 1)
    dashboard = Dashboard()
    async with reading(dashboard) as reader:
        await reader.next()
        assert dashboard.readers == 1
        answer = await call(dashboard.application(), "/events", headers=[OWN])
        assert (answer.status, answer.error) == (503, "1 pages are open already: close one")
    assert dashboard.readers == 0


async def test_the_stream_shows_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SILENCE_SECONDS", 0.0)
    async with reading(Dashboard()) as reader:
        await reader.next()
        assert await reader.next_piece() == b": \n\n"


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("append", {"peer": "a"}, ("append", "a")),
        ("stop", {"peer": "a"}, ("stop", "a")),
        ("start", {"peer": "a"}, ("start", "a")),
        ("cut", {"other": "b", "peer": "a"}, ("cut", "a", "b")),
        ("partition", {}, ("partition",)),
        ("heal", {}, ("heal",)),
        ("add_peer", {}, ("add_peer",)),
        ("auto_append", {"rate": 5}, ("auto_append", 5.0)),
        ("auto_append", {"rate": MOST_RATE}, ("auto_append", MOST_RATE)),
    ],
)
async def test_commands(name: str, body: Any, expected: tuple[Any, ...]) -> None:
    controls = Recorded()
    app = Dashboard(controls=controls).application()
    answer = await call(app, f"/api/{name}", "POST", headers=[OWN, JSON], body=json.dumps(body).encode())
    assert (answer.status, answer.body) == (204, b"")
    assert controls.calls == [expected]


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "said"),
    [
        ("/api/append", [OWN, JSON, ("Origin", "https://evil.example")], b'{"peer":"a"}', 403, "evil.example"),
        ("/api/append", [("Host", "evil.example"), JSON], b'{"peer":"a"}', 403, "evil.example"),
        ("/api/append", [OWN, ("Content-Type", "text/plain")], b'{"peer":"a"}', 415, "application/json"),
        ("/api/append", [OWN], b'{"peer":"a"}', 415, "application/json"),
        ("/api/append", [OWN, JSON], b'{"peer":5}', 400, "peer: Input should be a valid string"),
        ("/api/append", [OWN, JSON], b'{"peer":"a","more":1}', 400, "more"),
        ("/api/append", [OWN, JSON], b"{}", 400, "peer"),
        ("/api/append", [OWN, JSON], b"[" * 4000, 400, "append cannot be read"),
        ("/api/append", [OWN, JSON], b"\xff", 400, "append cannot be read"),
        ("/api/append", [OWN, JSON], b" " * 5000, 413, "4096"),
        ("/api/append", [OWN, JSON], b'{"peer":"gone"}', 409, "no peer is called gone"),
        ("/api/auto_append", [OWN, JSON], b'{"rate":10001}', 400, "rate: Input should be less than or equal to 10000"),
        ("/api/auto_append", [OWN, JSON], b'{"rate":NaN}', 400, "rate"),
        ("/api/partition", [OWN, JSON], b'{"groups":[]}', 400, "groups"),
        ("/api/__init__", [OWN, JSON], b"{}", 404, "__init__"),
    ],
)
async def test_commands_that_are_refused(
    path: str, headers: list[tuple[str, str]], body: bytes, status: int, said: str
) -> None:
    controls = Recorded()
    answer = await call(Dashboard(controls=controls).application(), path, "POST", headers=headers, body=body)
    assert answer.status == status
    assert said in answer.error
    assert controls.calls == []


async def test_a_defect_is_logged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorded):
        async def heal(self) -> None:
            raise AttributeError("secret")

    app = Dashboard(controls=Broken()).application()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(AttributeError):
        await app(scope("http", "/api/heal", "POST", [OWN, JSON]), receive, send)
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"]) == {"error": "this failed: the program's log says why"}
    (record,) = caplog.records
    assert record.getMessage() == "POST /api/heal failed"
    assert "secret" in caplog.text


async def test_without_controls_there_are_no_commands() -> None:
    app = Dashboard("a network").application()
    answer = await call(app, "/api/append", "POST", headers=[OWN, JSON], body=b'{"peer":"a"}')
    assert answer.status == 404
    about = json.loads((await call(app, "/about", headers=[OWN])).body)
    assert about == {"title": "a network", "mode": "live", "now": 0.0, "commands": []}


async def test_what_a_page_is_told_of() -> None:
    app = Dashboard(controls=Recorded(), clock=lambda: 7.5).application()
    about = json.loads((await call(app, "/about", headers=[OWN])).body)
    assert about["now"] == 7.5
    assert len(about["commands"]) == 8


@pytest.mark.parametrize("path", ["/events", "/about", "/", "/page.js"])
async def test_nothing_is_for_pages_of_other_sites(path: str) -> None:
    app = Dashboard().application()
    assert (await call(app, path, headers=[OWN, ("Origin", "https://evil.example")])).status == 403
    assert (await call(app, path, headers=[("Host", "evil.example")])).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_no_page_of_another_site_has_a_browser_load_anything(site: str) -> None:
    app = Dashboard().application()
    for path in ("/events", "/about", "/page.js"):
        answer = await call(app, path, headers=[OWN, ("Sec-Fetch-Site", site)])
        assert (answer.status, "another site" in answer.error) == (403, True)
    # A link to the page is no such request, nor are the page's own.
    assert (await call(app, "/", headers=[OWN, ("Sec-Fetch-Site", site)])).status == 200
    for own in ("same-origin", "none"):
        assert (await call(app, "/page.js", headers=[OWN, ("Sec-Fetch-Site", own)])).status == 200


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/d3.min.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/base.css", "text/css; charset=utf-8"),
    ],
)
async def test_the_page(path: str, kind: str) -> None:
    app = Dashboard().application()
    answer = await call(app, path, headers=[OWN])
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.body
    again = await call(app, path, headers=[OWN, ("If-None-Match", answer.headers["etag"])])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/nothing", "/README.md", "/../events.py", "/page", "/__init__.py", "/api/append"])
async def test_nothing_else_is_served(path: str) -> None:
    assert (await call(Dashboard().application(), path, headers=[OWN])).status in (404, 405)


async def test_a_recording_is_served(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b'{"format":1}\n')
    app = player(tmp_path / "run.jsonl", "a run")
    assert (await call(app, "/recording", headers=[OWN])).body == b'{"format":1}\n'
    about = json.loads((await call(app, "/about", headers=[OWN])).body)
    assert about == {"title": "a run", "mode": "recording", "commands": []}
    assert (await call(app, "/recording", headers=[("Host", "evil.example")])).status == 403
    assert (await call(app, "/events", headers=[OWN])).status == 404


async def test_a_recording_that_is_another_now_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"format":1}\n')
    app = player(path, "a run")
    path.write_bytes(b'{"format":12}\n')
    assert (await call(app, "/recording", headers=[OWN])).status == 410
    path.unlink()
    assert (await call(app, "/recording", headers=[OWN])).status == 410


@pytest.mark.parametrize(
    ("served", "called", "status"),
    [
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "192.0.2.1", 200),
        ("0.0.0.0", "mybox.example", 403),
        ("MyBox.example", "mybox.example", 200),
        ("mybox.example", "other.example", 403),
        ("", "localhost", 200),
        ("a b", "localhost", 200),
    ],
)
async def test_a_page_is_known_by_addresses_and_the_name_that_it_is_served_at(
    served: str, called: str, status: int
) -> None:
    app = Dashboard().application(access_at(served))
    answer = await call(app, "/about", headers=[("Host", called)])
    assert answer.status == status
    if status == 403:
        assert b"call it by its address, or have it serve at the name" in answer.body


async def test_what_is_recorded_is_all_that_is_published() -> None:
    """Also of the last moment."""
    recorded: list[Event] = []
    dashboard = Dashboard(record=recorded.extend)
    published = [Delivered(1, "a", f"m{number}", "b") for number in range(500)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dashboard.run)
        for event in published[:250]:
            dashboard.publish(event)
        while not recorded:
            await anyio.sleep(0.001)
        for event in published[250:]:
            dashboard.publish(event)
        tasks.cancel_scope.cancel()
    assert recorded == published


async def test_a_slow_reader_gets_a_newer_state_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published while one piece is on its way to it does not wait for it; it is in the state that follows."""
    monkeypatch.setattr(stream, "BATCH_SECONDS", 0.0)
    dashboard = Dashboard()
    async with reading(dashboard) as quick, reading(dashboard) as slow:
        await quick.next()
        await slow.next()
        slow.pause()
        for number in range(100):
            dashboard.publish(Committed(number, "a", number, "aa"))
            while (await quick.next())[-1].data["figures"]["at"] != number:
                pass
        slow.resume()
        first, second = (await slow.next())[0], (await slow.next())[-1]
        assert (first.kind, first.data["figures"]["at"]) == ("changes", 0)
        assert (second.kind, second.data["peers"]["a"]["messages"]) == ("state", 99)


async def test_over_a_socket() -> None:
    dashboard = Dashboard()
    dashboard.publish(Committed(1, "a", 1, "aa"))
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(dashboard.serve)
        async with await anyio.connect_tcp(address.host, address.port) as client:
            await client.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            text = b""
            while b'"root":"aa"' not in text:
                text += await client.receive()
            assert text.startswith(b"HTTP/1.1 200")
        tasks.cancel_scope.cancel()


async def test_a_recording_has_what_a_snapshot_or_a_full_batch_has_taken() -> None:
    recorded: list[Event] = []
    dashboard = Dashboard(record=recorded.extend)
    published = [Noted(0.0, str(number)) for number in range(MOST_PENDING + 10)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dashboard.run)
        for event in published:
            dashboard.publish(event)
        dashboard.snapshot()
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert recorded == published


async def test_a_write_that_is_under_way_at_the_end_comes_first_and_whole() -> None:
    recorded: list[Event] = []
    begun, goes_on = threading.Event(), threading.Event()

    def record(events: list[Event]) -> None:
        if not begun.is_set():
            begun.set()
            assert goes_on.wait(60)
        recorded.extend(events)

    dashboard = Dashboard(record=record)
    published = [Noted(0.0, "first"), Noted(0.0, "second")]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dashboard.run)
        dashboard.publish(published[0])
        await anyio.to_thread.run_sync(begun.wait)
        dashboard.publish(published[1])
        tasks.cancel_scope.cancel()
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
    assert recorded == published
