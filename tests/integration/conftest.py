"""Starts the peers of a test and opens its pages, and ends them after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.dashboards import Open, Shown, showing
from tests.integration.javascript import (
    BrowserPeer,
    FloodsubPeer,
    JavaScriptPeer,
    SharedProcess,
    install,
    start_browser,
    start_shared_node,
)
from tests.integration.own import OwnPeer
from tests.integration.pages import Page

Start = Callable[..., Any]


@pytest.fixture(scope="session")
def javascript() -> Iterator[SharedProcess]:
    """canvas-js in Node.js, for all tests; it starts when one needs it."""
    install()
    with closing(SharedProcess(start_shared_node)) as shared:
        yield shared


@pytest.fixture(scope="session")
def browser(javascript: SharedProcess) -> Iterator[SharedProcess]:
    """canvas-js in Chromium, for all tests; it starts when one needs it."""
    with closing(SharedProcess(start_browser)) as shared:
        yield shared


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The test's own, so that peers of other tests, in the same process, are strangers to it."""
    return "org.example." + re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)


@pytest.fixture
def start(javascript: SharedProcess, topic: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a peer of a kind; each has a key and a folder of its own, and those of a test have a topic in common.

    Kinds: canvas-js as "javascript" or "browser", in the processes of all tests, or as "javascript-disk", in a process
    of its own, which the test may kill; ours as "asyncio" or "trio"; and "floodsub", which has neither key nor log.
    """
    with ExitStack() as stack:
        started = 0

        def start_peer(kind: str, topic: str = topic, **options: Any) -> Any:
            nonlocal started
            started += 1
            peer: Any
            key, folder = bytes([started]) * 32, tmp_path / f"peer-{started}"
            match kind:
                case "javascript":
                    if "process" not in options:
                        options["process"] = javascript.get()
                    peer = JavaScriptPeer(topic, key, **options)
                case "javascript-disk":
                    peer = JavaScriptPeer(topic, key, **({"directory": folder} | options))
                case "floodsub":
                    peer = FloodsubPeer(javascript.get(), topic)
                case "browser":
                    # Not an argument: tests/groups.py would put every test into the group of the browser.
                    browser: SharedProcess = request.getfixturevalue("browser")
                    peer = BrowserPeer(browser.get(), topic, key, **options)
                case "asyncio" | "trio":
                    peer = OwnPeer(topic, key, backend=kind, **({"directory": folder} | options))
            return stack.enter_context(peer)

        yield start_peer


@pytest.fixture
def shown() -> Iterator[Shown]:
    with showing() as found:
        yield found


@pytest.fixture
def open_page(browser: SharedProcess) -> Iterator[Open]:
    """Opens pages; none may have complained at the end.

    A test closes its page before its own server ends: Chromium complains of an answer without an end.
    """
    with ExitStack() as stack:
        pages: list[Page] = []

        def open_one(url: str, **options: Any) -> Page:
            pages.append(stack.enter_context(Page(browser.get(), url, **options)))
            pages[-1].until("globalThis.dashboard !== undefined")
            return pages[-1]

        yield open_one
        assert [page.complaints for page in pages] == [[]] * len(pages)
