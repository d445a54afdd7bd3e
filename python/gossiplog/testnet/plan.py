"""What a network is made of: its members, who dials whom, and when they join. Everything follows from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias, get_args

from gossiplog.net.routing.kinds import ROUTERS, RouterName
from gossiplog.reference.multiformats import base58_encode
from gossiplog.signer import Signer

Topology: TypeAlias = Literal["mesh", "hub", "mixed", "line", "ring"]
"""How members are connected.

`mesh`: all know one bootstrap, which holds no log, and find each other through Kademlia. `hub`: the first is a hub, the
others are its clients. `mixed`: hubs that are a mesh, each with clients. `line`, `ring`: peers that are connected to
their neighbours alone.
"""
TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)

Kind: TypeAlias = Literal["peer", "hub", "relay", "client", "bootstrap", "browser"]
"""What a member is: a `relay` is a hub that is a peer of the mesh, too; a `bootstrap` has no log; a `browser` is
canvas-js in a page."""

MOST_PEERS = 1000
BOOTSTRAP = "bootstrap"

_PEERS_PER_PROCESS = 24
"""Up to so many share one process with the coordinator, unless the caller says otherwise."""
# A libp2p peer id of an Ed25519 key: an identity multihash of 36 bytes, over a protobuf with the key's type and itself.
_PEER_ID_PREFIX = bytes.fromhex("002408011220")


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What a network is made of.

    Attributes:
        peers: how many members have a log, two or more; browsers come on top.
        topology: how they are connected.
        offline_messages: that each peer has appended, in a branch of its own, before it joins.
        message_bytes: of text in each payload.
        join_seconds: over which the peers after the first join, evenly at random.
        folder: for the logs to be files in; None keeps them in memory.
        seed: of what is random here, and of the members' keys. What peers choose is not.
        processes: that the members are spread over; 0 for as many as suit, 1 for the caller's own.
        browsers: pages with canvas-js that join the hubs.
        router: what spreads messages among peers, as that of `Peer`.
    """

    peers: int = 8
    topology: Topology = "mesh"
    offline_messages: int = 0
    message_bytes: int = 100
    join_seconds: float = 0.0
    folder: Path | None = None
    seed: int = 0
    processes: int = 0
    browsers: int = 0
    router: RouterName = "libp2p"

    def __post_init__(self) -> None:
        if not 2 <= self.peers <= MOST_PEERS:
            raise ValueError(f"a network has 2 to {MOST_PEERS:,} peers, not {self.peers}")
        topology_named(self.topology)
        if min(self.offline_messages, self.message_bytes, self.join_seconds, self.processes, self.browsers) < 0:
            raise ValueError("a network's numbers are not negative")
        if not math.isfinite(self.join_seconds):
            raise ValueError(f"a network's peers join within {self.join_seconds} s: expected a finite number")
        if self.topology == "ring" and self.peers == 2:
            raise ValueError("a ring has 3 peers or more: two are a line")
        if self.browsers and self.topology not in ("hub", "mixed"):
            raise ValueError(f"browsers join hubs, and a {self.topology} has none: choose the topology hub or mixed")
        self._check_router()

    def _check_router(self) -> None:
        if self.router not in ROUTERS:
            raise ValueError(f"a network's router is one of {', '.join(ROUTERS)}, not {self.router!r}")
        if self.router != "libp2p" and self.topology == "hub":
            raise ValueError(
                "a hub pushes messages to its clients, without a router: leave the router out, or choose the topology"
                " mesh, mixed, line or ring"
            )
        if self.router == "episub" and self.topology in ("line", "ring"):
            # Two that are linked look for nobody else: a row would fall into pairs.
            raise ValueError(
                f"an episub router chooses its neighbours by itself, and peers in a {self.topology} have no choice:"
                " choose the topology mesh or mixed"
            )

    @property
    def hubs(self) -> int:
        """How many of the peers are hubs."""
        match self.topology:
            case "hub":
                return 1
            case "mixed":
                # About as many spokes at each as there are hubs.
                return max(2, math.isqrt(self.peers - 1) + 1) if self.peers > 2 else 2
            case _:
                return 0

    def spread(self, cores: int) -> int:
        """Return over how many processes to spread the members.

        Args:
            cores: of this machine.
        """
        wanted = self.processes or (1 if self.peers <= _PEERS_PER_PROCESS else cores)
        return max(1, min(wanted, self.peers))


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A member of a network.

    Attributes:
        number: from 0, the first in its topology; a bootstrap has -1.
        kind: what it is.
        name: by which events name it: its peer id, or where it is no peer of a mesh the DID of its author.
        neighbours: numbers of the members that it dials, as far as they run; of a client its hub.
        allowed: names of the only peers that it is connected to; none for any.
        join_after: seconds from the start of the network to its own.
    """

    number: int
    kind: Kind
    name: str
    neighbours: tuple[int, ...] = ()
    allowed: tuple[str, ...] = ()
    join_after: float = 0.0

    @property
    def label(self) -> str:
        """What is shown of it."""
        return BOOTSTRAP if self.kind == "bootstrap" else str(self.number)

    @property
    def has_log(self) -> bool:
        """Whether it takes part with a log."""
        return self.kind != "bootstrap"

    @property
    def is_client(self) -> bool:
        """Whether it is connected to a hub, and to nobody else."""
        return self.kind in ("client", "browser")

    @property
    def is_peer(self) -> bool:
        """Whether it has a libp2p host."""
        return self.kind in ("peer", "relay", "bootstrap")


def topology_named(name: str) -> Topology:
    """Return the topology of a name.

    Raises:
        ValueError: there is none.
    """
    for topology in TOPOLOGIES:
        if topology == name:
            return topology
    raise ValueError(f"a network's topology is one of {', '.join(TOPOLOGIES)}, not {name!r}")


def identity_of(seed: int, number: int) -> bytes:
    """Return the seed of the key by which a member's host is known: no secret, as the network is not."""
    return sha256(f"gossiplog.testnet host {seed} {number}".encode()).digest()


def author_of(seed: int, number: int) -> Signer:
    """Return the key with which a member signs."""
    return Signer(sha256(f"gossiplog.testnet author {seed} {number}".encode()).digest())


def peer_id_of(identity: bytes) -> str:
    """Return the libp2p peer id of the seed of an Ed25519 key (libp2p's specification, "Peer Ids and Keys")."""
    return base58_encode(_PEER_ID_PREFIX + Signer(identity).public_key)


def name_of(plan: NetworkPlan, number: int, kind: Kind) -> str:
    """Return by which events name a member."""
    if kind in ("peer", "relay", "bootstrap"):
        return peer_id_of(identity_of(plan.seed, number))
    return author_of(plan.seed, number).did


def member_plans(plan: NetworkPlan) -> list[MemberPlan]:
    """Return the members of a network, in the order in which they join; browsers come last."""
    kinds = [_kind(plan, number) for number in range(plan.peers)]
    delays = [0.0, *sorted(Random(plan.seed).uniform(0, plan.join_seconds) for _ in kinds[1:])]
    found = []
    if plan.topology == "mesh":
        found.append(MemberPlan(-1, "bootstrap", name_of(plan, -1, "bootstrap")))
    for number, (kind, delay) in enumerate(zip(kinds, delays, strict=True)):
        found.append(_planned(plan, number, kind, plan.peers, delay))
    for number in range(plan.peers, plan.peers + plan.browsers):
        found.append(_planned(plan, number, "browser", plan.peers, 0.0))
    return found


def added_member(plan: NetworkPlan, members: Sequence[MemberPlan]) -> tuple[MemberPlan, list[MemberPlan]]:
    """Return one member more, and those of the others whose neighbours change by it."""
    peers = [member for member in members if member.kind not in ("bootstrap", "browser")]
    count = len(peers) + 1
    kind: Kind = "client" if plan.hubs else "peer"
    new = _planned(plan, 1 + max(member.number for member in members), kind, count, 0.0)
    changed = []
    for member in peers:
        again = _planned(plan, member.number, member.kind, count, member.join_after)
        if again != member:
            changed.append(again)
    return new, changed


def _kind(plan: NetworkPlan, number: int) -> Kind:
    if number >= plan.hubs:
        return "client" if plan.hubs else "peer"
    return "hub" if plan.topology == "hub" else "relay"


def _planned(plan: NetworkPlan, number: int, kind: Kind, count: int, delay: float) -> MemberPlan:
    neighbours = _neighbours(plan, number, count)
    allowed: tuple[str, ...] = ()
    if plan.topology in ("line", "ring"):
        allowed = tuple(name_of(plan, other, "peer") for other in neighbours)
    return MemberPlan(number, kind, name_of(plan, number, kind), neighbours, allowed, delay)


def _neighbours(plan: NetworkPlan, number: int, count: int) -> tuple[int, ...]:
    match plan.topology:
        case "mesh":
            return (-1,)
        case "hub" | "mixed" if number >= plan.hubs:
            return (number % plan.hubs,)
        case "hub":
            return ()
        case "mixed":
            return tuple(other for other in range(plan.hubs) if other != number)
        case "line":
            return tuple(other for other in (number - 1, number + 1) if 0 <= other < count)
        case "ring":
            return tuple(sorted({(number - 1) % count, (number + 1) % count}))
