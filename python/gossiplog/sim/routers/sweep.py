"""Sweeps: one plan with each of several routers, sizes, degrees, losses and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypedDict

from gossiplog.errors import ScenarioError
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.routers.mixture import WITH_DEGREE, read_parts, read_routers
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.simulation import simulate


class Record(TypedDict):
    """One run in a row of plain values; None where there is nothing to say.

    Attributes:
        router: the name of its kind, or several with their parts of the nodes.
        nodes: of the network.
        degree: of the mesh; None for routers that have no such parameter.
        loss: how probable it is that a packet is lost.
        seed: of everything that is random.
        delivered: the share of all deliveries that came about.
        duplicates: for each delivery at another node.
        p50: of the latencies at other nodes, in seconds; so are `p95`, `p99` and `most`.
        hops: the mean.
        bytes: of all packets.
        connect: of the summary; so are `publish` (there `!!publish`), `graft`, `prune`, `ihave` and `iwant`. None where
            a router has no such packets.
        events: that the run took.
    """

    router: str
    nodes: int
    degree: int | None
    loss: float
    seed: int
    delivered: float | None
    duplicates: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    most: float | None
    hops: float | None
    bytes: int
    connect: int | None
    publish: int | None
    graft: int | None
    prune: int | None
    ihave: int | None
    iwant: int | None
    events: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a sweep.

    Attributes:
        router: the name of its kind, or several with their parts of the nodes.
        degree: of the mesh; None for routers that have no such parameter.
        plan: what happens.
        gossip: gossipsub's parameters except those of the degree; None for the defaults.
    """

    router: str
    degree: int | None
    plan: Plan
    gossip: GossipConfig | None = None

    def record(self) -> Record:
        """Run it, and sum it up."""
        simulation = simulate(read_routers(self.router, self.gossip, self.degree), self.plan, trace=None)
        summary, rows = simulation.summary(), simulation.tally.deliveries
        # A node that failed and came back is handed again what it had.
        delivered = len(set(zip(rows.message, rows.node, strict=True)))
        wanted = self.plan.nodes * self.plan.messages
        remote = sum(summary.histogram)
        counts, latency = summary.counts, summary.latency
        return {
            "router": self.router,
            "nodes": self.plan.nodes,
            "degree": self.degree,
            "loss": self.plan.conditions.loss,
            "seed": self.plan.seed,
            "delivered": delivered / wanted if wanted else None,
            "duplicates": summary.duplicates / remote if remote else None,
            "p50": latency.get("p50"),
            "p95": latency.get("p95"),
            "p99": latency.get("p99"),
            "most": latency.get("most"),
            "hops": sum(hops * count for hops, count in summary.hops) / remote if remote else None,
            "bytes": summary.bytes,
            "connect": counts.get("connect"),
            "publish": counts.get("!!publish"),
            "graft": counts.get("graft"),
            "prune": counts.get("prune"),
            "ihave": counts.get("ihave"),
            "iwant": counts.get("iwant"),
            "events": summary.events,
        }


@dataclass(frozen=True, slots=True)
class Grid:
    """What a sweep varies. Its runs are all combinations.

    Attributes:
        routers: each a kind of routers, or several with their parts of the nodes, in the form of `read_routers`.
        nodes: sizes of the network.
        degrees: D, of the routers that have it: simsub and gossipsub. D_low and D_high are two thirds and twice of it,
            as with the defaults; the others run once for all degrees.
        losses: how probable it is that a packet is lost.
        seeds: of everything that is random.
        plan: what is the same in all runs. One node publishes each message: several make several messages of it with
            episub.
        gossip: gossipsub's other parameters, the same in all runs; None for the defaults.

    Raises:
        ScenarioError: what cannot be, before anything runs.
    """

    routers: Sequence[str] = ("simsub", "gossipsub")
    nodes: Sequence[int] = (100,)
    degrees: Sequence[int] = (6,)
    losses: Sequence[float] = (0.0,)
    seeds: Sequence[int] = range(5)
    plan: Plan = field(default_factory=lambda: Plan(fanout=1))
    gossip: GossipConfig | None = None

    def __post_init__(self) -> None:
        if self.plan.fanout != 1:
            raise ScenarioError(f"fanout is {self.plan.fanout}: a sweep has one publisher for each message")
        for name in ("routers", "nodes", "degrees", "losses", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ScenarioError(f"{name} are {list(values)}: expected one or more, each once")
        for degree in self.degrees:
            if degree < 1:
                raise ScenarioError(f"degree {degree}: expected 1 or more")
        if self.gossip is not None:
            usual = GossipConfig()
            if any(getattr(self.gossip, name) != getattr(usual, name) for name in ("d", "d_low", "d_high")):
                raise ScenarioError("d, d_low and d_high follow from the degrees of a sweep: expected other parameters")
            if not any(_has(router, "gossipsub") for router in self.routers):
                raise ScenarioError(
                    f"only gossipsub has parameters of gossip, and the routers are {', '.join(self.routers)}"
                )
        # Whatever a plan or a router refuses is refused here.
        for run in self.runs():
            read_routers(run.router, run.gossip, run.degree).counts(run.plan.nodes)

    def runs(self) -> list[Run]:
        """Return all runs, the largest networks first, which take longest."""
        return [
            Run(
                router,
                degree,
                replace(self.plan, nodes=nodes, seed=seed, conditions=conditions),
                self.gossip if _has(router, "gossipsub") else None,
            )
            for nodes, router, loss, seed in product(
                sorted(self.nodes, reverse=True), self.routers, self.losses, self.seeds
            )
            for conditions in [replace(self.plan.conditions, loss=loss)]
            for degree in (self.degrees if _has(router, *WITH_DEGREE) else [None])
        ]


def _has(router: str, *names: str) -> bool:
    return any(name in names for name, _ in read_parts(router))
