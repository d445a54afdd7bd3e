"""A run of routers under virtual time: many nodes, a script that publishes, and an account of what happened."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from gossiplog.pubsub.events import Connect, Deliver, Disconnect, Ping, Received, Router, Send, SetTimer, TimerExpired
from gossiplog.sim.kernel import Kernel, Trace
from gossiplog.sim.routers.attackers import Hostile
from gossiplog.sim.routers.kinds import OUTSIDE, RouterKind, Seat, Wiring
from gossiplog.sim.routers.mixture import Mixture
from gossiplog.sim.routers.overlay import Overlay
from gossiplog.sim.routers.plan import NUMBER_BYTES, Plan
from gossiplog.sim.routers.summary import Summary, summarize
from gossiplog.sim.routers.tally import Tally

Transcript: TypeAlias = Callable[[Sequence[str]], object] | Path

_REDIAL_SECONDS = 1.0
_SAMPLE_SECONDS = 1.0
_CONNECT = "pubsub.connect"


def simulate(
    routers: RouterKind | Mixture,
    plan: Plan,
    trace: Trace | None = print,
    transcript: Transcript | None = None,
    observe: Callable[[Simulation, str], object] | None = None,
) -> Simulation:
    """Run a plan.

    Args:
        routers: of the nodes: all of one kind, or a mixture.
        plan: what happens.
        trace: called with a line for each event, when it happens; None for none.
        transcript: gets the whole trace at the end, oldest first: a file to write, or a function to call.
        observe: called with the run as it is, and each line of the trace; None for none.

    Returns:
        The run, which has ended.

    Raises:
        OSError: the file cannot be written.
        ScenarioError: there are too few nodes for all kinds.
    """
    lines: list[str] = []
    traces = [take for take in (trace, None if transcript is None else lines.append) if take is not None]
    if observe is not None:
        traces.append(lambda line: observe(simulation, line))

    def write_line(line: str) -> None:
        for take in traces:
            take(line)

    simulation = Simulation(routers, plan, write_line if traces else None)
    simulation.run()
    if isinstance(transcript, Path):
        transcript.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    elif transcript is not None:
        transcript(lines)
    return simulation


class Simulation:
    """All nodes of a run.

    Args:
        routers: of the nodes: all of one kind, or a mixture.
        plan: what happens.
        trace: called with a line for each event; None for none.

    Raises:
        ScenarioError: there are too few nodes for all kinds.

    Attributes:
        mixture: of the kinds of routers.
        kinds: of the nodes, by number.
        plan: what happens.
        kernel: the time, and the number of events.
        routers: by node; None for one that is down.
        tally: what has happened so far.
    """

    def __init__(self, routers: RouterKind | Mixture, plan: Plan, trace: Trace | None = None) -> None:
        self.mixture = Mixture.of(routers)
        self.plan = plan
        self.kernel = Kernel(plan.seed, trace)
        self.routers: list[Router | None] = [None] * plan.population
        self.tally = Tally(plan.population, self.mixture.names)
        # A source of its own for each: what is drawn for the one does not change what is drawn for the other.
        self._script, drawing, latencies, losses, self._failures, self._seats, assignment = (
            Random(f"{plan.seed} {purpose}")
            for purpose in ("script", "connections", "latencies", "losses", "failures", "routers", "kinds")
        )
        self._common = self.mixture.common
        self.kinds = self.mixture.assign(plan.nodes, assignment)
        self.kinds += [self._common] * (plan.population - plan.nodes)
        self._contacts = [_others(drawing, node, plan) for node in range(plan.nodes)]
        self._latency = plan.conditions.latency.model(latencies, plan.population)
        for node, contacts in enumerate(self._contacts):
            for peer in contacts:
                self._latency(node, peer)
        if plan.attack is not None:
            self._contacts += plan.attack.targets(Random(f"{plan.seed} attack"), plan.nodes, plan.connections)
        self._overlay = Overlay(
            self.kernel,
            self,
            plan.population,
            self._latency,
            plan.conditions,
            losses,
            open=self._common.wiring is Wiring.OPEN,
            lasting=self._common.wiring is not Wiring.OWN,
        )
        # Hostile nodes do nothing about messages, whose arrivals would be nine in ten events of an attack.
        self._sparing = plan.attack is not None and plan.conditions.calm
        self._timers: list[dict[Any, float]] = [{} for _ in range(plan.population)]
        self._sources: list[int] = []
        self._numbers: set[int] = set()

    def run(self) -> None:
        """Run all events. A run is run once."""
        plan, kernel = self.plan, self.kernel
        for node in range(plan.nodes):
            self._start(node)
        if plan.attack is not None:
            for node in range(plan.nodes, plan.population):
                kernel.at(plan.attack.begins * plan.connect_delay, self._start, node)
        for number in range(plan.messages):
            kernel.at(plan.connect_delay + number * plan.message_delay, self._publish, number)
        self._schedule_failures()
        kernel.at(0.0, self._sample)
        with _no_collection():
            kernel.run(plan.seconds)

    def summary(self) -> Summary:
        """Return the counts and distributions of the run so far."""
        return summarize(self.mixture, self.kinds, self.plan, self.tally, self.link_delay(), self.kernel.events)

    def link_delay(self) -> float:
        """Return the mean delay of the links that messages are forwarded on, in seconds; 0 where there is none."""
        delays = [
            self._latency(node, peer)
            for node, router in enumerate(self.routers[: self.plan.nodes])
            if router is not None
            for peer in self.kinds[node].neighbours(router)
        ]
        return sum(delays) / len(delays) if delays else 0.0

    # Notifications of the overlay

    def up(self, node: int) -> bool:
        """Return whether a node runs."""
        return self.routers[node] is not None

    def protocol(self, node: int) -> str:
        """Return what a node speaks."""
        return self.kinds[node].protocol

    def receive(self, node: int, event: Any) -> None:
        """Handle what happens to a node."""
        router = self.routers[node]
        if router is None:
            if type(event) is Received:
                self.lost(event.packet)
            return
        orders = router.handle(event, self.kernel.now)
        if orders:
            self._perform(node, orders)

    def broken(self, node: int, peer: int) -> None:
        """Handle the end of a node's connection, or one that did not come about."""
        if self._common.wiring is Wiring.DIALLED and peer in self._contacts[node]:
            self.kernel.after(_REDIAL_SECONDS, self._overlay.connect, node, peer)

    def lost(self, packet: Any) -> None:
        """Count a packet that will not arrive."""
        self.tally.lost += list(self._common.read(packet)).count(self._common.payload)

    # What routers ask for

    def _perform(self, node: int, orders: Sequence[Any]) -> None:
        for order in orders:
            what = type(order)
            if what is Send:
                self._send(node, order)
            elif what is Deliver:
                self._deliver(node, order)
            elif what is SetTimer:
                self._timers[node][order.timer] = order.at
                self.kernel.at(order.at, self._expire, node, order.timer, order.at)
            elif what is Connect:
                self._overlay.connect(node, order.peer)
            elif what is Disconnect:
                self._overlay.disconnect(node, order.peer)
            elif what is Ping:
                self._overlay.ping(node, order.peer)

    def _send(self, node: int, order: Send) -> None:
        tally, kind, packet = self.tally, self._common, order.packet
        peers: Sequence[Any] = order.peers
        size = kind.size(packet)
        tally.bytes += size * len(peers)
        sent = tally.sent
        names = kind.read(packet)
        for name in names:
            if name in sent:
                sent[name] += len(peers)
        if self.kernel.tracing:
            for peer in peers:
                self.kernel.log(node, f"sends {peer} {packet}")
        if self._sparing and names and all(name == kind.payload for name in names):
            peers = [peer for peer in peers if peer < self.plan.nodes]
        self._overlay.send(node, peers, packet, size)

    def _deliver(self, node: int, order: Deliver) -> None:
        number = int.from_bytes(order.data[:NUMBER_BYTES], "big")
        # Hostile nodes send what nobody published.
        if number in self._numbers:
            source: Any = OUTSIDE if order.source is None else order.source
            self.tally.deliver(number, node, source, self.kernel.now)
            if self.kernel.tracing:
                self.kernel.log(node, f"delivers {number}")

    def _expire(self, node: int, timer: Any, at: float) -> None:
        timers = self._timers[node]
        if timers.get(timer) != at:
            return
        free = self._overlay.free
        if self.plan.conditions.late_timers and free > self.kernel.now:
            timers[timer] = free
            self.kernel.at(free, self._expire, node, timer, free)
        else:
            del timers[timer]
            self.receive(node, TimerExpired(timer))

    # What the script does

    def _start(self, node: int) -> None:
        seat = Seat(node, self._contacts[node], self._seats)
        kind = self.kinds[node]
        router = self.routers[node] = kind.make(seat) if node < self.plan.nodes else self._hostile(seat)
        self._timers[node] = {}
        self._perform(node, router.start(self.kernel.now))
        for event in kind.opening:
            self.receive(node, event)
        if kind.wiring is Wiring.DIALLED:
            self.tally.sent[_CONNECT] += len(seat.contacts)
            for peer in seat.contacts:
                self._overlay.connect(node, peer)

    def _hostile(self, seat: Seat) -> Router:
        attack = self.plan.attack
        return Hostile(seat, self._common, self.plan.payload if attack is not None and attack.spam else None)

    def _publish(self, number: int) -> None:
        plan = self.plan
        if not plan.single_source or not self._sources:
            self._sources = self._script.sample(range(plan.publishers or plan.nodes), plan.fanout)
        self._numbers.add(number)
        self.tally.publish(number, self.kernel.now)
        data = number.to_bytes(NUMBER_BYTES, "big") + bytes(plan.payload - NUMBER_BYTES)
        for node in self._sources:
            self.tally.published += 1
            if self._common.wiring is Wiring.OPEN:
                # simsub's script sends packets, too, and its summary counts them.
                self.tally.injected += 1
                self.tally.sent[self._common.payload] += 1
            if self.kernel.tracing:
                self.kernel.log(node, f"publishes {number}")
            self.receive(node, self.kinds[node].inject(number, data))

    def _sample(self) -> None:
        honest = zip(self.kinds, self.routers[: self.plan.nodes], strict=False)
        degrees = [len(kind.neighbours(router)) for kind, router in honest if router is not None]
        self.tally.sample(self.kernel.now, degrees)
        self.kernel.after(_SAMPLE_SECONDS, self._sample)

    def _schedule_failures(self) -> None:
        plan, random, kernel = self.plan, self._failures, self.kernel
        for partition in plan.conditions.partitions:
            nodes = range(plan.population)
            chosen = set(random.sample(nodes, max(1, round(partition.share * len(nodes)))))
            kernel.at(partition.at, self._part, {node: int(node in chosen) for node in nodes})
            kernel.at(partition.at + partition.seconds, self._part, {})
        for failure in plan.conditions.failures:
            kernel.at(failure.at, self._fail_some, round(failure.share * plan.nodes))
        churn = plan.conditions.churn
        if churn is not None:
            for node in range(plan.nodes):
                at = plan.connect_delay + random.expovariate(churn.rate)
                while at < plan.seconds - plan.wait:
                    kernel.at(at, self._fail, node)
                    kernel.at(at + churn.downtime, self._return, node)
                    at += churn.downtime + random.expovariate(churn.rate)

    def _part(self, sides: dict[int, int]) -> None:
        self.kernel.log("-", "the network is parted" if sides else "the network is whole")
        self._overlay.part(sides)

    def _fail(self, node: int) -> None:
        self.kernel.log(node, "fails")
        self.routers[node] = None
        self._overlay.stop(node)

    def _fail_some(self, most: int) -> None:
        spared = set(self._sources)
        honest = enumerate(self.routers[: self.plan.nodes])
        running = [node for node, router in honest if router is not None and node not in spared]
        for node in self._failures.sample(running, min(most, len(running))):
            self._fail(node)

    def _return(self, node: int) -> None:
        self.kernel.log(node, "is back")
        self._start(node)


def _others(random: Random, node: int, plan: Plan) -> tuple[int, ...]:
    """Drawn among all nodes but this one."""
    drawn = random.sample(range(plan.nodes - 1), plan.connections)
    return tuple(other + (other >= node) for other in drawn)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: of millions of events none is in a cycle, and to look would take most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
