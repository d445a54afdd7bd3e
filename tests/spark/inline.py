"""In place of a session: the tasks of a job run in this process, a part after the other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Row


class InlineSession:
    """Runs what `spread` maps over its parts. A task is copied as on its way to an executor."""

    def range(self, start: int, end: int, step: int, partitions: int) -> InlineSession:
        self._numbers = range(start, end, step)
        return self

    def mapInArrow(
        self, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
    ) -> InlineSession:
        self._work = work
        return self

    def collect(self) -> list[Row]:
        rows: list[Row] = []
        for number in self._numbers:
            task = pickle.loads(pickle.dumps(self._work))
            for batch in task([pa.record_batch({"id": [number]})]):
                rows += (Row(**row) for row in batch.to_pylist())
        return rows
