"""Which keys a log has, for many who ask at a time: one call of the log answers all that have come since the last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import anyio

from gossiplog.errors import StorageError
from gossiplog.log.replica import Replica
from gossiplog.net.replicator.workers import WorkerPool


@dataclass(slots=True, eq=False)
class _Batch:
    """Keys that one call looks up.

    Attributes:
        keys: of all who ask.
        found: those that the log has; None until they are looked up, and where the caller was cancelled before.
        error: that the log raised.
        done: set at the end.
    """

    keys: set[bytes] = field(default_factory=set)
    found: Collection[bytes] | None = None
    error: StorageError | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class Lookups:
    """Look keys up in a log.

    Args:
        replica: of the log.
        workers: to run on.
    """

    def __init__(self, replica: Replica, workers: WorkerPool) -> None:
        self._replica = replica
        self._workers = workers
        self._turn = anyio.Lock(fast_acquire=True)
        self._next: _Batch | None = None

    async def known(self, keys: Sequence[bytes]) -> Collection[bytes]:
        """Return those of the keys that the log has.

        Raises:
            StorageError: the log cannot be read.
        """
        found = self._replica.known_at_once(keys)
        while found is None:
            if (batch := self._next) is not None:
                batch.keys.update(keys)
                await batch.done.wait()
            else:
                batch = self._next = _Batch(set(keys))
                await self._look_up(batch)
            if batch.error is not None:
                raise batch.error
            found = batch.found
        return [key for key in keys if key in found]

    async def _look_up(self, batch: _Batch) -> None:
        try:
            async with self._turn:
                # Who asks from now on is answered by the next call.
                self._next = None
                batch.found = await self._workers.read(self._replica.known, tuple(batch.keys))
        except StorageError as error:
            batch.error = error
        finally:
            if self._next is batch:
                self._next = None
            batch.done.set()
