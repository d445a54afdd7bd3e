"""Starts the peers that are processes of their own, and ends them after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration import javascript
from tests.integration.own import OwnPeer

TOPIC = "org.example.test"

Start = Callable[..., Any]


@pytest.fixture(scope="session")
def javascript_packages() -> None:
    """The original is installed."""
    javascript.install()


@pytest.fixture
def start(javascript_packages: None, tmp_path: Path) -> Iterator[Start]:
    """Starts a peer of a kind; each has a key and a folder of its own.

    Kinds: the original as "javascript", "javascript-disk" or "browser"; ours as "asyncio" or "trio".
    """
    with ExitStack() as stack:
        started = 0

        def start_peer(kind: str, topic: str = TOPIC, **options: Any) -> Any:
            nonlocal started
            started += 1
            peer: Any
            key, folder = bytes([started]) * 32, tmp_path / f"peer-{started}"
            match kind:
                case "javascript":
                    peer = javascript.JavaScriptPeer(topic, key, **options)
                case "javascript-disk":
                    peer = javascript.JavaScriptPeer(topic, key, **({"directory": folder} | options))
                case "browser":
                    peer = javascript.BrowserPeer(topic, key, profile=folder, **options)
                case "asyncio" | "trio":
                    peer = OwnPeer(topic, key, backend=kind, **({"directory": folder} | options))
            return stack.enter_context(peer)

        yield start_peer
