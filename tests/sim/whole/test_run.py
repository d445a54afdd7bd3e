"""`gossiplog.sim.whole.run`: whole networks, and that their checks can fail. Many more seeds: tests/integration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.pubsub import log_routers
from gossiplog.pubsub.gossipsub import GossipSub
from gossiplog.sim.kernel import TraceHash
from gossiplog.sim.latency import Faults
from gossiplog.sim.whole import peer
from gossiplog.sim.whole import run as module
from gossiplog.sim.whole.checks import BrokenInvariant
from gossiplog.sim.whole.hostile import Kind
from gossiplog.sim.whole.run import Failure, Run, RunResult, replay_command, run_seed, soak
from gossiplog.sim.whole.scenario import Append, Crash, Partition, draw
from tests.processes import printed_by_another_process
from tests.sim.broken import BROKEN, BROKEN_GOSSIP, BROKEN_REPORTS, keeps_wrong_keys

PEERS = 12
ALL_BROKEN = [*BROKEN, *BROKEN_GOSSIP]


@cache
def sound(seed: int) -> RunResult:
    """A run of sound machines: several of the broken ones are caught by the same seed."""
    return run_seed(seed, PEERS)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.integration) for seed in range(3, 12))]
)
def test_seeds(seed: int) -> None:
    result = sound(seed)
    assert result.messages > 0
    assert result.syncs > 0


@pytest.mark.integration
def test_seeds_differ_in_what_they_try() -> None:
    results = [run_seed(seed, 5) for seed in range(20)]
    assert len({result.shape for result in results}) > 2
    assert any(result.orphans for result in results)
    assert any(result.dropped for result in results)
    assert any(result.pushes for result in results)


HALVES = {peer: peer % 2 for peer in range(PEERS)}


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"faults": Faults(loss=0.1)}, id="a tenth is sent again"),
        pytest.param({"faults": Faults(no_room=0.1)}, id="a tenth of gossip finds no room"),
        pytest.param({"faults": Faults(stalling=0.3, longest_stall=2.0)}, id="gossip is out of order"),
        pytest.param({"faults": Faults(0.1, 0.1, 0.1)}, id="all of these"),
        pytest.param({"partitions": (Partition(2.0, 6.0, HALVES),)}, id="a partition"),
        pytest.param(
            {"crashes": tuple(Crash(1.0 + peer / 2, peer, 3.0) for peer in range(PEERS))}, id="all crash, in turn"
        ),
    ],
)
def test_a_mesh_with_one_fault_alone(seed: int, fault: dict[str, Any]) -> None:
    """That all have the same at the end, and what was appended, is checked by the run."""
    drawn = draw(seed, PEERS)
    quiet = replace(
        drawn,
        edges=tuple(replace(edge, gossips=True) for edge in drawn.edges),
        hostile=(),
        appends=tuple(Append(1.0 + number / 10, number % PEERS, 1, False) for number in range(100)),
        crashes=(),
        partitions=(),
        cuts=(),
        lags=(),
        refusals={},
        faults=Faults(),
        seconds=12.0,
    )
    result = Run(replace(quiet, **fault)).run()
    # Who is down appends nothing.
    assert result.messages == 100 if "crashes" not in fault else 50 < result.messages < 100


@pytest.mark.parametrize(
    ("machine", "seed", "said"), ALL_BROKEN, ids=[machine.__name__ for machine, _, _ in ALL_BROKEN]
)
@pytest.mark.integration
def test_a_machine_without_one_of_its_rules_is_caught(
    machine: Callable[[Random, BroadcastConfig], Broadcast], seed: int, said: str
) -> None:
    with pytest.raises(BrokenInvariant, match=said) as caught:
        run_seed(seed, PEERS, machine=machine)
    assert replay_command(seed, PEERS) in str(caught.value)
    assert sound(seed)


@pytest.mark.parametrize(
    ("insert", "seed", "said"), BROKEN_REPORTS, ids=[insert.__name__ for insert, _, _ in BROKEN_REPORTS]
)
@pytest.mark.integration
def test_a_driver_that_misreports_is_caught(
    monkeypatch: pytest.MonkeyPatch, insert: Callable[..., object], seed: int, said: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(peer, "insert", insert)
        with pytest.raises(BrokenInvariant, match=said):
            run_seed(seed, PEERS)
    assert sound(seed)


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(4))
def test_a_driver_that_keeps_wrong_keys_to_itself_is_caught(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Where honest peers append nothing later, whose parents would have others ask for what was kept."""
    quiet = replace(
        draw(seed, PEERS),
        hostile=((Kind.MISKEYED, (0,)),),
        appends=(),
        crashes=(),
        partitions=(),
        cuts=(),
        lags=(),
        refusals={},
    )
    assert Run(quiet).run().messages > 0
    monkeypatch.setattr(peer, "insert", keeps_wrong_keys)
    with pytest.raises(BrokenInvariant, match="at rest"):
        Run(quiet).run()


def test_a_router_that_does_not_wait_for_answers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(GossipSub):
        __slots__ = ()

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options | {"validation": False})

    monkeypatch.setattr(log_routers, "GossipSub", Hasty)
    with pytest.raises(BrokenInvariant, match="which it does not hold"):
        run_seed(1, PEERS)


def trace_of(seed: int) -> str:
    summary = TraceHash()
    run_seed(seed, 6, summary)
    return summary.digest()


@pytest.mark.integration
def test_the_same_seed_leaves_the_same_trace() -> None:
    assert trace_of(3) == trace_of(3) != trace_of(4)


@pytest.mark.integration
def test_the_same_seed_leaves_the_same_trace_in_another_process() -> None:
    program = "from tests.sim.whole.test_run import trace_of; print(trace_of(3))"
    assert printed_by_another_process(program) == trace_of(3)


@pytest.mark.integration
def test_results_come_in_the_order_of_the_seeds_in_one_process_or_several() -> None:
    alone = [run_seed(seed, 4) for seed in range(3, 6)]
    assert list(soak(range(3, 6), 4, 1)) == alone
    assert list(soak(range(3, 6), 4, 2)) == alone


@pytest.mark.slow
def test_a_failure_is_told_and_the_next_seed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, peers: int) -> RunResult:
        if seed == 1:
            raise BrokenInvariant("replay: …")
        return run_seed(seed, peers)

    monkeypatch.setattr(module, "run_seed", run)
    kinds = [type(outcome) for outcome in soak(range(3), 4, 1)]
    assert kinds == [RunResult, Failure, RunResult]
