"""What coroutines read of a log and of a view of it alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar, TypeVarTuple

from gossiplog.core import SignedMessage
from gossiplog.log.asynchronous.iteration import AsyncPages
from gossiplog.log.log import Log
from gossiplog.log.paging import bounds, by_author, check_limit
from gossiplog.log.payloads import P
from gossiplog.log.view import LogView
from gossiplog.message import key_of
from gossiplog.threads import run_in_thread

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")
_Blocking = TypeVar("_Blocking", bound=Log[Any] | LogView[Any])


class AsyncReading(Generic[_Blocking, P]):
    """The methods that read messages, of a log or of a view.

    Args:
        blocking: to be shared.

    Attributes:
        blocking: the same for threads; its methods say more of what each does and raises.
    """

    def __init__(self, blocking: _Blocking) -> None:
        self.blocking: _Blocking = blocking

    async def get(self, id: str) -> SignedMessage[P]:
        """Return the message with an id."""
        return await self._run(self.blocking.get, id)

    async def content_id(self, id: str) -> str:
        """Return the id that all encodings of a message have in common."""
        return await self._run(self.blocking.content_id, id)

    async def contains(self, id: str | SignedMessage) -> bool:
        """Return whether a message is there, as `id in log` does for a `Log`.

        Args:
            id: of a message, or a SignedMessage.
        """
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
        """Return the messages in the order of their ids, for `async for`, as of the first step.

        A worker thread reads 256 of them in each turn, or fewer long ones.

        Args:
            after: only messages with larger ids.
            before: only messages with smaller ids.
            reverse: from the largest id down.
            limit: at most so many.
            author: only messages that are signed by this `did:key`.

        Raises:
            DecodeError: text that is no id.
            ValueError: a limit below 0, or an author that is no `did:key`.
            TypeError: a limit that is no integer, or an author that is no text.
            LogClosed, CorruptLog, StorageError: raised by a step, once what came before has been taken.
        """
        check_limit(limit)
        by_author(author)
        bounds(after, before)
        blocking = self.blocking
        return _paged(
            lambda: blocking.messages(after=after, before=before, reverse=reverse, limit=limit, author=author)
        )

    def __aiter__(self) -> AsyncIterator[SignedMessage[P]]:
        """All messages in the order of their ids."""
        return self.messages()

    async def count(self, *, after: str | None = None, before: str | None = None) -> int:
        """Return how many messages have ids in a range, by default how many there are."""
        return await self._run(lambda: self.blocking.count(after=after, before=before))

    async def heads(self) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages that no other names as a parent."""
        return await self._run(lambda: self.blocking.heads)

    async def clock(self) -> int:
        """Return 1 + the largest clock, 1 where there is no message: in a log, the clock of the next message."""
        return await self._run(lambda: self.blocking.clock)

    async def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether one message is a proper ancestor of another."""
        return await self._run(self.blocking.is_ancestor, ancestor, descendant)

    def ancestors(self, id: str) -> AsyncIterator[SignedMessage[P]]:
        """Return what a message follows, directly or not, for `async for`: each once and descending by id.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: raised by the first step: the message is not there.
            LogClosed, CorruptLog, StorageError: raised by a step, once what came before has been taken.
        """
        key_of(id)
        return _paged(lambda: self.blocking.ancestors(id))

    def descendants(self, id: str) -> AsyncIterator[SignedMessage[P]]:
        """Return what follows a message, directly or not, for `async for`: each once and ascending by id.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: raised by the first step: the message is not there.
            LogClosed, CorruptLog, StorageError: raised by a step, once what came before has been taken.
        """
        key_of(id)
        return _paged(lambda: self.blocking.descendants(id))

    async def _run(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        return await run_in_thread(call, *arguments)

    def __repr__(self) -> str:
        return f"<Async{repr(self.blocking).removeprefix('<')}"


def _paged(begin: Callable[[], Iterator[SignedMessage[P]]]) -> AsyncPages[SignedMessage[P]]:
    """Return messages that a blocking iterator reads, in pages."""
    return AsyncPages(begin, lambda message: len(message.value))
