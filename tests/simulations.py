"""The built-in runs of the simulator: what was counted with twenty seeds, of which the tests count the first again.

A seed determines its run, so that another count of one seed shows a change as well as those of twenty, which take
seven minutes. Tests that look at a run name it in a parameter `name`: those of one run are in one group (`groups`), and
count a seed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from benches.simulator_tables import read_counts
from gossiplog.sim.routers.named import Named, read, run_seeds

RUNS: Mapping[str, Named] = MappingProxyType(read())
# Seeds that are counted again. Some of run-1 prune links, and some do not; a seed of the others takes seconds.
COUNTED = {"run-1": 5}


def counts(name: str) -> Sequence[Mapping[str, float]]:
    """Return the counts of a built-in run by seed, once the first of them have been counted again."""
    stored = _stored()[name]
    seeds = COUNTED.get(name, 1)
    assert [_counted(name, seed) for seed in range(seeds)] == stored[:seeds]
    return stored


@cache
def _stored() -> Mapping[str, Sequence[Mapping[str, float]]]:
    return read_counts()


@cache
def _counted(name: str, seed: int) -> Mapping[str, float]:
    (found,) = run_seeds(RUNS[name], [seed], 1)
    return found
