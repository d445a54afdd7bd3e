"""Tasks that run beside a block, and whose errors reach its user as they were raised, not in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


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
