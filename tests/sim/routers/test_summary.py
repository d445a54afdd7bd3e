"""`gossiplog.sim.routers.summary`."""

from __future__ import annotations

import json
from dataclasses import replace

from gossiplog.sim.routers.kinds import floodsub, simsub
from gossiplog.sim.routers.mixture import Mixture
from gossiplog.sim.routers.plan import ATTACKS, Plan, with_hostile
from gossiplog.sim.routers.simulation import simulate
from gossiplog.sim.routers.summary import Outcome, Summary, outcome, summarize
from gossiplog.sim.routers.tally import Deliveries, Tally

PLAN = Plan(nodes=30, messages=3, fanout=2, connections=5, seed=1)


def summary_of(plan: Plan = PLAN) -> Summary:
    return simulate(simsub(), plan, trace=None).summary()


def test_the_rows_are_simsubs() -> None:
    """Seed 002, 14."""
    summary = summary_of()
    lines = summary.lines()
    assert lines[:6] == [
        "=== simulation summary ===",
        "nodes: 30",
        "messages: 3",
        "fanout: 2",
        "publish: 6",
        "deliver: 90",
    ]
    rows = dict(line.split(": ") for line in lines[6:])
    assert {name: int(count) for name, count in rows.items()} == {
        f"!!{name}": count for name, count in summary.sent.items() if count
    }
    assert {"!!gossipsub.graft", "!!pubsub.connect", "!!pubsub.publish", "!!gossipsub.ihave"} <= set(rows)


def test_a_kind_that_was_never_sent_has_no_row() -> None:
    """Seed 002, 14."""
    summary = replace(summary_of(), sent={"gossipsub.graft": 3, "gossipsub.prune": 0})
    assert summary.lines()[6:] == ["!!gossipsub.graft: 3"]
    assert summary.counts == {"publish": 6, "deliver": 90, "graft": 3, "prune": 0}


def test_the_names_of_the_published_tables() -> None:
    """Seed 002, 14."""
    counts = summary_of().counts
    assert list(counts) == ["publish", "deliver", "graft", "connect", "prune", "iwant", "!!publish", "ihave"]
    assert (counts["publish"], counts["deliver"], counts["connect"]) == (6, 90, 150)


def test_every_copy_is_a_delivery_a_duplicate_or_lost() -> None:
    summary = summary_of()
    first = sum(count for _, count in summary.hops)
    assert first == 90 - 6
    assert summary.duplicates == summary.sent["pubsub.publish"] - 6 - first
    assert sum(summary.histogram) == first
    assert [hops for hops, _ in summary.hops] == list(range(1, len(summary.hops) + 1))


def test_distributions() -> None:
    kind = floodsub()
    tally = Tally(5, kind.names)
    tally.publish(0, 10.0)
    tally.deliver(0, 0, -1, 10.0)
    for node, latency in ((1, 0.05), (2, 0.15), (3, 0.4), (4, 0.45)):
        tally.deliver(0, node, 0 if node < 3 else 2, 10.0 + latency)
    tally.sent["pubsub.publish"] = 9
    summary = summarize(Mixture.of(kind), [kind] * 5, replace(PLAN, nodes=5, connections=1), tally, 0.5, 77)
    assert summary.histogram == (1, 1, 0, 0, 2)
    assert summary.hops == ((1, 2), (2, 2))
    assert summary.duplicates == 5
    assert {name: round(value, 6) for name, value in summary.latency.items()} == {
        "mean": 0.2625,
        "p50": 0.4,
        "p95": 0.45,
        "p99": 0.45,
        "most": 0.45,
    }
    assert (summary.link_delay, summary.events) == (0.5, 77)
    assert summary.histogram_lines(10)[:3] == [
        "=== delivery latency histogram ===",
        "     0-100ms         1  *****",
        "   100-200ms         1  *****",
    ]


def test_nothing_happened() -> None:
    summary = summary_of(replace(PLAN, messages=0, wait=0.0, connect_delay=0.0))
    assert (summary.latency, summary.histogram, summary.hops, summary.duplicates) == ({}, (), (), 0)
    assert summary.histogram_lines(10) == ["=== delivery latency histogram ==="]


def delivered(*rows: tuple[int, int, int, float]) -> Deliveries:
    """Rows of message, node, source and latency."""
    deliveries = Deliveries()
    for message, node, source, latency in rows:
        deliveries.message.append(message)
        deliveries.node.append(node)
        deliveries.source.append(source)
        deliveries.latency.append(latency)
        deliveries.hops.append(1)
    return deliveries


def test_the_outcome_of_an_attack_is_what_came_from_others() -> None:
    sybil = with_hostile(ATTACKS["sybil"], 2)
    plan = Plan(nodes=3, messages=2, fanout=1, connections=1, attack=sybil)
    rows = delivered((0, 1, -1, 0.0), (0, 0, 1, 0.25), (1, 2, -1, 0.0), (1, 0, 2, 0.75), (1, 1, 0, 1.5), (1, 1, 0, 9.0))
    assert outcome(plan, rows) == Outcome("sybil", 6, 3 / 4, 0.75, 1.5)
    assert outcome(replace(plan, attack=None), rows) == Outcome("none", 0, 3 / 4, 0.75, 1.5)
    eclipse = replace(plan, attack=ATTACKS["eclipse"])
    assert outcome(eclipse, rows) == Outcome("eclipse", 30, 1.0, 0.25, 0.75)
    assert outcome(eclipse, delivered((0, 1, -1, 0.0), (1, 0, -1, 0.0))) == Outcome("eclipse", 30, 0.0, None, None)
    assert outcome(replace(plan, messages=0), delivered()) == Outcome("sybil", 6, None, None, None)


def test_the_record_of_an_attack() -> None:
    summary = summary_of(replace(PLAN, attack=with_hostile(ATTACKS["eclipse"], 1)))
    assert summary.nodes == 30
    assert summary.attack is not None
    assert summary.record()["attack"] == {
        "name": "eclipse",
        "hostile": 30,
        "delivered": summary.attack.delivered,
        "p50": summary.attack.p50,
        "p95": summary.attack.p95,
    }
    assert "attack" not in summary_of().record()


def test_the_record_is_json_with_the_counts_under_summary() -> None:
    summary = summary_of()
    record = json.loads(json.dumps(summary.record()))
    assert record["summary"] == summary.counts
    assert record["router"] == "simsub"
    assert record["histogram"] == list(summary.histogram)
    assert sum(record["hops"].values()) == 84
    assert "sent" not in record
