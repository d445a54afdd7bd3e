"""What all parts of the membership layer share: connections, messages to peers, and time-outs.

A connection is asked for when it is needed, for a purpose that goes on when it is there or has failed. Purposes that
others' messages gave rise to are limited (`Config.under_way`): beyond the limit they fail at once. A connection to a
peer that is no neighbour is closed when no message came on it for `Config.idle` seconds; all are when the node leaves,
and those that it had asked for as soon as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeAlias

from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.episub.events import TimeOut, Wait
from gossiplog.pubsub.episub.messages import Membership
from gossiplog.pubsub.episub.views import Views
from gossiplog.pubsub.events import Connect, Disconnect, PeerId, Send, SetTimer

Purpose: TypeAlias = Callable[[bool, float], None]
"""Goes on, told whether there is a connection, and the time."""


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
