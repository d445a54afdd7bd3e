"""What runs hub, client, peer, driver and local network: contexts, and tasks beside a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import ClassVar, Self

import anyio
import anyio.abc
import anyio.lowlevel

from gossiplog.event_loop import asyncio_loop, callback_context


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
    callback_context().run(loop.add_reader, descriptor, read)
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
