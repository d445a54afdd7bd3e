"""Runs: the scenario of a seed on a network, with the invariants watched; one, or many in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.sim.kernel import Kernel, Trace
from gossiplog.sim.latency import UniformLatency
from gossiplog.sim.whole.checks import BrokenInvariant, Checks
from gossiplog.sim.whole.hostile import PUBLISHERS, UNPROVABLE, HostilePeer
from gossiplog.sim.whole.network import Network
from gossiplog.sim.whole.peer import Habits, Peer
from gossiplog.sim.whole.scenario import SETTLE_SECONDS, Lag, Scenario, draw

_POLL_SECONDS = 1.0
_QUIET_SECONDS = 20.0
_HOSTILE_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did.

    Attributes:
        seed: of the run.
        shape: of its network.
        messages: in every log at the end.
        events: of the kernel.
        seconds: of virtual time from the last fault to equal roots.
        pushes: messages sent, by push and gossip.
        orphans: of them, those that an honest peer sent and the receiver could not insert.
        syncs: started.
        dropped: hostile peers' connections that were ended for what they did.
    """

    seed: int
    shape: str
    messages: int
    events: int
    seconds: float
    pushes: int
    orphans: int
    syncs: int
    dropped: int


class Run:
    """A network of whole peers under a scenario.

    Args:
        scenario: what happens.
        trace: takes the lines of the trace.
        machine: makes the broadcast machines; tests make broken ones.
    """

    def __init__(
        self,
        scenario: Scenario,
        trace: Trace | None = None,
        machine: Callable[[Random, BroadcastConfig], Broadcast] = Broadcast,
    ) -> None:
        self.scenario = scenario
        self.kernel = Kernel(scenario.seed, trace)
        self.checks = Checks()
        latency = UniformLatency(self.kernel.random, *scenario.latency)
        self.network = Network(self.kernel, latency, scenario.faults)
        habits = Habits(scenario.broadcast, scenario.sync_server, scenario.sync_client, scenario.gossip, machine)
        self.peers = [
            Peer(number, self.network, self.checks, habits, scenario.refusals.get(number, 0.0))
            for number in range(scenario.peers)
        ]
        for edge in scenario.edges:
            self.peers[edge.dialler].dials[edge.listener] = None
            if edge.gossips:
                self.peers[edge.dialler].gossips[edge.listener] = None
                self.peers[edge.listener].gossips[edge.dialler] = None
        self.hostile = [
            HostilePeer(scenario.peers + number, self.network, kind, list(targets))
            for number, (kind, targets) in enumerate(scenario.hostile)
        ]
        for hostile in self.hostile:
            for target in hostile.targets if hostile.kind in PUBLISHERS else ():
                if self.peers[target].gossips:
                    self.peers[target].gossips[hostile.number] = None

    def run(self) -> RunResult:
        """Run it.

        Raises:
            BrokenInvariant: what must not happen did.
        """
        self._schedule()
        self.kernel.run(self.scenario.seconds)
        self._end_faults()
        seconds = self._settle()
        self._check_hostile()
        self._check_quiet()
        return RunResult(
            self.scenario.seed,
            self.scenario.shape,
            len(self.peers[0].log),
            self.kernel.events,
            seconds,
            self.checks.pushes,
            self.checks.orphans,
            self.checks.syncs,
            sum(len(peer.banned) for peer in self.peers),
        )

    def _schedule(self) -> None:
        kernel, scenario, random = self.kernel, self.scenario, self.kernel.random
        for peer in self.peers:
            kernel.at(random.uniform(0.0, 1.0), peer.start)
        for hostile in self.hostile:
            kernel.at(random.uniform(0.0, 1.0), hostile.start)
        for append in scenario.appends:
            for number in range(append.count):
                payload = {"at": append.at, "peer": append.peer, "number": number, "odd": append.odd}
                kernel.at(append.at, self.peers[append.peer].append, payload)
        for crash in scenario.crashes:
            kernel.at(crash.at, self._crash, crash.peer)
            kernel.at(crash.at + crash.seconds, self.peers[crash.peer].start)
        for partition in scenario.partitions:
            kernel.at(partition.at, self._part, partition.sides)
            kernel.at(partition.at + partition.seconds, self._heal)
        for time in scenario.cuts:
            kernel.at(time, self._cut)

        for lag in scenario.lags:
            kernel.at(lag.at, self._lag, lag)

    def _lag(self, lag: Lag) -> None:
        driver = self.peers[lag.source].driver
        if driver is not None:
            driver.lag(lag.target, lag.seconds)

    def _crash(self, number: int) -> None:
        self.kernel.log(number, "crashes")
        self.peers[number].crash()

    def _part(self, sides: dict[int, int]) -> None:
        self.kernel.log("-", "the network is parted")
        self.network.partition(sides)

    def _heal(self) -> None:
        self.kernel.log("-", "the network is whole")
        self.network.heal()

    def _cut(self) -> None:
        connections = list(self.network.connections())
        if connections:
            end = self.kernel.random.choice(connections)
            self.kernel.log("-", f"the connection of {end.here} and {end.there} breaks")
            self.network.break_connection(end)

    def _end_faults(self) -> None:
        self._heal()
        for peer in self.peers:
            peer.start()

    def _settle(self) -> float:
        """Let the run go on until all hold the same; return the seconds that this took."""
        begin = self.kernel.now
        limit = begin + SETTLE_SECONDS
        while True:
            try:
                self.checks.rest(self._roots)
                return self.kernel.now - begin
            except BrokenInvariant as error:
                if self.kernel.now >= limit:
                    raise BrokenInvariant(f"{SETTLE_SECONDS:g} s after the last fault: {error}") from None
            self.kernel.run(self.kernel.now + _POLL_SECONDS)

    def _roots(self) -> list[tuple[int, object]]:
        return [(peer.number, peer.log.root) for peer in self.peers]

    def _check_quiet(self) -> None:
        """Check that what is at rest stays at rest.

        No honest peer syncs with another, once the syncs that were under way have ended.
        """
        for hostile in self.hostile:
            hostile.stop()
        self.kernel.run(self.kernel.now + 2 * _QUIET_SECONDS)
        syncs = self.checks.syncs
        self.kernel.run(self.kernel.now + _QUIET_SECONDS)
        if self.checks.syncs > syncs:
            raise BrokenInvariant(f"{self.checks.syncs - syncs} syncs in a network at rest")
        self.checks.rest(self._roots)

    def _check_hostile(self) -> None:
        """Each had its chance by now, and lost it."""
        if self.hostile:
            self.kernel.run(max(self.kernel.now, self.scenario.seconds + _HOSTILE_SECONDS))
        for hostile in self.hostile:
            if hostile.kind not in UNPROVABLE and not any(hostile.number in peer.banned for peer in self.peers):
                raise BrokenInvariant(f"nobody dropped node {hostile.number}, which {hostile.kind.value}")


def run_seed(
    seed: int,
    peers: int,
    trace: Trace | None = None,
    machine: Callable[[Random, BroadcastConfig], Broadcast] = Broadcast,
) -> RunResult:
    """Draw the scenario of a seed, and run it.

    Raises:
        BrokenInvariant: with the command that shows the run again.
    """
    try:
        return Run(draw(seed, peers), trace, machine).run()
    except BrokenInvariant as error:
        raise BrokenInvariant(f"seed {seed}: {error}\nreplay: {replay_command(seed, peers)}") from error


def replay_command(seed: int, peers: int) -> str:
    """Return the command that shows a run again, with its trace."""
    return f".venv/bin/python -m gossiplog.sim --peers {peers} --seed {seed} --trace"


_CHUNK = 4


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose run broke an invariant; the text has the command that shows it again."""

    seed: int
    text: str


def soak(seeds: Sequence[int], peers: int, processes: int) -> Iterator[RunResult | Failure]:
    """Run seeds, and yield what became of each, in their order.

    Args:
        seeds: to run.
        peers: honest ones in each run.
        processes: at a time; 1 is this one.
    """
    jobs = [(seed, peers) for seed in seeds]
    if processes == 1:
        yield from map(_run_or_failure, jobs)
        return
    # Spawned, because the core's threads do not survive a fork. Ctrl-C is this process's, which ends the others.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(_run_or_failure, jobs, chunksize=_CHUNK if len(jobs) > _CHUNK * processes else 1)


def _run_or_failure(job: tuple[int, int]) -> RunResult | Failure:
    seed, peers = job
    try:
        return run_seed(seed, peers)
    except BrokenInvariant as error:
        return Failure(seed, str(error))
