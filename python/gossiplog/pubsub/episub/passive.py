"""The passive list: shuffled with others, and checked.

The rules, from the seed ("Passive View Management"); what it leaves open is marked [ours].

1. *Shuffle*, on a randomized timer: this node's id, k_a active and k_p passive peers go to a random neighbour.
2. Who receives it with TTL > 0, taken as it came up to `Config.most_walk` [ours], and has more than one neighbour
   passes it on with TTL - 1, not back and not to its origin [ours] if it has another. Anybody else answers: as many
   random passive peers as came in a SHUFFLEREPLY to the origin, to which a connection is made if there is none. They
   are replaced by what came, one by one; what else came takes free room, or the place of a random peer [ours].
3. The origin takes the answer likewise. An answer that it does not wait for is ignored, so is what exceeds an honest
   exchange's size [ours].
4. Without a connection to the origin: no answer, and no change. The origin times out, and tries again with half the
   TTL [ours: "a lower TTL"]; a TTL of 0 is answered on the open connection.
5. *Check*, on a randomized timer, of random passive peers: a connection if there is none, GETTOPICS, and if the peer
   is subscribed a ping, which gives its round trip. Who is not subscribed, cannot be reached or does not answer is
   removed.
6. *Sample* [ours]: before passive peers are asked to be neighbours, nearest first, some are checked that have not
   been measured yet.
"""

from __future__ import annotations

from collections.abc import Callable

from gossiplog.pubsub.episub.events import TimeOut, Wait
from gossiplog.pubsub.episub.messages import GetTopics, Shuffle, ShuffleReply
from gossiplog.pubsub.episub.views import Node
from gossiplog.pubsub.events import PeerId, Ping


class Passive:
    """Keeps the passive list.

    Args:
        node: whose list it is.
        sampled: called with the time when a sample's round trips are known.
    """

    def __init__(self, node: Node, sampled: Callable[[float], None]) -> None:
        self._node = node
        self._views = node.views
        self._sampled = sampled
        # The passive peers that were offered, and the TTL; None while no shuffle is under way.
        self._offer: tuple[list[PeerId], int] | None = None
        # Whether the peer has said that it is subscribed, and the ping is under way.
        self._checking: dict[PeerId, bool] = {}
        self._sampling: set[PeerId] = set()

    def forget(self) -> None:
        """Give up what is under way."""
        self._offer = None
        self._checking.clear()
        self._sampling.clear()

    # Rules 1 to 4

    def shuffle(self, now: float, ttl: int | None = None) -> None:
        """Begin an exchange.

        Args:
            now: the time.
            ttl: of the offer; None for the first one's.
        """
        config, views = self._node.config, self._views
        target = views.any_active()
        if target is None:
            return
        active = [peer for peer in views.some_active(config.shuffle_active + 1) if peer != target]
        passive = views.some_passive(config.shuffle_passive)
        ttl = config.shuffle_ttl if ttl is None else ttl
        self._offer = passive, ttl
        peers = (*active[: config.shuffle_active], *passive)
        self._node.send([target], Shuffle(self._node.me, peers, ttl))
        self._node.wait(Wait.SHUFFLE, None, config.shuffle_timeout, now)

    def take_shuffle(self, sender: PeerId, message: Shuffle, now: float) -> None:
        """Handle SHUFFLE."""
        node, views, origin = self._node, self._views, message.peer
        ttl = min(message.ttl, node.config.most_walk)
        target = views.any_active(sender, origin)
        if ttl > 0 and len(views.active) > 1 and target is not None:
            node.send([target], Shuffle(origin, message.peers[: self._most], ttl - 1))
        elif origin != node.me:

            def answer(connected: bool, now: float) -> None:
                if connected:
                    came = (origin, *message.peers[: self._most])
                    given = views.some_passive(len(came), origin)
                    node.send([origin], ShuffleReply(tuple(given)))
                    views.learn(came, instead=given)

            node.reach(origin, answer, now, foreign=True)

    def take_reply(self, peers: tuple[PeerId, ...]) -> None:
        """Handle SHUFFLEREPLY."""
        if self._offer is not None:
            offered, _ = self._offer
            self._offer = None
            self._views.learn(peers[: self._most + 1], instead=offered)

    @property
    def _most(self) -> int:
        """How many peers an offer has."""
        return self._node.config.shuffle_active + self._node.config.shuffle_passive

    # Rules 5 and 6

    def check(self, now: float) -> None:
        """Check some of the list."""
        for peer in self._views.some_passive(self._node.config.checked):
            self._inspect(peer, now)

    def sample(self, now: float) -> None:
        """Check some that have not been measured; then, or if there are none, report that it is done."""
        passive = self._views.passive
        unknown = [peer for peer, rtt in passive.items() if rtt is None]
        chosen = self._node.random.sample(unknown, min(self._node.config.sampled, len(unknown)))
        self._sampling.update(chosen)
        for peer in chosen:
            self._inspect(peer, now)
        if not chosen and not self._sampling:
            self._sampled(now)

    def take_topics(self, peer: PeerId, topics: tuple[str, ...], now: float) -> None:
        """Handle TOPICS."""
        if self._checking.get(peer) is False:
            if self._node.topic in topics:
                self._checking[peer] = True
                self._node.emit(Ping(peer))
            else:
                self._checked(peer, None, now)

    def take_round_trip(self, peer: PeerId, seconds: float | None, now: float) -> None:
        """Handle the answer to a ping, or that there is none."""
        if self._checking.get(peer):
            self._checked(peer, seconds, now)

    def lose(self, peer: PeerId, now: float) -> None:
        """Handle the end of a connection."""
        if peer in self._checking:
            self._checked(peer, None, now)

    def timed_out(self, timer: TimeOut, now: float) -> None:
        """Handle the end of a wait."""
        if timer.wait is Wait.CHECK and timer.key in self._checking:
            self._checked(timer.key, None, now)
        elif timer.wait is Wait.SHUFFLE and self._offer is not None:
            _, ttl = self._offer
            self._offer = None
            if ttl > 0:
                self.shuffle(now, ttl // 2)

    def _inspect(self, peer: PeerId, now: float) -> None:
        node = self._node

        def go_on(connected: bool, now: float) -> None:
            if connected:
                node.send([peer], GetTopics())
            elif peer in self._checking:
                self._checked(peer, None, now)

        if peer not in self._checking:
            self._checking[peer] = False
            node.wait(Wait.CHECK, peer, node.config.request_timeout, now)
            node.reach(peer, go_on, now)

    def _checked(self, peer: PeerId, seconds: float | None, now: float) -> None:
        del self._checking[peer]
        if seconds is None:
            self._views.passive.pop(peer, None)
        else:
            self._views.measured(peer, seconds)
        if peer in self._sampling:
            self._sampling.discard(peer)
            if not self._sampling:
                self._sampled(now)
