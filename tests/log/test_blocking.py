"""The warning of calls that hold up an event loop."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import gossiplog
from gossiplog import BlockingCallWarning, Log, Signer, StorageError
from gossiplog.log import blocking, following, view
from gossiplog.log.blocking import calling_back
from gossiplog.net.replicator.telemetry import Telemetry

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    """Also those of this module's calls, which are ignored elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", BlockingCallWarning)
        yield


CALLS: dict[str, Callable[[Log, Path], object]] = {
    "append": lambda log, _: log.append(1),
    "append_many": lambda log, _: log.append_many([1]),
    "insert": lambda log, _: log.insert(next(iter(log))),
    "insert_many": lambda log, _: log.insert_many([]),
    "pull": lambda log, _: log.pull(log),
    "info": lambda log, _: log.info(),
    "verify": lambda log, _: log.verify(),
    "backup": lambda log, folder: log.backup(folder / "copy.db"),
}


@pytest.fixture
def on_disk(tmp_path: Path, opened: Callable[..., Log], signer: Signer) -> Log:
    log = opened(tmp_path / "log.db", signer=signer)
    log.append(0)
    return log


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_waits_warns_once_at_its_line(on_disk: Log, tmp_path: Path, name: str) -> None:
    with pytest.warns(BlockingCallWarning, match=rf"^Log\.{name} waits, .* write `await log\.{name}\(") as warned:
        CALLS[name](on_disk, tmp_path)
    assert [each.filename for each in warned] == [__file__]
    # Once in a process: warnings are errors here.
    if name != "backup":
        CALLS[name](on_disk, tmp_path)


async def test_a_rebuild_warns(tmp_path: Path, opened: Callable[..., Log]) -> None:
    log = opened(tmp_path / "log.db", apply=lambda *_: None, setup=lambda _: None)
    with pytest.warns(BlockingCallWarning, match=r"^Log\.rebuild waits"):
        log.rebuild()


async def test_functions_that_take_a_log_warn_and_name_a_thread(tmp_path: Path, signer: Signer) -> None:
    path = tmp_path / "log.db"
    with await anyio.to_thread.run_sync(lambda: gossiplog.open(path, "topic", signer=signer)):
        pass
    calls: dict[str, Callable[[], object]] = {
        "repair": lambda: gossiplog.repair(path),
        "rebase": lambda: gossiplog.rebase(path, path, signer=signer),
        "recover": lambda: gossiplog.recover(path, tmp_path / "new.db"),
    }
    for name, call in calls.items():
        advice = rf"^gossiplog\.{name} waits, .* write `await anyio\.to_thread\.run_sync\(lambda: gossiplog\.{name}\("
        with pytest.warns(BlockingCallWarning, match=advice) as warned, suppress(StorageError):
            call()
        assert [each.filename for each in warned] == [__file__]


async def test_fetching_on_an_event_loop_is_refused_before_anything_changes(tmp_path: Path, signer: Signer) -> None:
    path = tmp_path / "log.db"
    for source in (
        "ws://127.0.0.1:9",
        "/ip4/127.0.0.1/tcp/9/ws/p2p/12D3KooWQfRuXfkEVnDTHxtNLZsrvcpVyAbMsA1v8xH2QDMZo1pP",
    ):
        for call in (
            lambda source=source: gossiplog.repair(path, source),
            lambda source=source: gossiplog.rebase(path, source, signer=signer),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BlockingCallWarning)
                with pytest.raises(RuntimeError, match=r"one runs on this thread: .*anyio\.to_thread"):
                    call()
    assert [*tmp_path.iterdir()] == []


async def test_a_subscription_warns_where_it_waits(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 0.001)
    await gossiplog.AsyncLog(log).append(1)
    subscription = log.subscribe(after=0)
    assert len(next(subscription)) == 1
    threading.Timer(0.01, subscription.close).start()
    with pytest.warns(BlockingCallWarning, match=r"async for messages in log\.subscribe\(\)"):
        assert list(subscription) == []


async def test_many_messages_warn_at_their_second_page(on_disk: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "_PAGE", 3)
    monkeypatch.setattr(view, "_FEW_RECORDS", 3)
    first, second, *_, last = await gossiplog.AsyncLog(on_disk).append_many(range(5))
    seen = {name: on_disk.at(last.id) for name in ("len", "count", "messages", "descendants")}
    # As many as a page has, or no marks.
    assert len([*on_disk.messages(limit=3)]) == len([*on_disk.at(last.id).messages(reverse=True, limit=3)]) == 3
    assert len([*on_disk.at(2)]) == len(on_disk.at(on_disk.at(2).heads)) == 2
    calls: dict[str, Callable[[], int]] = {
        r"iterating over Log\.messages\(\) .* `async for message in log\.messages": lambda: len([*on_disk]),
        r"iterating over Log\.ancestors\(\) ": lambda: len([*on_disk.ancestors(last.id)]),
        r"iterating over Log\.descendants\(\) ": lambda: len([*on_disk.descendants(first.parents[0])]),
        r"iterating over LogView\.messages\(\) ": lambda: len([*on_disk.at(6)]),
        r"len\(\) of a LogView .* `await view\.count\(\)` of `view = await": lambda: len(seen["len"]),
        r"LogView\.count ": lambda: seen["count"].count(),
        r"LogView\.messages ": lambda: len([*seen["messages"].messages(limit=5)]),
        r"LogView\.descendants ": lambda: len([*seen["descendants"].descendants(second.id)]),
    }
    for text, call in calls.items():
        with pytest.warns(BlockingCallWarning, match=f"^{text}") as warned:
            assert call() in (3, 4, 5, 6)
        assert [each.filename for each in warned] == [__file__]
    blocking._warned.clear()
    with pytest.warns(BlockingCallWarning, match=r"^iterating over Log\.messages\(\)") as warned:
        assert len([*on_disk.messages(author=first.author)]) == 6
    assert [each.filename for each in warned] == [__file__]


async def test_logs_in_memory_wait_for_nothing(opened: Callable[..., Log], signer: Signer) -> None:
    for storage in (":memory:", gossiplog.MemoryStorage()):
        log = opened(storage, signer=signer)
        log.append(1)
        assert log.verify().messages == 1


async def test_worker_threads_and_logs_for_coroutines_are_not_warned(on_disk: Log) -> None:
    await anyio.to_thread.run_sync(on_disk.append, 1)
    log = gossiplog.AsyncLog(on_disk)
    await log.append(2)
    await log.verify()
    assert (await log.insert_many([message async for message in log])).duplicates == 3


async def test_callbacks_are_not_warned(on_disk: Log) -> None:
    telemetry = Telemetry(lambda _: on_disk.append(1))
    telemetry.emit(gossiplog.Connected("peer"))
    telemetry.flush()
    with calling_back():
        on_disk.append(2)
    with pytest.warns(BlockingCallWarning):
        on_disk.append(3)


async def test_callbacks_of_messages_are_not_warned(tmp_path: Path, opened: Callable[..., Log], signer: Signer) -> None:
    log, notes = opened(tmp_path / "a.db", signer=signer), opened(tmp_path / "b.db", signer=signer)
    seen = anyio.Event()

    def note(message: Any) -> None:
        notes.append(message.payload)
        seen.set()

    async with gossiplog.Hub(log, on_message=note):
        await gossiplog.AsyncLog(log).append("a")
        await seen.wait()
    assert [message.payload for message in notes] == ["a"]


def test_threads_without_a_loop_are_not_warned(on_disk: Log) -> None:
    on_disk.append(1)

    async def run() -> None:
        thread = threading.Thread(target=on_disk.append, args=(2,))
        thread.start()
        thread.join()

    asyncio.run(run())
    assert len(on_disk) == 3


def test_what_the_package_calls_is_an_error_in_every_test(on_disk: Log) -> None:
    """The settings of pytest see to that: what waits on an event loop of a hub's would hold up its clients."""
    source = "async def append(log):\n    log.append(1)\n"
    for name, waits in (("gossiplog.net.probe", True), ("tests.probe", False)):
        found: dict[str, Any] = {"__name__": name}
        exec(compile(source, name, "exec"), found)
        blocking._warned.clear()
        with warnings.catch_warnings():
            # As the settings have it, without those of this module.
            warnings.filters.pop(0)
            if waits:
                with pytest.raises(BlockingCallWarning):
                    asyncio.run(found["append"](on_disk))
            else:
                asyncio.run(found["append"](on_disk))
