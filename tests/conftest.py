"""What many tests share: signers, a log over each storage, and processes that can be interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import Log, MemoryStorage, Signer

TOPIC = "org.example.test"


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Let SIGINT reach what tests start: a shell starts background processes, and those that they start, without."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def signer() -> Signer:
    return Signer(bytes(32))


@pytest.fixture
def other_signer() -> Signer:
    return Signer(b"\1" * 32)


@pytest.fixture(params=["memory", "sqlite", "sqlite-memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """One place for a log of each kind; opening it twice opens the same log, but for ":memory:"."""
    return {"memory": MemoryStorage(), "sqlite": tmp_path / "log.db", "sqlite-memory": ":memory:"}[request.param]


@pytest.fixture
def opened() -> Iterator[Callable[..., Log]]:
    """Opens logs, in memory by default, and closes them after the test."""
    with ExitStack() as stack:

        def open_log(location: Any = ":memory:", topic: str | None = TOPIC, **options: Any) -> Log:
            return stack.enter_context(gossiplog.open(location, topic, **options))

        yield open_log


@pytest.fixture
def log(location: Any, signer: Signer, opened: Callable[..., Log]) -> Log:
    """An empty log over each storage."""
    return opened(location, signer=signer)
