"""Stored values by their keys, from whichever of several replicas has them whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from gossiplog.columns import verify
from gossiplog.errors import StorageError
from gossiplog.spark.source.fleet import FoundLog, OpenedLog
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.opening import opened_log
from gossiplog.spark.source.problems import Problem, problem_of
from gossiplog.storage import Storage
from gossiplog.storage.base import PAGE_BYTES

_FETCHED = pa.schema(
    [
        ("key", pa.binary()),
        ("holders", pa.list_(pa.int32())),
        ("clock", pa.int64()),
        ("author", pa.string()),
        ("size", pa.int64()),
        ("value", pa.binary()),
        ("error", pa.string()),
    ]
)
# Each has a few files.
_MOST_OPEN = 32
_COLUMNS = "key binary, holders array<int>, clock long, author string, size long, value binary, error string"


def fetch_values(keys: DataFrame, logs: Sequence[FoundLog], *, passes_over_unreadable: bool = False) -> DataFrame:
    """Read and verify the values of some keys.

    Args:
        keys: the columns `key` and `holders`, an array of the numbers of the replicas that have it; read the fastest
            where the keys ascend.
        logs: the replicas, of one log or of several: the holders of a key are of one.
        passes_over_unreadable: ask the next holder where one cannot be read; otherwise it is an error.

    Returns:
        Both columns with `clock`, `author`, `size` and `value`, which are null where `error` is not: no holder's value
        is that message. With `passes_over_unreadable` also rows with the number of one holder, a problem as `error` and
        no key: a log that cannot be read any more since its keys were.
    """
    return keys.select("key", "holders").mapInArrow(FetchTask(tuple(logs), passes_over_unreadable), _COLUMNS)


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Fetch and verify values: one task of `fetch_values`.

    Attributes:
        logs: as `fetch_values` takes them.
        passes_over_unreadable: likewise.
    """

    logs: tuple[FoundLog, ...]
    passes_over_unreadable: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read and verify the values of batches of keys and holders."""
        with _Storages(self.logs, self.passes_over_unreadable) as storages:
            for batch in batches:
                yield from self._gathered(batch, storages)
            storages.close()
            for number, problem in sorted(storages.left_out.items()):
                row = {"holders": pa.array([[number]], pa.list_(pa.int32())), "error": pa.array([str(problem)])}
                yield _row_batch(row, 1)

    def _gathered(self, batch: pa.RecordBatch, storages: _Storages) -> Iterator[pa.RecordBatch]:
        owners = pc.list_parent_indices(batch["holders"])
        holders = pc.list_flatten(batch["holders"])
        pending: npt.NDArray[np.bool_] = np.ones(len(batch), dtype=bool)
        for number in sorted({*pc.unique(holders).to_pylist()} - storages.left_out.keys()):
            rows = owners.filter(pc.equal(holders, number)).to_numpy()
            rows = rows[pending[rows]]
            try:
                storage, log = storages.get(number)
                for found in _pages(storage, log, batch["key"].take(pa.array(rows))):
                    yield self._sound(batch, rows, pending, found, log)
            except StorageError as reason:
                storages.pass_over(number, reason)
        lost = batch.filter(pa.array(pending))
        error = pa.repeat(pa.scalar("what is stored under this key is not that message, in any replica"), len(lost))
        yield _row_batch({"key": lost["key"], "holders": lost["holders"], "error": error}, len(lost))

    def _sound(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        pending: npt.NDArray[np.bool_],
        found: dict[bytes, bytes],
        log: OpenedLog,
    ) -> pa.RecordBatch:
        """Return those of the values that are what their keys say, and take their rows from the pending ones."""
        keys, values = pa.array(found.keys(), pa.binary()), pa.array(found.values(), pa.binary())
        verdicts = verify(keys, values, log.topic, ["clock", "author", "size"])
        sound = pc.is_null(verdicts["error"])
        whole = verdicts.filter(sound)
        # Another log may have the same key, if it is damaged: only this one's rows are looked at.
        places = pa.array(rows).take(pc.index_in(whole["key"], batch["key"].take(pa.array(rows))))
        pending[places.to_numpy()] = False
        columns = {name: whole[name] for name in ("key", "clock", "author", "size")}
        columns |= {"holders": batch["holders"].take(places), "value": values.filter(sound)}
        return _row_batch(columns, len(whole))


class _Storages:
    """The storages of replicas, opened when they are asked for; a limited number stays open.

    Args:
        logs: the replicas.
        passes_over_unreadable: do not raise where one cannot be read.

    Attributes:
        left_out: what is wrong with logs that cannot be read any more since their keys were, by number.
    """

    def __init__(self, logs: Sequence[FoundLog], passes_over_unreadable: bool) -> None:
        self._logs = logs
        self._passes_over = passes_over_unreadable
        self._patience = LockPatience() if passes_over_unreadable else None
        self._open: dict[int, tuple[Storage, OpenedLog, ExitStack]] = {}
        self.left_out: dict[int, Problem] = {}

    def __enter__(self) -> _Storages:
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing is open any more after a block that ended.
        while self._open:
            with suppress(StorageError):
                self._close_first()

    def get(self, number: int) -> tuple[Storage, OpenedLog]:
        """Return the storage of a replica, and the replica.

        Raises:
            StorageError: it cannot be opened, or another log is in its place.
        """
        if number not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._close_first()
            with ExitStack() as stack:
                storage, log = stack.enter_context(opened_log(self._logs[number], self._patience))
                self._open[number] = storage, log, stack.pop_all()
        storage, log, _ = self._open[number]
        return storage, log

    def pass_over(self, number: int, error: StorageError) -> None:
        """Take note of why a replica cannot be read, or raise it."""
        if not self._passes_over:
            raise error
        log = self._logs[number]
        self.left_out[number] = problem_of(log.location, error, log.name)

    def close(self) -> None:
        """Close all storages.

        Raises:
            StorageError: another log is in the place of one by now.
        """
        while self._open:
            self._close_first()

    def _close_first(self) -> None:
        number = next(iter(self._open))
        *_, stack = self._open.pop(number)
        try:
            stack.close()
        except StorageError as error:
            self.pass_over(number, error)


def _row_batch(columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in _FETCHED
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_FETCHED)


def _pages(storage: Storage, log: OpenedLog, wanted: pa.Array) -> Iterator[dict[bytes, bytes]]:
    """Yield the values of those of the keys that are there, a limited number of bytes at a time."""
    keys = wanted.to_pylist()
    with storage.reader(single=True) as reader:
        while keys:
            found = reader.values(keys, log.count, PAGE_BYTES)
            yield found
            if sum(map(len, found.values())) <= PAGE_BYTES:
                return
            keys = [key for key in keys if key not in found]
