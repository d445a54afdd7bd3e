"""What a simulation of routers comes to: simsub's rows, and distributions beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gossiplog.sim.routers.kinds import RouterKind
from gossiplog.sim.routers.mixture import Mixture
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.tally import Deliveries, Tally

BUCKET_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What honest nodes got of what they published: all of them, or the victim of the attack alone.

    Attributes:
        name: of the attack; "none" without one.
        hostile: how many nodes are.
        delivered: the share of all deliveries to come, without those from outside; None where none was to come.
        p50: seconds from publishing to delivery, the median of what was delivered; None where nothing was.
        p95: seconds, likewise.
    """

    name: str
    hostile: int
    delivered: float | None
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class KindSummary:
    """The deliveries to the nodes with one kind of routers, where there are several kinds.

    Attributes:
        nodes: the number of these nodes.
        deliver: messages handed to their applications.
        p50: seconds from publishing to delivery, without the publishers' own: the median; None where there is nothing.
        p95: seconds, likewise.
    """

    nodes: int
    deliver: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures. Under an attack, packets and bytes are those of hostile nodes as well.

    Attributes:
        router: the kind of routers, or the kinds with their parts of the nodes.
        nodes: of the plan.
        messages: of the plan.
        fanout: of the plan.
        seed: of the plan.
        publish: messages given to nodes from outside, one for each node.
        deliver: messages handed to applications.
        sent: packets' messages by protocol.name, one for each peer that they were sent to.
        duplicates: copies of messages that arrived where they were known already, as far as they were on their way at
            the end as well.
        lost: copies of messages that did not arrive.
        bytes: of all packets, one for each peer that they were sent to.
        hops: (number of nodes that passed a message on, how often), without the publishers' own.
        latency: seconds from publishing to delivery at the other nodes: mean, and quantiles by name.
        histogram: deliveries at other nodes with latencies of each 0.1 s from 0 on.
        link_delay: the mean delay of the links that messages are forwarded on at the end, in seconds.
        events: that the run took.
        attack: what came of it; None without one.
        kinds: the deliveries to the nodes of each kind, by name; empty where there is only one kind.
    """

    router: str
    nodes: int
    messages: int
    fanout: int
    seed: int
    publish: int
    deliver: int
    sent: dict[str, int]
    duplicates: int
    lost: int
    bytes: int
    hops: tuple[tuple[int, int], ...]
    latency: dict[str, float]
    histogram: tuple[int, ...]
    link_delay: float
    events: int
    attack: Outcome | None
    kinds: dict[str, KindSummary]

    @property
    def counts(self) -> dict[str, int]:
        """The rows under the names of the published tables: `!!publish` for the packets, `publish` for the script's."""
        counts = {"publish": self.publish, "deliver": self.deliver}
        for name, count in self.sent.items():
            short = name.partition(".")[2]
            counts["!!publish" if short == "publish" else short] = count
        return counts

    def lines(self) -> list[str]:
        """As simsub prints it: a kind that was never sent has no row."""
        return [
            "=== simulation summary ===",
            f"nodes: {self.nodes}",
            f"messages: {self.messages}",
            f"fanout: {self.fanout}",
            f"publish: {self.publish}",
            f"deliver: {self.deliver}",
            *(f"!!{name}: {count}" for name, count in self.sent.items() if count),
        ]

    def histogram_lines(self, width: int) -> list[str]:
        """Return the latencies as simsub's later versions print them, with at most so many stars in a line."""
        most = max(self.histogram, default=0)
        bounds = [f"{100 * number}-{100 * number + 100}ms" for number in range(len(self.histogram))]
        return [
            "=== delivery latency histogram ===",
            *(
                f"{bound:>12}  {count:>8}  {'*' * round(width * count / most)}"
                for bound, count in zip(bounds, self.histogram, strict=True)
            ),
        ]

    def record(self) -> dict[str, Any]:
        """Return everything, as JSON takes it; the rows are under `summary`."""
        fields = asdict(self)
        for name in ("publish", "deliver", "sent"):
            del fields[name]
        for name in ("attack", "kinds"):
            if not fields[name]:
                del fields[name]
        fields["hops"] = {str(hops): count for hops, count in self.hops}
        fields["histogram"] = list(self.histogram)
        return {"summary": self.counts} | fields


def summarize(
    mixture: Mixture, kinds: Sequence[RouterKind], plan: Plan, tally: Tally, link_delay: float, events: int
) -> Summary:
    """Sum up what was counted in a run.

    Args:
        mixture: of the kinds of routers.
        kinds: of the nodes, by number.
        plan: of the run.
        tally: what was counted.
        link_delay: of the summary.
        events: of the summary.
    """
    rows = tally.deliveries
    remote = [
        (latency, hops)
        for latency, hops, source in zip(rows.latency, rows.hops, rows.source, strict=True)
        if source >= 0
    ]
    latencies = sorted(latency for latency, _ in remote)
    return Summary(
        router=mixture.name,
        nodes=plan.nodes,
        messages=plan.messages,
        fanout=plan.fanout,
        seed=plan.seed,
        publish=tally.published,
        deliver=len(rows.message),
        sent=dict(tally.sent),
        duplicates=tally.sent[mixture.common.payload] - tally.injected - tally.lost - len(remote),
        lost=tally.lost,
        bytes=tally.bytes,
        hops=tuple(sorted(Counter(hops for _, hops in remote).items())),
        latency=_distribution(latencies),
        histogram=_histogram(latencies),
        link_delay=link_delay,
        events=events,
        attack=None if plan.attack is None else outcome(plan, rows),
        kinds=_by_kind(mixture, kinds[: plan.nodes], rows) if len(mixture.kinds) > 1 else {},
    )


def _by_kind(mixture: Mixture, kinds: Sequence[RouterKind], rows: Deliveries) -> dict[str, KindSummary]:
    deliver = Counter(kinds[node].name for node in rows.node)
    latencies: dict[str, list[float]] = {kind.name: [] for kind in mixture.kinds}
    for node, source, latency in zip(rows.node, rows.source, rows.latency, strict=True):
        if source >= 0:
            latencies[kinds[node].name].append(latency)
    nodes = Counter(kind.name for kind in kinds)
    found = {}
    for name, seconds in latencies.items():
        quantiles = _distribution(sorted(seconds))
        found[name] = KindSummary(nodes[name], deliver[name], quantiles.get("p50"), quantiles.get("p95"))
    return found


def outcome(plan: Plan, rows: Deliveries) -> Outcome:
    """Return what the nodes that count got from others of all that was published, with an attack or without."""
    attack = plan.attack
    counted = range(plan.nodes) if attack is None or attack.victim is None else (attack.victim,)
    # A node that failed and came back is handed again what it had.
    first: dict[tuple[int, int], tuple[int, float]] = {}
    for number, node, source, latency in zip(rows.message, rows.node, rows.source, rows.latency, strict=True):
        if node in counted:
            first.setdefault((number, node), (source, latency))
    latencies = sorted(latency for source, latency in first.values() if source >= 0)
    given = len(first) - len(latencies)
    wanted = plan.messages * len(counted) - given
    quantiles = _distribution(latencies)
    return Outcome(
        name="none" if attack is None else attack.name,
        hostile=plan.population - plan.nodes,
        delivered=len(latencies) / wanted if wanted else None,
        p50=quantiles.get("p50"),
        p95=quantiles.get("p95"),
    )


def _distribution(ascending: Sequence[float]) -> dict[str, float]:
    if not ascending:
        return {}
    last = len(ascending) - 1
    quantiles = {f"p{percent}": ascending[round(last * percent / 100)] for percent in (50, 95, 99)}
    return {"mean": sum(ascending) / len(ascending)} | quantiles | {"most": ascending[-1]}


def _histogram(ascending: Sequence[float]) -> tuple[int, ...]:
    if not ascending:
        return ()
    buckets = [0] * (int(ascending[-1] / BUCKET_SECONDS) + 1)
    for latency in ascending:
        buckets[int(latency / BUCKET_SECONDS)] += 1
    return tuple(buckets)
