"""Attacks on floodsub and gossipsub: what is delivered, and how late, while hostile nodes do their worst.

After the evaluation of gossipsub 1.1 (D. Vyzovitis et al., "GossipSub: Attack-Resilient Message Propagation in the
Filecoin and ETH2.0 Networks", https://arxiv.org/abs/2007.02754, section 5), whose defences 1.0 lacks: ten hostile nodes
for each honest one, which want to be in every mesh and pass nothing on. They are known to the honest nodes as members
of the topic, and graft whom they attack again as soon as they are pruned. Honest nodes have as many connections to each
other as without an attack.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from gossiplog.errors import ScenarioError
from gossiplog.pubsub.events import (
    Connect,
    PeerConnected,
    PeerId,
    Received,
    Router,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.rpc import Control, Message, Rpc, Subscription
from gossiplog.sim.plan import NUMBER_BYTES, Plan
from gossiplog.sim.routers import OUTSIDE, TOPIC, RouterKind, Seat, Wiring, kind_named
from gossiplog.sim.simulation import simulate

_LINKS = 10  # honest nodes that each hostile one connects to
_VICTIM = 0
_FORMING = 5.0
_SPAM_SECONDS = 5.0
_SPAM = b"\xff"  # begins what nobody published


@dataclass(frozen=True, slots=True)
class Attack:
    """What hostile nodes do.

    Attributes:
        about: it, in words.
        hostile: such nodes for each honest one.
        begins: seconds after the start.
        eclipse: whether all of them connect to one node, and want to be in its mesh alone.
        spam: whether each publishes a message of its own every five seconds.
    """

    about: str
    hostile: int = 10
    begins: float = _FORMING
    eclipse: bool = False
    spam: bool = False


ATTACKS = {
    "none": Attack("no hostile nodes", hostile=0),
    "sybil": Attack("they join a mesh that has formed"),
    "cold-boot": Attack("they are there when the mesh forms", begins=0.0),
    "eclipse": Attack("all of them surround one node, whose deliveries alone are counted", eclipse=True),
    "spam": Attack("they join, and each publishes a message every five seconds, which nobody refuses", spam=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attack.

    Attributes:
        delivered: the share of what honest nodes published, and the nodes that count were to get from others.
        p50: seconds from publishing to delivery, the median; None where nothing was delivered.
        p95: seconds, likewise.
    """

    delivered: float
    p50: float | None
    p95: float | None


def attacked(router: str, name: str, honest: int = 50, messages: int = 50, seed: int = 0) -> Outcome:
    """Runs an attack.

    Args:
        router: of the honest nodes: floodsub or gossipsub.
        name: one of `ATTACKS`.
        honest: nodes.
        messages: that honest nodes publish, ten a second.
        seed: of everything that is random.

    Raises:
        ScenarioError: there is no such attack, or no such router to attack.
    """
    if name not in ATTACKS:
        raise ScenarioError(f"there is no attack {name!r}: expected {', '.join(ATTACKS)}")
    if router not in ("floodsub", "gossipsub"):
        raise ScenarioError(f"the attacks are on floodsub and gossipsub, not on {router!r}")
    attack = ATTACKS[name]
    plan = Plan(
        nodes=honest * (1 + attack.hostile),
        messages=messages,
        message_delay=0.1,
        fanout=1,
        connections=1,
        publishers=honest,
        connect_delay=_FORMING + 5.0,
        seed=seed,
    )
    deliveries = simulate(hostile_kind(kind_named(router), attack, honest), plan, trace=None).tally.deliveries
    latencies = sorted(
        latency
        for node, source, latency in zip(deliveries.node, deliveries.source, deliveries.latency, strict=True)
        if source != OUTSIDE and (node == _VICTIM or not attack.eclipse)
    )
    own = sum(
        source == OUTSIDE and (node == _VICTIM or not attack.eclipse)
        for node, source in zip(deliveries.node, deliveries.source, strict=True)
    )
    expected = messages * (1 if attack.eclipse else honest) - own

    def quantile(share: float) -> float | None:
        return latencies[int(share * len(latencies))] if latencies else None

    return Outcome(len(latencies) / expected, quantile(0.5), quantile(0.95))


def hostile_kind(kind: RouterKind, attack: Attack, honest: int) -> RouterKind:
    """A kind of routers of which only the first are what they seem to be."""

    def make(seat: Seat) -> Router:
        random = Random(f"{seat.node} {seat.random.random()}")
        if seat.node < honest:
            others = random.sample([node for node in range(honest) if node != seat.node], min(_LINKS, honest - 1))
            return _Dialling(kind.make(seat), others)
        targets = random.sample(range(honest), min(_LINKS, honest))
        return _Hostile(attack, [_VICTIM] if attack.eclipse else targets, seat.node)

    def neighbours(router: _Dialling | _Hostile) -> Collection[Any]:
        return kind.neighbours(router.router) if isinstance(router, _Dialling) else ()

    return replace(kind, make=make, wiring=Wiring.OWN, neighbours=neighbours)


class _Dialling:
    """An honest router that connects to others when it starts."""

    def __init__(self, router: Router, others: Sequence[int]) -> None:
        self.router = router
        self._others = others

    def start(self, now: float) -> Sequence[Any]:
        return [*self.router.start(now), *map(Connect, self._others)]

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        return self.router.handle(event, now)


class _Hostile:
    """A node that wants to be in every mesh, and passes nothing on."""

    def __init__(self, attack: Attack, targets: Sequence[int], node: int) -> None:
        self._attack = attack
        self._targets = targets
        self._node = node
        self._peers: list[PeerId] = []
        self._sent = 0

    def start(self, now: float) -> Sequence[Any]:
        return (SetTimer("attack", now + self._attack.begins),)

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        match event:
            case TimerExpired("attack"):
                return [Connect(target) for target in self._targets] + self._spam_later(now)
            case TimerExpired("spam"):
                return [Send(self._peers, self._spam())] * bool(self._peers) + self._spam_later(now)
            case PeerConnected(peer):
                self._peers.append(peer)
                return (
                    Send((peer,), Rpc(subscriptions=(Subscription(TOPIC, True),), control=Control(graft=(TOPIC,)))),
                )
            case Received(peer, Rpc(control=Control(prune=prune))) if prune:
                return (Send((peer,), Rpc(control=Control(graft=(TOPIC,)))),)
        return ()

    def _spam_later(self, now: float) -> list[SetTimer]:
        return [SetTimer("spam", now + _SPAM_SECONDS)] if self._attack.spam else []

    def _spam(self) -> Rpc:
        self._sent += 1
        head = (self._node << 32 | self._sent).to_bytes(NUMBER_BYTES - 1, "big")
        return Rpc((Message(TOPIC, _SPAM + head),))
