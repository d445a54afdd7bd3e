"""What runs hub, client, peer, driver and local network: contexts, tasks beside a block, and the event loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import ClassVar, Protocol, Self, TypeVarTuple, cast

import anyio
import anyio.abc
import anyio.lowlevel

try:
    import sniffio
except ImportError:
    # Without trio it may be absent.
    library: ContextVar[str | None] | None = None
else:
    library = sniffio.current_async_library_cvar
    """Which library runs, for code that no task runs (sniffio)."""

_Arguments = TypeVarTuple("_Arguments")


class Caller(Protocol):
    """Has an event loop call functions soon. Any thread may call it, and none waits."""

    def __call__(self, call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None: ...


class _TrioToken(Protocol):
    """What trio calls by this name: named here, because trio need not be installed."""

    def run_sync_soon(self, call: Callable[[*_Arguments], object], /, *arguments: *_Arguments) -> None: ...


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs the current task; None if it is not one of asyncio's."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    # A task of trio's may run as a guest on asyncio's loop.
    return task.get_loop() if task is not None else None


def _callback_context() -> Context:
    """Return a context for callbacks of asyncio's loop in which anyio finds out that it is asyncio's.

    Where sniffio is installed it looks for a task, which a callback has not, unless the context says so. Those of
    `anyio.run` do; those of `asyncio.run`, and of servers that are started so, do not.
    """
    context = copy_context()
    if library is not None:
        context.run(library.set, "asyncio")
    return context


def caller() -> Caller:
    """Return a function that calls others on the loop that runs now. When that has ended, it does nothing."""
    loop = asyncio_loop()
    if loop is not None:
        call_soon: Callable[..., object] = partial(loop.call_soon_threadsafe, context=_callback_context())
    else:
        call_soon = cast(_TrioToken, anyio.lowlevel.current_token().native_token).run_sync_soon

    def call_in_loop(call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        # What both raise once the loop has ended.
        with suppress(RuntimeError):
            call_soon(call, *arguments)

    return call_in_loop


async def call_when_readable(descriptor: int, call: Callable[[], bool]) -> None:
    """Call a function whenever a file descriptor can be read, without end.

    On asyncio the loop calls it: no task wakes, and the descriptor is registered once. `anyio.wait_readable` registers
    it, makes a future and wakes a task each time.

    Args:
        descriptor: of what the function reads.
        call: reads, without waiting, what it can handle in some milliseconds; there may be nothing. Returns True if it
            is to be called again at once.

    Raises:
        BaseException: what the function raises.
    """
    loop = asyncio_loop()
    if loop is None:
        while True:
            await anyio.wait_readable(descriptor)
            while call():
                await anyio.lowlevel.checkpoint()
    failed = loop.create_future()

    def read() -> None:
        if failed.done():
            return
        try:
            if call():
                loop.call_soon(read)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.set_exception(error)

    # The handle of the reader has a copy of the context that it is made in.
    _callback_context().run(loop.add_reader, descriptor, read)
    try:
        await failed
    finally:
        failed.cancel()
        loop.remove_reader(descriptor)


@asynccontextmanager
async def background() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Provide a task group that is cancelled at the end of its block.

    When a task fails, the block and the other tasks are cancelled, and what it raised comes out of the block. Where
    several failed, the block's own error comes before the tasks'; the others are named in its notes.
    """
    own: BaseException | None = None
    errors: list[BaseException] = []
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except BaseException as error:
                own = error
                raise
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The block's own error may be a group of its user's, which was taken apart on its way.
        known = set(map(id, leaves(own))) if own is not None else set()
        errors = [error for error in leaves(group) if id(error) not in known]
        if own is not None and not isinstance(own, anyio.get_cancelled_exc_class()):
            errors.insert(0, own)
    if errors:
        first, *others = errors
        for other in others:
            first.add_note(f"Meanwhile: {type(other).__name__}: {other}")
        raise first


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that a group holds, at whatever depth; of what is no group, itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


class Service(ABC):
    """A context that is entered once, and runs what `_start` has put on its stack until it ends."""

    _ENTERED_AGAIN: ClassVar[str] = "it runs once: make another"

    def __init__(self) -> None:
        self._entered = False
        self._stack = AsyncExitStack()

    @abstractmethod
    async def _start(self, stack: AsyncExitStack) -> None:
        """Start what runs, and put its end on the stack, which is unwound when the context ends or this raises."""

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError(self._ENTERED_AGAIN)
        self._entered = True
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)
