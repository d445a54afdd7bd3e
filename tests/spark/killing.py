"""Tasks of Spark of which one is killed, or the executor that runs it: whichever gets to a place first, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.classic.dataframe import DataFrame

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class KilledTask:
    """Does what a task does, and is killed after its first batch, or at its end where it has none.

    Attributes:
        task: what is done.
        token: a file, which the one that is killed removes.
        executor: kill the Java process of the executor, in place of this one.
    """

    task: Task
    token: str
    executor: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self.task(batches):
            yield batch
            self._die()
        self._die()

    def _die(self) -> None:
        try:
            os.unlink(self.token)
        except FileNotFoundError:
            return
        os.kill(parent_of(os.getppid()) if self.executor else os.getpid(), signal.SIGKILL)


def parent_of(process: int) -> int:
    """The parent of a process; that of a worker's daemon is the executor."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def killing(token: Path, executor: bool = False) -> Iterator[None]:
    """Have a task of the jobs in a block killed, or its executor.

    Args:
        token: a file to be made, which is gone once it has happened.
        executor: as `KilledTask` has it.
    """
    token.touch()
    methods: dict[str, Any] = {"mapInArrow": DataFrame.mapInArrow}
    original = methods["mapInArrow"]

    def killed(frame: DataFrame, task: Task, *rest: Any, **options: Any) -> Any:
        return original(frame, KilledTask(task, str(token), executor), *rest, **options)

    DataFrame.mapInArrow = killed
    try:
        yield
    finally:
        DataFrame.mapInArrow = original
