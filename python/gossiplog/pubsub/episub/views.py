"""The two lists of a node: who its neighbours are, and whom else it knows of.

They hold in every state: the node itself is in neither, no peer is in both, the passive list has P peers at most. The
active list may exceed A for a time (joins), but not `Config.most_links`. Random choices are uniform.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.events import PeerId


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
