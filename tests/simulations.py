"""The built-in runs of the simulator: what was counted with twenty seeds, and what the first of them count again.

A seed determines its run, so counting one seed again shows a change as well as counting all twenty, which takes seven
minutes. Tests that look at a run name it in a parameter `name`: those of one run are in one group (`groups`), and count
a seed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from benches.simulator_tables import read_counts
from gossiplog.sim.routers.named import Named, read, run_seeds

RUNS: Mapping[str, Named] = MappingProxyType(read())
# Of run-1 some seeds prune links, and some do not; a seed of the others takes seconds.
RECOUNTED_SEEDS = {"run-1": 5}


@cache
def stored(name: str) -> Sequence[Mapping[str, float]]:
    """Return what was counted in a built-in run, by seed."""
    return read_counts()[name]


@cache
def recounted(name: str) -> Sequence[Mapping[str, float]]:
    """Return what the first seeds of a built-in run count now."""
    return list(run_seeds(RUNS[name], range(RECOUNTED_SEEDS.get(name, 1)), 1))


def reproduced(name: str) -> Sequence[Mapping[str, float]]:
    """Return what is stored of a built-in run, where its first seeds count the same again."""
    again = recounted(name)
    assert again == stored(name)[: len(again)]
    return stored(name)
