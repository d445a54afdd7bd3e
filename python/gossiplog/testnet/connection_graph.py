"""Figures of who is connected to whom: the spread over Kademlia's buckets, distances, what holds when peers fail."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import TypeAlias

from gossiplog.reference.multiformats import base58_decode

Graph: TypeAlias = Mapping[str, Iterable[str]]
"""Peer ids, and those that each is connected to. A connection that one of both sees is one."""

_KEY_BITS = 256
_FAILURES = 20
_FAILING_SHARE = 0.5
_TAIL = 0.1


@dataclass(frozen=True, slots=True)
class BucketFigures:
    """Of one bucket, over the peers in whose bucket there are any others.

    Attributes:
        bucket: 0 for the farthest one, which has half of all peers, 1 for the next one.
        peers: that the bucket could have: the mean.
        connections: of them, the mean.
        tenth: so many connections or fewer has one peer in ten.
        most: connections.
        empty: the share of peers with no connection there.
    """

    bucket: int
    peers: float
    connections: float
    tenth: int
    most: int
    empty: float


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """Of the connections of a network.

    Attributes:
        least: connections of a peer,
        median: likewise,
        most: likewise.
        buckets: the farthest first.
        diameter: connections from any peer to any other, at most; None if some are not connected at all.
        distance: the mean over all pairs that are connected.
        left: the share of the remaining peers that stay together when half of all fail, the least of 20 draws.
    """

    least: int
    median: int
    most: int
    buckets: tuple[BucketFigures, ...]
    diameter: int | None
    distance: float
    left: float


def _key(peer: str) -> int:
    return int.from_bytes(sha256(base58_decode(peer)).digest())


def measure_graph(graph: Graph, without: str | None = None, seed: int = 0) -> GraphFigures:
    """Measure the connections between peers of a network.

    Args:
        graph: who is connected to whom. Those that are no peers of it are left out.
        without: a peer to leave out: one that all know would be a short way between any two. Others have it in their
            buckets all the same.
        seed: of the failures.
    """
    whole: dict[str, set[str]] = {peer: set() for peer in sorted(graph)}
    for peer, others in graph.items():
        for other in set(others) & set(whole) - {peer}:
            whole[peer].add(other)
            whole[other].add(peer)
    buckets = _buckets(whole, without)
    joined = {peer: others - {without} for peer, others in whole.items() if peer != without}
    peers = list(joined)
    counts = sorted(map(len, joined.values()))
    lengths = [length for peer in peers for length in _lengths(joined, peer)]
    is_connected = len(lengths) == len(peers) * (len(peers) - 1)
    return GraphFigures(
        least=counts[0],
        median=statistics.median_low(counts),
        most=counts[-1],
        buckets=tuple(buckets),
        diameter=max(lengths, default=0) if is_connected else None,
        distance=round(statistics.mean(lengths), 2) if lengths else 0.0,
        left=round(_left(joined, Random(seed)), 3),
    )


def _lengths(joined: Mapping[str, set[str]], start: str) -> list[int]:
    """Return how many connections are between a peer and each of those that can be reached from it."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        peer = queue.popleft()
        for other in joined[peer]:
            if other not in found:
                found[other] = found[peer] + 1
                queue.append(other)
    return [length for peer, length in found.items() if peer != start]


def _left(joined: Mapping[str, set[str]], random: Random) -> float:
    """Return the share that stays together, at the worst draw."""
    least = 1.0
    for _ in range(_FAILURES):
        alive = set(random.sample(sorted(joined), len(joined) - int(_FAILING_SHARE * len(joined))))
        rest = {peer: joined[peer] & alive for peer in alive}
        largest = 0
        while rest:
            part = _reached(rest, next(iter(rest)))
            largest = max(largest, len(part))
            rest = {peer: others for peer, others in rest.items() if peer not in part}
        least = min(least, largest / len(alive))
    return least


def _reached(joined: Mapping[str, set[str]], start: str) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = joined[waiting.pop()] - reached
        reached |= new
        waiting.extend(new)
    return reached


def _buckets(joined: Mapping[str, set[str]], without: str | None) -> Sequence[BucketFigures]:
    keys = {peer: _key(peer) for peer in joined}
    there: dict[int, list[tuple[int, int]]] = {}
    for peer in keys.keys() - {without}:
        key = keys[peer]
        others: Counter[int] = Counter()
        connected: Counter[int] = Counter()
        for other, its in keys.items():
            if other != peer:
                bucket = _KEY_BITS - (key ^ its).bit_length()
                others[bucket] += 1
                connected[bucket] += other in joined[peer]
        for bucket, count in others.items():
            there.setdefault(bucket, []).append((count, connected[bucket]))
    return [_bucket(bucket, there[bucket]) for bucket in sorted(there)]


def _bucket(number: int, rows: Sequence[tuple[int, int]]) -> BucketFigures:
    connections = sorted(connected for _, connected in rows)
    return BucketFigures(
        bucket=number,
        peers=round(statistics.mean(count for count, _ in rows), 1),
        connections=round(statistics.mean(connections), 2),
        tenth=connections[int(_TAIL * len(connections))],
        most=connections[-1],
        empty=round(sum(count == 0 for count in connections) / len(connections), 3),
    )
