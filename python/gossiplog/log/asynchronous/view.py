"""A view of a log as coroutines see it: `LogView`, with `await`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar, TypeVarTuple

from gossiplog.core import SignedMessage
from gossiplog.log.asynchronous.iteration import AsyncPages
from gossiplog.log.payloads import P
from gossiplog.log.view import LogView
from gossiplog.threads import run_in_thread

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


class AsyncLogView(Generic[P]):
    """Messages of a log that are closed under ancestors, as `AsyncLog.at` returns them: see `LogView`.

    Args:
        view: to be shared.

    Attributes:
        blocking: the same view for threads.
    """

    def __init__(self, view: LogView[P]) -> None:
        self.blocking = view

    async def get(self, id: str) -> SignedMessage[P]:
        """Return the message with an id: see `LogView.get`."""
        return await self._run(self.blocking.get, id)

    async def content_id(self, id: str) -> str:
        """Return the id that all encodings of a message have in common: see `LogView.content_id`."""
        return await self._run(self.blocking.content_id, id)

    async def contains(self, id: str | SignedMessage) -> bool:
        """Return whether a message is in the view, as `id in view` does for a `LogView`."""
        return await self._run(self.blocking.__contains__, id)

    def messages(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        author: str | None = None,
    ) -> AsyncIterator[SignedMessage[P]]:
        """Return the messages in the order of their ids, for `async for`: see `LogView.messages`."""
        view = self.blocking
        return paged(lambda: view.messages(after=after, before=before, reverse=reverse, limit=limit, author=author))

    def __aiter__(self) -> AsyncIterator[SignedMessage[P]]:
        """All messages in the order of their ids."""
        return self.messages()

    async def count(self, *, after: str | None = None, before: str | None = None) -> int:
        """Return how many messages have ids in a range, by default how many there are: see `LogView.count`."""
        return await self._run(lambda: self.blocking.count(after=after, before=before))

    async def heads(self) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages that no other of the view names as a parent."""
        return await self._run(lambda: self.blocking.heads)

    async def clock(self) -> int:
        """Return 1 + the largest clock in the view, 1 in an empty one."""
        return await self._run(lambda: self.blocking.clock)

    async def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether one message is a proper ancestor of another: see `LogView.is_ancestor`."""
        return await self._run(self.blocking.is_ancestor, ancestor, descendant)

    def ancestors(self, id: str) -> AsyncIterator[SignedMessage[P]]:
        """Return what a message follows, for `async for`: see `LogView.ancestors`."""
        return paged(lambda: self.blocking.ancestors(id))

    def descendants(self, id: str) -> AsyncIterator[SignedMessage[P]]:
        """Return what follows a message in the view, for `async for`: see `LogView.descendants`."""
        return paged(lambda: self.blocking.descendants(id))

    async def children(self, id: str) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages of the view that name this one as a parent."""
        return await self._run(self.blocking.children, id)

    async def _run(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        return await run_in_thread(call, *arguments)

    def __repr__(self) -> str:
        return f"<Async{repr(self.blocking).removeprefix('<')}"


def paged(begin: Callable[[], Iterator[SignedMessage[P]]]) -> AsyncPages[SignedMessage[P]]:
    """Return messages that a blocking iterator reads, in pages."""
    return AsyncPages(begin, lambda message: len(message.value))
