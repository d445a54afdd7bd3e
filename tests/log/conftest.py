"""What tests of a log's reading share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import MemoryStorage
from tests.conftest import POSTGRES
from tests.log.histories import SIGNERS, NewLog
from tests.strategies import TOPIC, repeatable


@pytest.fixture(params=["memory", "sqlite", POSTGRES])
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewLog]:
    """Opens logs, each a new one."""
    new_url = request.getfixturevalue("new_postgres_url") if request.param == "postgres" else None
    with ExitStack() as stack:
        count = 0

        def location() -> Any:
            nonlocal count
            count += 1
            if request.param == "memory":
                return MemoryStorage()
            return tmp_path / f"{count}.db" if new_url is None else new_url()

        yield lambda: stack.enter_context(gossiplog.open(location(), TOPIC, signer=SIGNERS[0]))


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    """Settings of a property over so many examples, each of which makes logs by `new_log`.

    All are tried in memory, half over SQLite, a quarter over Postgres: what the storages share is tried in memory.
    """
    storage = request.node.callspec.params["new_log"]
    return lambda count: repeatable(count // 2 if storage == "sqlite" else count, storage=storage)


@pytest.fixture
def largest(request: pytest.FixtureRequest) -> int:
    """How many messages a history has at most: few over Postgres, where each read takes three round trips."""
    return 8 if request.node.callspec.params["new_log"] == "postgres" else 24
