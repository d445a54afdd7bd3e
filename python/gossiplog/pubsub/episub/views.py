"""What all parts of the membership layer share: the two lists of a node, connections, messages to peers, time-outs.

The active list has the node's neighbours, the passive list whom else it knows of. They hold in every state: the node
itself is in neither, no peer is in both, the passive list has P peers at most. The active list may exceed A for a time
(joins), but not `Config.most_links`. Random choices are uniform.

A connection is asked for when it is needed, for a purpose that goes on when it is there or has failed. Purposes that
others' messages gave rise to are limited (`Config.under_way`): beyond the limit they fail at once. A connection to a
peer that is no neighbour is closed when no message came on it for `Config.idle` seconds; all are when the node leaves,
and those that it had asked for as soon as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.episub.events import TimeOut, Wait
from gossiplog.pubsub.episub.messages import Membership
from gossiplog.pubsub.events import Connect, Disconnect, PeerId, Send, SetTimer


@dataclass(slots=True)
class Link:
    """What is known of a neighbour.

    Attributes:
        rtt: the smoothed round trip in seconds; None before the first sample.
        peers: its active list, as it was last heard of; None if it never was.
    """

    rtt: float | None = None
    peers: frozenset[PeerId] | None = None


class Views:
    """The active and the passive list.

    Args:
        me: the node.
        random: what is drawn with.
        config: of the router.

    Attributes:
        active: the neighbours.
        passive: other peers of the overlay, with their round trip in seconds where it is known.
    """

    def __init__(self, me: PeerId, random: Random, config: Config) -> None:
        self.active: dict[PeerId, Link] = {}
        self.passive: dict[PeerId, float | None] = {}
        self._me = me
        self._random = random
        self._config = config

    @property
    def full(self) -> bool:
        """Whether the active list has A peers or more."""
        return len(self.active) >= self._config.active

    @property
    def crammed(self) -> bool:
        """Whether nobody can be added to the active list, whatever the rules say."""
        return len(self.active) >= self._config.most_links

    def add_active(self, peer: PeerId) -> Link:
        """Make a peer a neighbour; what the passive list knew of it moves with it."""
        link = self.active[peer] = Link(rtt=self.passive.pop(peer, None))
        return link

    def remove_active(self, peer: PeerId, keep: bool) -> None:
        """Take a neighbour out, and if it is to be kept put it into the passive list."""
        link = self.active.pop(peer)
        if keep:
            self.learn([peer])
            self.passive[peer] = link.rtt

    def learn(self, peers: Iterable[PeerId], instead: Sequence[PeerId] = ()) -> None:
        """Put peers into the passive list.

        Args:
            peers: that were heard of.
            instead: which ones they replace first, but for those that were heard of, too; where there are no more of
                them, a random one if the list is full.
        """
        heard = dict.fromkeys(peers)
        replaced = [peer for peer in instead if peer in self.passive and peer not in heard]
        for peer in heard:
            if peer == self._me or peer in self.active or peer in self.passive:
                continue
            if replaced:
                del self.passive[replaced.pop()]
            elif len(self.passive) >= self._config.passive:
                del self.passive[self._random.choice(list(self.passive))]
            self.passive[peer] = None

    def measured(self, peer: PeerId, seconds: float) -> None:
        """Take a round trip: a neighbour's is smoothed, a passive peer's replaces the last one."""
        link = self.active.get(peer)
        if link is not None:
            weight = self._config.rtt_weight
            link.rtt = seconds if link.rtt is None else (1 - weight) * link.rtt + weight * seconds
        elif peer in self.passive:
            self.passive[peer] = seconds

    def near(self) -> list[PeerId]:
        """Return the near neighbours, farthest first: the C_near with the least round trips.

        All others are random ones.
        """
        known = [(link.rtt, peer) for peer, link in self.active.items() if link.rtt is not None]
        known.sort(key=lambda pair: pair[0])
        return [peer for _, peer in known[: self._config.near_links]][::-1]

    def farther(self, seconds: float) -> PeerId | None:
        """Return the farthest near neighbour that a peer with this round trip could replace.

        The peer is nearer by the factor alpha, and the neighbour has more than C_rand links.
        """
        for peer in self.near():
            link = self.active[peer]
            if link.rtt is not None and seconds * self._config.alpha < link.rtt:
                if link.peers is not None and len(link.peers) > self._config.random_links:
                    return peer
            else:
                return None
        return None

    def passive_by_distance(self, without: Collection[PeerId]) -> list[PeerId]:
        """Return the passive peers, nearest first; those whose distance is not known come last, in random order."""
        peers = [peer for peer in self.passive if peer not in without]
        self._random.shuffle(peers)
        return sorted(peers, key=self._distance)

    def any_active(self, *without: PeerId) -> PeerId | None:
        """Return a random neighbour, but none of these."""
        peers = [peer for peer in self.active if peer not in without]
        return self._random.choice(peers) if peers else None

    def some_active(self, most: int) -> list[PeerId]:
        """Return random neighbours."""
        return self._some(list(self.active), most)

    def some_passive(self, most: int, *without: PeerId) -> list[PeerId]:
        """Return random passive peers, but none of these."""
        return self._some([peer for peer in self.passive if peer not in without], most)

    def _some(self, peers: list[PeerId], most: int) -> list[PeerId]:
        return self._random.sample(peers, min(most, len(peers)))

    def _distance(self, peer: PeerId) -> float:
        rtt = self.passive[peer]
        return float("inf") if rtt is None else rtt


Purpose: TypeAlias = Callable[[bool, float], None]
"""What to do next, given whether there is a connection, and the time."""


class Node:
    """A node's lists, its connections, and what it asks of its driver.

    Args:
        me: the node, as its peers know it.
        topic: of the overlay.
        random: what is drawn with.
        config: of the router.

    Attributes:
        me: as given.
        topic: as given.
        random: as given.
        config: as given.
        views: the active and the passive list.
        joined: whether the application is subscribed.
    """

    def __init__(self, me: PeerId, topic: str, random: Random, config: Config) -> None:
        self.me = me
        self.topic = topic
        self.random = random
        self.config = config
        self.views = Views(me, random, config)
        self.joined = False
        self._out: list[Any] = []
        self._connected: dict[PeerId, float] = {}
        # By the peers that are being connected to.
        self._purposes: dict[PeerId, list[Purpose]] = {}
        self._foreign: set[PeerId] = set()

    def take_out(self) -> list[Any]:
        """Return what is to be done, in this order; it is not returned a second time."""
        out = self._out
        self._out = []
        return out

    def emit(self, event: Any) -> None:
        """Ask something of the driver, or notify the broadcast layer."""
        self._out.append(event)

    def send(self, peers: Iterable[PeerId], message: Membership) -> None:
        """Send a message to those that are connected."""
        connected = tuple(peer for peer in peers if peer in self._connected)
        if connected:
            self._out.append(Send(connected, message))

    def wait(self, wait: Wait, key: PeerId | None, seconds: float, now: float) -> None:
        """Set a time-out; the layer that it is for judges it by what it still waits for."""
        self._out.append(SetTimer(TimeOut(wait, key), now + seconds))

    # Connections

    @property
    def connections(self) -> list[PeerId]:
        """Who is connected."""
        return list(self._connected)

    def is_connected(self, peer: PeerId) -> bool:
        """Return whether there is a connection."""
        return peer in self._connected

    def reach(self, peer: PeerId, purpose: Purpose, now: float, foreign: bool = False) -> None:
        """Go on with a purpose when a peer is connected: at once if it is.

        Args:
            peer: that is needed.
            purpose: what for.
            now: the time.
            foreign: whether another peer's message is the cause.
        """
        if peer in self._connected:
            self._connected[peer] = now
            purpose(True, now)
        elif peer == self.me or (foreign and peer not in self._foreign and len(self._foreign) >= self.config.under_way):
            purpose(False, now)
        else:
            if foreign:
                self._foreign.add(peer)
            if peer not in self._purposes:
                self._purposes[peer] = []
                self._out.append(Connect(peer))
            # A walk that comes again while the connection is made has the same end: one of each is enough.
            if len(self._purposes[peer]) < self.config.under_way:
                self._purposes[peer].append(purpose)
            else:
                purpose(False, now)

    def opened(self, peer: PeerId, now: float) -> None:
        """Handle a connection that is open."""
        self._connected[peer] = now
        if not self.joined and peer in self._purposes:
            self._out.append(Disconnect(peer))
        self._go_on(peer, True, now)

    def failed(self, peer: PeerId, now: float) -> None:
        """Handle a connection that could not be opened."""
        self._go_on(peer, False, now)

    def closed(self, peer: PeerId) -> None:
        """Handle the end of a connection."""
        self._connected.pop(peer, None)

    def used(self, peer: PeerId, now: float) -> None:
        """Note that a message came from a peer."""
        self._connected[peer] = now

    def close_all(self) -> None:
        """Close every connection, after what was sent on it, and give up all purposes."""
        for peer in self._connected:
            self._out.append(Disconnect(peer))
        # Who is being connected to stays known: the connection, when it comes, is to be closed or used.
        for purposes in self._purposes.values():
            purposes.clear()
        self._foreign.clear()

    def close_idle(self, now: float) -> None:
        """Close what nobody uses. Every time-out is shorter than that, so nothing waits for an answer there."""
        for peer, last in self._connected.items():
            if last + self.config.idle <= now and peer not in self.views.active:
                self._out.append(Disconnect(peer))

    def _go_on(self, peer: PeerId, connected: bool, now: float) -> None:
        self._foreign.discard(peer)
        for purpose in self._purposes.pop(peer, ()):
            purpose(connected, now)
