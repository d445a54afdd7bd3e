"""What happens in a run, drawn from a seed: who is connected to whom, what is appended, what goes wrong and when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.sync import SyncClientConfig, SyncServerConfig
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.latency import Faults
from gossiplog.sim.whole.hostile import Kind

SETTLE_SECONDS = 120.0
"""Seconds of virtual time in which all honest peers have to hold the same after the last fault: several back-offs."""

_LARGE = 200
_FIRST_KINDS = [kind for kind in Kind if kind is not Kind.MISKEYED]
"""What hostile peers are drawn from that every seed may have."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Two peers that keep a connection; `gossips` says whether they speak gossip on it."""

    dialler: int
    listener: int
    gossips: bool


@dataclass(frozen=True, slots=True)
class Append:
    """A peer appends some messages at a time."""

    at: float
    peer: int
    count: int
    odd: bool


@dataclass(frozen=True, slots=True)
class Crash:
    """A peer stops at a time, and starts again some seconds later."""

    at: float
    peer: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Lag:
    """At a time, nothing more can be written from one peer to another for some seconds."""

    at: float
    source: int
    target: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Partition:
    """The network is parted at a time for some seconds: each peer's side."""

    at: float
    seconds: float
    sides: dict[int, int]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run does not leave to its network.

    Attributes:
        seed: that it was drawn from.
        shape: of the network, for the reader.
        peers: how many honest ones there are, 0 to peers - 1.
        edges: between them.
        hostile: what each further peer does, and whom it dials.
        appends: what is written.
        crashes: of peers.
        partitions: of the network.
        cuts: times at which some connection breaks.
        lags: of writers.
        refusals: the time before which a peer's application refuses odd messages.
        latency: seconds, at least and at most, and jitter.
        faults: of streams and gossip.
        seconds: until the faults end.
        broadcast: limits and delays.
        sync_server: limits of a sync that is served.
        sync_client: how a sync asks.
        gossip: the parameters of gossipsub.
    """

    seed: int
    shape: str
    peers: int
    edges: tuple[Edge, ...]
    hostile: tuple[tuple[Kind, tuple[int, ...]], ...]
    appends: tuple[Append, ...]
    crashes: tuple[Crash, ...]
    partitions: tuple[Partition, ...]
    cuts: tuple[float, ...]
    lags: tuple[Lag, ...]
    refusals: dict[int, float]
    latency: tuple[float, float, float]
    faults: Faults
    seconds: float
    broadcast: BroadcastConfig = field(default_factory=BroadcastConfig)
    sync_server: SyncServerConfig = field(default_factory=SyncServerConfig)
    sync_client: SyncClientConfig = field(default_factory=SyncClientConfig)
    gossip: GossipConfig = field(default_factory=GossipConfig)


def draw(seed: int, peers: int) -> Scenario:
    """Draw a scenario.

    Args:
        seed: the same seed and number of peers give the same scenario.
        peers: honest ones, 2 at least.
    """
    if peers < 2:
        raise ValueError(f"{peers} peers: expected 2 or more")
    random = Random(f"{seed} {peers}")
    seconds = random.uniform(10.0, 30.0)
    shape = random.choice(["star", "hubs", "mesh", "line", "mixed"] if peers <= _LARGE else ["star", "hubs", "mesh"])
    edges = _edges(shape, peers, random)
    busy = random.sample(range(peers), min(peers, random.randint(1, 12)))
    appends = [
        Append(random.uniform(0.0, seconds), random.choice(busy), random.choice([1, 1, 1, 1, 2, 5, 20]), False)
        for _ in range(random.randint(5, 25) if peers <= _LARGE else 12)
    ]
    refusals: dict[int, float] = {}
    if random.random() < 0.3:
        refusals = {peer: random.uniform(0.0, 1.3 * seconds) for peer in random.sample(range(peers), min(peers, 4))}
        # Only those append odd messages whose own application takes them.
        writers = [peer for peer in busy if peer not in refusals]
        appends += [Append(random.uniform(0.0, seconds), random.choice(writers), 1, True) for _ in range(3) if writers]
    faulty = random.random() < 0.9
    latency = random.choice([(0.001, 0.01, 0.0), (0.01, 0.15, 0.2), (0.05, 0.6, 0.5)])
    if shape == "line":
        latency = (0.001, 0.05, 0.5)  # what takes some round trips a hop still has to pass through all
    # What a server allows has to suffice for the walk to the first message, or nothing ever comes through.
    round_trips = 20 * latency[1]
    scenario = Scenario(
        seed=seed,
        shape=shape,
        peers=peers,
        edges=tuple(edges),
        hostile=tuple(
            (random.choice(_FIRST_KINDS), tuple(random.sample(range(peers), min(peers, random.randint(1, 4)))))
            for _ in range(random.choice([0, 0, 1, 2, 3]))
        ),
        appends=tuple(sorted(appends, key=lambda append: append.at)),
        crashes=tuple(
            Crash(random.uniform(0.0, seconds), random.randrange(peers), random.uniform(0.0, 8.0))
            for _ in range(random.randint(0, 6) if faulty else 0)
        ),
        partitions=tuple(_partition(random, peers, seconds) for _ in range(random.randint(0, 2) if faulty else 0)),
        cuts=tuple(random.uniform(0.0, seconds) for _ in range(random.randint(0, 15) if faulty else 0)),
        lags=tuple(_lag(random, edges, seconds) for _ in range(random.randint(0, 10) if faulty else 0)),
        refusals=refusals,
        latency=latency,
        faults=Faults(
            # Where links are both slow and bad, servers end each sync before it brings anything.
            loss=random.choice([0.0, 0.05, 0.3 if latency[1] < 0.5 else 0.1]),
            no_room=random.choice([0.0, 0.1]),
            stalling=random.choice([0.0, 0.2]),
        )
        if faulty
        else Faults(),
        seconds=seconds,
        broadcast=BroadcastConfig(
            syncs=random.choice([2, 4, 8]),
            advertised=random.choice([2, 1024]),
            skipped=random.choice([2, 4096]),
            longest_backoff=8.0,
            stall=4.0 + 10 * latency[1],
            turn=random.choice([5.0, 30.0]),
            retry=1.0,
            longest_retry=8.0,
            announce=random.choice([0.5, 5.0]),
        ),
        sync_server=random.choice(
            [
                SyncServerConfig(time_limit=10.0 + round_trips),
                SyncServerConfig(time_limit=round_trips),
                # A path to a leaf, its values and little more: most syncs take several streams.
                SyncServerConfig(time_limit=10.0 + round_trips, requests=10, cooldown=200),
                SyncServerConfig(time_limit=10.0 + round_trips, bytes=16_000),
            ]
        ),
        # With the small window a few messages are asked for at a time, so that syncs end in the middle.
        sync_client=SyncClientConfig(window=random.choice([2**14, 2**22])),
        # Last, and what follows: what a seed draws otherwise stays what it was.
        gossip=_gossip(random),
    )
    if random.random() < 0.2:
        miskeyed = Kind.MISKEYED, tuple(random.sample(range(peers), min(peers, random.randint(1, 4))))
        return replace(scenario, hostile=(*scenario.hostile, miskeyed))
    return scenario


def _gossip(random: Random) -> GossipConfig:
    """Draw parameters, among them meshes far sparser than the connections, so that messages depend on gossip."""
    degree = random.choice([1, 2, 3, 6])
    parameters = GossipConfig(
        d=degree,
        d_low=max(1, degree - random.randint(0, 2)),
        d_high=degree * random.choice([1, 2]),
        d_lazy=random.choice([0, 1, None]),
        heartbeat_interval=random.choice([0.25, 1.0, 3.0]),
        mcache_len=random.choice([3, 5]),
        mcache_gossip=random.choice([1, 3]),
    )
    # Ids are forgotten during a run, so that copies are new again, or they are not.
    least = 2 * parameters.mcache_len * parameters.heartbeat_interval
    return replace(parameters, seen_ttl=max(least, random.choice([20.0, 120.0])))


def _edges(shape: str, peers: int, random: Random) -> list[Edge]:
    match shape:
        case "star":
            return [Edge(peer, 0, False) for peer in range(1, peers)]
        case "hubs":
            hubs = max(2, peers // 50 if peers > _LARGE else peers // 8)
            mesh = _mesh(random, hubs, 4)
            return [
                *(Edge(a, b, True) for a, b in mesh),
                *(Edge(peer, random.randrange(hubs), False) for peer in range(hubs, peers)),
            ]
        case "line":
            return [Edge(peer, peer - 1, random.random() < 0.5) for peer in range(1, peers)]
        case "mesh":
            return [Edge(a, b, True) for a, b in _mesh(random, peers, 4)]
        case _:
            return [Edge(a, b, random.random() < 0.5) for a, b in _mesh(random, peers, 3)]


def _mesh(random: Random, peers: int, degree: int) -> list[tuple[int, int]]:
    """Return a random tree, which connects all, and random further edges up to a mean degree."""
    edges = {(peer, random.randrange(peer)): None for peer in range(1, peers)}
    wanted = min(peers * degree // 2, peers * (peers - 1) // 2)
    while len(edges) < wanted:
        a, b = sorted(random.sample(range(peers), 2), reverse=True)
        edges[a, b] = None
    return list(edges)


def _partition(random: Random, peers: int, seconds: float) -> Partition:
    share = random.uniform(0.1, 0.5)
    sides = {peer: int(random.random() < share) for peer in range(peers)}
    return Partition(random.uniform(0.0, seconds), random.uniform(1.0, 10.0), sides)


def _lag(random: Random, edges: list[Edge], seconds: float) -> Lag:
    edge = random.choice(edges)
    source, target = random.sample([edge.dialler, edge.listener], 2)
    return Lag(random.uniform(0.0, seconds), source, target, random.uniform(0.5, 6.0))
