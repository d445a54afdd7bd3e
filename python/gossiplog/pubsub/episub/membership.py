"""The membership layer: HyParView's overlay with GoCast's proximity, as the episub seed has them.

It joins the parts: `joining` (getting in), `active` (the neighbours), `passive` (whom else it knows). Their rules stand
there. Of its own it has these [ours]:

1. All timers are randomized, each time anew, so that nodes do not act in step.
2. Messages count only while the node is subscribed, but for GETTOPICS; who asks for the link meanwhile is told
   DISCONNECT. Messages of peers that are not connected are ignored.
3. Below A neighbours, a stabilization samples the passive list and then asks the nearest; without any it joins anew.
4. What belongs to the broadcast layer and comes from no neighbour is answered by DISCONNECT, so that a link that only
   one side has comes to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from gossiplog.pubsub.episub import messages
from gossiplog.pubsub.episub.active import Active
from gossiplog.pubsub.episub.config import Config, Range
from gossiplog.pubsub.episub.events import TimeOut, Timer
from gossiplog.pubsub.episub.joining import Joining
from gossiplog.pubsub.episub.passive import Passive
from gossiplog.pubsub.episub.views import Node, Views
from gossiplog.pubsub.events import (
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    RoundTrip,
    SetTimer,
    TimerExpired,
)


class Membership:
    """Keeps a node's place in the overlay.

    Args:
        me: the node, as its peers know it.
        contacts: peers that may be in the overlay.
        topic: of the overlay.
        random: what is drawn with.
        config: of the router.
    """

    def __init__(self, me: PeerId, contacts: Sequence[PeerId], topic: str, random: Random, config: Config) -> None:
        self._node = Node(me, topic, random, config)
        self._active = Active(self._node)
        self._joining = Joining(self._node, self._active, contacts)
        self._passive = Passive(self._node, self._fill)
        self._periods: dict[Timer, Range] = {
            Timer.STABILIZE: config.stabilize,
            Timer.OPTIMIZE: config.optimize,
            Timer.SHUFFLE: config.shuffle,
            Timer.CHECK: config.check,
        }

    @property
    def views(self) -> Views:
        """The active and the passive list."""
        return self._node.views

    @property
    def joined(self) -> bool:
        """Whether the node is subscribed."""
        return self._node.joined

    def handle(self, event: Any, now: float) -> list[Any]:
        """Return what follows from an event.

        Args:
            event: one that `episub.events` names for this layer.
            now: the time.
        """
        node = self._node
        match event:
            case TimerExpired(Timer() as timer):
                self._act(timer, now)
            case TimerExpired(TimeOut() as timer):
                for part in (self._active, self._passive, self._joining):
                    part.timed_out(timer, now)
            case RoundTrip(peer, seconds):
                self._passive.take_round_trip(peer, seconds, now)
                self._active.take_round_trip(peer, seconds, now)
            case PeerConnected(peer):
                node.opened(peer, now)
            case ConnectFailed(peer):
                node.failed(peer, now)
            case PeerDisconnected(peer):
                node.closed(peer)
                self._passive.lose(peer, now)
                self._active.lose(peer, now)
            case Join() if not node.joined:
                node.joined = True
                for timer in self._periods:
                    self._set(timer, now)
                self._joining.begin(now)
            case Leave() if node.joined:
                self._active.leave()
                self._joining.forget()
                self._passive.forget()
                node.close_all()
                node.joined = False
        return node.take_out()

    def receive(self, peer: PeerId, message: messages.Message, now: float) -> list[Any]:
        """Return what follows from a message.

        Args:
            peer: that sent it.
            message: of this layer, or one of the broadcast layer's that comes from no neighbour.
            now: the time.
        """
        if self._node.is_connected(peer):
            self._node.used(peer, now)
            if self._node.joined:
                self._take(peer, message, now)
            elif isinstance(message, messages.GetTopics):
                self._node.send([peer], messages.Topics(()))
            elif isinstance(message, messages.Neighbor):
                self._node.send([peer], messages.Disconnect())
        return self._node.take_out()

    def _take(self, peer: PeerId, message: messages.Message, now: float) -> None:
        node = self._node
        match message:
            case messages.GetNodes():
                self._joining.answer_get_nodes(peer)
            case messages.Nodes():
                self._joining.take_nodes(peer, message, now)
            case messages.GetTopics():
                node.send([peer], messages.Topics((node.topic,)))
            case messages.Topics(topics):
                self._passive.take_topics(peer, topics, now)
            case messages.Join():
                self._joining.take_join(peer, message, now)
            case messages.ForwardJoin():
                self._joining.take_forward_join(peer, message)
            case messages.Neighbor(peers):
                self._take_neighbor(peer, peers, now)
            case messages.Disconnect():
                self._active.take_disconnect(peer, now)
            case messages.Leave():
                self._active.take_leave(peer, message, now)
            case messages.Shuffle():
                self._passive.take_shuffle(peer, message, now)
            case messages.ShuffleReply(peers):
                self._passive.take_reply(peers)
            case _:
                node.send([peer], messages.Disconnect())

    def _take_neighbor(self, peer: PeerId, peers: tuple[PeerId, ...], now: float) -> None:
        known = peer in self.views.active
        # The node that accepts a JOIN is seldom the one that it was sent to.
        joining = self._joining.attempts > 0
        self._active.take_neighbor(peer, peers, joining, now)
        if joining and not known and peer in self.views.active:
            self._joining.accepted(peer)
            self._passive.sample(now)

    def _act(self, timer: Timer, now: float) -> None:
        if not self._node.joined:
            return
        match timer:
            case Timer.STABILIZE:
                self._node.close_idle(now)
                self._active.stabilize(now)
                if not self.views.active:
                    self._joining.begin(now)
                elif not self.views.full:
                    self._passive.sample(now)
            case Timer.OPTIMIZE:
                self._active.optimize(now)
            case Timer.SHUFFLE:
                self._passive.shuffle(now)
            case Timer.CHECK:
                self._passive.check(now)
        self._set(timer, now)

    def _set(self, timer: Timer, now: float) -> None:
        self._node.emit(SetTimer(timer, now + self._node.random.uniform(*self._periods[timer])))

    def _fill(self, now: float) -> None:
        self._active.fill(now, self._joining.attempts)
