"""Warn of blocking calls on an event loop: nothing else runs there meanwhile."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from gossiplog.errors import BlockingCallWarning

_Item = TypeVar("_Item")

_PAGE = 256
_warned: set[str] = set()


class _Callbacks(threading.local):
    depth = 0


_callbacks = _Callbacks()


@contextmanager
def calling_back() -> Iterator[None]:
    """Warn of nothing within a block: it calls a function that cannot await, or has warned already."""
    _callbacks.depth += 1
    try:
        yield
    finally:
        _callbacks.depth -= 1


def warn_on_event_loop(call: str, instead: str, *, stacklevel: int = 3) -> None:
    """Warn, once in a process for each call, where an event loop runs on this thread.

    Args:
        call: that is about to wait, as `Log.append`.
        instead: what to write in a coroutine.
        stacklevel: as `warnings.warn` takes it: of the caller's caller by default.
    """
    if call in _warned or not is_on_event_loop() or _callbacks.depth:
        return
    advice = f"write {instead} with a log of `async with gossiplog.open_async(...) as log`, or gossiplog.AsyncLog(log)"
    _warn(call, advice, stacklevel + 1)


def warning_of_many(messages: Iterator[_Item], call: str) -> Iterator[_Item]:
    """Return an iterator over messages that warns, once in a process, where it goes on to a second page.

    A page takes a millisecond or two, a whole log seconds.

    Args:
        messages: that are read as they are taken.
        call: that returns them, as `Log.messages`.
    """
    return _warning(messages, call) if is_on_event_loop() else messages


def _warning(messages: Iterator[_Item], call: str) -> Iterator[_Item]:
    yield from islice(messages, _PAGE)
    for message in messages:
        warn_on_event_loop(f"iterating over {call}()", f"`async for message in log.{call.partition('.')[2]}(...)`")
        yield message


def warn_of_whole_log(call: str) -> None:
    """Warn, once in a process, where an event loop runs on this thread: of a function that takes a log's file.

    Args:
        call: of the function, as `gossiplog.repair`, whose caller calls this.
    """
    if call in _warned or not is_on_event_loop() or _callbacks.depth:
        return
    _warn(call, f"write {on_thread(call)}", 4)


def on_thread(call: str) -> str:
    """Return what to write in a coroutine for a function that has no asynchronous form."""
    return f"`await anyio.to_thread.run_sync(lambda: {call}(...))`"


def _warn(call: str, advice: str, stacklevel: int) -> None:
    _warned.add(call)
    warnings.warn(
        f"{call} waits, and holds up the event loop that runs on this thread: in a coroutine, {advice}",
        BlockingCallWarning,
        stacklevel=stacklevel,
    )


def is_on_event_loop() -> bool:
    """Return whether an event loop, asyncio's or trio's, runs on this thread."""
    # What nobody has imported does not run. Looked up in some 100 ns; sniffio would take microseconds.
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()
