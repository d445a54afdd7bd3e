"""In place of a session: the tasks of a job run in this process, a part after the other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable


class InlineSession:
    """Runs what a job maps over its parts. A task is copied as on its way to an executor."""

    def __init__(self) -> None:
        self.sparkContext = self

    def parallelize(self, parts: Iterable[object], number: int) -> InlineSession:
        self._parts = parts
        return self

    def map(self, task: Callable[[object], object]) -> InlineSession:
        self._parts = map(pickle.loads(pickle.dumps(task)), self._parts)
        return self

    def collect(self) -> list[object]:
        return [*self._parts]
