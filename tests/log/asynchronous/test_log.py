"""`AsyncLog`: what `Log` does, without holding up the event loop."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import gossiplog
from gossiplog import AsyncLog, CorruptLog, DecodeError, Log, LogClosed, Signer, StorageError, UnknownMessage, threads
from tests.places import Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def shared(log: Log) -> AsyncLog:
    return AsyncLog(log)


def test_it_has_what_a_log_has() -> None:
    """A method that is new to one is new to both, with the same parameters."""

    def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
        return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Log) - {"signer", "topic"} <= public(AsyncLog) | {"topic", "signer"}
    for name in public(Log) & public(AsyncLog):
        own, other = getattr(AsyncLog, name), getattr(Log, name)
        if not isinstance(other, property) and not isinstance(own, property):
            assert parameters(own) == parameters(other), name


def test_the_table_of_the_page_has_all_of_them() -> None:
    """Each public name of a `Log` and each function that blocks, by what becomes of it in a coroutine."""
    page = (Path(__file__).parents[3] / "docs" / "applications.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", page.split("| blocking | in a coroutine |")[1], re.MULTILINE)
    form_of = {name: form for names, form in rows for name in re.findall(r"`([\w.]+)`", names)}
    public = {name for name in dir(Log) if not name.startswith("_")} | {"signer", "topic"}
    assert {name for name in form_of if not name.startswith("gossiplog.")} == public
    assert {name for name in form_of if name.startswith("gossiplog.")} == {
        f"gossiplog.{each}" for each in ("repair", "rebase", "recover")
    }
    for name in public - {"signer", "topic"}:
        own, is_property = getattr(AsyncLog, name), isinstance(getattr(Log, name), property)
        if not inspect.iscoroutinefunction(own):
            assert form_of[name].startswith("for `async for`"), name
        else:
            assert form_of[name].startswith("methods, awaited" if is_property else "the same, awaited"), name


async def test_each_method_returns_what_the_log_does(shared: AsyncLog, tmp_path: Path) -> None:
    log = shared.blocking
    first = await shared.append({"n": 1})
    second, third = await shared.append_many([2, 3])
    assert await shared.get(first.id) == first
    assert await shared.content_id(first.id) == first.id
    assert await shared.contains(first)
    assert await shared.contains(second.id)
    assert not await shared.contains("nothing")
    assert await shared.count() == len(log) == 3
    assert await shared.count(after=first.id) == 2
    assert await shared.heads() == log.heads == (third.id,)
    assert await shared.clock() == log.clock == 4
    assert await shared.root() == log.root
    assert await shared.is_ancestor(first.id, third.id)
    assert await shared.frontier(third.id, 2) == (second.id,)
    assert await shared.children(first.id) == (second.id,)
    assert [message.id async for message in shared] == [message.id for message in log]
    assert [message.id async for message in shared.messages(reverse=True, limit=1)] == [third.id]
    assert (await shared.info()).messages == 3
    assert (await shared.verify()).root == log.root
    assert not await shared.is_rebuilding()
    assert await shared.apply_version() == 1
    assert (shared.topic, shared.signer) == (log.topic, log.signer)
    with pytest.raises(UnknownMessage):
        await shared.get("0" * 32)


async def test_messages_of_others_come_in(shared: AsyncLog, opened: Callable[..., Log], signer: Signer) -> None:
    other = opened(signer=signer)
    first, second, third, *_ = other.append_many(range(5))
    assert await shared.insert(first)
    assert not await shared.insert(first.value)
    assert (await shared.insert_many(iter([second, third]))).inserted == 2
    assert (await shared.pull(AsyncLog(other))).inserted == 2
    assert (await shared.pull(other)).inserted == 0
    assert await shared.root() == other.root


@pytest.mark.parametrize("kind", ["location", "Log", "AsyncLog"])
async def test_a_log_is_pulled_from_wherever_it_is(place: Place, kind: str, signer: Signer) -> None:
    """A file or a schema of Postgres by its name, also while it is open, and a log of either kind."""

    def fill() -> Log:
        log = gossiplog.open(place.location, "topic", signer=signer)
        log.append_many(range(300))
        return log

    source = await anyio.to_thread.run_sync(fill)
    async with AsyncLog(source), gossiplog.open_async(":memory:", "topic") as log:
        sources = {"location": place.location, "Log": source, "AsyncLog": AsyncLog(source)}
        assert (await log.pull(sources[kind])).inserted == 300
        assert await log.root() == source.root

        def pull_blocking() -> None:
            with gossiplog.open(":memory:", "topic") as other:
                if kind == "AsyncLog":
                    with pytest.raises(TypeError, match=r"pull takes a Log, such as `blocking` of an AsyncLog"):
                        other.pull(sources[kind])
                else:
                    assert (other.pull(sources[kind]).inserted, other.root) == (300, source.root)

        await anyio.to_thread.run_sync(pull_blocking)


async def test_a_hub_is_not_pulled_from(shared: AsyncLog) -> None:
    for url in ("ws://localhost:8000", "https://hub.example.org"):
        with pytest.raises(StorageError, match=r"is no file: gossiplog sync .*, gossiplog\.connect in a program"):
            await shared.pull(url)


async def test_copies_and_tables(tmp_path: Path, signer: Signer) -> None:
    steps: list[tuple[int, ...]] = []

    def note(*numbers: int) -> None:
        assert threading.current_thread() is here
        steps.append(numbers)

    here = threading.current_thread()
    seen: list[Any] = []
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    async with gossiplog.open_async(
        path,
        "topic",
        signer=signer,
        setup=lambda _: seen.clear(),
        apply=lambda message, _: seen.append(message.payload),
    ) as log:
        await log.append_many([1, 2])
        assert await log.backup(copy, progress=note) == 2
        await log.rebuild(progress=note)
        await log.info(progress=note)
        await log.verify(progress=note)
        # They are called soon.
        while len(steps) < 4:
            await anyio.sleep(0.001)
    assert seen == [1, 2]
    assert steps[-2:] == [(2, 2), (2, 2)]
    async with gossiplog.open_async(copy) as log:
        assert await log.count() == 2


async def test_appends_run_while_apply_takes_long(opened: Callable[..., Log], signer: Signer) -> None:
    """The event loop goes on meanwhile: it took no turn in 0.6 s, with an `apply` that took so long."""
    release = threading.Event()
    log = AsyncLog(opened(apply=lambda *_: release.wait(60), signer=signer))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.append, 1)
        for _ in range(3):
            await anyio.sleep(0)
        release.set()
    assert await log.count() == 1


async def test_a_closed_log_says_so(shared: AsyncLog) -> None:
    async with shared:
        await shared.append(1)
    await shared.close()
    for call in (lambda: shared.append(1), shared.heads, shared.count, shared.verify):
        with pytest.raises(LogClosed):
            await call()
    with pytest.raises(LogClosed):
        await anext(aiter(shared))
    assert repr(shared) == f"<Async{repr(shared.blocking)[1:]}"
    assert repr(shared).endswith(", closed>")


async def test_closing_goes_on_in_a_cancelled_scope(shared: AsyncLog) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await shared.close()
    with pytest.raises(LogClosed):
        len(shared.blocking)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_closing_goes_on_where_asyncio_cancels_its_task_before_a_thread_is_free(
    shared: AsyncLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for its turn among the calls, and was dropped."""
    monkeypatch.setattr(threads, "MOST_RUNNING", 1)
    monkeypatch.setattr(threads, "_pool", type(threads._pool)())
    release, closed = threading.Event(), threading.Event()
    close = shared.blocking.close

    def note() -> None:
        close()
        closed.set()

    monkeypatch.setattr(shared.blocking, "close", note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run_in_thread, release.wait)
        await anyio.wait_all_tasks_blocked()
        closing = asyncio.create_task(shared.close())
        await anyio.wait_all_tasks_blocked()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not closed.is_set()
        release.set()
    assert await anyio.to_thread.run_sync(closed.wait, 60)
    with pytest.raises(LogClosed):
        len(shared.blocking)


async def test_a_call_that_is_cancelled_leaves_the_log_usable(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py gave the answer of a call that was cancelled to the next one."""
    release, hangs = threading.Event(), threading.Event()
    blocking = opened(signer=signer)
    first, second = blocking.append_many([1, 2])
    log, get = AsyncLog(blocking), blocking.get

    def hang(id: str) -> Any:
        if id == first.id:
            hangs.set()
            release.wait(60)
        return get(id)

    monkeypatch.setattr(blocking, "get", hang)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.get, first.id)
        while not hangs.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert await log.get(second.id) == second
    release.set()
    assert await log.get(first.id) == first


async def test_what_is_cancelled_ends_at_its_next_step(opened: Callable[..., Log], signer: Signer) -> None:
    source, target = opened(signer=signer), AsyncLog(opened())
    values = [message.value for message in source.append_many(range(10))]
    taken: list[int] = []
    reached, cancelled = threading.Event(), threading.Event()

    def slowly() -> Any:
        for number, value in enumerate(values):
            taken.append(number)
            if number == 3:
                reached.set()
                cancelled.wait(60)
            yield value

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(target.insert_many, slowly())
        while not reached.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    cancelled.set()
    # Its chunk was not full, so that nothing was stored; and the thread has let go of the log.
    assert (await target.insert_many(values)).inserted == 10
    assert taken == [0, 1, 2, 3]


async def test_a_pull_that_is_cancelled_ends_at_its_next_request(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = opened(signer=signer), AsyncLog(opened())
    source.append_many(range(10))
    from gossiplog.log.serving import LogServer

    requests: list[int] = []
    reached, cancelled = threading.Event(), threading.Event()
    receive = LogServer.receive

    def slowly(server: LogServer, data: bytes, now: float) -> bytes:
        requests.append(len(data))
        reached.set()
        cancelled.wait(60)
        return receive(server, data, now)

    monkeypatch.setattr(LogServer, "receive", slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(target.pull, source)
        while not reached.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    cancelled.set()
    monkeypatch.undo()
    assert (await target.pull(source)).inserted == 10
    assert len(requests) == 1
    assert await target.root() == source.root


def test_what_nothing_can_be_asked_with_is_refused_at_the_call(shared: AsyncLog) -> None:
    """It came at the first step, far from the mistake."""
    wrong: Any = "1"
    for call, kind, text in (
        (lambda: shared.messages(limit=-1), ValueError, "^a limit of -1"),
        (lambda: shared.messages(limit=wrong), TypeError, "^a limit of '1'"),
        (lambda: shared.messages(author="ada"), ValueError, "expected a did:key"),
        (lambda: shared.messages(after="ada"), DecodeError, "id"),
        (lambda: shared.ancestors("ada"), DecodeError, "id"),
        (lambda: shared.descendants("ada"), DecodeError, "id"),
    ):
        with pytest.raises(kind, match=text):
            call()


async def test_what_is_not_there_is_said_by_the_first_step(shared: AsyncLog) -> None:
    for found in (shared.ancestors("0" * 32), shared.descendants("0" * 32)):
        with pytest.raises(UnknownMessage):
            await anext(found)


async def test_damage_that_is_met_late_is_raised_after_what_came_before(
    shared: AsyncLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = await shared.append_many(range(3))
    read = Log.messages

    def damaged(log: Log, **options: Any) -> Any:
        yield from read(log, limit=2)
        raise CorruptLog(["the third"])

    monkeypatch.setattr(Log, "messages", damaged)
    found = shared.messages()
    assert [await anext(found), await anext(found)] == messages[:2]
    with pytest.raises(CorruptLog, match="the third"):
        await anext(found)
    with pytest.raises(StopAsyncIteration):
        await anext(found)


async def test_mistakes_name_what_to_write(shared: AsyncLog) -> None:
    log: Any = shared
    with pytest.raises(TypeError, match=r"await log\.count"):
        len(log)
    with pytest.raises(TypeError, match="async for"):
        list(log)
    with pytest.raises(TypeError, match=r"await log\.contains"):
        assert 1 not in log
    with pytest.raises(TypeError, match=r"async with gossiplog\.open_async"), log:
        pass
    with pytest.raises(TypeError, match=r"expected a gossiplog\.Log"):
        AsyncLog(log)
    with pytest.raises(TypeError, match="append_many takes an iterable"):
        await log.append_many("text")
    assert log


async def test_a_blocking_log_names_the_asynchronous_one(log: Log) -> None:
    blocking: Any = log
    with pytest.raises(TypeError, match=r"async with gossiplog\.open_async"):
        async for _ in blocking:
            pass
    with pytest.raises(TypeError, match=r"async with gossiplog\.open_async"):
        async for _ in blocking.subscribe():
            pass
    with pytest.raises(TypeError, match=r"async with gossiplog\.open_async"):
        async with blocking:
            pass
