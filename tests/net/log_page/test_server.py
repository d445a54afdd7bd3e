"""`gossiplog.net.log_page.server`, in a hub: what a page is sent is the log's state; the files are in `page/`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import gossiplog
from gossiplog import Hub, Log, Signer
from gossiplog.errors import StorageError
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.http import event_stream
from gossiplog.net.http.access import Access
from gossiplog.net.log_page import server
from gossiplog.net.log_page.messages import MOST_MESSAGES
from gossiplog.net.log_page.server import MOST_HEADS, _asks_for_html
from tests.net.asgi import Answer, Headers, call, scope
from tests.net.http.event_streams import Sent, read
from tests.net.support import TOPIC, serving
from tests.page_files import check_document, check_readme, check_script, scripts

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]
FOLDER = Path(server.__file__).parent / "page"
TOKEN = "reading-0123456789"
WRITING = "writing-0123456789"
OWN = ("Host", "localhost")
BROWSER = ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
SHOWN = ("Authorization", f"Bearer {TOKEN}")


class Reader:
    """A page that reads the stream of a hub, and folds it as the page does."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.status = 0
        self.state: dict[str, Any] = {}
        self.messages: dict[str, dict[str, Any]] = {}
        self.received: list[Sent] = []
        self.ended = False
        self._changed = anyio.Event()

    async def run(self, app: ASGIApp, headers: Headers) -> None:
        async def receive() -> Message:
            await anyio.sleep_forever()
            return {}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                return
            for sent in read(message["body"]) if b"data: " in message["body"] else []:
                self._take(sent)
            self.ended = not message.get("more_body", False)
            self._changed.set()

        await app(scope("http", "/dashboard/events", headers=[OWN, *headers]), receive, send)

    def _take(self, sent: Sent) -> None:
        self.received.append(sent)
        if sent.kind == "state":
            self.state, self.messages = {}, {}
        latest = sent.data.pop("latest", None)
        self.state |= sent.data
        if latest is not None:
            self.messages |= {each["id"]: each for each in latest["added"]}
            for id in [id for id in self.messages if id < latest["oldest"]]:
                del self.messages[id]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()
            self._changed = anyio.Event()


@asynccontextmanager
async def reading(hub: Hub, *headers: tuple[str, str]) -> AsyncIterator[Reader]:
    reader = Reader()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run, hub, headers)
        await reader.until(lambda: bool(reader.received) or reader.ended)
        assert reader.status == 200
        yield reader
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UPDATE_SECONDS", 0.001)


async def get(hub: Hub, path: str, *headers: tuple[str, str], method: str = "GET") -> Answer:
    return await call(hub, path, method, headers=[OWN, *headers])


def shown(log: Log) -> list[str]:
    return [message.id for message in log.messages(reverse=True, limit=MOST_MESSAGES)][::-1]


async def test_what_a_page_is_sent_is_the_state_of_the_log(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    log.append_many(range(300))
    async with Hub(log, dashboard=True) as hub, reading(hub) as reader:
        found = reader.state["log"]
        assert (found["messages"], found["root"], found["level"]) == (300, log.root.hash.hex(), log.root.level)
        assert (found["heads"], found["head_count"], found["clock"]) == ([*log.heads], 1, log.clock)
        assert sorted(reader.messages) == shown(log)
        assert reader.state["hub"] == {"topic": TOPIC, "unready": ""}
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert reader.headers["cache-control"] == "no-store"
        assert reader.headers["x-accel-buffering"] == "no"
        message = log.append("a new one")
        await reader.until(lambda: message.id in reader.messages)
        assert sorted(reader.messages) == shown(log)
        assert reader.state["log"]["heads"] == [message.id]
        assert reader.received[0].kind == "state"
        assert {sent.kind for sent in reader.received[1:]} == {"changes"}


async def test_messages_that_come_below_the_newest_are_shown_too(
    opened: Open, signer: Signer, other_signer: Signer
) -> None:
    log, other = opened(signer=signer), opened(signer=other_signer)
    log.append_many(range(10))
    roots = [other.append("a root")]
    async with Hub(log, dashboard=True) as hub, reading(hub) as reader:
        log.insert_many(roots)
        await reader.until(lambda: roots[0].id in reader.messages)
        assert sorted(reader.messages) == shown(log)
        assert {*reader.state["log"]["heads"]} == {*log.heads}


async def test_many_heads_are_counted_and_few_named(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    for number in range(MOST_HEADS + 3):
        with gossiplog.open(":memory:", TOPIC, signer=signer) as other:
            log.insert(other.append(number))
    async with Hub(log, dashboard=True) as hub, reading(hub) as reader:
        found = reader.state["log"]
        assert found["head_count"] == MOST_HEADS + 3
        assert found["heads"] == [*log.heads][: -MOST_HEADS - 1 : -1]


async def test_clients_and_their_syncs_are_shown(opened: Open, signer: Signer) -> None:
    log, ours = opened(signer=signer), opened()
    log.append_many(range(10))
    hub = Hub(log, dashboard=True)
    async with serving(hub) as url, gossiplog.connect(ours, url) as client:
        await client.synced()
        # The hub runs by then.
        async with reading(hub) as reader:
            await reader.until(lambda: reader.state["peers"]["count"] == 1 and bool(reader.state["syncs"]))
            (peer,) = reader.state["peers"]["shown"]
            assert (peer["kind"], peer["peer"]) == ("client", hub.peers[0].name)
            served = [each for each in reader.state["syncs"] if each["direction"] == "out"]
            assert {each["peer"] for each in served} == {peer["peer"]}
            assert sum(each["messages"] for each in served) == 10


async def test_what_was_refused_is_shown_with_the_reason(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN, write_token=WRITING), dashboard=True)
    async with hub:
        assert (await get(hub, "/api/clock")).status == 401
        assert hub._running is not None
        hub._running.driver.telemetry.emit(events.Rejected("a stranger", "it broke <script>"))
        async with reading(hub, SHOWN) as reader:
            assert reader.state["counts"]["refused_requests"] == {"token": 1}
            (trouble,) = reader.state["troubles"]
            assert (trouble["peer"], trouble["reason"]) == ("a stranger", "it broke <script>")


async def test_a_log_that_fails_is_said_and_comes_back(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(signer=signer)
    async with Hub(log, dashboard=True) as hub, reading(hub) as reader:

        def fail() -> int:
            raise StorageError("/a/secret/place is full")

        with monkeypatch.context() as patch:
            patch.setattr(replica_of(log).__class__, "count", lambda replica: fail())
            await reader.until(lambda: bool(reader.state["fault"]))
            assert "secret" not in reader.state["fault"]
            answer = await get(hub, "/dashboard/messages")
            assert answer.status in (200, 503)
        await reader.until(lambda: not reader.state["fault"])
        log.append("after it")
        await reader.until(lambda: reader.state["log"]["messages"] == 1)


async def test_nothing_is_read_while_nobody_looks(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(signer=signer)
    async with Hub(log, dashboard=True) as hub:
        async with reading(hub):
            pass
        page = hub._page
        assert page is not None
        await anyio.wait_all_tasks_blocked()
        position = page._batches.position
        for number in range(20):
            log.append(number)
            await anyio.sleep(0.001)
        # One look may have been under way.
        assert page._batches.position <= position + 1
        # Who comes then gets what is there by then.
        async with reading(hub) as reader:
            assert reader.state["log"]["messages"] == 20


async def test_a_page_that_comes_back_resumes_and_after_a_restart_starts_over(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    hub = Hub(log, dashboard=True)
    async with hub:
        async with reading(hub) as reader:
            last = reader.received[-1].id
        log.append("meanwhile")
        async with reading(hub, ("Last-Event-ID", last)) as reader:
            await reader.until(lambda: "log" in reader.state)
            assert {sent.kind for sent in reader.received} == {"changes"}
            assert reader.state["log"]["messages"] == 1
    async with Hub(log, dashboard=True) as another, reading(another, ("Last-Event-ID", last)) as reader:
        assert reader.received[0].kind == "state"
    # The same hub runs again, perhaps on another event loop.
    async with hub, reading(hub) as reader:
        assert reader.state["log"]["messages"] == 1


async def test_streams_end_with_the_hub(opened: Open) -> None:
    hub = Hub(opened(), dashboard=True)
    reader = Reader()
    async with anyio.create_task_group() as tasks:
        async with hub:
            tasks.start_soon(reader.run, hub, ())
            await reader.until(lambda: bool(reader.received))
        await reader.until(lambda: reader.ended)


async def test_readers_are_bounded(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_READERS", 1)
    async with Hub(opened(), dashboard=True) as hub:
        async with reading(hub):
            answer = await get(hub, "/dashboard/events")
            assert (answer.status, answer.error) == (503, "1 pages are open already: close one")
        async with reading(hub) as reader:
            assert reader.status == 200


async def test_parts_of_the_log_and_single_messages(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    log.append_many(range(2 * MOST_MESSAGES))
    every = [message.id for message in log]

    async def part(hub: Hub, query: str) -> dict[str, Any]:
        answer = await get(hub, f"/dashboard/messages{query}")
        assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async with Hub(log, dashboard=True) as hub:
        latest = await part(hub, "")
        assert [each["id"] for each in latest["messages"]] == every[: -MOST_MESSAGES - 1 : -1]
        older = await part(hub, f"?before={latest['messages'][-1]['id']}")
        assert [each["id"] for each in older["messages"]] == every[MOST_MESSAGES - 1 :: -1]
        assert (older["older"], older["newer"]) == (False, True)
        assert (await part(hub, f"?after={every[-2]}"))["messages"][0]["id"] == every[-1]
        middle = await part(hub, f"?around={every[150]}")
        assert every[150] in [each["id"] for each in middle["messages"]]
        one = json.loads((await get(hub, f"/dashboard/messages/{every[5]}")).body)
        assert (one["parents"], one["children"], one["text"]) == ([every[4]], [every[6]], "5")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/dashboard/messages?around=" + "0" * 32, 404, "0" * 32),
        ("/dashboard/messages?before=x", 400, "id"),
        ("/dashboard/messages?limit=5", 400, "limit"),
        ("/dashboard/messages?before=" + "0" * 32 + "&after=" + "0" * 32, 400, "one query parameter"),
        ("/dashboard/messages/" + "0" * 32, 404, "0" * 32),
        ("/dashboard/messages/%3Cscript%3E", 400, "id"),
        ("/dashboard/nothing.js", 404, "Not Found"),
        ("/dashboard/../server.py", 404, "Not Found"),
        ("/dashboard/index.html", 404, "Not Found"),
        ("/dashboard/README.md", 404, "Not Found"),
        ("/dashboard", 404, "nothing"),
        ("/dashboard/", 404, "Not Found"),
        ("/dashboard/events?x=1", 400, "'x'"),
    ],
)
async def test_what_cannot_be_answered(opened: Open, path: str, status: int, said: str) -> None:
    async with Hub(opened(), dashboard=True) as hub:
        answer = await get(hub, path)
        assert answer.status == status
        assert said in answer.error


async def test_nothing_can_be_changed(opened: Open) -> None:
    async with Hub(opened(), dashboard=True) as hub:
        for path in ("/dashboard/events", "/dashboard/messages", "/dashboard/log_page.js"):
            for method in ("POST", "PUT", "DELETE"):
                assert (await get(hub, path, method=method)).status == 405


async def test_a_browser_gets_the_page_and_others_what_they_got(opened: Open) -> None:
    log = opened()
    async with Hub(log, dashboard=True) as hub, Hub(log) as without:
        page = await get(hub, "/", BROWSER)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.body == (FOLDER / "index.html").read_bytes()
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["vary"].startswith("Accept")
        assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
        for headers in ([], [("Accept", "*/*")], [("Accept", "application/json")], [("Accept", "text/html;q=0")]):
            found, expected = await get(hub, "/", *headers), await get(without, "/", *headers)
            assert (found.status, found.body) == (expected.status, expected.body) == (404, expected.body)
        for method in ("POST", "OPTIONS"):
            found, expected = await get(hub, "/", BROWSER, method=method), await get(without, "/", method=method)
            assert (found.status, found.body) == (expected.status, expected.body)
        assert (await get(without, "/", BROWSER)).status == 404
        assert (await get(without, "/dashboard/log_page.js")).status == 404


async def test_files_are_for_everybody_and_the_rest_for_readers(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN, write_token=WRITING), dashboard=True)
    async with hub:
        for name in ("log_page.js", "base.css", "d3.min.js"):
            assert (await get(hub, f"/dashboard/{name}")).status == 200
        for path in ("/dashboard/events", "/dashboard/messages", "/dashboard/messages/" + "0" * 32):
            # Only the page's own address takes the token of a query.
            for target in (path, f"{path}?token={TOKEN}"):
                assert (await get(hub, target)).status == 401
            assert (await get(hub, path, ("Authorization", "Bearer wrong-0123456789"))).status == 401
        for token in (TOKEN, WRITING):
            assert (await get(hub, "/dashboard/messages", ("Authorization", f"Bearer {token}"))).status == 200
        for path in ("/", "/dashboard/log_page.js", "/dashboard/messages"):
            strange = await call(hub, path, headers=[("Host", "evil.example"), BROWSER, SHOWN])
            assert (strange.status, "evil.example" in strange.error) == (403, True)
            foreign = await get(hub, path, BROWSER, SHOWN, ("Origin", "https://evil.example"))
            assert foreign.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_no_page_of_another_site_has_a_browser_load_anything(opened: Open, site: str) -> None:
    app = "https://app.example.org"
    loaded = ("Sec-Fetch-Site", site)
    async with Hub(opened(), access=Access(origins=[app]), dashboard=True) as hub:
        for path in ("/dashboard/events", "/dashboard/messages", "/dashboard/log_page.js"):
            answer = await get(hub, path, loaded)
            assert (answer.status, "another site" in answer.error) == (403, True)
        # A link to the page is no such request, nor are those of the page, or of one that was allowed.
        assert (await get(hub, "/", BROWSER, loaded)).status == 200
        assert (await get(hub, "/dashboard/messages", ("Sec-Fetch-Site", "same-origin"))).status == 200
        assert (await get(hub, "/dashboard/messages", loaded, ("Origin", app))).status == 200


async def test_a_browser_without_a_token_is_told_what_to_do(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN, write_token=WRITING), dashboard=True)
    async with hub:
        for path, status in (("/", 401), (f"/?token={TOKEN}", 200), ("/?token=wrong-0123456789", 401)):
            answer = await get(hub, path, BROWSER)
            assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert ("www-authenticate" in answer.headers) == (status == 401)
            assert b"This hub asks for a token" in answer.body
            assert TOKEN not in answer.body.decode()
        # Programs are answered as before.
        assert (await get(hub, "/")).error == "reading needs a token here"
        assert (await get(hub, "/", BROWSER, SHOWN)).status == 200


async def test_guesses_in_the_address_count(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN), dashboard=True)

    async def there(scope: Scope, receive: Receive, send: Send) -> None:
        await hub({**scope, "client": ("10.0.0.1", 1234)}, receive, send)

    async with hub:
        statuses = []
        for number in range(100):
            answer = await call(there, f"/?token=guess-{number:016}", headers=[OWN, BROWSER])
            statuses.append(answer.status)
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert (await call(there, f"/?token={TOKEN}", headers=[OWN, BROWSER])).status == 429


async def test_a_page_whose_token_was_replaced_is_shut_out(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN), dashboard=True)
    async with hub:
        async with reading(hub, SHOWN) as reader:
            hub.replace_tokens("another-0123456789", None)
            await reader.until(lambda: reader.ended)
        assert (await get(hub, "/dashboard/events", SHOWN)).status == 401
        async with reading(hub, ("Authorization", "Bearer another-0123456789")) as reader:
            assert reader.received[0].kind == "state"


async def test_a_token_that_is_replaced_while_a_stream_begins_gives_none(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN), dashboard=True)
    assert hub._page is not None
    update = hub._page._update

    async def replaced() -> None:
        hub.replace_tokens("another-0123456789", None)
        await update()

    async with hub:
        monkeypatch.setattr(hub._page, "_update", replaced)
        reader = Reader()
        with anyio.fail_after(60):
            await reader.run(hub, [SHOWN])
        assert (reader.status, reader.ended, reader.received) == (200, True, [])


async def test_a_hub_that_does_not_run_says_so(opened: Open) -> None:
    hub = Hub(opened(), dashboard=True)
    assert (await get(hub, "/", BROWSER)).status == 503


async def test_a_mounted_hub_has_its_page_too(opened: Open) -> None:
    hub = Hub(opened(), access=Access(read_token=TOKEN), dashboard=True)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await hub({**scope, "root_path": "/log"}, receive, send)

    async with hub:
        assert (await call(mounted, "/log/", headers=[OWN, BROWSER, SHOWN])).status == 200
        assert (await call(mounted, f"/log/?token={TOKEN}", headers=[OWN, BROWSER])).status == 200
        assert (await call(mounted, "/log/dashboard/base.css", headers=[OWN])).status == 200


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (BROWSER[1], True),
        ("TEXT/HTML", True),
        ("application/json, text/html;q=0.1", True),
        ("text/html;level=1", True),
        ("*/*", False),
        ("text/*", False),
        ("text/html;q=0", False),
        ("text/html; q=0.000", False),
        ("text/htmlx", False),
        ("", False),
        (";;,,;", False),
    ],
)
def test_who_is_a_browser(accept: str, expected: bool) -> None:
    assert _asks_for_html(scope("http", "/", headers=[("Accept", accept)])) is expected
    assert not _asks_for_html(scope("http", "/"))


def test_every_file_is_named_in_the_readme() -> None:
    check_readme(FOLDER)


@pytest.mark.parametrize("path", scripts(FOLDER), ids=lambda path: path.name)
def test_scripts_set_text_alone_and_load_nothing_from_elsewhere(path: Path) -> None:
    check_script(path)


def test_the_page_runs_no_script_of_its_own() -> None:
    check_document(FOLDER / "index.html", "dashboard/")
