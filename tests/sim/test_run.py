"""`gossiplog.sim.run`: whole networks, and that their checks can fail. Many more seeds: tests/integration."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest

from gossiplog.protocol.broadcast import Broadcast
from gossiplog.protocol.broadcast_config import Config
from gossiplog.sim.checks import BrokenInvariantError
from gossiplog.sim.kernel import TraceHash
from gossiplog.sim.run import replay_command, run_seed
from tests.sim.broken import BROKEN

PEERS = 12


@pytest.mark.parametrize("seed", range(12))
def test_seeds(seed: int) -> None:
    result = run_seed(seed, PEERS)
    assert result.messages > 0
    assert result.syncs > 0


def test_seeds_differ_in_what_they_try() -> None:
    results = [run_seed(seed, 5) for seed in range(20)]
    assert len({result.shape for result in results}) > 2
    assert any(result.orphans for result in results)
    assert any(result.dropped for result in results)
    assert any(result.pushes for result in results)


@pytest.mark.parametrize(("machine", "seed", "said"), BROKEN, ids=[machine.__name__ for machine, _, _ in BROKEN])
def test_a_machine_without_one_of_its_rules_is_caught(
    machine: Callable[[Random, Config], Broadcast], seed: int, said: str
) -> None:
    with pytest.raises(BrokenInvariantError, match=said) as caught:
        run_seed(seed, PEERS, machine=machine)
    assert replay_command(seed, PEERS) in str(caught.value)
    assert run_seed(seed, PEERS)


def trace_of(seed: int) -> str:
    summary = TraceHash()
    run_seed(seed, 6, summary)
    return summary.digest()


def test_the_same_seed_leaves_the_same_trace_in_another_process_too() -> None:
    program = "from tests.sim.test_run import trace_of; print(trace_of(3))"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(["python", "."])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == trace_of(3) == trace_of(3) != trace_of(4)
