"""Browser peers: canvas-js in Chromium's pages, and what is said where one of both is missing."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.service import background
from gossiplog.testnet import browsers
from gossiplog.testnet.messages import Open
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan
from tests.integration.javascript import FOLDER, install

PATIENCE = 120


@pytest.fixture
def canvas(monkeypatch: pytest.MonkeyPatch) -> None:
    """canvas-js, as the other tests have it."""
    install()
    monkeypatch.setenv(browsers.FOLDER_VARIABLE, str(FOLDER))


@pytest.mark.anyio
@pytest.mark.integration
@pytest.mark.usefixtures("canvas")
async def test_pages_and_peers_come_to_one_root() -> None:
    heard: list[Any] = []
    with anyio.fail_after(PATIENCE):
        async with LocalNetwork(NetworkPlan(3, "mixed", offline_messages=2, browsers=2), heard.append) as network:
            await network.joined()
            await network.converged()
            assert (network.peers, network.total, network.complete) == (5, 10, 5)
            first, second = (member for member in network.members if member.plan.kind == "browser")
            await network.append(first)
            await network.append(network.members[2])
            await network.converged()
            assert second.messages == 12
            # What a page appends while it is not connected comes later.
            await network.stop(second)
            await network.append(second)
            await network.append(first)
            while not (second.messages == 13 and first.messages == 13):
                await anyio.sleep(0.01)
            assert first.root != second.root
            await network.start(second)
            await network.converged()
            assert second.messages == 14
            assert len(await network.flow(3, 50)) == 3 * 2
            # It joins its hub when that comes back.
            hub = network.members[second.plan.neighbours[0]]
            for member in (second, hub):
                await network.stop(member)
            await network.start(second)
            assert second.state == "suspended"
            await network.append(first)
            await network.start(hub)
            assert second.runs
            await network.converged()
    added = [event.kind for event in heard if isinstance(event, dashboard_events.PeerAdded)]
    assert added.count("browser") == 2
    hubs = {member.name for member in network.members if member.plan.kind == "relay"}
    delivered = [
        event for event in heard if isinstance(event, dashboard_events.Delivered) and event.peer == second.name
    ]
    assert {event.source for event in delivered} < hubs
    assert any(event.latency for event in delivered)


def opened_page() -> browsers._Page:
    command = Open(
        topic="t", seed=0, message_bytes=10, offline_messages=0, began=0.0, members=((8, "browser", "x"),), folder=None
    )
    return browsers._Page(8, "did:key:x", command, lambda report: None)


async def next_command(stream: AsyncIterator[Any]) -> tuple[int, str]:
    with anyio.fail_after(PATIENCE):
        event = await anext(stream)
    id, data = event.decode().removesuffix("\n\n").split("\n")
    fields = json.loads(data.removeprefix("data: "))
    assert id == f"id: {fields['id']}"
    return fields["id"], fields["command"]


@pytest.mark.anyio
async def test_a_page_that_connects_again_gets_what_it_has_not_executed() -> None:
    page = opened_page()
    async with background() as tasks:
        tasks.start_soon(page.open)
        first = page.commands()
        assert await next_command(first) == (1, "open")
        page.take({"report": "done", "id": 1})
        tasks.start_soon(page.append, 1)
        assert await next_command(first) == (2, "append")
        tasks.start_soon(page.disconnect)
        # The second is being executed, the third was lost with the stream.
        again = page.commands(2)
        assert await next_command(again) == (3, "disconnect")
        # One that has nothing gets no answered command.
        for last, expected in ((0, (2, "append")), (1, (2, "append"))):
            assert await next_command(page.commands(last)) == expected
        page.take({"report": "done", "id": 2})
        assert await next_command(page.commands()) == (3, "disconnect")
        page.take({"report": "done", "id": 3})
        assert page._commands == {}


@pytest.mark.anyio
async def test_an_error_of_a_command_is_raised_and_forgotten() -> None:
    page = opened_page()
    page.take({"report": "failed", "id": 1, "error": "nobody asked"})
    async with background() as tasks:
        stream = page.commands()

        async def fail() -> None:
            await next_command(stream)
            page.take({"report": "failed", "id": 1, "error": "no"})

        tasks.start_soon(fail)
        with anyio.fail_after(PATIENCE), pytest.raises(NetworkError, match="canvas-js in a page cannot disconnect: no"):
            await page.disconnect()
    assert page._errors == page._commands == page._waiting == {}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("last", "expected"), [(None, 8), ("1", 9), ("0", 8), ("-1", 8), ("x", 8), ("²", 8), ("9" * 5000, 8)]
)
async def test_pages_are_announced_once(last: str | None, expected: int) -> None:
    link = browsers.BrowserLink(lambda report: None)
    link._announced += [8, 9]
    headers = [] if last is None else [(b"last-event-id", last.encode("latin-1"))]
    response = await link._send_pages(Request({"type": "http", "method": "GET", "headers": headers}))
    assert isinstance(response, StreamingResponse)
    event = await anext(aiter(response.body_iterator))
    assert event == b'id: %d\ndata: {"number": %d}\n\n' % (expected - 7, expected)


@pytest.mark.anyio
async def test_a_stream_of_commands_begins_after_the_last_that_the_page_has() -> None:
    link = browsers.BrowserLink(lambda report: None)
    page = link._pages[8] = opened_page()
    async with background() as tasks:
        for _ in range(2):
            tasks.start_soon(page.disconnect)
        scope = {"type": "http", "method": "GET", "path_params": {"number": 8}}
        request = Request(scope | {"headers": [(b"last-event-id", b"1")]})
        response = await link._send_commands(request)
        assert isinstance(response, StreamingResponse)
        assert await next_command(aiter(response.body_iterator)) == (2, "disconnect")


@pytest.mark.anyio
async def test_a_browser_that_a_script_runs_is_waited_for(tmp_path: Path) -> None:
    """Debian's chromium-headless-shell is such a script."""
    reading, writing = os.pipe()
    browser = "/bin/sh -c 'cat; touch ended'"
    process = await anyio.open_process(["/bin/sh", "-c", f"{browser}; true"], stdin=reading, cwd=tmp_path)
    os.close(reading)
    await browsers._end(process, os.fdopen(writing, "wb"))
    assert (tmp_path / "ended").exists()
    await process.aclose()


def test_without_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NetworkError, match="apt-get install --no-install-recommends chromium"):
        browsers.find_chromium()


def test_without_canvas_js(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(browsers.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "gossiplog" / "canvas-js"
    with pytest.raises(NetworkError, match=f"run `npm install --ignore-scripts --prefix '{folder}'`"):
        browsers.prepare_canvas_folder()
    wanted = json.loads((folder / "package.json").read_text())
    assert set(wanted["dependencies"]) == {"@canvas-js/gossiplog", "@canvas-js/signatures", "esbuild"}
    for path in {value.removeprefix("file:") for value in wanted["overrides"].values() if value.startswith("file:")}:
        assert (folder / path / "package.json").exists()


def test_a_folder_without_canvas_js(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(browsers.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(NetworkError, match="whose node_modules lacks @canvas-js/gossiplog or esbuild"):
        browsers.prepare_canvas_folder()


@pytest.mark.integration
@pytest.mark.usefixtures("canvas")
def test_a_page_that_cannot_be_bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "peer.mjs").write_text('import "no-such-package";')
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    with pytest.raises(NetworkError, match=r'cannot be bundled: .*Could not resolve "no-such-package"'):
        browsers.bundle()


def test_users_get_the_versions_that_are_tested() -> None:
    ours = json.loads((resources.files("gossiplog.testnet.page") / "package.json").read_text())
    tested = json.loads((FOLDER / "package.json").read_text())
    assert ours["dependencies"].items() <= tested["dependencies"].items()
    assert ours["overrides"] == tested["overrides"]
