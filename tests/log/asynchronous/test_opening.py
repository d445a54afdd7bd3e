from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import gossiplog
from gossiplog import Log, LogClosed, NotALog, Signer
from gossiplog.log import applying, opening
from gossiplog.storage.sqlite.storage import SQLiteStorage

pytestmark = pytest.mark.anyio


def test_it_takes_what_open_takes() -> None:
    own, other = inspect.signature(gossiplog.open_async), inspect.signature(gossiplog.open)
    assert [*own.parameters.values()] == [*other.parameters.values()]


async def test_a_block_closes_it(tmp_path: Path, signer: Signer) -> None:
    opening = gossiplog.open_async(tmp_path / "log.db", "topic", signer=signer)
    async with opening as log:
        await log.append(1)
        with pytest.raises(RuntimeError, match="open already"):
            await opening.__aenter__()
    with pytest.raises(LogClosed):
        await log.count()
    async with opening as log:
        assert await log.count() == 1


async def test_await_leaves_closing_to_the_caller(tmp_path: Path) -> None:
    log = await gossiplog.open_async(tmp_path / "log.db", "topic")
    async with log:
        assert await log.count() == 0
    async with await gossiplog.open_async(tmp_path / "log.db") as log:
        assert log.topic == "topic"


async def test_errors_are_those_of_open(tmp_path: Path) -> None:
    with pytest.raises(NotALog):
        await gossiplog.open_async(tmp_path / "log.db", create=False)
    wrong: Any = gossiplog.open_async(tmp_path / "log.db", "topic")
    with pytest.raises(TypeError, match=r"async with gossiplog\.open_async"), wrong:
        pass


async def test_progress_is_reported_on_the_event_loop(tmp_path: Path, signer: Signer) -> None:
    with gossiplog.open(tmp_path / "log.db", "topic", signer=signer) as log:
        log.append_many(range(3))
    steps: list[tuple[int, int, threading.Thread]] = []

    def note(done: int, total: int) -> None:
        steps.append((done, total, threading.current_thread()))

    async with gossiplog.open_async(tmp_path / "log.db", apply=lambda *_: None, progress=note):
        while not steps:
            await anyio.sleep(0.001)
    assert steps == [(3, 3, threading.current_thread())]


async def test_one_that_is_cancelled_runs_apply_no_further(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran over all messages, and reported its progress to who waited no more."""
    monkeypatch.setattr(applying, "_PAGE", 1)
    monkeypatch.setattr(applying, "WORKING_SECONDS", 0.0)
    with gossiplog.open(tmp_path / "log.db", "topic", signer=signer) as log:
        log.append_many(range(20))
    begun, release, closed = threading.Event(), threading.Event(), threading.Event()
    applied: list[Any] = []
    steps: list[int] = []
    close = SQLiteStorage.close

    def apply(message: gossiplog.SignedMessage, _: gossiplog.ApplyTransaction) -> None:
        applied.append(message.payload)
        begun.set()
        release.wait(60)

    def noted(storage: SQLiteStorage) -> None:
        close(storage)
        closed.set()

    monkeypatch.setattr(SQLiteStorage, "close", noted)

    async def open_one(progress: Any) -> None:
        await gossiplog.open_async(tmp_path / "log.db", apply=apply, progress=progress)

    for number, progress in enumerate((None, lambda done, total: steps.append(done)), 1):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_one, progress)
            while not begun.is_set():
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        release.set()
        assert await anyio.to_thread.run_sync(closed.wait, 60)
        # What another opening goes on from.
        assert applied == [*range(number)]
        for event in (begun, release, closed):
            event.clear()
    assert steps == []


async def test_one_that_is_cancelled_closes_what_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """aiosqlite leaves the connection open."""
    begun, release, closed = threading.Event(), threading.Event(), threading.Event()
    open_log, close = opening.open, Log.close

    def slowly(*arguments: Any, **options: Any) -> Log:
        begun.set()
        release.wait(60)
        return open_log(*arguments, **options)

    def noted(log: Log) -> None:
        close(log)
        closed.set()

    monkeypatch.setattr(opening, "open", slowly)
    monkeypatch.setattr(Log, "close", noted)

    async def open_one() -> None:
        await gossiplog.open_async(tmp_path / "log.db", "topic")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_one)
        while not begun.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    release.set()
    assert closed.wait(60)
