"""Joining the overlay, and helping others to.

The rules, from the seed ("Joining the Overlay"); what it leaves open is marked [ours].

1. Contacts come from outside (provider records, bootstrap); peers that are connected anyway are contacts, too [ours].
   GETNODES goes to C_rand random ones [ours: the number]; their NODES, random peers of their passive lists, fill this
   node's, and so do those that answer [ours].
2. When all have answered, or have had the time to, JOIN goes to C_rand random passive peers, and not more; to contacts
   where they are too few [ours]. Its TTL is the largest that an answer named, this node's own at most [ours].
3. Who receives JOIN and has the TTL at 0 or fewer than A neighbours accepts: it adds the newcomer, answers NEIGHBOR,
   and sends FORWARDJOIN to another random neighbour. Else it passes the JOIN on with TTL - 1 to a random neighbour.
   It needs a connection to accept; without one it passes the JOIN on, and drops it at TTL 0. The text has the
   connection tried first; it is tried only where it decides anything [ours].
4. A walk does not return to whom it came from, nor to the newcomer, nor end at a node that has the link [ours]. A TTL
   is taken as it came, up to `Config.most_walk` [ours].
5. A JOIN without an answer is tried again from another contact with TTL - 1. At TTL 0 its receiver accepts on the
   connection that the newcomer opened. When that has failed, too, it is given up [ours]; a node that has no neighbours
   at all begins anew at the next stabilization [ours].
6. FORWARDJOIN's receivers put the newcomer into their passive lists, and pass it on with TTL - 1 until TTL 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossiplog.pubsub.episub.active import Active
from gossiplog.pubsub.episub.events import TimeOut, Wait
from gossiplog.pubsub.episub.messages import ForwardJoin, GetNodes, Join, Nodes
from gossiplog.pubsub.episub.views import Node
from gossiplog.pubsub.events import PeerId


class Joining:
    """A node's own JOINs, and those of others.

    Args:
        node: that joins.
        active: its active list.
        contacts: to begin with.
    """

    def __init__(self, node: Node, active: Active, contacts: Sequence[PeerId]) -> None:
        self._node = node
        self._views = node.views
        self._active = active
        self._contacts = tuple(contacts)
        self._asked: set[PeerId] = set()
        self._ttl = 0
        # The TTL of each JOIN that is under way, by whom it was sent to; all that ever were.
        self._attempts: dict[PeerId, int] = {}
        self._tried: set[PeerId] = set()

    @property
    def attempts(self) -> int:
        """How many JOINs may still lead to a neighbour."""
        return len(self._attempts)

    def forget(self) -> None:
        """Give up what is under way."""
        self._asked.clear()
        self._attempts.clear()

    # Rules 1, 2 and 5

    def begin(self, now: float) -> None:
        """Ask contacts for nodes, unless it is joining already."""
        if self._asked or self._attempts:
            return
        contacts = self._known_contacts()
        chosen = self._node.random.sample(contacts, min(self._node.config.random_links, len(contacts)))
        self._ttl = 0
        self._tried.clear()
        if not chosen:
            self._join(now)
            return
        self._asked.update(chosen)
        self._node.wait(Wait.NODES, None, self._node.config.request_timeout, now)
        for contact in chosen:
            self._ask(contact, now)

    def take_nodes(self, peer: PeerId, message: Nodes, now: float) -> None:
        """Handle NODES."""
        if peer in self._asked:
            self._ttl = max(self._ttl, min(message.ttl, self._node.config.join_ttl))
            self._views.learn((peer, *message.peers[: self._node.config.nodes]))
            self._answered(peer, now)

    def answer_get_nodes(self, peer: PeerId) -> None:
        """Handle GETNODES."""
        config = self._node.config
        given = [known for known in self._views.some_passive(config.nodes) if known != peer]
        self._node.send([peer], Nodes(tuple(given), config.join_ttl))

    def accepted(self, peer: PeerId) -> None:
        """Handle the answer to a JOIN: that to the peer, if there was one, or the oldest."""
        if self._attempts:
            self._attempts.pop(peer if peer in self._attempts else next(iter(self._attempts)))

    def timed_out(self, timer: TimeOut, now: float) -> None:
        """Handle the end of a wait."""
        if timer.wait is Wait.NODES and self._asked:
            self._asked.clear()
            self._join(now)
        elif timer.wait is Wait.JOINED and timer.key in self._attempts:
            self._failed(timer.key, now)

    def _known_contacts(self) -> list[PeerId]:
        contacts = dict.fromkeys((*self._contacts, *self._node.connections))
        return [peer for peer in contacts if peer != self._node.me and peer not in self._views.active]

    def _ask(self, contact: PeerId, now: float) -> None:
        def go_on(connected: bool, now: float) -> None:
            if connected:
                self._node.send([contact], GetNodes())
            elif contact in self._asked:
                self._answered(contact, now)

        self._node.reach(contact, go_on, now)

    def _answered(self, contact: PeerId, now: float) -> None:
        self._asked.discard(contact)
        if not self._asked:
            self._join(now)

    def _join(self, now: float) -> None:
        for peer in self._untried(self._node.config.random_links):
            self._attempt(peer, self._ttl or self._node.config.join_ttl, now)

    def _untried(self, most: int) -> list[PeerId]:
        passive = [peer for peer in self._views.passive if peer not in self._tried]
        contacts = [
            peer for peer in self._known_contacts() if peer not in self._tried and peer not in self._views.passive
        ]
        for peers in (passive, contacts):
            self._node.random.shuffle(peers)
        return [*passive, *contacts][:most]

    def _attempt(self, contact: PeerId, ttl: int, now: float) -> None:
        def go_on(connected: bool, now: float) -> None:
            if self._attempts.get(contact) != ttl:
                return
            if connected:
                self._node.send([contact], Join(self._node.me, ttl))
            else:
                self._failed(contact, now)

        self._tried.add(contact)
        self._attempts[contact] = ttl
        self._node.wait(Wait.JOINED, contact, self._node.config.join_timeout, now)
        self._node.reach(contact, go_on, now)

    def _failed(self, contact: PeerId, now: float) -> None:
        ttl = self._attempts.pop(contact)
        if ttl > 0:
            # There may be no other; then this one is asked again, down to the TTL at which it accepts.
            others = self._untried(1) or ([contact] if self._node.is_connected(contact) else [])
            for other in others:
                self._attempt(other, ttl - 1, now)

    # Rules 3, 4 and 6

    def take_join(self, sender: PeerId, message: Join, now: float) -> None:
        """Handle JOIN."""
        node, views, newcomer = self._node, self._views, message.peer
        ttl = min(message.ttl, node.config.most_walk)
        open_to_it = (ttl == 0 or not views.full) and not views.crammed
        if newcomer != node.me and newcomer not in views.active and open_to_it:

            def go_on(connected: bool, now: float) -> None:
                if connected and newcomer not in views.active and not views.crammed:
                    self._accept(newcomer)
                else:
                    self._pass_on(sender, Join(newcomer, ttl))

            node.reach(newcomer, go_on, now, foreign=True)
        else:
            self._pass_on(sender, Join(newcomer, ttl))

    def take_forward_join(self, sender: PeerId, message: ForwardJoin) -> None:
        """Handle FORWARDJOIN."""
        ttl = min(message.ttl, self._node.config.most_walk)
        self._views.learn([message.peer])
        self._pass_on(sender, ForwardJoin(message.peer, ttl))

    def _accept(self, newcomer: PeerId) -> None:
        self._active.accept(newcomer)
        found = self._views.any_active(newcomer)
        if found is not None:
            self._node.send([found], ForwardJoin(newcomer, self._node.config.forward_join_ttl))

    def _pass_on(self, sender: PeerId, message: Join | ForwardJoin) -> None:
        target = self._views.any_active(sender, message.peer)
        if message.ttl > 0 and target is not None:
            self._node.send([target], type(message)(message.peer, message.ttl - 1))
