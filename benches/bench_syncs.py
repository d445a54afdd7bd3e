from __future__ import annotations

import pytest
from conftest import Results

from gossiplog.cli.bench import suite
from gossiplog.cli.bench.stage import Result, Stage

SMALL = 100_000
rates: dict[int, float] = {}


@pytest.mark.parametrize("share", [SMALL, None], ids=["small", "large"])
def test_pull_everything(share: int | None, stage: Stage, results: Results) -> None:
    size = min(share or stage.size, stage.size)
    result, rates[size] = suite.pull_everything(stage, size)
    results.add(result)
    if len(rates) == 2:
        small, large = rates[min(rates)], rates[max(rates)]
        work = f"the rate of `pull` at {stage.size:,}"
        must = f"within 15 % of that at {SMALL:,}"
        share = large / small
        results.add(Result(work, must, f"{share:.0%}", share >= 0.85, result.seconds))


def test_pull_the_end(stage: Stage, results: Results) -> None:
    results.add(suite.pull_the_end(stage))


def test_pull_scattered(stage: Stage, results: Results) -> None:
    results.add(suite.pull_scattered(stage))
