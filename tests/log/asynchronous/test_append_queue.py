from __future__ import annotations

import contextvars
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

import gossiplog
from gossiplog import AsyncLog, Log, LogClosed, RefusedMessage, Signer, StorageError
from gossiplog.event_loop import loop_call_soon
from gossiplog.log.appending import AppendRequest
from gossiplog.log.asynchronous import append_queue
from gossiplog.log.asynchronous.append_queue import AppendQueue
from gossiplog.log.writing import Writer

pytestmark = pytest.mark.anyio


class Gate:
    """Holds the thread that appends, and counts what it takes at a time."""

    def __init__(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[int] = []
        self.begun = threading.Event()
        self.open = threading.Event()
        self._append_some = log._append_some
        monkeypatch.setattr(log, "_append_some", self._hold)

    def _hold(self, requests: Sequence[AppendRequest]) -> None:
        self.taken.append(len(requests))
        self.begun.set()
        self.open.wait(60)
        self._append_some(requests)

    async def holds(self) -> None:
        """Wait until the thread has taken something."""
        while not self.begun.is_set():
            await anyio.sleep(0.001)
        self.begun.clear()


@pytest.fixture
def gate(log: Log, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(log, monkeypatch)


async def test_those_that_wait_at_once_are_one_transaction(log: Log, gate: Gate, other_signer: Signer) -> None:
    shared = AsyncLog(log)
    found: dict[int, Any] = {}

    async def append(number: int) -> None:
        found[number] = await shared.append(number, signer=other_signer if number % 3 == 0 else None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, 0)
        await gate.holds()
        for number in range(1, 20):
            tasks.start_soon(append, number)
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert gate.taken == [1, 19]
    # trio starts tasks in any order.
    assert sorted(message.payload for message in log) == list(range(20))
    assert {number: message.payload for number, message in found.items()} == {number: number for number in range(20)}
    assert len(log.heads) == 1
    assert found[3].author == other_signer.did


async def test_what_is_cancelled_while_it_waits_is_not_stored(log: Log, gate: Gate) -> None:
    shared = AsyncLog(log)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shared.append, "begun")
        await gate.holds()
        async with anyio.create_task_group() as others:
            others.start_soon(shared.append, "waits")
            others.start_soon(shared.append_many, ["waits", "too"])
            await anyio.wait_all_tasks_blocked()
            others.cancel_scope.cancel()
        tasks.start_soon(shared.append, "later")
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert [message.payload for message in log] == ["begun", "later"]


async def test_what_is_cancelled_once_it_has_begun_is_stored(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, release = threading.Event(), threading.Event()
    append = log._writer.append

    def held(runs: Any) -> Any:
        begun.set()
        release.wait(60)
        return append(runs)

    monkeypatch.setattr(log._writer, "append", held)
    shared = AsyncLog(log)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shared.append, "begun")
        while not begun.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    release.set()
    # What comes after it follows it.
    message = await shared.append("next")
    assert message.clock == 2
    assert [message.payload for message in log] == ["begun", "next"]


@pytest.mark.parametrize("at", ["the check of another", "the transaction of another, after one was refused"])
async def test_what_is_cancelled_before_its_transaction_is_not_stored(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Those that a thread had taken with it were stored all the same."""
    begun, release = threading.Event(), threading.Event()
    is_in_check = at.startswith("the check")
    applied: list[Any] = []

    def hold() -> None:
        begun.set()
        release.wait(60)

    def check(payload: Any) -> None:
        if is_in_check and payload == "first":
            hold()

    def apply(message: gossiplog.SignedMessage, _: gossiplog.ApplyTransaction) -> None:
        applied.append(message.payload)
        if message.payload == "refused":
            raise ValueError("no")
        if applied.count("first") == 2:
            hold()

    log = opened(payload=check, apply=apply, signer=signer)
    gate, shared = Gate(log, monkeypatch), AsyncLog(log)

    async def refused() -> None:
        with pytest.raises(RefusedMessage):
            await shared.append("refused")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shared.append, "begun")
        await gate.holds()
        tasks.start_soon(shared.append, "first")
        await anyio.wait_all_tasks_blocked()
        if not is_in_check:
            tasks.start_soon(refused)
            await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as others:
            others.start_soon(shared.append, "cancelled")
            await anyio.wait_all_tasks_blocked()
            gate.open.set()
            while not begun.is_set():
                await anyio.sleep(0.001)
            others.cancel_scope.cancel()
        release.set()
    assert [message.payload for message in log] == ["begun", "first"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages a transaction."""
    for module in ("writing", "appending", "asynchronous.append_queue"):
        monkeypatch.setattr(f"gossiplog.log.{module}.MOST_SIGNED", 2)


@pytest.mark.usefixtures("few")
async def test_one_append_does_not_wait_for_many_of_another_task(log: Log, gate: Gate) -> None:
    shared = AsyncLog(log)
    many: list[Any] = []

    async def append_many() -> None:
        many.extend(await shared.append_many(range(7)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_many)
        await gate.holds()
        for payload in "ab":
            tasks.start_soon(shared.append, payload)
            await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert [message.payload for message in log] == ["a", "b", *range(7)]
    assert [message.payload for message in many] == [*range(7)]
    assert [message.clock for message in log] == [*range(1, 10)]


@pytest.mark.usefixtures("few")
async def test_many_that_are_cancelled_end_with_their_transaction(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, loop = AsyncLog(log), loop_call_soon()
    scope, ended = anyio.CancelScope(), threading.Event()
    publish = Writer._publish

    def cancel(writer: Writer, written: Any) -> None:
        publish(writer, written)
        if len(log) == 4:
            loop(scope.cancel)
            ended.wait(60)

    monkeypatch.setattr(Writer, "_publish", cancel)
    with scope:
        await shared.append_many(range(1000))
    assert scope.cancelled_caught
    ended.set()
    await shared.append("next")
    assert [message.payload for message in log] == [*range(4), "next"]


async def test_one_that_is_refused_fails_alone(opened: Callable[..., Log], signer: Signer, monkeypatch: Any) -> None:
    log = opened(payload=int, signer=signer)
    gate, shared = Gate(log, monkeypatch), AsyncLog(log)
    errors: list[Exception] = []

    async def append(payload: Any) -> None:
        try:
            await shared.append(payload)
        except RefusedMessage as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, 0)
        await gate.holds()
        for payload in (1, "two", 3):
            tasks.start_soon(append, payload)
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert gate.taken == [1, 3]
    assert sorted(message.payload for message in log) == [0, 1, 3]
    assert len(errors) == 1


class _Shared(AppendQueue[Any]):
    """A queue whose note of the loop another loop's task replaces, on its thread, as soon as it was made."""

    delivered: list[object]

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_caller" and value is not None:
            value = (object(), lambda call, *arguments: self.delivered.append(call))
        super().__setattr__(name, value)


async def test_each_task_hears_on_its_own_loop(log: Log) -> None:
    """Where two loops share a log, the other one was told, and the task waited for ever."""
    queue = _Shared(log._append_some)
    queue.delivered = []
    with anyio.fail_after(60):
        assert [message.payload for message in await queue.append([1], None, "dag-cbor")] == [1]
    assert queue.delivered == []


async def test_errors_reach_everyone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StorageError("the disk is full")

    def fail(_: Any) -> Any:
        raise error

    monkeypatch.setattr(log, "_append_some", fail)
    shared = AsyncLog(log)
    for _ in range(2):
        with pytest.raises(StorageError) as raised:
            await shared.append(1)
        assert raised.value is error


async def test_what_waits_when_the_log_is_closed_says_so(log: Log, gate: Gate) -> None:
    shared = AsyncLog(log)
    raised: list[str] = []

    async def append(payload: str) -> None:
        try:
            await shared.append(payload)
        except LogClosed:
            raised.append(payload)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, "first")
        await gate.holds()
        tasks.start_soon(append, "second")
        await anyio.wait_all_tasks_blocked()
        await shared.close()
        gate.open.set()
    assert sorted(raised) == ["first", "second"]


async def test_a_thread_that_cannot_be_started_is_tried_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    shared = AsyncLog(log)
    with monkeypatch.context() as patch:
        patch.setattr(append_queue, "start_in_thread", fail)
        with pytest.raises(RuntimeError, match="thread"):
            await shared.append(1)
    await shared.append(2)
    assert [message.payload for message in log] == [2]


async def test_a_thread_that_cannot_be_started_keeps_no_other_loop_waiting(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came meanwhile waited for the next append, and without one for ever."""
    shared = AsyncLog(log)
    raised: list[BaseException] = []

    async def append() -> None:
        with pytest.raises(RuntimeError, match="can't start") as error:
            await shared.append(2)
        raised.append(error.value)

    other = threading.Thread(target=lambda: anyio.run(append), daemon=True)

    def fail(_: Any) -> None:
        other.start()
        while len(shared._appends._waiting) < 2:
            time.sleep(0.001)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(append_queue, "start_in_thread", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        await shared.append(1)
    other.join(60)
    assert len(raised) == 1
    assert len(log) == 0


def test_one_log_on_one_loop_after_the_other(opened: Callable[..., Log], signer: Signer) -> None:
    shared = AsyncLog(opened(signer=signer))
    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(shared.append, backend, backend=backend)
    assert len(shared.blocking) == 3


def test_a_forked_process_waits_for_no_thread_of_the_other() -> None:
    """The parent's thread may be in a transaction at the fork, or just about to look for more."""
    begun, release, parent = threading.Event(), threading.Event(), os.getpid()

    def append_some(requests: Sequence[AppendRequest]) -> None:
        begun.set()
        if os.getpid() == parent:
            release.wait(60)
        for request in requests:
            request.error = ConnectionError("appended")

    queue = AppendQueue[Any](append_some)

    async def append() -> bool:
        with anyio.move_on_after(30):
            try:
                await queue.append([1], None, "dag-cbor")
            except ConnectionError:
                return True
        return False

    thread = threading.Thread(target=anyio.run, args=(append,))
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if anyio.run(append) else 1)
    status = os.waitpid(child, 0)[1]
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert anyio.run(append)


async def test_apply_cannot_wait_for_an_append_of_its_own_log(
    opened: Callable[..., Log], signer: Signer, other_signer: Signer
) -> None:
    """Neither on the thread that appends, nor on one that inserts; it waited for itself."""
    stranger = opened(signer=other_signer).append("stranger")
    raised: list[str] = []
    calls: list[Callable[[], Any]] = []

    def apply(message: Any, _: Any) -> None:
        for call in calls:
            try:
                anyio.run(call)
            except StorageError as error:
                raised.append(str(error))

    log = AsyncLog(opened(apply=apply, setup=lambda _: None, signer=signer))
    calls += [
        lambda: log.append(1),
        lambda: log.append_many([1]),
        lambda: log.insert(stranger),
        lambda: log.insert_many([stranger]),
        lambda: log.pull(":memory:"),
        log.rebuild,
    ]
    with anyio.fail_after(60):
        await log.append("outer")
        assert raised == ["this thread is in a transaction of the log: `apply` must not append or insert"] * 6
        await log.insert(stranger)
    assert len(raised) == 12
    assert await log.count() == 2


async def test_a_payload_check_cannot_wait_for_an_append_of_its_own_log(
    opened: Callable[..., Log], signer: Signer
) -> None:
    def check(payload: Any) -> None:
        if payload == "outer":
            anyio.run(log.append, "inner")

    log = AsyncLog(opened(payload=check, signer=signer))
    with anyio.fail_after(60), pytest.raises(RefusedMessage, match="this thread appends to the log"):
        await log.append("outer")
    assert await log.count() == 0


async def test_what_a_task_holds_in_its_context_is_not_kept(log: Log) -> None:
    class Request:
        pass

    shared, request = AsyncLog(log), contextvars.ContextVar[Request]("request")

    async def handle() -> None:
        found = Request()
        request.set(found)
        kept.append(weakref.ref(found))
        await shared.append(1)

    kept: list[weakref.ref[Request]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handle)
    await shared.append(2)
    gc.collect()
    assert kept[0]() is None
