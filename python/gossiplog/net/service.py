"""The base of asynchronous contexts that run something: hub, client, peer, driver and local network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from types import TracebackType
from typing import ClassVar, Self


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
