"""Work and its floor, measured in turns: the machine may be shared, so only what ran side by side can be compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

ROUNDS = 3

Prepare: TypeAlias = Callable[[], tuple[object, ...]]
Repeat: TypeAlias = Callable[[Callable[..., None], Prepare], None]
"""Calls, ROUNDS times, the second and then the first with what the second returned."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the results.

    Attributes:
        work: what was done.
        must: what it must reach, on logs of a million messages.
        reached: what it reached, in the same terms.
        met: whether that is enough; None where there was no floor to tell.
        seconds: that the work took, all of it; for `is_ancestor` one call.
        floor_seconds: that its floor took, None where it has none.
        detail: the figures behind it.
    """

    work: str
    must: str
    reached: str
    met: bool | None
    seconds: float
    floor_seconds: float | None = None
    detail: str = ""


def repeat(work: Callable[..., None], prepare: Prepare) -> None:
    """Do the work ROUNDS times, each time with what `prepare` returns: the plain `Repeat`."""
    for _ in range(ROUNDS):
        work(*prepare())


class Turns:
    """The seconds that some work and its floor take.

    Args:
        repeat: runs the rounds.
    """

    def __init__(self, repeat: Repeat = repeat) -> None:
        self._repeat = repeat
        self._work: list[float] = []
        self._floor: list[float] = []

    def run(
        self,
        work: Callable[..., object],
        floor: Callable[[], float] | None = None,
        prepare: Prepare = tuple,
    ) -> None:
        """In each round: the floor, what the work needs (not counted), the work.

        Args:
            work: called with what `prepare` returned.
            floor: returns its seconds; None where there is nothing to compare with.
            prepare: what comes before each run of the work.
        """

        def before() -> tuple[object, ...]:
            if floor is not None:
                self._floor.append(floor())
            return prepare()

        def counted(*arguments: object) -> None:
            self._work.append(timed(lambda: work(*arguments)))

        self._repeat(counted, before)

    @property
    def seconds(self) -> float:
        """The median of the work."""
        return statistics.median(self._work)

    @property
    def floor_seconds(self) -> float:
        """The median of the floor."""
        return statistics.median(self._floor)

    @property
    def ratio(self) -> float:
        """The median of the work over that of the floor, round by round."""
        return statistics.median(work / floor for work, floor in zip(self._work, self._floor, strict=True))

    @property
    def over(self) -> float:
        """The median of the work less its floor, round by round."""
        return statistics.median(work - floor for work, floor in zip(self._work, self._floor, strict=True))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
