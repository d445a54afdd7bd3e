"""`gossiplog simulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gossiplog.pubsub.gossipsub import Config
from gossiplog.sim.routers.kinds import gossipsub
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.simulation import simulate
from tests.cli.support import Program

SMALL = ("simulate", "--nodes", "20", "--messages", "2", "--connections", "5", "--wait", "2")


@pytest.mark.slow
def test_the_counts_are_under_summary(program: Program) -> None:
    """Seed 002, 13 and 17."""
    options = ("--router", "simsub", "--nodes", "100", "--messages", "10", "--message-delay", "1", "--fanout", "5")
    record = program("simulate", *options, "--seed", "3", "--json").record
    assert program("simulate", *options, "--seed", "3", "--json").record == record
    assert program("simulate", "run-1", "--seed", "3").record == record | {"run": "run-1"}
    summary = record["summary"]
    assert (summary["publish"], summary["deliver"], summary["connect"]) == (50, 1000, 1000)
    assert {"graft", "prune", "iwant", "!!publish", "ihave"} < set(summary)
    assert (record["router"], record["nodes"], record["seed"]) == ("simsub", 100, 3)


def test_trace_and_transcript(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 002, 13."""
    path = tmp_path / "trace.txt"
    *traced, last = program(*SMALL, "--trace", "--transcript", path).records
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [record["trace"] for record in traced] == lines
    assert last["summary"]["deliver"] == 40
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program(*SMALL, "--trace").out.splitlines()
    assert shown[: len(lines)] == lines
    assert shown[len(lines)] == "=== simulation summary ==="
    assert "=== delivery latency histogram ===" in shown
    assert program(*SMALL).out.splitlines() == shown[len(lines) :]


def test_files(program: Program, tmp_path: Path) -> None:
    done = program(*SMALL, "--deliveries", tmp_path / "d.parquet", "--plots", tmp_path / "plots")
    assert done.code == 0
    assert (tmp_path / "d.parquet").read_bytes()[:4] == b"PAR1"
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["degree.svg", "latency.svg", "tree.svg"]


def test_conditions(program: Program, tmp_path: Path) -> None:
    calm = program(*SMALL).record
    matrix = tmp_path / "matrix.json"
    matrix.write_text(json.dumps([[0.5] * 20] * 20))
    assert program(*SMALL, "--latency", matrix).record["latency"]["p50"] >= 0.5
    assert program(*SMALL, "--latency", "0.2:0.2").record["link_delay"] == pytest.approx(0.2)
    assert program(*SMALL, "--latency", "geographic").record["link_delay"] != calm["link_delay"]
    assert program(*SMALL, "--latency", "uniform").record == calm
    assert program(*SMALL, "--loss", "0.2").record["lost"] > 0
    for option, value in (("--jitter", "0.5"), ("--bandwidth", "9999"), ("--lag", "0.001"), ("--churn", "0.05")):
        assert program(*SMALL, option, value).record != calm
    assert program(*SMALL, "--single-source").record["summary"]["deliver"] == 40


ATTACKED = ("simulate", "attacked", "--nodes", "12", "--messages", "5", "--wait", "5", "--hostile", "4")


@pytest.mark.slow
def test_an_attack_of_a_run_keeps_its_hostile_nodes_where_it_is_named_again(program: Program, tmp_path: Path) -> None:
    runs = tmp_path / "runs.toml"
    runs.write_text('[mine]\nabout = "mine"\nnodes = 12\nmessages = 1\nattack = { name = "sybil", hostile = 2 }\n')
    for options, hostile in (((), 24), (("--attack", "sybil"), 24), (("--attack", "spam"), 120)):
        assert program("simulate", "mine", "--scenarios", runs, *options).record["attack"]["hostile"] == hostile


@pytest.mark.slow
def test_a_matrix_has_the_hostile_nodes_too(program: Program, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.json"
    matrix.write_text(json.dumps([[0.05] * 60] * 60))
    record = program(*ATTACKED, "--attack", "sybil", "--latency", matrix).record
    assert (record["attack"]["hostile"], round(record["link_delay"], 9)) == (48, 0.05)


def test_an_attack_and_what_comes_of_it(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    record = program(*ATTACKED, "--router", "simsub", "--attack", "eclipse").record
    assert (record["nodes"], record["router"], record["summary"]["publish"]) == (12, "simsub", 5)
    outcome = record["attack"]
    assert (outcome["name"], outcome["hostile"], outcome["delivered"]) == ("eclipse", 48, 1.0)
    assert record["latency"]["p50"] < 0.2 < outcome["p50"] <= outcome["p95"] < 2.0
    cut = program(*ATTACKED, "--router", "episub", "--attack", "eclipse").record["attack"]
    assert cut == {"name": "eclipse", "hostile": 48, "delivered": 0.0, "p50": None, "p95": None}
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program(*ATTACKED, "--router", "simsub", "--attack", "eclipse").out.splitlines()
    heading = next(number for number, line in enumerate(shown) if "hostile nodes" in line)
    assert all(name in shown[heading] for name in ("delivered", "p50", "p95"))
    assert shown[heading + 1].split()[:3] == ["eclipse", "48", "100.0%"]
    assert f"{outcome['p95']:.2f} s" in shown[heading + 1]
    assert "=== delivery latency histogram ===" in shown[heading + 2]


def test_without_an_attack_there_is_nothing_to_report_of_one(program: Program) -> None:
    record = program("simulate", "attacked", "--messages", "2", "--attack", "none").record
    assert "attack" not in record
    assert record == program("simulate", "attacked", "--messages", "2").record


@pytest.mark.integration
def test_an_attack_with_many_seeds(program: Program) -> None:
    options = ("--router", "simsub", "--attack", "sybil", "--processes", "1")
    rows = {record["row"]: record for record in program(*ATTACKED, *options, "--seeds", "0:2").records}
    outcomes = [program(*ATTACKED, *options[:4], "--seed", str(seed)).record["attack"] for seed in range(2)]
    for name in ("delivered", "p50", "p95"):
        first, last = sorted(outcome[name] for outcome in outcomes)
        assert (rows[name]["least"], rows[name]["most"]) == (first, last)
        assert rows[name]["median"] == pytest.approx((first + last) / 2)


@pytest.mark.integration
def test_many_seeds_beside_what_was_published(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        record["row"]: record for record in program("simulate", "run-1", "--seeds", "0:3", "--processes", "1").records
    }
    assert rows["deliver"] == {
        "row": "deliver",
        "published": 1000,
        "median": 1000,
        "least": 1000,
        "most": 1000,
        "deviation": 0,
    }
    assert rows["graft"]["least"] <= rows["graft"]["median"] <= rows["graft"]["most"]
    changed = program("simulate", "run-1", "--nodes", "50", "--seeds", "0:2", "--processes", "1").records
    assert all("published" not in record for record in changed)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program("simulate", "run-1", "--seeds", "0:2", "--processes", "1").out
    for text in ("published", "median", "6,473", "%"):
        assert text in shown


def test_the_list_of_runs(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "run-6" in [record["run"] for record in program("simulate", "--list").records]
    (tmp_path / "mine.toml").write_text("[mine]\nabout = 'my own'\nnodes = 20\nmessages = 1\n")
    assert program("simulate", "mine", "--scenarios", tmp_path / "mine.toml").record["summary"]["deliver"] == 20
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "my own" in program("simulate", "--list", "--scenarios", tmp_path / "mine.toml").out


def test_gossip_takes_the_parameters_that_a_peer_takes(program: Program, tmp_path: Path) -> None:
    """Seed 001, 1: what is simulated is what `Peer` runs, with the same options."""
    changes = ("d=4", "d_low=3", "heartbeat_interval=0.5")
    options = [text for change in changes for text in ("--gossip", change)]
    record = program(*SMALL, "--router", "gossipsub", *options).record
    config = Config(d=4, d_low=3, heartbeat_interval=0.5)
    plan = Plan(nodes=20, messages=2, connections=5, wait=2.0)
    assert record["summary"] == simulate(gossipsub(config), plan, trace=None).summary().counts
    assert record["summary"] != program(*SMALL, "--router", "gossipsub").record["summary"]
    (tmp_path / "mine.toml").write_text('[few]\nrouter = "gossipsub"\nwait = 2\ngossip = { d = 4, d_low = 3 }')
    own = ("simulate", "few", "--scenarios", tmp_path / "mine.toml", *SMALL[1:])
    assert program(*own, "--gossip", "heartbeat_interval=0.5").record["summary"] == record["summary"]


def test_what_is_not_the_published_run_is_not_compared_with_it(program: Program, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[own]\nrouter = "gossipsub"\nnodes = 9\nconnections = 3\npublished = { deliver = 7 }'
    )
    own = ("simulate", "own", "--scenarios", tmp_path / "mine.toml", "--seeds", "0:1", "--processes", "1")
    for options, compared in (((), True), (("--gossip", "d=8"), False), (("--router", "floodsub"), False)):
        rows = program(*own, *options).records
        assert any("published" in row for row in rows) == compared


def test_several_kinds_of_routers(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 001, 42."""
    record = program(*SMALL, "--router", "gossipsub:3,floodsub:1").record
    assert record["router"] == "gossipsub:3,floodsub:1"
    rows = {name: (of["nodes"], of["deliver"]) for name, of in record["kinds"].items()}
    assert rows == {"gossipsub": (15, 30), "floodsub": (5, 10)}
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program(*SMALL, "--router", "gossipsub:3,floodsub:1").out
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith(("gossipsub ", "floodsub "))] == [
        ["gossipsub", "15", "30"],
        ["floodsub", "5", "10"],
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--connections", "100"], "100 connections of each of 100 nodes: expected 1 to 99"),
        (["--nodes", "10"], "10 connections of each of 10 nodes: expected 1 to 9"),
        (["run-9"], "there is no run 'run-9': expected run-1"),
        (["--router", "pigeons"], "there is no router 'pigeons': expected simsub"),
        (["--router", "gossipsub:80,episub:20"], "gossipsub and episub cannot be mixed: one sends packets of libp2p's"),
        (
            ["--router", "gossipsub:80,floodsub"],
            "expected a name, or several with their parts of the nodes",
        ),
        (["--router", "gossipsub:99,floodsub:1", "--nodes", "20"], "leaves floodsub none of 20 nodes"),
        (
            ["--router", "floodsub", "--gossip", "d=8"],
            "only gossipsub has parameters of gossip, and the router is floodsub",
        ),
        (
            ["--router", "gossipsub", "--gossip", "degree=8"],
            "--gossip: 'degree=8' names no parameter; expected one of d,",
        ),
        (["--router", "gossipsub", "--gossip", "d=many"], "--gossip: d is 'many'; expected a whole number"),
        (["--router", "gossipsub", "--gossip", "d=2"], "expected 0 <= d_low <= d <= d_high"),
        (["--attack", "flood"], "there is no attack 'flood': expected none, sybil, cold-boot, eclipse, spam"),
        (["--hostile", "3"], "3 hostile nodes for each other one, but no attack: expected sybil"),
        (["--attack", "none", "--hostile", "3"], "but no attack"),
        (["--attack", "sybil", "--hostile", "0"], "0 hostile nodes for each other one: expected 1 or more"),
        (["--loss", "2"], "loss is 2.0"),
        (["--churn", "0"], "churn's rate is 0.0"),
        (["--latency", "nowhere"], "--latency nowhere: expected uniform, geographic, LOW:HIGH or a file"),
        (["--latency", "2:1"], "latencies from 2.0 to 1.0 s"),
        (["--latency", "1e:e"], "expected LOW:HIGH in seconds"),
        (["--latency", "."], ""),
        (["--seeds", "5:5"], "--seeds 5:5: expected two numbers"),
        (["--seeds", "0:2", "--plots", "x"], "--seeds runs many; --plots is for one run"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(program: Program, arguments: list[str], said: str) -> None:
    failed = program("simulate", *arguments)
    assert failed.code == 2
    assert said in failed.err
    assert failed.out == ""


def test_files_that_cannot_be_read(program: Program, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[a")
    failed = program("simulate", "--scenarios", tmp_path / "wrong.toml")
    assert (failed.code, "is no TOML" in failed.err) == (1, True)
    (tmp_path / "wrong.json").write_text("[[1")
    assert "wrong.json" in program("simulate", "--latency", tmp_path / "wrong.json").err
