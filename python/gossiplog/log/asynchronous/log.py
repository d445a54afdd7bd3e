"""The log as coroutines see it: `Log`, with `await`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import anyio

from gossiplog.core import Node, SignedMessage
from gossiplog.log.appending import check_payloads
from gossiplog.log.asynchronous.append_queue import AppendQueue
from gossiplog.log.asynchronous.calls import run_stoppable
from gossiplog.log.asynchronous.iteration import AsyncSubscription
from gossiplog.log.asynchronous.reading import AsyncReading
from gossiplog.log.asynchronous.view import AsyncLogView
from gossiplog.log.following import check_subscription
from gossiplog.log.log import Log
from gossiplog.log.payloads import P
from gossiplog.log.results import InsertResult, LogInfo, PullResult, VerifyResult
from gossiplog.signer import Signer
from gossiplog.storage.base import Progress
from gossiplog.storage.location import Location
from gossiplog.threads import run_in_thread

if TYPE_CHECKING:
    from gossiplog.protocol.sync import SyncServerConfig

_PAGE = 256


class AsyncLog(AsyncReading[Log[P], P]):
    """A log for coroutines on asyncio and trio. `gossiplog.open_async` opens one; `AsyncLog(log)` shares a `Log`.

    As `Log` it is generic in the type of its payloads.

    Its methods are those of `Log`, which say more of what each does and raises. What waits is awaited, and runs on a
    worker thread meanwhile, where `apply` and the `payload` check run as well. For appends, of which those of several
    tasks share a transaction, they see no task's context variables. Properties of `Log` that read the log are methods
    here: `await log.heads()`.

    A call that is cancelled returns at once, and the log is as usable as before. What it had begun goes on on its
    thread: a write to its commit, so that it is whole or not at all, and `insert_many`, `pull`, `verify`, `info`,
    `backup` and `rebuild` to their next step. Those end there, too, where their `progress` raises, and raise that.

    Args:
        log: to be shared. Closing either closes both.

    Attributes:
        blocking: the same log for threads, and for what takes a `Log`.

    Raises:
        TypeError: `log` is no Log.

    Examples:
        >>> async def main():
        ...     async with gossiplog.AsyncLog(log) as notes:
        ...         first = await notes.append({"text": "The kettle is on."})
        ...         print(await notes.count(), (await notes.get(first.id)).payload, await notes.heads() == (first.id,))
        >>> anyio.run(main)
        1 {'text': 'The kettle is on.'} True
    """

    blocking: Log[P]

    def __init__(self, log: Log[P]) -> None:
        if not isinstance(log, Log):
            raise TypeError(f"log is {log!r}: expected a gossiplog.Log; gossiplog.open_async opens one by its path")
        super().__init__(log)
        self._appends = AppendQueue(log._append_some)

    @property
    def topic(self) -> str:
        """What the log is about."""
        return self.blocking.topic

    @property
    def signer(self) -> Signer | None:
        """What `append` signs with when it is given none."""
        return self.blocking.signer

    # Writing

    async def append(self, payload: P, *, signer: Signer | None = None, codec: str = "dag-cbor") -> SignedMessage[P]:
        """Sign a message that follows all heads of the log, and store it. When this returns, it is on disk.

        Appends that wait at once are written in one transaction, in the order in which they were called: each of the
        messages follows the one before. One that is refused fails alone.

        If it is cancelled before its transaction has begun, nothing is stored. Cancelled later, the message is stored
        unless the transaction fails: `subscribe` and `messages` show it then.

        Args:
            payload: a value of the IPLD data model; in a log with a type for its payloads, one of this type as well.
            signer: None takes the log's.
            codec: "dag-cbor" or "dag-json": in which the bytes are that are signed.
        """
        self.blocking._applier.check_thread()
        return (await self._appends.append([payload], signer, codec))[0]

    async def append_many(
        self, payloads: Iterable[P], *, signer: Signer | None = None, codec: str = "dag-cbor"
    ) -> list[SignedMessage[P]]:
        """Sign messages, each of which follows the one before, and store them: see `append` and `Log.append_many`.

        Between two of its transactions others may append, whose messages then stand between those of this call. If it
        is cancelled, it ends with the transaction that is under way: what is stored stays.

        Args:
            payloads: are taken at once, on the event loop.
            signer: None takes the log's.
            codec: "dag-cbor" or "dag-json".
        """
        self.blocking._applier.check_thread()
        return await self._appends.append(check_payloads(payloads), signer, codec)

    async def insert(self, message: SignedMessage | bytes) -> bool:
        """Verify a message and store it; return whether it is new to the log: see `Log.insert`."""
        self.blocking._applier.check_thread()
        return await self._run(self.blocking.insert, message)

    async def insert_many(
        self, messages: Iterable[SignedMessage | bytes], *, max_refused: int | None = None
    ) -> InsertResult:
        """Verify messages, in any order, and store those that are valid and whose parents are in the log or here.

        If it is cancelled, chunks that were stored stay: see `Log.insert_many`.

        Args:
            messages: or their stored values. They are taken on the worker thread, so that they may come from a file.
            max_refused: how many errors of refused messages are returned. None returns all.
        """
        self.blocking._applier.check_thread()
        log = self.blocking
        return await run_stoppable(lambda stop: log.insert_many(stop.checking(messages), max_refused=max_refused))

    async def pull(
        self, source: AsyncLog[Any] | Log[Any] | Location, *, sync_server: SyncServerConfig | None = None
    ) -> PullResult:
        """Get what another log that this machine can open has and this one lacks: see `Log.pull`.

        If it is cancelled, what came before is in the log.
        """
        self.blocking._applier.check_thread()
        found = source.blocking if isinstance(source, AsyncLog) else source
        return await run_stoppable(lambda stop: self.blocking._pull(found, sync_server, stop.check))

    # Reading

    def subscribe(self, *, after: int | None = None, batch_size: int = _PAGE) -> AsyncSubscription[P]:
        """Follow the log: return lists of messages as they arrive, for `async for`: see `Log.subscribe`.

        It ends when the log or itself is closed. A step that is cancelled loses nothing. While it waits it holds no
        thread.

        Args:
            after: a cursor, as lists have it; 0 is the start of the log, None its end at the first step: within `async
                with log.subscribe() as subscription` that at the start of the block.
            batch_size: the most messages in a list.

        Raises:
            LogClosed: the log is closed. Closed later, it ends the subscription.
            TypeError: an id as the cursor, or a batch that is no integer.
            ValueError: a cursor below 0, a batch below 1, or one of them larger than a log can be.
            CursorOutdated: raised by the first step: the log was rebased since it gave the cursor.
            LogWentBack: raised by a step: the log has fewer messages than the cursor says.
            CorruptLog, StorageError: raised by a step, once all messages before have come.
        """
        check_subscription(after, batch_size)
        self.blocking._check_open()
        return AsyncSubscription(self.blocking._notifier, after, batch_size)

    async def root(self) -> Node:
        """Return the root of the tree: equal in two logs exactly when they hold the same messages."""
        return await self._run(lambda: self.blocking.root)

    async def frontier(self, id: str, clock: int) -> tuple[str, ...]:
        """Return the ids, ascending, of the latest ancestors of a message at or before a clock: see `Log.frontier`."""
        return await self._run(self.blocking.frontier, id, clock)

    async def children(self, id: str, *, limit: int | None = None) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages that name this one as a parent: see `Log.children`."""
        return await self._run(lambda: self.blocking.children(id, limit=limit))

    async def at(self, point: int | str | Iterable[str]) -> AsyncLogView[P]:
        """Return a read-only view of what some messages had seen, or of the log as it was: see `Log.at`."""
        return AsyncLogView(await self._run(self.blocking.at, point))

    # The log as a whole

    async def info(self, *, progress: Progress | None = None) -> LogInfo:
        """Return the log in figures: see `Log.info`. `progress` is called on the event loop, soon after each step."""
        return await run_stoppable(lambda stop: self.blocking.info(progress=stop.reporting(progress)))

    async def verify(self, *, progress: Progress | None = None) -> VerifyResult:
        """Check everything that is stored: see `Log.verify`. `progress` is called on the event loop, soon after."""
        return await run_stoppable(lambda stop: self.blocking.verify(progress=stop.reporting(progress)))

    async def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Copy the log to a new file: see `Log.backup`. `progress` is called on the event loop, soon after each step.

        If it is cancelled, there is no file of the name.
        """
        return await run_stoppable(lambda stop: self.blocking.backup(path, progress=stop.reporting(progress)))

    async def rebuild(self, *, progress: Progress | None = None) -> None:
        """Build the application's tables anew: see `Log.rebuild`. `progress` is called on the event loop, soon after.

        If it is cancelled, it stays requested, and whoever opens the log with `apply` goes on.
        """
        self.blocking._applier.check_thread()
        await run_stoppable(lambda stop: self.blocking.rebuild(progress=stop.reporting(progress)))

    async def is_rebuilding(self) -> bool:
        """Return whether a rebuild of the application's tables was requested or has not ended."""
        return await self._run(lambda: self.blocking.is_rebuilding)

    async def apply_version(self) -> int:
        """Return the version of the `apply` that has written the application's tables; 1 where none has."""
        return await self._run(lambda: self.blocking.apply_version)

    async def close(self) -> None:
        """End the use of the log, and every subscription; a second call does nothing: see `Log.close`.

        It waits for the transaction that is under way, also in a scope that was cancelled. Where asyncio cancels the
        task meanwhile, closing goes on on its thread.
        """
        with anyio.CancelScope(shield=True):
            await run_in_thread(self.blocking.close, is_essential=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise TypeError("an AsyncLog is an asynchronous context: async with gossiplog.open_async(...) as log")

    def __exit__(self, *error: object) -> None:
        """Do nothing: `with` looks this up before it calls `__enter__`."""

    def __iter__(self) -> NoReturn:
        raise TypeError("the messages of an AsyncLog come by `async for message in log`")

    def __len__(self) -> NoReturn:
        raise TypeError("an AsyncLog is counted by `await log.count()`")

    def __bool__(self) -> bool:
        """Return True, also for an empty log."""
        return True

    def __contains__(self, id: object) -> NoReturn:
        raise TypeError("an AsyncLog is asked by `await log.contains(id)`")
