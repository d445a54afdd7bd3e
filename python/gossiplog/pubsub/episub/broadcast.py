"""The broadcast layer: Plumtree's epidemic broadcast tree, with the changes of the episub seed.

The rules, from the seed ("Broadcast Protocol"); what it leaves open is marked [ours].

1. Neighbours are eager or lazy, and eager at first. The eager links make the tree.
2. *Publish*: GOSSIP with hops 1 to all eager neighbours; the message into the cache, its id into the lazy queue. What
   has come already, where others publish it as well, is not published again [ours].
3. *GOSSIP* for the first time: it is delivered, its sender becomes eager, and it goes with one hop more to the other
   eager neighbours; cache and queue as before. A copy: its sender becomes lazy and is sent PRUNE. A node that gets
   PRUNE makes the sender lazy. For `Config.graft_grace` seconds after a GRAFT for messages, copies on its link prune
   nothing [ours]: late messages come in another order at each of the nodes that graft for them, so that each one's
   copies prune the links by which the others came. Then nothing is left, and the same happens with the next messages,
   for ever: measured with 300 nodes, 20 of which grafted each of 600 messages.
4. *Queue*: every `Config.flush` seconds its ids go out as one IHAVE to all lazy neighbours; an empty queue sends
   nothing [ours: nor does the timer run].
5. *IHAVE*: unknown ids are missing, with who announced them, in order. One timer for all: the first tick marks, from
   the second on the message is missing, and asked for by GRAFT: of the first announcer at first, then of the next at
   each tick, over and over until it comes, or is given up after `Config.lost_ticks` and counted. A GRAFT takes along
   the other missing ids which that announcer has announced [ours: one GRAFT to each announcer needed; asking who
   never announced a message is in vain].
6. *GRAFT*: the link becomes eager at both ends; what the cache has of the ids goes out as GOSSIP.
7. *Optimization*: if a message came with more hops than an announcement of it has, by more than the threshold, the
   announcer becomes eager by an empty GRAFT, and the sender lazy by PRUNE; whichever of both came first [ours].
8. *NeighborUp*: eager. *NeighborDown*: of a lazy one, nothing is sent; of an eager one, by `Config.repair`: nothing
   either, or all lazy ones become eager by empty GRAFTs.

9. *Validation* [ours], where the application asks for it. A GOSSIP of others is delivered at once, and is neither
   forwarded, cached nor announced until the application answers: accept, ignore or reject. What it does to links it
   does at once: copies prune. Peers that sent copies meanwhile do not get it back, and a rejection names all of them.
   One for which there is no room is not delivered; neither is new again.

State is bounded [ours]: cache and ids by time and size, missing ids by neighbour, answers to GRAFT by neighbour and
second. Only neighbours are listened to. A message in this node's own name that it does not know is forged, or older
than what it remembers, and ignored.

This is the hot path: one call for each message received, one shared packet for all who get it on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.episub.config import Config, Repair
from gossiplog.pubsub.episub.events import NeighborDown, NeighborUp, Timer
from gossiplog.pubsub.episub.messages import Broadcast as Message
from gossiplog.pubsub.episub.messages import Gossip, Graft, IHave, MessageId, Prune
from gossiplog.pubsub.events import (
    Deliver,
    GossipAnswered,
    PeerId,
    Publish,
    Rejected,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.unanswered import UnansweredMessages

MOST_IDS = 1024
"""Ids in one IHAVE or GRAFT that is sent; any further ones go into the next."""

_LARGEST_HOPS = 2**16 - 1


@dataclass(slots=True)
class Statistics:
    """What a node has counted.

    Attributes:
        delivered: messages that came for the first time.
        duplicates: copies.
        grafts: GRAFTs sent.
        prunes: PRUNEs sent.
        lost: messages that were announced and given up.
    """

    delivered: int = 0
    duplicates: int = 0
    grafts: int = 0
    prunes: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Missing:
    # Announcers with their hops, the one to be asked next first.
    announcers: dict[PeerId, int] = field(default_factory=dict)
    ticks: int = 0


class Broadcast:
    """Spreads messages over the neighbours' links.

    Args:
        me: the node, as its peers know it.
        topic: that messages are delivered for.
        name: gives the id of a message that is published here, from its data.
        config: of the router.
        validation: whether others' messages wait for the application's answer (rule 9).

    Attributes:
        eager: the neighbours that messages are sent to. In the order in which they became that; the values are None.
        lazy: the others.
        statistics: what was counted.
    """

    def __init__(
        self, me: PeerId, topic: str, name: Callable[[bytes], MessageId], config: Config, validation: bool = False
    ) -> None:
        self.eager: dict[PeerId, None] = {}
        self.lazy: dict[PeerId, None] = {}
        self.statistics = Statistics()
        self._me = me
        self._topic = topic
        self._name = name
        self._config = config
        self._out: list[Any] = []
        # As it is sent on: with one hop more than it came with.
        self._cache: dict[MessageId, Gossip] = {}
        self._cached_bytes = 0
        # When it came, with how many hops, from whom. In the order of the times, as is the cache.
        self._seen: dict[MessageId, tuple[float, int, PeerId | None]] = {}
        self._queue: deque[tuple[MessageId, int]] = deque()
        self._missing: dict[MessageId, _Missing] = {}
        self._announced: dict[PeerId, int] = {}
        # Until when copies on a link that was grafted prune nothing.
        self._spared: dict[PeerId, float] = {}
        self._grafted: dict[PeerId, tuple[float, int]] = {}
        self._ticking = False
        self._unanswered: UnansweredMessages[Gossip] | None = UnansweredMessages() if validation else None

    def handle(self, event: Any, now: float) -> list[Any]:
        """Return what follows from an event.

        Args:
            event: NeighborUp, NeighborDown, Publish, GossipAnswered, or TimerExpired with FLUSH, MISSING or EXPIRE.
            now: the time.
        """
        match event:
            case TimerExpired(Timer.FLUSH):
                self._flush()
            case TimerExpired(Timer.MISSING):
                self._tick(now)
            case TimerExpired(Timer.EXPIRE):
                self._expire(now)
            case Publish(data=data):
                self._publish(data, now)
            case GossipAnswered(id, answer):
                self._answer(id, answer, now)
            case NeighborUp(peer):
                self._make_eager(peer)
            case NeighborDown(peer):
                self._lose(peer, now)
        return self._take_out()

    def receive(self, peer: PeerId, message: Message, now: float) -> list[Any]:
        """Return what follows from a message.

        Args:
            peer: that sent it; ignored if it is no neighbour.
            message: of this layer.
            now: the time.
        """
        if peer in self.eager or peer in self.lazy:
            if type(message) is Gossip:
                self._gossip(peer, message, now)
            elif type(message) is IHave:
                self._ihave(peer, message, now)
            elif type(message) is Graft:
                self._graft(peer, message, now)
            else:
                self._make_lazy(peer)
        return self._take_out()

    def forget(self) -> None:
        """Leave the overlay: all that it knew is gone, but for the counts."""
        for known in (self.eager, self.lazy, self._cache, self._seen, self._queue, self._missing):
            known.clear()
        for counted in (self._announced, self._spared, self._grafted):
            counted.clear()
        self._cached_bytes = 0
        if self._unanswered is not None:
            self._unanswered.clear()

    def _take_out(self) -> list[Any]:
        out = self._out
        self._out = []
        return out

    # Rules 2 and 3

    def _publish(self, data: bytes, now: float) -> None:
        id = self._name(data)
        if id in self._seen:
            return
        message = Gossip(id[0], 1, id[1], data)
        self._out.append(Deliver((self._topic,), id, data, None))
        self._see(id, 0, None, now)
        self._keep(id, message, now)
        if self.eager:
            self._out.append(Send(tuple(self.eager), message))

    def _gossip(self, peer: PeerId, message: Gossip, now: float) -> None:
        id = (message.source, message.number)
        if id in self._seen:
            self.statistics.duplicates += 1
            if now >= self._spared.get(peer, now):
                self._prune(peer)
            if self._unanswered is not None:
                self._unanswered.add_source(id, peer)
            return
        if message.source == self._me:
            return
        if self._unanswered is None or self._unanswered.put(id, message, len(message.data), peer):
            self.statistics.delivered += 1
            self._out.append(Deliver((self._topic,), id, message.data, peer))
        hops = message.hops
        if peer in self.lazy:
            self._make_eager(peer)
        self._see(id, hops, peer, now)
        if self._unanswered is None:
            self._pass_on(id, message, (peer,), now)
        missing = self._missing.get(id)
        if missing is not None:
            self._resolve(id, missing)
            self._compare(missing, hops, peer, now)

    def _pass_on(self, id: MessageId, message: Gossip, sources: Collection[PeerId], now: float) -> None:
        onward = Gossip(message.source, min(message.hops + 1, _LARGEST_HOPS), message.number, message.data)
        self._keep(id, onward, now)
        targets = tuple([other for other in self.eager if other not in sources and other != message.source])
        if targets:
            self._out.append(Send(targets, onward))

    # Rule 9

    def _answer(self, id: Hashable, answer: GossipAnswer, now: float) -> None:
        waiting = self._unanswered.take(id) if self._unanswered is not None else None
        if waiting is None:
            return
        # What was forgotten meanwhile would be taken for new by those who forgot it, too.
        if answer is GossipAnswer.ACCEPT and id in self._seen:
            self._pass_on((waiting.item.source, waiting.item.number), waiting.item, waiting.sources, now)
        elif peers := waiting.rejected_peers(answer):
            self._out.append(Rejected(peers))

    def _prune(self, peer: PeerId) -> None:
        self._make_lazy(peer)
        self.statistics.prunes += 1
        self._out.append(Send((peer,), Prune()))

    # Memory

    def _see(self, id: MessageId, hops: int, peer: PeerId | None, now: float) -> None:
        if not self._seen:
            self._out.append(SetTimer(Timer.EXPIRE, now + self._config.cache_time))
        self._seen[id] = now, hops, peer
        if len(self._seen) > self._config.seen:
            self._forget_oldest()

    def _keep(self, id: MessageId, message: Gossip, now: float) -> None:
        self._cache[id] = message
        self._cached_bytes += len(message.data)
        while self._cached_bytes > self._config.cache_bytes:
            self._uncache(next(iter(self._cache)))
        if not self._queue:
            self._out.append(SetTimer(Timer.FLUSH, now + self._config.flush))
        self._queue.append((id, message.hops))
        if len(self._queue) > self._config.seen:
            self._flush()

    def _uncache(self, id: MessageId) -> None:
        message = self._cache.pop(id, None)
        if message is not None:
            self._cached_bytes -= len(message.data)

    def _forget_oldest(self) -> None:
        id = next(iter(self._seen))
        del self._seen[id]
        self._uncache(id)

    def _expire(self, now: float) -> None:
        while self._seen and next(iter(self._seen.values()))[0] + self._config.seen_time <= now:
            self._forget_oldest()
        while self._cache and self._seen[next(iter(self._cache))][0] + self._config.cache_time <= now:
            self._uncache(next(iter(self._cache)))
        if self._seen:
            self._out.append(SetTimer(Timer.EXPIRE, now + self._config.cache_time / 2))

    # Rules 4 to 6

    def _flush(self) -> None:
        if self.lazy:
            announced = tuple(self._queue)
            for start in range(0, len(announced), MOST_IDS):
                self._out.append(Send(tuple(self.lazy), IHave(announced[start : start + MOST_IDS])))
        self._queue.clear()

    def _ihave(self, peer: PeerId, message: IHave, now: float) -> None:
        threshold = self._config.hop_threshold
        for id, hops in message.summary:
            known = self._seen.get(id)
            if known is None:
                self._miss(peer, id, hops, now)
            elif known[1] - hops > threshold and known[2] is not None:
                self._replace(known[2], peer, now)

    def _miss(self, peer: PeerId, id: MessageId, hops: int, now: float) -> None:
        count = self._announced.get(peer, 0)
        if count >= self._config.missing or id[0] == self._me:
            return
        missing = self._missing.get(id)
        if missing is None:
            missing = self._missing[id] = _Missing()
        if peer not in missing.announcers:
            missing.announcers[peer] = hops
            self._announced[peer] = count + 1
        if not self._ticking:
            self._ticking = True
            self._out.append(SetTimer(Timer.MISSING, now + self._config.missing_tick))

    def _resolve(self, id: MessageId, missing: _Missing) -> None:
        del self._missing[id]
        for peer in missing.announcers:
            self._announced[peer] -= 1

    def _tick(self, now: float) -> None:
        wanted: dict[PeerId, list[MessageId]] = {}
        for id, missing in list(self._missing.items()):
            missing.ticks += 1
            if missing.ticks > self._config.lost_ticks + 1:
                self._resolve(id, missing)
                self.statistics.lost += 1
            elif missing.ticks > 1 and missing.announcers:
                # Only the first time it goes along with others: an announcer that has none of them would hold it up.
                along = [peer for peer in wanted if peer in missing.announcers] if missing.ticks == 2 else []
                peer = along[0] if along else next(iter(missing.announcers))
                missing.announcers[peer] = missing.announcers.pop(peer)
                wanted.setdefault(peer, []).append(id)
        for peer, ids in wanted.items():
            for start in range(0, len(ids), MOST_IDS):
                self._send_graft(peer, now, tuple(ids[start : start + MOST_IDS]))
        self._ticking = bool(self._missing)
        if self._ticking:
            self._out.append(SetTimer(Timer.MISSING, now + self._config.missing_tick))

    def _send_graft(self, peer: PeerId, now: float, ids: tuple[MessageId, ...] = ()) -> None:
        self._make_eager(peer)
        if ids:
            self._spared[peer] = now + self._config.graft_grace
        self.statistics.grafts += 1
        self._out.append(Send((peer,), Graft(ids)))

    def _graft(self, peer: PeerId, message: Graft, now: float) -> None:
        self._make_eager(peer)
        since, count = self._grafted.get(peer, (now, 0))
        if now - since >= 1.0:
            since, count = now, 0
        if message.msgs:
            self._spared[peer] = now + self._config.graft_grace
        held = (id for id in message.msgs if id in self._cache)
        for id in islice(held, self._config.grafted - count):
            count += 1
            self._out.append(Send((peer,), self._cache[id]))
        self._grafted[peer] = since, count

    # Rule 7

    def _compare(self, missing: _Missing, hops: int, sender: PeerId, now: float) -> None:
        if missing.announcers:
            nearest = min(missing.announcers, key=lambda peer: missing.announcers[peer])
            if hops - missing.announcers[nearest] > self._config.hop_threshold:
                self._replace(sender, nearest, now)

    def _replace(self, eager: PeerId, lazy: PeerId, now: float) -> None:
        if eager in self.eager and lazy in self.lazy:
            self._send_graft(lazy, now)
            self._prune(eager)

    # Rules 1 and 8

    def _make_eager(self, peer: PeerId) -> None:
        self.lazy.pop(peer, None)
        self.eager[peer] = None

    def _make_lazy(self, peer: PeerId) -> None:
        self.eager.pop(peer, None)
        self.lazy[peer] = None

    def _lose(self, peer: PeerId, now: float) -> None:
        eager = peer in self.eager
        self.eager.pop(peer, None)
        self.lazy.pop(peer, None)
        self._announced.pop(peer, None)
        self._grafted.pop(peer, None)
        self._spared.pop(peer, None)
        for missing in self._missing.values():
            missing.announcers.pop(peer, None)
        if eager and self._config.repair is Repair.PROMOTE:
            for other in list(self.lazy):
                self._send_graft(other, now)
