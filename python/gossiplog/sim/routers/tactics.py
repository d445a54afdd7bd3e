"""What a hostile node says to each kind of routers, to be one that messages are forwarded to, and to stay it.

Each of these follows from the rules that the honest routers state. It needs nothing but packets that their like sends,
and it is what anybody would try who has read them.

- *floodsub* sends everything to all nodes in the topic: there is nothing to gain.
- *simsub* and *gossipsub* take any node that sends GRAFT into the mesh, and at a heartbeat prune at random what is too
  much. Who is pruned grafts again at once.
- *episub* accepts any node that asks for a link and names fewer than C_rand neighbours, as far as it can have more
  links. When it has too many it drops those neighbours that say that they have enough others, and of those that are
  linked to each other the one with more links. So a hostile node says that it has C_rand links: that to its neighbour,
  and others to nodes that this one has named as its neighbours. It is never dropped, and honest ones are in its place.
  Who is rejected asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub.episub import messages as episubs
from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.rpc import Control, Message, Rpc, Subscription

Answer: TypeAlias = Callable[[PeerId, PeerId, Any, Random], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Tactics:
    """What a hostile node says.

    Attributes:
        ask: what makes it a member, and one that messages are forwarded to.
        answer: what it says to a packet, so that it stays that; of itself, the peer, the peer's packet, and what is
            drawn with.
        spam: a message of its own; of itself, the message's number there, and its data.
        seal: the packet that anything of this is sent in; of itself, and the number of packets before.
    """

    ask: Sequence[Any]
    answer: Answer
    spam: Callable[[PeerId, int, bytes], Any]
    seal: Callable[[PeerId, int, Any], Any] = lambda me, number, packet: packet


def simsub() -> Tactics:
    """Of the gossipsub of 2018."""

    def answer(me: PeerId, peer: PeerId, packet: simsubs.Packet, random: Random) -> Sequence[simsubs.Packet]:
        return (simsubs.Graft(),) if type(packet) is simsubs.Prune else ()

    return Tactics(
        ask=(simsubs.Greeting(), simsubs.Graft()),
        answer=answer,
        spam=lambda me, number, data: simsubs.Message((me, number), data),
    )


def floodsub(topic: str) -> Tactics:
    """Of floodsub, in a topic."""
    return Tactics(
        ask=(Rpc(subscriptions=(Subscription(topic, True),)),),
        answer=lambda me, peer, packet, random: (),
        spam=lambda me, number, data: Rpc((Message((topic,), data),)),
    )


def gossipsub(topic: str) -> Tactics:
    """Of gossipsub 1.0, in a topic."""
    graft = Control(graft=(topic,))

    def answer(me: PeerId, peer: PeerId, packet: Rpc, random: Random) -> Sequence[Rpc]:
        return (Rpc(control=graft),) if packet.control is not None and packet.control.prune else ()

    return Tactics(
        ask=(Rpc(subscriptions=(Subscription(topic, True),), control=graft),),
        answer=answer,
        spam=lambda me, number, data: Rpc((Message((topic,), data),)),
    )


def episub(topic: str, random_links: int) -> Tactics:
    """Of episub, in a topic.

    Args:
        topic: of the overlay.
        random_links: C_rand of the honest nodes.
    """

    def answer(me: PeerId, peer: PeerId, packet: episubs.Envelope, random: Random) -> Sequence[episubs.Message]:
        match packet.message:
            case episubs.Gossip() | episubs.IHave():
                return ()
            case episubs.Disconnect():
                return (episubs.Neighbor(()),)
            case episubs.Neighbor(peers) if me not in peers:
                return (episubs.Neighbor((peer, *random.sample(peers, min(random_links - 1, len(peers))))),)
            case episubs.Join(newcomer) if newcomer == peer:
                return (episubs.Neighbor((peer,)),)
            case episubs.Prune():
                return (episubs.Graft(()),)
            case episubs.GetNodes():
                return (episubs.Nodes((), 0),)
            case episubs.GetTopics():
                return (episubs.Topics((topic,)),)
        return ()

    return Tactics(
        ask=(episubs.Neighbor(()),),
        answer=answer,
        spam=lambda me, number, data: episubs.Gossip(me, 1, number, data),
        seal=episubs.Envelope,
    )
