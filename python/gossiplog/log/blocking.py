"""A warning for who calls what waits on the thread of an event loop: nothing else runs there meanwhile."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from gossiplog.errors import BlockingCallWarning

_warned: set[str] = set()


class _Callbacks(threading.local):
    depth = 0


_callbacks = _Callbacks()


@contextmanager
def calling_back() -> Iterator[None]:
    """Warn of nothing within a block: it calls an application's function, which cannot await anything."""
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
    if call in _warned or not _is_on_event_loop() or _callbacks.depth:
        return
    _warned.add(call)
    warnings.warn(
        f"{call} waits, and holds up the event loop that runs on this thread: in a coroutine, write {instead} with a"
        " log of `async with gossiplog.open_async(...) as log`, or gossiplog.AsyncLog(log)",
        BlockingCallWarning,
        stacklevel=stacklevel,
    )


def _is_on_event_loop() -> bool:
    # What nobody has imported does not run. Looked up in some 100 ns; sniffio would take microseconds.
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()
