from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import gossiplog
from gossiplog import Log, MemoryStorage


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
def test_apply_must_run_when_it_is_called(function: Any, opened: Callable[..., Log]) -> None:
    storage = MemoryStorage()
    with pytest.raises(TypeError, match=r"apply is .*, a coroutine or generator function"):
        gossiplog.open(storage, "topic", apply=function)
    assert len(opened(storage, None)) == 0


@pytest.mark.parametrize("function", IN_VAIN)
def test_so_must_what_is_replayed(function: Any, log: Log) -> None:
    with pytest.raises(TypeError, match=r"function is .*, a coroutine or generator function"):
        log.replay(function)


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="apply is 5: expected a function"):
        gossiplog.open(":memory:", "topic", apply=5)  # type: ignore[arg-type]


def test_ordinary_functions_pass(opened: Callable[..., Log]) -> None:
    for function in (lambda *_: None, functools.partial(print, end=""), Callback, [].append):
        opened(apply=function)
