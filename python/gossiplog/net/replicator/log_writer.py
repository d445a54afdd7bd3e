"""A driver's own transactions: one at a time, each reported to the change feed, which finds what others commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio

from gossiplog.errors import LogClosed, StorageError
from gossiplog.log.replica import Replica
from gossiplog.net import events
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.defects import defect_in
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.stream import Signal
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch

RETRY_SECONDS = 10.0
"""Between attempts to store what a log could not take."""
LOOK_SECONDS = 1.0
"""Between looks at the files of a log."""
_VERIFIED_APART = 2**16
"""Bytes from which on values are verified before it is their turn to write, at the cost of another thread's waking."""

_Result = TypeVar("_Result")


class LogWriter:
    """Insert into a log what peers send.

    Args:
        workers: to run on.
        telemetry: gets `cannot_store` set from a write that fails until messages are stored, and reports files that
            have lost their names.
    """

    def __init__(self, replica: Replica, workers: WorkerPool, telemetry: Telemetry, feed: ChangeFeed) -> None:
        self._replica = replica
        self._workers = workers
        self._telemetry = telemetry
        self._feed = feed
        self._failed = Signal()
        # Inserts what the log could not take last.
        self._unstored: Callable[[], InsertOutcome] | None = None

    async def insert_values(self, values: Sequence[bytes]) -> InsertOutcome:
        """Verify and insert values, with as few turns on threads as that is quick in."""
        replica = self._replica
        if sum(map(len, values)) > _VERIFIED_APART:
            return await self.insert(await self._workers.verify(replica.verify, values))
        if not replica.checks:
            return await self._insert(lambda: replica.insert(replica.verify(values)))
        checked = await self._workers.check(lambda: replica.check(replica.verify(values)))
        outcome = self.insert_at_once(checked)
        return outcome if outcome is not None else await self._insert(lambda: replica.insert(checked))

    def insert_at_once(self, batch: VerifiedBatch) -> InsertOutcome | None:
        """Insert a few messages on the event loop, if nothing has to be waited for (see `Replica.insert_at_once`).

        A log in memory takes a message in a tenth of the time that a thread takes to wake and to wake the loop again.
        """
        if self._feed.writing.locked():
            return None
        outcome = self._as_own(lambda: self._replica.insert_at_once(batch))
        if outcome is not None:
            self._feed.note_own(outcome)
        return outcome

    async def insert(self, batch: VerifiedBatch) -> InsertOutcome:
        """Insert a batch (see `Replica.insert`)."""
        replica = self._replica
        # Not while writing is kept from others: what is appended meanwhile is passed on, however long a check takes.
        checked = await self._workers.check(replica.check, batch) if replica.checks else batch
        return await self._insert(lambda: replica.insert(checked))

    async def _insert(self, call: Callable[[], InsertOutcome]) -> InsertOutcome:
        def measured() -> InsertOutcome:
            began = time.thread_time()
            return replace(call(), cpu_seconds=time.thread_time() - began)

        async with self._feed.writing:
            try:
                outcome = await self._write(measured)
            except StorageError:
                self._unstored = call
                raise
            if outcome.inserted:
                # Copies of what the log holds, and what it has not to hold, need no room on the disk.
                self._note_stored()
            self._feed.note_own(outcome)
        return outcome

    def _note_stored(self) -> None:
        self._telemetry.cannot_store, self._unstored = "", None

    async def _write(self, call: Callable[[], _Result]) -> _Result:
        try:
            return await self._workers.write(self._as_own, call)
        except StorageError as error:
            self._telemetry.cannot_store = str(error)
            self._failed.set()
            raise

    def _as_own(self, call: Callable[[], _Result]) -> _Result:
        """Call a function whose commits the feed does not take for others'."""
        self._feed.writer = threading.get_ident()
        try:
            return call()
        finally:
            self._feed.writer = None

    async def write_index(self) -> None:
        """Write the index after commits, without end, so that no message has to."""
        while True:
            await self._feed.index_behind.wait()
            # What fails here is reported where a message needs it.
            with suppress(StorageError):
                # Most of the work, which keeps no message waiting.
                unindexed = await self._workers.read(self._replica.read_unindexed)
                if not self._replica.is_index_behind:
                    # Another hub on the log has written it.
                    continue
                async with self._feed.writing:
                    await self._write(partial(self._replica.index, unindexed))

    async def retry(self) -> None:
        """Try to store what a log could not take, now and then, without end.

        While a hub is not ready no client may come whose messages would show that the disk has room again.
        """
        while True:
            while not self._telemetry.cannot_store:
                await self._failed.wait()
            await anyio.sleep(RETRY_SECONDS)
            if self._telemetry.cannot_store:
                await self._try_again()

    async def _try_again(self) -> None:
        """Store what failed last: something smaller may fit where that does not."""
        unstored = self._unstored
        try:
            async with self._feed.writing:
                # As if others did: the feed reports it to the machine, which had to give it up.
                outcome = await self._workers.write(unstored) if unstored is not None else None
                if outcome is None or not outcome.inserted:
                    # The index failed, or another has stored the messages meanwhile.
                    await self._workers.write(self._as_own, self._replica.try_writing)
                self._note_stored()
        except StorageError as error:
            self._telemetry.cannot_store = str(error)
        except BaseException as error:
            # The application refuses all of it, or it brings a defect to light: whoever sends it again learns of that.
            if defect_in(error) is None:
                raise
            if self._unstored is unstored:
                self._unstored = None

    async def watch_files(self) -> None:
        """Report once, each time it happens, that the files of the log are not those that were opened, without end.

        What is only read from, as by a hub whose clients write nothing, does not notice it. Ends at once where the log
        is in no file.
        """
        while self._replica.file is not None:
            fault = ""
            try:
                await self._workers.read(self._replica.check_files)
            except LogClosed:
                return
            except StorageError as error:
                fault = str(error)
                if fault != self._telemetry.file_fault:
                    self._telemetry.emit(events.Failed("checking the files of the log", error))
            self._telemetry.file_fault = fault
            await anyio.sleep(LOOK_SECONDS)
