"""`gossiplog.sim.whole.soak`."""

from __future__ import annotations

import pytest

from gossiplog.sim.whole import soak as module
from gossiplog.sim.whole.checks import BrokenInvariantError
from gossiplog.sim.whole.run import RunResult, run_seed
from gossiplog.sim.whole.soak import Failure, soak


@pytest.mark.integration
def test_results_come_in_the_order_of_the_seeds_in_one_process_or_several() -> None:
    alone = [run_seed(seed, 4) for seed in range(3, 6)]
    assert list(soak(range(3, 6), 4, 1)) == alone
    assert list(soak(range(3, 6), 4, 2)) == alone


def test_a_failure_is_told_and_the_next_seed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, peers: int) -> RunResult:
        if seed == 1:
            raise BrokenInvariantError("replay: …")
        return run_seed(seed, peers)

    monkeypatch.setattr(module, "run_seed", run)
    kinds = [type(outcome) for outcome in soak(range(3), 4, 1)]
    assert kinds == [RunResult, Failure, RunResult]
