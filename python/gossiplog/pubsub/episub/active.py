"""The active list: who is accepted as a neighbour, who is dropped, and how the list comes back to A of them.

The rules, from the seed ("Joining the Overlay", "Leaving the Overlay", "Active View Management"); what it leaves open
is marked [ours].

1. *NEIGHBOR* has two roles, which its list distinguishes [ours]. A list with the receiver in it states the link: the
   receiver was accepted. A list without it asks for the link; who has the link already just answers with a list, so
   the same message fetches a neighbour's list. A statement is never answered, so there is no loop, unless the receiver
   does not want the link: then by DISCONNECT.
2. *Accepting.* Below A: yes. Else if the list that came is shorter than C_rand: yes, as a random neighbour. Else the
   round trip is measured: if the peer is nearer than a near neighbour by the factor alpha and that one has links
   enough (more than C_rand in its last list [ours]), that one is dropped, and the peer accepted. Else DISCONNECT.
   Nobody is accepted beyond `Config.most_links` [ours], and two that ask each other at once have accepted.
3. *Filling up to A.* Passive peers are asked by NEIGHBOR, nearest first; those not measured come last. Who rejects is
   not asked again for `Config.rejection_pause`, as far as P such peers are remembered [ours]; who cannot be reached is
   forgotten; then the next is asked.
4. *Leaving.* By LEAVE, which its receivers pass on to all their neighbours if it made them remove the node from a
   list, or while its TTL lasts. The TTL is taken as it came, up to `Config.most_leave` [ours]: anybody can forge a
   LEAVE, and each hop multiplies it. Who leaves tells its neighbours itself, so a neighbour is removed by its own
   LEAVE alone [ours]: one that comes from another has it pinged, and goes no further. Or by DISCONNECT, which nobody
   passes on. A neighbour that disconnects may be alive, so it moves to the passive list, whose checks find out.
5. *Failures.* A closed connection, a failed send (which a driver reports as that) or a ping without an answer remove
   the peer from both lists at once, and a passive peer is asked.
6. *Stabilization*, on a randomized timer, pings all neighbours. Above A it fetches their lists, and then drops those
   with more than C_rand random neighbours (that is more than A links, C_near of which are near), the ones with the
   most links first [ours]; then, of neighbours that are linked to each other, the one with more links, if it keeps
   C_rand [ours]; down to A, and nobody else. So it takes nobody below C_rand random links by the first rule, and
   nobody below C_rand links by the second.
7. *Optimization*, on a randomized timer: if the nearest passive peer is nearer than a near neighbour by the factor
   alpha, and that one has more than C_rand links, and this node at least A [ours: the text leaves open whose random
   links must suffice; here it is both sides'], it takes that one's place. It is asked first, and the old one is dropped
   when it has accepted [ours]: most nodes are full and reject, which otherwise cost a link each time. The lists of all
   neighbours are fetched on that occasion, so that the next one knows whose links suffice.
"""

from __future__ import annotations

from gossiplog.pubsub.episub.events import NeighborDown, NeighborUp, TimeOut, Wait
from gossiplog.pubsub.episub.messages import Disconnect, Leave, Neighbor
from gossiplog.pubsub.episub.views import Node
from gossiplog.pubsub.events import PeerId, Ping


class Active:
    """Keeps the active list.

    Args:
        node: whose list it is.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views = node.views
        # Who was asked, and which neighbour it is to replace.
        self._requests: dict[PeerId, PeerId | None] = {}
        # Who waits for its round trip to be measured.
        self._judged: set[PeerId] = set()
        self._rejected: dict[PeerId, float] = {}
        # Neighbours that another said have left, and that are being pinged.
        self._doubted: set[PeerId] = set()
        # Whose lists are on their way, so that too long a list can be trimmed.
        self._listing: set[PeerId] = set()

    # Rules 1 and 2

    def add(self, peer: PeerId) -> None:
        """Make a neighbour of a peer that knows of it already."""
        replaced = self._requests.pop(peer, None)
        self._judged.discard(peer)
        self._views.add_active(peer)
        self._node.emit(NeighborUp(peer))
        if replaced in self._views.active and len(self._views.active) > self._node.config.active:
            self.drop(replaced)

    def accept(self, peer: PeerId) -> None:
        """Make a neighbour of a peer, and notify it."""
        self.add(peer)
        self._tell(peer)

    def drop(self, peer: PeerId) -> None:
        """End the link to a neighbour, which stays known."""
        self._remove(peer, keep=True)
        self._node.send([peer], Disconnect())

    def take_neighbor(self, peer: PeerId, peers: tuple[PeerId, ...], wanted: bool, now: float) -> None:
        """Handle NEIGHBOR.

        Args:
            peer: that sent it.
            peers: in it.
            wanted: whether a JOIN of this node's may have led to it.
            now: the time.
        """
        node, views = self._node, self._views
        stated = node.me in peers
        if peer in views.active:
            if not stated:
                self._tell(peer)
        elif views.crammed:
            self._reject(peer)
        elif stated:
            if peer in self._requests or wanted or not views.full:
                self.add(peer)
            else:
                self._reject(peer)
        elif peer in self._requests or not views.full or len(set(peers)) < node.config.random_links:
            self.accept(peer)
        elif peer not in self._judged and len(self._judged) < node.config.under_way:
            self._judged.add(peer)
            node.emit(Ping(peer))
            node.wait(Wait.JUDGING, peer, node.config.request_timeout, now)
        elif peer not in self._judged:
            self._reject(peer)
        if peer in views.active:
            views.active[peer].peers = frozenset((*peers, node.me))
            self._listed(peer)

    def take_disconnect(self, peer: PeerId, now: float) -> None:
        """Handle DISCONNECT: the end of a link, or the answer to a request."""
        self._judged.discard(peer)
        if peer in self._views.active:
            self._remove(peer, keep=True)
            self._pause(peer, now)
            self.fill(now)
        elif peer in self._requests:
            self._refused(peer, now)

    def take_round_trip(self, peer: PeerId, seconds: float | None, now: float) -> None:
        """Handle the answer to a ping, or that there is none."""
        self._doubted.discard(peer)
        if seconds is None:
            self.lose(peer, now)
        elif peer in self._judged:
            self._judged.discard(peer)
            victim = self._views.farther(seconds)
            if victim is None:
                self._reject(peer)
            else:
                self.drop(victim)
                self.accept(peer)
                self._views.measured(peer, seconds)
        elif peer in self._views.active:
            self._views.measured(peer, seconds)

    def timed_out(self, timer: TimeOut, now: float) -> None:
        """Handle the end of a wait."""
        peer = timer.key
        if timer.wait is Wait.JUDGING and peer in self._judged:
            self._judged.discard(peer)
            self._reject(peer)
        elif timer.wait is Wait.NEIGHBOR and peer in self._requests:
            self._refused(peer, now)
        elif timer.wait is Wait.LISTS and self._listing:
            self._listing.clear()
            self._trim()

    # Rule 3

    def fill(self, now: float, reserved: int = 0) -> None:
        """Ask as many passive peers as are lacking.

        Args:
            now: the time.
            reserved: how many neighbours are to come by JOINs.
        """
        asked = sum(1 for replaced in self._requests.values() if replaced is None)
        lacking = self._node.config.active - len(self._views.active) - asked - reserved
        if lacking > 0 and self._node.joined:
            for peer in self._candidates(now)[:lacking]:
                self._request(peer, None, now)

    def _candidates(self, now: float) -> list[PeerId]:
        self._rejected = {peer: until for peer, until in self._rejected.items() if until > now}
        return self._views.passive_by_distance(without=self._rejected.keys() | self._requests.keys() | self._judged)

    def _request(self, peer: PeerId, replaced: PeerId | None, now: float) -> None:
        node = self._node

        def go_on(connected: bool, now: float) -> None:
            if peer not in self._requests:
                return
            if connected:
                node.send([peer], Neighbor(tuple(self._views.active)))
            else:
                del self._requests[peer]
                self._views.passive.pop(peer, None)
                self.fill(now)

        self._requests[peer] = replaced
        node.wait(Wait.NEIGHBOR, peer, node.config.request_timeout, now)
        node.reach(peer, go_on, now)

    def _refused(self, peer: PeerId, now: float) -> None:
        del self._requests[peer]
        self._pause(peer, now)
        self.fill(now)

    def _pause(self, peer: PeerId, now: float) -> None:
        self._rejected.pop(peer, None)
        self._rejected[peer] = now + self._node.config.rejection_pause
        if len(self._rejected) > self._node.config.passive:
            del self._rejected[next(iter(self._rejected))]

    # Rules 4 and 5

    def leave(self) -> None:
        """Tell the neighbours that this node leaves, and forget everybody."""
        config, views = self._node.config, self._views
        farewell = Leave(self._node.me, config.leave_ttl) if config.eager_leave else Disconnect()
        self._node.send(views.active, farewell)
        for peer in list(views.active):
            self._remove(peer, keep=False)
        views.passive.clear()
        for waiting in (self._requests, self._judged, self._rejected, self._doubted, self._listing):
            waiting.clear()

    def take_leave(self, sender: PeerId, message: Leave, now: float) -> None:
        """Handle LEAVE: its source is in no list from then on, unless it is a neighbour and somebody else sent it."""
        node, views, source = self._node, self._views, message.source
        if source == node.me:
            return
        ttl = min(message.ttl, node.config.most_leave)
        active, passive = source in views.active, source in views.passive
        if active and sender != source:
            if source not in self._doubted:
                self._doubted.add(source)
                node.emit(Ping(source))
            return
        if active:
            self._remove(source, keep=False)
        views.passive.pop(source, None)
        if active or passive or ttl > 0:
            others = [peer for peer in views.active if peer not in (sender, source)]
            node.send(others, Leave(source, max(ttl - 1, 0)))
        if active:
            self.fill(now)

    def lose(self, peer: PeerId, now: float) -> None:
        """Handle the failure of a peer, and so of whatever was under way with it."""
        self._judged.discard(peer)
        asked, active = peer in self._requests, peer in self._views.active
        self._requests.pop(peer, None)
        if active:
            self._remove(peer, keep=False)
        if active or asked:
            self._views.passive.pop(peer, None)
            self.fill(now)

    # Rules 6 and 7

    def stabilize(self, now: float) -> None:
        """Ping all neighbours, and trim the list if it is too long."""
        for peer in self._views.active:
            self._node.emit(Ping(peer))
        if len(self._views.active) > self._node.config.active:
            self._listing = set(self._views.active)
            self._fetch_lists()
            self._node.wait(Wait.LISTS, None, self._node.config.request_timeout, now)

    def optimize(self, now: float) -> None:
        """Replace a near neighbour by the nearest passive peer, if that is worth it."""
        views = self._views
        if views.full and not any(replaced is not None for replaced in self._requests.values()):
            nearest = next(iter(self._candidates(now)), None)
            seconds = None if nearest is None else views.passive[nearest]
            victim = None if seconds is None else views.farther(seconds)
            if victim is not None:
                self._request(nearest, victim, now)
        self._fetch_lists()

    def _fetch_lists(self) -> None:
        for peer in self._views.active:
            others = tuple(other for other in self._views.active if other != peer)
            self._node.send([peer], Neighbor(others))

    def _listed(self, peer: PeerId) -> None:
        if peer in self._listing:
            self._listing.discard(peer)
            if not self._listing:
                self._trim()

    def _trim(self) -> None:
        config, active = self._node.config, self._views.active
        sizes = {peer: len(link.peers) for peer, link in active.items() if link.peers is not None}
        by_size = sorted(sizes, key=lambda peer: -sizes[peer])
        for peer in by_size:
            if len(active) > config.active and sizes[peer] - config.near_links > config.random_links:
                self.drop(peer)
        for peer in by_size:
            if len(active) > config.active and peer in active and sizes[peer] > config.random_links:
                linked = any(self._linked(peer, other) for other in active if other != peer)
                if linked:
                    self.drop(peer)

    def _linked(self, peer: PeerId, other: PeerId) -> bool:
        lists = (self._views.active[peer].peers, self._views.active[other].peers)
        return any(one in known for one, known in zip((other, peer), lists, strict=True) if known is not None)

    def _tell(self, peer: PeerId) -> None:
        self._node.send([peer], Neighbor(tuple(self._views.active)))

    def _reject(self, peer: PeerId) -> None:
        self._node.send([peer], Disconnect())

    def _remove(self, peer: PeerId, keep: bool) -> None:
        self._views.remove_active(peer, keep)
        self._listing.discard(peer)
        self._doubted.discard(peer)
        self._node.emit(NeighborDown(peer))
