"""`gossiplog.sim.routers.simulation`: runs of simsub and floodsub."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gossiplog.pubsub.events import (
    Connect,
    Deliver,
    Disconnect,
    PeerConnected,
    PeerDisconnected,
    Ping,
    Publish,
    RoundTrip,
    SetTimer,
    TimerExpired,
)
from gossiplog.sim.kernel import TraceHash
from gossiplog.sim.routers import tactics
from gossiplog.sim.routers.kinds import KINDS, OUTSIDE, RouterKind, Seat, Wiring, floodsub, simsub
from gossiplog.sim.routers.plan import Churn, Conditions, Failure, Partition, Plan
from gossiplog.sim.routers.simulation import Simulation, simulate
from tests.processes import printed_by_another_process

SMALL = Plan(nodes=30, messages=5, message_delay=0.5, connections=5, seed=1)


# Those whose connections are the drawn ones.
MESHES = [name for name in KINDS if name != "episub"]


def run(plan: Plan = SMALL, kind: RouterKind | None = None) -> Simulation:
    return simulate(kind or simsub(), plan, trace=None)


def trace_of(seed: int, router: str) -> str:
    summary = TraceHash()
    simulate(KINDS[router](), Plan(nodes=30, messages=5, seed=seed, conditions=Conditions(loss=0.1)), trace=summary)
    return summary.digest()


@pytest.mark.slow
@pytest.mark.parametrize("router", sorted(KINDS))
def test_the_same_seed_leaves_the_same_trace(router: str) -> None:
    """Seed 002, 16."""
    assert trace_of(3, router) == trace_of(3, router) != trace_of(4, router)


@pytest.mark.integration
@pytest.mark.parametrize("router", sorted(KINDS))
def test_the_same_seed_leaves_the_same_trace_in_another_process(router: str) -> None:
    """Seed 002, 16."""
    program = f"from tests.sim.routers.test_simulation import trace_of; print(trace_of(3, {router!r}))"
    assert printed_by_another_process(program) == trace_of(3, router)


def test_each_node_draws_its_first_peers() -> None:
    """Seed 002, 10."""
    simulation = run(replace(Plan(seed=2), messages=0, wait=0.0))
    known: list[set[Any]] = [set(router.peers) for router in simulation.routers]  # type: ignore[union-attr]
    assert all(len(peers) >= 10 and node not in peers for node, peers in enumerate(known))
    assert all(node in known[peer] for node, peers in enumerate(known) for peer in peers)
    assert 1900 < sum(map(len, known)) <= 2000
    assert simulation.tally.sent["pubsub.connect"] == 1000


@pytest.mark.parametrize("router", MESHES)
def test_rows_that_follow_from_the_plan(router: str) -> None:
    """Seed 002, 11."""
    plan = Plan(nodes=60, messages=7, fanout=3, connections=9, message_delay=0.2, seed=4)
    counts = run(plan, KINDS[router]()).summary().counts
    assert (counts["publish"], counts["deliver"], counts["connect"]) == (21, 420, 540)


def test_the_script_publishes_at_random_nodes_at_its_times() -> None:
    """Seed 002, 11 and 12."""
    lines: list[str] = []
    simulate(simsub(), SMALL, trace=lines.append)
    published = [line.split() for line in lines if " publishes " in line]
    assert [(time, number) for time, _, _, number in published[::5]] == [
        ("5.000000", "0"),
        ("5.500000", "1"),
        ("6.000000", "2"),
        ("6.500000", "3"),
        ("7.000000", "4"),
    ]
    groups = [{node for _, node, _, _ in published[first : first + 5]} for first in range(0, 25, 5)]
    assert all(len(group) == 5 for group in groups)
    assert len(set(map(frozenset, groups))) == 5
    same: list[str] = []
    simulate(simsub(), replace(SMALL, single_source=True), trace=same.append)
    assert len({line.split()[1] for line in same if " publishes " in line}) == 5


def test_publishers_may_be_the_first_nodes_only() -> None:
    lines: list[str] = []
    simulate(simsub(), replace(SMALL, messages=9, publishers=6), trace=lines.append)
    assert {int(line.split()[1]) for line in lines if " publishes " in line} == set(range(6))


def test_the_scripts_own_packets_are_counted() -> None:
    """Seed 002, 12."""
    simulation = run(replace(SMALL, messages=1, wait=0.0, message_delay=0.0, fanout=2))
    assert simulation.kernel.now == 5.0
    tally = simulation.tally
    assert tally.injected == tally.published == 2
    forwarded = sum(
        len(simulation.mixture.common.neighbours(simulation.routers[node])) for node in tally.deliveries.node
    )
    assert tally.sent["pubsub.publish"] == 2 + forwarded


def test_the_trace_has_a_line_for_each_event_and_can_be_off(capsys: pytest.CaptureFixture[str]) -> None:
    """Seed 002, 13."""
    tiny = replace(SMALL, messages=1)
    counts = simulate(simsub(), tiny).summary().counts
    lines = capsys.readouterr().out.splitlines()
    assert [
        line for line in lines if " sends " not in line and " delivers " not in line and " publishes " not in line
    ] == []
    assert len([line for line in lines if " delivers 0" in line]) == 30
    assert len([line for line in lines if " publishes 0" in line]) == 5
    for kind, row in (("Message", "!!publish"), ("IHave", "ihave"), ("Graft", "graft"), ("Greeting", "connect")):
        injected = 5 if kind == "Message" else 0
        assert len([line for line in lines if f" {kind}(" in line]) == counts[row] - injected
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    run(tiny)
    assert capsys.readouterr().out == ""


def test_a_transcript_is_the_trace_oldest_first(tmp_path: Path) -> None:
    """Seed 002, 13."""
    live: list[str] = []
    taken: list[Sequence[str]] = []
    simulate(simsub(), SMALL, trace=live.append, transcript=taken.append)
    simulate(simsub(), SMALL, trace=None, transcript=tmp_path / "trace.txt")
    assert len(live) > 100
    assert taken == [live]
    assert (tmp_path / "trace.txt").read_text(encoding="utf-8").splitlines() == live


def test_floodsub_sends_to_all_known_peers_but_the_origin() -> None:
    """Seed 002, 15."""
    simulation = run(kind=floodsub())
    links = sum(len(router.members("simulation")) for router in simulation.routers)  # type: ignore[union-attr]
    counts = simulation.summary().counts
    # Who publishes sends to all its peers, and who forwards to all but one.
    assert counts["!!publish"] == 5 * (links - 30 + 5)
    assert [line.partition(":")[0] for line in simulation.summary().lines()[6:]] == [
        "!!pubsub.connect",
        "!!pubsub.publish",
    ]


def test_two_kinds_with_one_seed_have_the_same_connections_and_publishers() -> None:
    lines: dict[str, list[str]] = {}
    links = {}
    for kind in (simsub(), floodsub()):
        lines[kind.name] = []
        simulation = simulate(kind, SMALL, trace=lines[kind.name].append)
        links[kind.name] = [
            set(router.peers if kind.name == "simsub" else router.members("simulation"))  # type: ignore[union-attr]
            for router in simulation.routers
        ]
    published = [[line for line in of if " publishes " in line] for of in lines.values()]
    assert published[0] == published[1]
    assert links["simsub"] == links["floodsub"]


@pytest.mark.integration
def test_amplification_grows_with_connections_where_all_are_flooded() -> None:
    """Seed 001, 45."""
    sent: dict[tuple[str, int], float] = {}
    for kind in (floodsub(), *(KINDS[name]() for name in ("simsub", "gossipsub") if name in KINDS)):
        for connections in (10, 20):  # each other node's own come to that
            plan = Plan(nodes=80, messages=5, connections=connections, seed=1)
            summary = run(plan, kind).summary()
            sent[kind.name, connections] = summary.counts["!!publish"] / summary.deliver
    assert 17 < sent["floodsub", 10] < 20
    assert 32 < sent["floodsub", 20] < 40
    for name in {name for name, _ in sent} - {"floodsub"}:
        assert 4 < sent[name, 10] < 8
        assert sent[name, 20] == pytest.approx(sent[name, 10], rel=0.15)


@pytest.mark.parametrize("router", sorted(KINDS))
def test_lost_packets_are_counted_apart_from_duplicates(router: str) -> None:
    kind = KINDS[router]()
    summary = run(replace(SMALL, conditions=Conditions(loss=0.2)), kind).summary()
    sent = summary.sent[kind.payload]
    assert 0.1 * sent < summary.lost < 0.3 * sent
    calm = run(SMALL, kind).summary()
    assert calm.lost == 0
    assert summary.duplicates < calm.duplicates


@pytest.mark.slow
@pytest.mark.parametrize("router", sorted(KINDS))
def test_failed_nodes_come_back_and_get_what_is_published_then(router: str) -> None:
    plan = replace(SMALL, messages=40, fanout=1, conditions=Conditions(churn=Churn(0.05, 3.0)))
    lines: list[str] = []
    simulation = simulate(KINDS[router](), plan, trace=lines.append)
    failed = [line for line in lines if line.endswith(" fails")]
    assert len(failed) > 10
    assert len([line for line in lines if line.endswith(" is back")]) == len(failed)
    deliver = simulation.summary().deliver
    assert 0.6 * 30 * 40 < deliver < 30 * 40
    assert all(router is not None for router in simulation.routers)


def test_what_never_comes_does_not_come() -> None:
    never = math.inf
    conditions = Conditions(
        churn=Churn(0.05, never), failures=(Failure(never),), partitions=(Partition(never, 1.0), Partition(5.0, never))
    )
    lines: list[str] = []
    simulation = simulate(KINDS["gossipsub"](), replace(SMALL, fanout=1, conditions=conditions), trace=lines.append)
    assert not any(line.endswith((" is back", "the network is whole")) for line in lines)
    assert sum(line.endswith("the network is parted") for line in lines) == 1
    failed = sum(line.endswith(" fails") for line in lines)
    assert 0 < failed == sum(router is None for router in simulation.routers)


def test_nothing_leaves_a_node_that_sends_no_byte_in_the_time() -> None:
    simulation = run(replace(SMALL, fanout=1, conditions=Conditions(bandwidth=1e-320)), KINDS["gossipsub"]())
    assert simulation.summary().deliver == SMALL.messages


@pytest.mark.parametrize("router", sorted(KINDS))
def test_some_fail_at_once_for_good_and_never_the_source(router: str) -> None:
    conditions = Conditions(failures=(Failure(6.0, 0.2),))
    plan = replace(SMALL, messages=20, connections=10, fanout=1, single_source=True, conditions=conditions)
    simulation = run(plan, KINDS[router]())
    assert sum(router is None for router in simulation.routers) == 6
    last = [node for number, node in zip(*_columns(simulation), strict=True) if number == 19]
    assert sorted(last) == [node for node, router in enumerate(simulation.routers) if router is not None]


def _columns(simulation: Simulation) -> tuple[Sequence[int], Sequence[int]]:
    return simulation.tally.deliveries.message, simulation.tally.deliveries.node


@pytest.mark.parametrize("router", sorted(KINDS))
def test_a_partition_holds_messages_up(router: str) -> None:
    parted = replace(SMALL, fanout=1, conditions=Conditions(partitions=(Partition(4.0, 8.0),)))
    apart = run(parted, KINDS[router]()).summary().deliver
    whole = run(replace(parted, conditions=Conditions()), KINDS[router]()).summary().deliver
    assert whole == 150
    assert apart < 150


def test_floodsub_is_connected_again_after_a_partition() -> None:
    plan = replace(SMALL, messages=1, connect_delay=15.0, conditions=Conditions(partitions=(Partition(4.0, 4.0),)))
    assert run(plan, floodsub()).summary().deliver == 30


def test_timers_may_wait_for_the_machine() -> None:
    lagging = replace(SMALL, messages=1, conditions=Conditions(lag=0.02))
    waiting = replace(lagging, conditions=Conditions(lag=0.02, late_timers=True))
    beats: dict[bool, list[float]] = {}
    for plan in (lagging, waiting):
        lines: list[str] = []
        simulation = simulate(simsub(), plan, trace=lines.append)
        grafts = [float(line.split()[0]) for line in lines if line.endswith("Graft()")]
        beats[plan.conditions.late_timers] = grafts
        assert simulation.summary().deliver == 30
    # 150 packets at the start keep the machine busy for 3 s.
    assert min(beats[False]) < 2.0
    assert min(beats[True]) >= 3.0


class Asking:
    """A router that connects by itself, and notes what it is told."""

    def __init__(self, seat: Seat) -> None:
        self.contacts = seat.contacts
        self.told: list[Any] = []

    def start(self, now: float) -> Sequence[Any]:
        return [
            *(Connect(peer) for peer in self.contacts),
            SetTimer("moved", 1.0),
            SetTimer("moved", 2.0),
            SetTimer("ping", 3.0),
            SetTimer("end", 4.0),
        ]

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        self.told.append(event)
        match event:
            case TimerExpired("ping"):
                return [Ping(self.contacts[0])]
            case TimerExpired("end"):
                return [Disconnect(peer) for peer in self.contacts]
            case Publish(_, data):
                return [Deliver(("",), data, data, None), Deliver(("",), b"nobody's", b"\xff" * 8, None)]
        return ()


def test_routers_that_ask_for_connections_and_round_trips() -> None:
    kind = RouterKind(
        name="asking",
        packet_format="its own",
        make=Asking,
        wiring=Wiring.OWN,
        inject=lambda number, data: Publish(("",), data),
        read=lambda packet: (),
        names=("x.y",),
        size=len,
        neighbours=lambda router: router.contacts,
        tactics=tactics.simsub(),
        payload="x.y",
    )
    simulation = run(Plan(nodes=5, messages=1, fanout=2, connections=2, seed=1), kind)
    routers: list[Any] = simulation.routers
    for router in routers:
        kinds = [type(event) for event in router.told if type(event) not in (Publish, PeerDisconnected)]
        connected = kinds.count(PeerConnected)
        assert connected >= 2
        assert kinds == [PeerConnected] * connected + [TimerExpired, TimerExpired, RoundTrip, TimerExpired]
        (trip,) = (event for event in router.told if isinstance(event, RoundTrip))
        assert 0.02 <= trip.seconds <= 0.3
        assert len([event for event in router.told if isinstance(event, PeerDisconnected)]) == connected
    assert simulation.summary().deliver == 2
    assert simulation.summary().counts == {"publish": 2, "deliver": 2, "y": 0}


def test_what_a_node_is_told_from_outside_has_no_hops() -> None:
    simulation = run(replace(SMALL, messages=1))
    rows = simulation.tally.deliveries
    outside = [hops for hops, source in zip(rows.hops, rows.source, strict=True) if source == OUTSIDE]
    assert outside == [0] * 5
    assert min(hops for hops, source in zip(rows.hops, rows.source, strict=True) if source != OUTSIDE) == 1


def test_degrees_are_sampled_each_second() -> None:
    degrees = run().tally.degrees
    assert [sample.at for sample in degrees] == [float(second) for second in range(18)]
    assert degrees[0].most == 0
    assert all(4 <= sample.least <= sample.mean <= sample.most for sample in degrees[3:])


def test_the_delay_of_links() -> None:
    assert 0.06 < run().link_delay() < 0.1
    assert Simulation(simsub(), SMALL).link_delay() == 0.0


def test_randomness_has_a_source_for_each_purpose() -> None:
    state = Random("1 script").getstate()
    assert Simulation(simsub(), SMALL)._script.getstate() == state
