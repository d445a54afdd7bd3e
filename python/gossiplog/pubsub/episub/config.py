"""The parameters of an episub router, each with where it comes from.

"Seed" is the episub specification (episub.md in pubsub/gossipsub of libp2p/specs, r1, 2018-06-28). What it leaves open
is marked [free]; the value is then a choice of this project, in some cases one that a paper or another implementation
made first. [ours] marks bounds that the seed does not have, against hostile nodes:

- HyParView: Leitao, Pereira, Rodrigues, "HyParView", DSN 2007, the experiments' configuration;
- Plumtree: Leitao, Pereira, Rodrigues, "Epidemic Broadcast Trees", SRDS 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from gossiplog.pubsub.episub.encoding import MAX_HOPS, MAX_PEERS

Range: TypeAlias = tuple[float, float]
"""Seconds, from and to: a randomized timer draws from it each time."""


class Repair(Enum):
    """What the loss of an eager neighbour leads to: the two strategies of the seed."""

    WAIT = "nothing: the next message is announced by lazy neighbours, and grafted"
    PROMOTE = "all lazy neighbours become eager, by empty grafts; the next message's copies prune them"


@dataclass(frozen=True, slots=True)
class Config:
    """All parameters of a router. Sizes are numbers of peers, TTLs hops, times seconds.

    Attributes:
        random_links: C_rand, neighbours that keep the overlay connected, and JOINs of a newcomer (seed: log N = 4 for
            N = 10,000).
        near_links: C_near, neighbours chosen for being near (seed: 3).
        passive_factor: k in P = k A (seed: 6).
        most_links: [free] of the active list: joins and requests beyond are not accepted, whatever the rules. Three
            times A.
        join_ttl: [free] of a newcomer's JOIN; HyParView's walk has 6.
        forward_join_ttl: [free] of FORWARDJOIN; HyParView's passive walk has 3.
        leave_ttl: [free] of LEAVE. Each one more multiplies the messages by A; 1 reaches the neighbours' neighbours.
        shuffle_ttl: [free] of SHUFFLE; HyParView's walk has 6.
        most_walk: [ours] TTL that is taken from a received JOIN, FORWARDJOIN or SHUFFLE; a higher one counts as this.
            Each hop is one message. Others may have longer walks than this node: it is far above the defaults.
        most_leave: [ours] TTL that is taken from a received LEAVE, likewise. Each hop multiplies the messages by up to
            A - 1: among 1,000 nodes one with a TTL of 3 made 260 messages, one of 5 made 9,600.
        shuffle_active: [free] k_a, active peers in a SHUFFLE; HyParView: 3.
        shuffle_passive: [free] k_p, passive peers in a SHUFFLE; HyParView: 4.
        nodes: [free] peers in a NODES, half of P.
        alpha: [free] by which factor a peer must be nearer than a neighbour to take its place; infinity turns
            proximity off where links are replaced. A swap for less than half of the way does not pay for its cost.
        rtt_weight: [free] of a new sample in the smoothed round trip: 1/8, as TCP's (RFC 6298, section 2).
        stabilize: [free] between two stabilizations, which also ping the neighbours.
        optimize: [free] between two optimizations.
        shuffle: [free] between two shuffles.
        check: [free] between two checks of passive peers.
        checked: [free] passive peers in a check.
        sampled: [free] passive peers measured before the nearest are asked to be neighbours: twice A.
        request_timeout: [free] for the answer to NEIGHBOR, GETNODES, GETTOPICS: some round trips, and one for the
            connection.
        join_timeout: [free] for a NEIGHBOR that answers a JOIN: its walk, and a connection back.
        shuffle_timeout: [free] for a SHUFFLEREPLY: likewise.
        rejection_pause: [free] in which who rejected a request is not asked again.
        idle: [free] without a message after which a connection to one who is no neighbour is closed.
        under_way: [free] requests of one kind that others may have us busy with at a time; what exceeds it is treated
            as if their connection had failed.
        eager_leave: [free] whether leaving is announced by LEAVE; else by DISCONNECT.
        flush: of the lazy queue into IHAVEs (seed: "in the order of 0.1s").
        missing_tick: [free] of the timer that looks for missing messages; marked by one tick, a message is missing at
            the second. An eager path that is this much slower than the announcement is replaced.
        lost_ticks: [free] after which a message that is missing is given up.
        graft_grace: [free] after a GRAFT for messages in which copies on its link prune nothing: two ticks.
        cache_time: [free] for which a message can be had by GRAFT; as long as iroh-gossip's.
        seen_time: [free] for which a message's id is known; a copy that comes later is delivered again.
        hop_threshold: [free] by how many hops more than an announcement's a message must have come for the announcer
            to take the sender's place. Near the diameter (seed); Plumtree's experiments have 7.
        repair: [free] when an eager neighbour is lost. The seed's authors and Plumtree's advocate to wait.
        cache_bytes: [free] of the messages in the cache; the oldest go first.
        seen: [free] ids that are known at a time; the oldest go first.
        missing: [free] ids that one neighbour may have announced and that have not come.
        grafted: [free] messages sent to one neighbour on its GRAFTs within a second; those beyond are not sent.
    """

    random_links: int = 4
    near_links: int = 3
    passive_factor: int = 6
    most_links: int = 21
    join_ttl: int = 6
    forward_join_ttl: int = 3
    leave_ttl: int = 1
    shuffle_ttl: int = 6
    most_walk: int = 32
    most_leave: int = 3
    shuffle_active: int = 3
    shuffle_passive: int = 4
    nodes: int = 21
    alpha: float = 2.0
    rtt_weight: float = 0.125
    stabilize: Range = (4.0, 6.0)
    optimize: Range = (8.0, 12.0)
    shuffle: Range = (8.0, 12.0)
    check: Range = (8.0, 12.0)
    checked: int = 3
    sampled: int = 14
    request_timeout: float = 2.0
    join_timeout: float = 4.0
    shuffle_timeout: float = 4.0
    rejection_pause: float = 60.0
    idle: float = 10.0
    under_way: int = 16
    eager_leave: bool = True
    flush: float = 0.1
    missing_tick: float = 0.25
    lost_ticks: int = 20
    graft_grace: float = 0.5
    cache_time: float = 30.0
    seen_time: float = 90.0
    hop_threshold: int = 7
    repair: Repair = Repair.WAIT
    cache_bytes: int = 2**24
    seen: int = 2**16
    missing: int = 1024
    grafted: int = 1024

    def __post_init__(self) -> None:
        """Raise ValueError for parameters with which a router could not work, and say what was expected."""
        for name in ("join_ttl", "forward_join_ttl", "leave_ttl", "shuffle_ttl", "shuffle_active", "shuffle_passive"):
            self._expect(name, getattr(self, name) >= 0, "0 or more")
        for name in ("random_links", "passive_factor", "nodes", "checked", "sampled", "under_way", "lost_ticks"):
            self._expect(name, getattr(self, name) >= 1, "1 or more")
        for name in (
            "request_timeout",
            "join_timeout",
            "shuffle_timeout",
            "rejection_pause",
            "flush",
            "missing_tick",
            "graft_grace",
        ):
            self._expect(name, getattr(self, name) > 0, "more than 0 seconds")
        for name in ("stabilize", "optimize", "shuffle", "check"):
            low, high = getattr(self, name)
            self._expect(name, 0 < low <= high, "from more than 0 to as many seconds or more")
        for name in ("cache_bytes", "seen", "missing", "grafted"):
            self._expect(name, getattr(self, name) >= 1, "1 or more")
        for name in ("most_walk", "most_leave"):
            self._expect(name, getattr(self, name) <= MAX_HOPS, f"{MAX_HOPS} at most, which can be written")
        for name in ("join_ttl", "forward_join_ttl", "shuffle_ttl"):
            self._expect(name, getattr(self, name) <= self.most_walk, f"most_walk, {self.most_walk}, at most")
        self._expect("leave_ttl", self.leave_ttl <= self.most_leave, f"most_leave, {self.most_leave}, at most")
        for name in ("most_links", "nodes"):
            self._expect(name, getattr(self, name) <= MAX_PEERS, f"{MAX_PEERS} at most, which a list can have")
        # An answer has one more than an offer: for the origin.
        room = MAX_PEERS - 1 - self.shuffle_active
        self._expect(
            "shuffle_passive", self.shuffle_passive <= room, f"{room} at most, with shuffle_active in one list"
        )
        self._expect("near_links", self.near_links >= 0, "0 or more")
        self._expect("hop_threshold", self.hop_threshold >= 0, "0 or more")
        self._expect("most_links", self.most_links >= self.active, f"A, {self.active}, or more")
        self._expect("alpha", self.alpha >= 1, "1 or more: a farther peer is no better")
        self._expect("rtt_weight", 0 < self.rtt_weight <= 1, "more than 0, and 1 at most")
        timeouts = max(self.request_timeout, self.join_timeout, self.shuffle_timeout)
        self._expect("idle", self.idle > timeouts, f"more than {timeouts} seconds, the longest time-out")
        self._expect("cache_time", self.cache_time > self.flush, "more seconds than flush")
        self._expect("seen_time", self.seen_time >= self.cache_time, "as many seconds as cache_time, or more")

    def _expect(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name} is {getattr(self, name)}: expected {expected}")

    @property
    def active(self) -> int:
        """A = C_rand + C_near (seed, from GoCast)."""
        return self.random_links + self.near_links

    @property
    def passive(self) -> int:
        """P = k A (seed)."""
        return self.passive_factor * self.active
