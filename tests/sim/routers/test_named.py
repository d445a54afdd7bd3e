"""`gossiplog.sim.routers.named` and the runs of scenarios.toml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.routers.kinds import KINDS
from gossiplog.sim.routers.named import Named, Row, compare, read, record, run_seeds
from gossiplog.sim.routers.plan import (
    ATTACKS,
    Churn,
    Conditions,
    Failure,
    Geographic,
    Matrix,
    Partition,
    Plan,
    Uniform,
    with_hostile,
)
from gossiplog.sim.routers.simulation import simulate
from tests.simulations import RUNS, reproduced

# The table of the six runs, in another form than scenarios.toml has it:
# publish, deliver, graft, connect, prune, iwant, !!publish, ihave.
PUBLISHED = {
    "run-1": (100, 10, 1.0, [50, 1000, 380, 1000, 7, 31, 6473, 4402]),
    "run-2": (100, 100, 0.1, [500, 10000, 374, 1000, 8, 163, 63351, 4844]),
    "run-3": (100, 1000, 0.01, [5000, 100000, 376, 1000, 0, 1037, 646973, 8413]),
    "run-4": (1000, 10, 1.0, [50, 10000, 3651, 10000, 15, 155, 61957, 45456]),
    "run-5": (1000, 100, 0.5, [500, 100000, 3661, 10000, 21, 1146, 621559, 198372]),
    "run-6": (1000, 100, 0.1, [500, 100000, 3740, 10000, 53, 20749, 653634, 84297]),
}
EXACT = ["publish", "deliver", "connect"]
CLOSE = [*EXACT, "graft", "!!publish"]


def deviations(name: str) -> dict[str, float]:
    """How far the medians of twenty seeds are from the published figures, as a share of them."""
    rows = compare(reproduced(name), RUNS[name].published)
    return {row.name: row.deviation for row in rows if row.deviation is not None}


def check(found: dict[str, float], close: list[str]) -> None:
    assert {row: found[row] for row in EXACT} == dict.fromkeys(EXACT, 0.0)
    assert {row: deviation for row, deviation in found.items() if row in close and abs(deviation) > 0.1} == {}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_six_published_runs(name: str) -> None:
    """Seed 002, 17."""
    nodes, messages, delay, rows = PUBLISHED[name]
    run = RUNS[name]
    assert run.plan == Plan(nodes=nodes, messages=messages, message_delay=delay)
    assert list(run.published.values()) == rows
    assert run.router == "simsub"
    assert rows[:2] == [messages * 5, nodes * messages]
    lag = RUNS.get(f"{name}-lag")
    assert (lag is not None) == (name in ("run-3", "run-6"))
    assert lag is None or lag.published == run.published


@pytest.mark.parametrize("name", ["run-1", "run-2"])
@pytest.mark.integration
def test_small_runs_are_reproduced(name: str) -> None:
    """Seed 002, 17 and 18."""
    check(deviations(name), [*CLOSE, "ihave"])


@pytest.mark.integration
@pytest.mark.parametrize("name", ["run-4", "run-5"])
def test_large_runs_are_reproduced(name: str) -> None:
    """Seed 002, 17 and 18."""
    check(deviations(name), [*CLOSE, "ihave"])


@pytest.mark.integration
@pytest.mark.parametrize("name", ["run-3", "run-6"])
def test_runs_that_lagged_are_reproduced_with_lag(name: str) -> None:
    """Seed 002, 17 and 19."""
    found = deviations(name)
    check(found, CLOSE)
    assert found["ihave"] < -0.4
    check(deviations(f"{name}-lag"), [*CLOSE, "ihave"])


@pytest.mark.integration
@pytest.mark.parametrize("name", ["run-4"])
def test_late_heartbeats_ask_for_less(name: str) -> None:
    """Seed 002, 20."""
    assert deviations(name)["iwant"] > 0
    late = deviations(f"{name}-late")
    assert late["iwant"] < 0
    check(late, [*CLOSE, "ihave"])


@pytest.mark.integration
@pytest.mark.parametrize("name", ["run-1"])
def test_links_are_pruned_in_lumps(name: str) -> None:
    """Seed 002, 20. Few seeds prune any."""
    pruned = {seed: found["prune"] for seed, found in enumerate(reproduced(name)) if found["prune"]}
    assert pruned
    for seed, count in pruned.items():
        lines: list[str] = []
        simulate(KINDS["simsub"](), RUNS[name].with_seed(seed).plan, trace=lines.append)
        beats: dict[tuple[str, str], int] = {}
        for line in lines:
            time, node, *_, packet = line.split()
            if packet == "Prune()":
                beats[time, node] = beats.get((time, node), 0) + 1
        assert all(pruned_at_once >= 7 for pruned_at_once in beats.values())
        assert sum(beats.values()) == count


def test_all_runs_run() -> None:
    for run in RUNS.values():
        assert run.about
        assert run.router in KINDS
        run.plan.conditions.check(run.plan.nodes)


@pytest.mark.integration
def test_episub_makes_hardly_any_copies_where_gossipsub_makes_five() -> None:
    """Seed 004, 45: the run of the comparison, with fewer nodes."""
    plan = replace(RUNS["episub"].plan, nodes=60, messages=180, connect_delay=30.0)
    summaries = {router: simulate(KINDS[router](), plan, trace=None).summary() for router in ("episub", "gossipsub")}
    assert all(summary.deliver == 60 * 180 for summary in summaries.values())
    copies = {router: summary.duplicates / summary.deliver for router, summary in summaries.items()}
    assert copies["episub"] < 0.2
    assert 4.5 < copies["gossipsub"] < 6
    assert summaries["episub"].latency["p95"] < 2 * summaries["gossipsub"].latency["p95"]


@pytest.mark.integration
def test_some_nodes_fail_in_the_run_that_says_so() -> None:
    """Seed 004, 45: every message reaches all others within 5 s."""
    run = RUNS["episub-failure"].plan
    simulation = simulate(KINDS["episub"](), replace(run, nodes=60, messages=320), trace=None)
    rows = simulation.tally.deliveries
    up = [router is not None for router in simulation.routers]
    assert sum(up) == 54
    came = sum(up[node] and number >= 250 for number, node in zip(rows.message, rows.node, strict=True))
    assert came == 54 * 70
    assert max(latency for node, latency in zip(rows.node, rows.latency, strict=True) if up[node]) < 5.0


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        [a]
        about = "everything"
        router = "floodsub"
        nodes = 2
        connections = 1
        fanout = 1
        wait = 3
        single_source = true
        published = { deliver = 7 }
        [a.conditions]
        latency = [[0, 1], [0.5, 0]]
        loss = 0.5
        bandwidth = 1000
        churn = { rate = 0.5 }
        failures = [{ at = 3.0 }, { at = 4.0, share = 0.2 }]
        partitions = [{ at = 1, seconds = 2 }]
        [b]
        conditions = { latency = { low = 1.0, high = 2.0 } }
        [c]
        conditions = { latency = "geographic" }
        attack = "eclipse"
        [d]
        attack = { name = "spam", hostile = 3 }
        [e]
        router = "gossipsub:3,floodsub:1"
        gossip = { d = 8, seen_ttl = 60 }
        """
    )
    runs = read(path)
    conditions = Conditions(
        latency=Matrix(((0.0, 1.0), (0.5, 0.0))),
        loss=0.5,
        bandwidth=1000,
        churn=Churn(0.5, 10.0),
        failures=(Failure(3.0, 0.1), Failure(4.0, 0.2)),
        partitions=(Partition(1, 2, 0.5),),
    )
    plan = Plan(nodes=2, connections=1, fanout=1, wait=3, single_source=True, conditions=conditions)
    assert runs["a"] == Named("a", "everything", "floodsub", plan, {"deliver": 7})
    assert runs["b"].plan.conditions.latency == Uniform(1.0, 2.0)
    assert runs["c"].plan.conditions.latency == Geographic()
    assert [run.plan.attack for run in runs.values()] == [
        None,
        None,
        ATTACKS["eclipse"],
        with_hostile(ATTACKS["spam"], 3),
        None,
    ]
    assert [run.gossip for run in runs.values()] == [None, None, None, None, GossipConfig(d=8, seen_ttl=60.0)]
    assert runs["e"].routers().counts(8) == [6, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1", "1 is no run: expected a table"),
        ("a", "is no TOML"),
        ("[a]\nnode = 3", "there is no node: expected nodes, messages, message_delay"),
        ("[a]\nnodes = 3.0", r"nodes is 3\.0: expected a whole number"),
        ("[a]\nwait = true", "wait is True: expected a number"),
        ("[a]\nsingle_source = 1", "single_source is 1: expected true or false"),
        ("[a]\nabout = 1", "about is 1: expected a text"),
        ("[a]\nconnections = 100", "100 connections of each of 100 nodes"),
        ("[a]\npublished = 1", "published is 1: expected a table of counts"),
        ("[a]\nconditions = 1", "conditions are 1: expected a table"),
        ('[a]\nconditions = { latency = "far" }', "latency is 'far': expected uniform, geographic"),
        ("[a]\nconditions = { latency = { low = 2.0 } }", r"latencies from 2\.0 to 0\.15 s"),
        ("[a]\nconditions = { latency = [[0]] }", "1 rows of latencies: expected one for each of 100 nodes"),
        ("[a]\nconditions = { loss = 2.0 }", r"loss is 2\.0"),
        ('[a]\nconditions = { bandwidth = "much" }', "bandwidth is 'much': expected a number"),
        ('[a]\nattack = "flood"', "there is no attack 'flood': expected none, sybil"),
        ("[a]\ngossip = 3", "gossip is 3: expected a table of numbers"),
        ('[a]\ngossip = { d = "8" }', "expected a table of numbers"),
        ("[a]\ngossip = { d = true }", "expected a table of numbers"),
        ("[a]\ngossip = { d = 8.5 }", r"gossip: d is '8\.5'; expected a whole number"),
        ("[a]\ngossip = { degree = 8 }", "gossip: 'degree=8' names no parameter; expected one of d, d_low"),
        ("[a]\ngossip = { d = 2 }", "expected 0 <= d_low <= d <= d_high"),
        ("[a]\nattack = 3", "attack is 3: expected a name, or a table of name and hostile"),
        ('[a]\nattack = { name = "sybil" }', "expected a name, or a table"),
        ('[a]\nattack = { name = "sybil", hostile = true }', "expected a name, or a table"),
        ('[a]\nattack = { name = "sybil", hostile = 2, when = 3 }', "expected a name, or a table"),
        ('[a]\nattack = { name = "sybil", hostile = 0 }', "0 hostile nodes for each other one"),
        ('[a]\nattack = { name = "none", hostile = 2 }', "2 hostile nodes for each other one, but no attack"),
        ("[a]\nconditions = { churn = 1 }", "1: expected a table"),
        ("[a]\nconditions = { churn = { rate = 0 } }", "churn's rate is 0"),
        ("[a]\nconditions = { failures = 1 }", "failures are 1: expected an array of tables"),
        ("[a]\nconditions = { partitions = 1 }", "partitions are 1: expected an array of tables"),
        ("[a]\nconditions = { partitions = [{ from = 1 }] }", "there is no from: expected at, seconds, share"),
    ],
)
def test_files_that_say_what_cannot_be(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)


RUN = Named("small", plan=Plan(nodes=20, messages=2, connections=5, wait=2.0))


@pytest.mark.slow
def test_seeds_are_run_in_their_order_in_one_process_or_several() -> None:
    alone = list(run_seeds(RUN, range(3, 7), 1))
    assert list(run_seeds(RUN, range(3, 7), 2)) == alone
    assert len({counts["!!publish"] for counts in alone}) > 1
    assert list(run_seeds(RUN, [4], 1)) == alone[1:2]


def test_rows_have_medians_and_what_was_published() -> None:
    found = [{"a": 10, "b": 1}, {"a": 30, "b": 2}, {"a": 20, "b": 9, "c": 5}]
    rows = compare(found, {"a": 25, "c": 0})
    assert rows == [Row("a", 20, 10, 30, 25), Row("b", 2, 1, 9, None), Row("c", 5, 5, 5, 0)]
    assert [row.deviation for row in rows] == [-0.2, None, None]
    assert record(rows[0]) == {"row": "a", "median": 20, "least": 10, "most": 30, "published": 25, "deviation": -0.2}
    assert record(rows[1]) == {"row": "b", "median": 2, "least": 1, "most": 9}
    assert record(rows[2])["published"] == 0
