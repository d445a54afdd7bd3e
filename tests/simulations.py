"""The built-in runs of the simulator, each seed run once in a process however many tests look at it.

Tests that share runs name them in a parameter `name`: those of one run are in one group (`groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType

from gossiplog.sim.routers.named import Named, read, run_seeds

RUNS: Mapping[str, Named] = MappingProxyType(read())


def counts(run: Named, seeds: Iterable[int]) -> Iterator[Mapping[str, float]]:
    """Yield the counts of a built-in run with each of the seeds, in their order."""
    assert run == RUNS[run.name]
    return (_counts(run.name, seed) for seed in seeds)


@cache
def _counts(name: str, seed: int) -> Mapping[str, float]:
    (found,) = run_seeds(RUNS[name], [seed], 1)
    return MappingProxyType(found)
