"""The page of a log in Chromium: what it shows is the log's state, and one can walk through all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

import gossiplog
from gossiplog import Access, Hub, Log, Signer
from gossiplog.net import events
from gossiplog.net.http import event_stream
from gossiplog.net.http.listener import Address
from gossiplog.net.http.server import serve
from gossiplog.net.log_page.messages import MOST_MESSAGES
from tests.integration.javascript import SharedProcess
from tests.integration.pages import Page
from tests.net.support import TOPIC

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("browser")]

HOSTILE = '<script>document.title="taken"</script><img src=x onerror=alert(1)>'
TOKEN = "reading-0123456789"
# The rows of messages that are shown, and the lines between them.
ROWS = "[...document.querySelectorAll('#rows tr')].map((row) => row.dataset.id)"
EDGES = "dashboard.graph.edges.map(({child, parent}) => [child, parent])"
READY = "globalThis.dashboard !== undefined && dashboard.state.log !== null"
REFUSED = "status of 401"


class Serving:
    """A hub with a page, on a thread of its own."""

    def __init__(self, portal: BlockingPortal, log: Log, access: Access | None) -> None:
        self.hub = Hub(log, access=access, dashboard=True)
        self.url = ""
        self._portal = portal

    async def run(self, *, port: int = 0, task_status: anyio.abc.TaskStatus[Address]) -> None:
        async with self.hub:
            await serve(self.hub, port=port, task_status=task_status)

    def emit(self, event: events.Event) -> None:
        """Have the hub report an event."""
        assert self.hub._running is not None
        self._portal.call(self.hub._running.driver.telemetry.emit, event)

    def replace_tokens(self, read_token: str) -> None:
        self._portal.call(self.hub.replace_tokens, read_token, None)

    def sync_from(self, log: Log) -> None:
        """Have a client bring what its log has."""

        async def bring() -> None:
            async with gossiplog.connect(log, self.url.replace("http", "ws")) as client:
                await client.synced()

        self._portal.call(bring)


@contextmanager
def served(log: Log, access: Access | None = None, port: int = 0) -> Iterator[Serving]:
    with start_blocking_portal() as portal:
        serving = Serving(portal, log, access)
        future, address = portal.start_task(lambda *, task_status: serving.run(port=port, task_status=task_status))
        serving.url = address.url("http")
        try:
            yield serving
        finally:
            future.cancel()


@contextmanager
def visiting(browser: SharedProcess, url: str, ready: str = READY, **options: Any) -> Iterator[Page]:
    """A page that complains of nothing but of what a test expects."""
    with Page(browser.get(), url, **options) as page:
        page.until(ready)
        yield page


def branching(log: Log, opened: Callable[..., Log], signers: list[Signer], rounds: int) -> None:
    """Fill a log with messages of several authors, which write at once and then join."""
    log.append({"text": "the first"})
    for number in range(rounds):
        others = []
        for index, signer in enumerate(signers):
            other = opened(signer=signer)
            other.insert_many(list(log))
            others += other.append_many(
                [{"author": index, "number": number, "step": step} for step in range(index + 1)]
            )
        log.insert_many(others)
        log.append({"text": f"joins round {number}"})


def latest(log: Log) -> list[gossiplog.SignedMessage]:
    return list(log.messages(reverse=True, limit=MOST_MESSAGES))


def text(page: Page, id: str) -> str:
    return str(page.evaluate(f"document.getElementById({id!r}).textContent"))


def test_what_is_shown_is_the_log(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer, other_signer: Signer
) -> None:
    log = opened(signer=signer)
    branching(log, opened, [other_signer, Signer(bytes([7] * 32)), Signer(bytes([8] * 32))], 12)
    with served(log) as hub, visiting(browser, hub.url) as page:
        messages = latest(log)
        assert page.evaluate(ROWS) == [message.id for message in messages]
        assert sorted(page.evaluate(EDGES)) == sorted([m.id, parent] for m in messages for parent in m.parents)
        drawn = page.evaluate(
            "[document.querySelectorAll('#graph circle').length, document.querySelectorAll('#graph path').length]"
        )
        assert drawn == [len(messages), sum(len(message.parents) for message in messages)]
        assert page.evaluate("[...document.querySelectorAll('#graph path')].every((path) => path.getTotalLength() > 9)")
        heads = page.evaluate("[...document.querySelectorAll('#heads button')].map((each) => each.dataset.id)")
        assert sorted(heads) == [*log.heads]
        assert text(page, "figure-messages") == str(len(log))
        assert text(page, "figure-clock") == str(log.clock)
        assert text(page, "figure-root") == log.root.hash.hex()[-8:]
        authors = page.evaluate(
            "[...document.querySelectorAll('#authors li')].map((row) =>"
            " [row.querySelector('.code').textContent, +row.querySelector('output').textContent])"
        )
        counted = [message.author for message in messages]
        assert sorted(authors) == sorted([author, counted.count(author)] for author in {*counted})
        assert text(page, "title") == TOPIC
        # A client that appends is seen within a second, and is a client while it is there.
        ours = opened(signer=other_signer)
        ours.insert_many(list(log))
        new = ours.append({"text": HOSTILE})
        page.evaluate("globalThis.began = performance.now()")
        hub.sync_from(ours)
        page.until(f"{ROWS}.includes({new.id!r})")
        assert page.evaluate("performance.now() - globalThis.began") < 5000
        shown = page.evaluate("document.querySelector('#rows .payload').textContent")
        assert shown == '{"text":"' + HOSTILE.replace('"', '\\"') + '"}'
        hub.emit(events.Rejected(HOSTILE, HOSTILE))
        page.until("document.querySelector('#troubles').textContent.includes('onerror')")
        page.until("document.querySelector('#syncs').textContent.includes('complete')")
        assert page.evaluate("document.title").startswith(TOPIC)
        assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
        assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_authors_that_are_shown_have_colours_that_differ(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer, dark: bool
) -> None:
    log = opened(signer=signer)
    signers = [Signer(bytes([number] * 32)) for number in range(1, 8)]
    branching(log, opened, signers[:5], 1)
    colours = (
        "Object.fromEntries([...document.querySelectorAll('#authors li')].map((row) =>"
        " [row.querySelector('.code').textContent, getComputedStyle(row.querySelector('.swatch')).backgroundColor]))"
    )
    with served(log) as hub, visiting(browser, hub.url, dark=dark) as page:
        page.until("document.querySelectorAll('#authors li').length === 6")
        before = page.evaluate(colours)
        # Those who come get colours of their own, and nobody gets another.
        for other in signers[5:]:
            ours = opened(signer=other)
            ours.append({"author": other.did})
            hub.sync_from(ours)
        page.until("document.querySelectorAll('#authors li').length === 8")
        after = page.evaluate(colours)
        assert before.items() <= after.items()
        distances = page.evaluate(
            f"""(() => {{
                const all = Object.values({colours}).map((text) => d3.lab(text));
                return all.flatMap((one, index) => all.slice(index + 1).map((other) =>
                    Math.hypot(one.l - other.l, one.a - other.a, one.b - other.b)));
            }})()"""
        )
        assert min(distances) > 25
        # The picture and the list agree.
        assert page.evaluate(
            f"dashboard.window.messages.every(({{author}}, row) => getComputedStyle("
            f"document.querySelectorAll('#graph circle')[row]).fill === {colours}[author])"
        )
        assert page.complaints == []


def test_what_the_hub_says_of_itself_stays_whatever_is_asked(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "obstacle", property(lambda hub: "the disk is full"))
    log = opened(signer=signer)
    log.append_many(range(5))
    ids = [message.id for message in latest(log)]
    with served(log) as hub, visiting(browser, hub.url) as page:
        page.until("document.getElementById('trouble').textContent === 'the disk is full'")
        page.click(f"#rows tr[data-id='{ids[1]}']")
        page.until(f"dashboard.detail?.id === {ids[1]!r}")
        assert text(page, "trouble") == "the disk is full"
        page.evaluate(
            """(globalThis.askedAsBefore = fetch, globalThis.fetch = async (path, ...others) =>
                path.includes("messages") ? new Response('{"error":"too busy"}', { status: 503 })
                : askedAsBefore(path, ...others), null)"""
        )
        page.click(f"#rows tr[data-id='{ids[2]}']")
        page.until("document.getElementById('notice').textContent === 'too busy'")
        assert text(page, "trouble") == "the disk is full"
        page.evaluate("(globalThis.fetch = askedAsBefore, null)")
        page.click(f"#rows tr[data-id='{ids[3]}']")
        page.until("document.getElementById('notice').textContent === ''")
        assert text(page, "trouble") == "the disk is full"
        assert page.complaints == []


def test_why_there_is_no_stream_is_said(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MOST_READERS", 0)
    with served(opened(signer=signer)) as hub:
        reason = "document.getElementById('connection').textContent.includes('0 pages are open already: close one')"
        with visiting(browser, hub.url, reason) as page:
            monkeypatch.setattr(event_stream, "MOST_READERS", 1)
            page.until(READY)
            assert text(page, "connection") == ""
            assert all("status of 503" in each for each in page.complaints)


def test_defects_of_the_page_are_errors_in_the_console(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer
) -> None:
    log = opened(signer=signer)
    log.append("before")
    defect = "() => { throw new RangeError('a defect of the page'); }"
    with served(log) as hub:
        with visiting(browser, hub.url) as page:
            page.evaluate(f"(dashboard.graph.show = {defect}, null)")
            log.append("after")
            page.until("document.getElementById('connection').textContent.includes('this page has a defect')")
            page.wait_for_event("complaint")
            assert ["RangeError: a defect of the page" in each for each in page.complaints] == [True]
        with visiting(browser, hub.url) as page:
            page.evaluate(f"(dashboard.graph.choose = {defect}, null)")
            page.click("#rows tr:first-child")
            page.wait_for_event("complaint")
            page.evaluate("new Promise((resolve) => setTimeout(resolve))")
            assert ["RangeError: a defect of the page" in each for each in page.complaints] == [True]
            assert text(page, "notice") == ""


def test_one_walks_by_keyboard_alone(browser: SharedProcess, opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(signer=signer)
    log.append_many([{"number": number} for number in range(2 * MOST_MESSAGES + 50)])
    every = [message.id for message in log][::-1]
    with served(log) as hub, visiting(browser, hub.url) as page:
        assert page.evaluate(ROWS) == every[:MOST_MESSAGES]
        # By the Tab key to the rows.
        while page.evaluate("document.activeElement.closest('#rows') === null"):
            page.press("Tab")
        page.until(f"dashboard.detail?.id === {every[0]!r}")
        page.press("ArrowDown")
        page.until(f"dashboard.detail?.id === {every[1]!r}")
        assert page.evaluate("document.activeElement.dataset.id") == every[1]
        assert page.evaluate(
            "[...document.querySelectorAll('#detail-list button')].map((each) => each.dataset.id)"
        ) == [
            every[2],
            every[0],
        ]
        assert text(page, "detail-text") == f'{{"number":{len(every) - 2}}}'
        page.press("ArrowRight")
        page.until(f"dashboard.detail?.id === {every[0]!r}")
        page.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
        page.until(f"dashboard.detail?.id === {every[3]!r}")
        page.press("PageDown")
        page.until(f"{ROWS}[0] === {every[MOST_MESSAGES]!r}")
        page.press("PageDown")
        page.until(f"{ROWS}.at(-1) === {every[-1]!r}")
        assert page.evaluate("document.getElementById('older').disabled")
        # What comes meanwhile moves nothing.
        log.append("meanwhile")
        page.until(f"dashboard.state.log.messages === {len(every) + 1}")
        assert page.evaluate(ROWS) == every[2 * MOST_MESSAGES :]
        page.until("document.activeElement.closest('#rows') !== null")
        page.press("PageUp")
        page.until(f"{ROWS}[0] === {every[MOST_MESSAGES]!r}")
        page.until("document.activeElement.closest('#rows') !== null")
        page.press("Home")
        page.until(f"{ROWS}[0] === {log.heads[0]!r}")
        # A parent that is not shown is gone to.
        last = page.evaluate(f"{ROWS}.at(-1)")
        page.evaluate(f"document.querySelector('#rows tr[data-id=\"{last}\"]').focus()")
        page.until(f"dashboard.detail?.id === {last!r}")
        page.press("ArrowLeft")
        page.until(f"dashboard.detail?.id === {every[MOST_MESSAGES - 1]!r}")
        assert page.evaluate(ROWS)[MOST_MESSAGES // 2] == every[MOST_MESSAGES - 1]
        assert page.complaints == []


def test_a_token_is_asked_for_and_kept_out_of_the_address(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer
) -> None:
    log = opened(signer=signer)
    log.append("for readers")
    with served(log, Access(read_token=TOKEN, write_token="writing-0123456789")) as hub:
        with visiting(browser, hub.url, "document.getElementById('sign-in').hidden === false") as page:
            assert page.evaluate(ROWS) == []
            assert "asks for a token" in page.evaluate("document.getElementById('sign-in').innerText")
            page.type("wrong-0123456789")
            page.press("Enter")
            page.until("document.getElementById('sign-in-reason').textContent.includes('not valid')")
            page.type(TOKEN)
            page.press("Enter")
            page.until(READY)
            assert page.evaluate(ROWS) == [*log.heads]
            # It is still there after the page was loaded again.
            page.reload()
            page.until(READY)
            assert page.evaluate(ROWS) == [*log.heads]
            assert all(REFUSED in each for each in page.complaints)
        for address in (f"{hub.url}/?token={TOKEN}", f"{hub.url}/#token={TOKEN}"):
            with visiting(browser, address) as page:
                assert page.evaluate("location.href") == f"{hub.url}/"
                assert page.evaluate(ROWS) == [*log.heads]
                assert all(REFUSED in each for each in page.complaints)
                assert ("#" in address) == bool(page.complaints)


def test_a_token_that_was_replaced_leaves_nothing_of_the_log(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer
) -> None:
    log = opened(signer=signer)
    log.append("for readers")
    with (
        served(log, Access(read_token=TOKEN)) as hub,
        visiting(browser, f"{hub.url}/?token={TOKEN}") as page,
    ):
        assert text(page, "figure-root") == log.root.hash.hex()[-8:]
        hub.replace_tokens("another-0123456789")
        page.until("document.getElementById('sign-in').hidden === false")
        for name in ("messages", "heads", "clock", "root"):
            assert text(page, f"figure-{name}") == "–"
        assert (text(page, "connection"), text(page, "trouble")) == ("", "")
        page.type("another-0123456789")
        page.press("Enter")
        page.until(f"document.getElementById('figure-root').textContent === {log.root.hash.hex()[-8:]!r}")
        assert page.evaluate("document.getElementById('sign-in').hidden")


def test_what_is_chosen_comes_into_sight_again(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer
) -> None:
    log = opened(signer=signer)
    log.append_many(range(MOST_MESSAGES))
    with served(log) as hub, visiting(browser, hub.url) as page:
        page.click("#rows tr:first-child")
        page.until(f"dashboard.detail?.id === {log.heads[0]!r}")
        page.evaluate("document.getElementById('scroll').scrollTo(0, 1e6)")
        page.until("document.getElementById('scroll').scrollTop > 1000")
        # The heads of the columns stay, and stand above them.
        lefts = "[...{}.cells].map((cell) => Math.round(cell.getBoundingClientRect().left))"
        heads, row = "document.querySelector('#columns tr')", "document.querySelector('#rows tr:last-child')"
        assert page.evaluate(lefts.format(heads)) == page.evaluate(lefts.format(row))
        assert page.evaluate(
            f"{heads}.getBoundingClientRect().top - document.getElementById('scroll').getBoundingClientRect().top"
        ) == pytest.approx(0, abs=3)
        page.press("ArrowUp")
        page.until("document.getElementById('scroll').scrollTop < 40")


def test_a_page_connects_again_to_a_server_that_was_started_anew(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    log = opened(signer=signer)
    log.append("before")
    with served(log) as hub:
        port = int(re.findall(r":(\d+)", hub.url)[0])
        page = Page(browser.get(), hub.url, size=(390, 844))
        page.until(READY)
        # On a phone nothing is wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    with page:
        page.until("document.getElementById('connection').textContent !== ''")
        log.append("after")
        with served(log, port=port):
            page.until("document.getElementById('connection').textContent === ''")
            page.until(f"{ROWS}.length === 2")
        assert all("ERR_" in each for each in page.complaints)


def test_a_long_log_is_opened_as_fast_as_a_short_one(
    browser: SharedProcess, opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    log = opened(tmp_path / "long.db", signer=signer)
    log.append_many(range(100_000))
    with served(log) as hub, visiting(browser, hub.url) as page:
        assert text(page, "figure-messages") == "100,000"
        # Of the answers, what they waited for the server: "server time".
        waits = page.evaluate(
            "performance.getEntriesByType('resource').filter(({name}) => name.includes('/dashboard/'))"
            ".map(({requestStart, responseStart}) => responseStart - requestStart)"
        )
        assert max(waits) < 1000
        assert page.complaints == []
