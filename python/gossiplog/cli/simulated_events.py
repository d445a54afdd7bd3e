"""A simulation of routers in the words of a dashboard: from the lines of its trace, and the run as it is at each.

A simulated node has no log. What it was delivered stands for one: the nodes that were delivered the same messages have
the same root, whatever the order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from gossiplog.dashboard.events import (
    Committed,
    Connected,
    Delivered,
    Event,
    Healed,
    LinkChanged,
    Noted,
    PeerAdded,
    PeerStarted,
    PeerStopped,
    Published,
)
from gossiplog.sim.routers.kinds import Wiring
from gossiplog.sim.routers.simulation import Simulation

# Seconds between two looks at which peers each router forwards messages to.
_LOOK_SECONDS = 0.1
# Events that are written at a time.
_MOST_KEPT = 1000


class SimulatedEvents:
    """Observes a run, and gives its events to a recorder.

    Args:
        write: takes the events, in the order of their times.
    """

    def __init__(self, write: Callable[[Sequence[Event]], object]) -> None:
        self._write = write
        self._kept: list[Event] = []
        self._roots: list[int] = []
        self._counts: list[int] = []
        self._links: list[frozenset[int]] = []
        self._connected: set[tuple[int, int]] = set()
        self._look_at = 0.0

    def observe(self, simulation: Simulation, line: str) -> None:
        """Take a line of the trace, when it is written."""
        now = simulation.kernel.now
        if not self._roots:
            self._begin(simulation)
        _, who, what = line.split(None, 2)
        verb, _, rest = what.partition(" ")
        match verb:
            case "sends":
                self._connect(simulation, now, int(who), int(rest.split(" ", 1)[0]))
            case "delivers":
                self._deliver(simulation, now, int(who), int(rest))
            case "publishes":
                self._add(Published(now, who, rest))
            case "fails":
                self._fail(now, int(who))
            case "is":
                self._add(PeerStarted(now, who))
            case "the":
                self._add(Healed(now) if rest.endswith("whole") else Noted(now, what))
        if now >= self._look_at:
            self._look(simulation, now)
            self._look_at = now + _LOOK_SECONDS
        if len(self._kept) >= _MOST_KEPT:
            self.flush()

    def flush(self) -> None:
        """Give what is kept to the recorder."""
        if self._kept:
            self._write(self._kept)
            self._kept = []

    def _add(self, event: Event) -> None:
        self._kept.append(event)

    def _begin(self, simulation: Simulation) -> None:
        population = simulation.plan.population
        self._roots, self._counts = [0] * population, [0] * population
        self._links = [frozenset()] * population
        for node, kind in enumerate(simulation.kinds):
            label = str(node) if node < simulation.plan.nodes else f"hostile {node}"
            self._add(PeerAdded(0.0, str(node), label, "peer", kind.name))
            self._report(0.0, node)

    def _connect(self, simulation: Simulation, now: float, node: int, peer: int) -> None:
        # Where a node sends to whom it likes there are no connections to show.
        pair = (min(node, peer), max(node, peer))
        if simulation.kinds[node].wiring is not Wiring.OPEN and pair not in self._connected:
            self._connected.add(pair)
            self._add(Connected(now, str(node), str(peer)))

    def _deliver(self, simulation: Simulation, now: float, node: int, number: int) -> None:
        rows = simulation.tally.deliveries
        source, latency = rows.source[-1], rows.latency[-1]
        if source >= 0:
            self._add(Delivered(now, str(node), str(number), str(source), "gossip", latency))
        self._roots[node] ^= int.from_bytes(hashlib.sha256(str(number).encode()).digest()[:16], "big")
        self._counts[node] += 1
        self._report(now, node)

    def _report(self, now: float, node: int) -> None:
        self._add(Committed(now, str(node), self._counts[node], f"{self._roots[node]:032x}"))

    def _fail(self, now: float, node: int) -> None:
        self._add(PeerStopped(now, str(node)))
        self._connected = {pair for pair in self._connected if node not in pair}
        self._links = [frozenset() if other == node else links - {node} for other, links in enumerate(self._links)]

    def _look(self, simulation: Simulation, now: float) -> None:
        """Report which peers joined and left what each router forwards messages to."""
        for node in range(simulation.plan.nodes):
            router = simulation.routers[node]
            if router is None:
                continue
            links = frozenset(
                peer for peer in simulation.kinds[node].neighbours(router) if simulation.routers[peer] is not None
            )
            for peer in sorted(links - self._links[node]):
                self._add(LinkChanged(now, str(node), str(peer), "mesh"))
            for peer in sorted(self._links[node] - links):
                self._add(LinkChanged(now, str(node), str(peer), "none"))
            self._links[node] = links
