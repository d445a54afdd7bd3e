from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import Log, MemoryStorage, NotALog
from gossiplog.log.callbacks import check_runs


async def coroutine(*_: object) -> None: ...


async def async_generator(*_: object) -> AsyncIterator[int]:
    yield 1


def generator(*_: object) -> Iterator[int]:
    yield 1


class Callback:
    async def __call__(self, *_: object) -> None: ...

    async def method(self, *_: object) -> None: ...


IN_VAIN = [coroutine, async_generator, generator, Callback(), Callback().method, functools.partial(coroutine, 1)]


@pytest.mark.parametrize("function", IN_VAIN)
def test_apply_must_run_when_it_is_called(function: Any) -> None:
    storage = MemoryStorage()
    with pytest.raises(TypeError, match=r"apply is .*, a coroutine or generator function"):
        gossiplog.open(storage, "topic", apply=function)
    with pytest.raises(NotALog):
        storage.open(None, create=False)


@pytest.mark.parametrize("progress", [coroutine, lambda done: None, 5])
@pytest.mark.parametrize(
    "call",
    [
        lambda log, progress: log.info(progress=progress),
        lambda log, progress: log.verify(progress=progress),
        lambda log, progress: log.backup("copy.db", progress=progress),
        lambda log, progress: log.rebuild(progress=progress),
        lambda _, progress: gossiplog.open("other.db", "topic", progress=progress),
        lambda _, progress: gossiplog.recover("log.db", "new.db", progress=progress),
        lambda _, progress: gossiplog.repair("log.db", progress=progress),
        lambda _, progress: gossiplog.rebase("log.db", "other.db", signer=[], progress=progress),
    ],
    ids=["info", "verify", "backup", "rebuild", "open", "recover", "repair", "rebase"],
)
def test_progress_is_looked_at_before_anything_is_done(
    log: Log,
    call: Callable[[Log, Any], object],
    progress: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    with pytest.raises(TypeError, match=r"^progress is "):
        call(log, progress)
    assert {*tmp_path.iterdir()} == before


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="apply is 5: expected a function"):
        gossiplog.open(":memory:", "topic", apply=5)  # type: ignore[arg-type]


def test_ordinary_functions_pass(opened: Callable[..., Log]) -> None:
    for function in (
        lambda *_: None,
        functools.partial(print, end=""),
        lambda message, transaction=None: None,
    ):
        opened(apply=function)


@pytest.mark.parametrize("function", [lambda message: None, lambda *, message, transaction: None, [].append])
def test_apply_must_take_a_message_and_a_transaction(function: Any) -> None:
    with pytest.raises(TypeError, match=r"apply is .* cannot be called as apply\(message, transaction\): "):
        gossiplog.open(":memory:", "topic", apply=function)


def test_a_check_takes_one_argument() -> None:
    with pytest.raises(TypeError, match=r"cannot be called as payload\(payload\): too many positional arguments"):
        gossiplog.open(":memory:", "topic", payload=lambda: None)
    with pytest.raises(TypeError, match=r"cannot be called as payload\(payload\): missing a required argument: 'b'"):
        gossiplog.open(":memory:", "topic", payload=lambda a, b: None)
    gossiplog.open(":memory:", "topic", payload={"a": 1}.get).close()


def test_functions_that_do_not_say_what_they_take_pass() -> None:
    check_runs("function", map, "message")
