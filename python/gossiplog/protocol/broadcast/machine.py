"""Reliable causal broadcast: joins push, sync and gossip, so that every message reaches every peer after its parents.

The rules, from the description of canvas-js ("Reliable causal broadcast" in
https://joelgustafson.com/posts/2024-09-30/gossiplog-reliable-causal-broadcast-for-libp2p) and from what its hubs do
(`@canvas-js/gossiplog` 0.13.14); what is not from there is marked as ours.

1. *Updates.* A peer that connects is sent our heads. After a sync that brought messages, completed or not, every peer
   but its source is; of many that gossip reaches, `BroadcastConfig.fanout` at once and all later (ours: in a mesh of n
   peers, n syncs of each would tell n peers each time). So is one whose sync this side aborted, if it does not begin
   another by itself (ours): in a browser canvas-js goes on only then.
2. *Messages.* An own append is pushed to every peer that gossip does not reach, and published to gossip. One that
   came by push goes to all others, and to gossip; one that came by gossip is accepted there, and pushed.
3. *The machine forwards only what the log holds*, and so all its parents: what was inserted, and nothing else. So a
   peer that receives an orphan from us can get its ancestors from us. A router may accept gossip earlier (ours,
   ACCEPTED), once the parents are stored or accepted. So an orphan that came by gossip is requested twice before its
   source is blamed (9).
4. *Syncs.* An orphan, an Update with unknown heads, or (ours) a message that the log could not store, calls for a sync
   with the peer that sent it: one a peer at a time, `BroadcastConfig.syncs` overall, first come first served. What
   calls for one while one runs calls for one more at most, after it, and not at all if the log has come to hold
   everything by then. Peers that gossip reaches mostly hold the same messages, and each would send them (ours): a
   sync with one of them has
   `BroadcastConfig.overlap` for itself before another starts, or `BroadcastConfig.spacing` if it has ended; of those
   that wait, the one that advertised the most comes first, unless another has waited for a turn (7).
5. *Abort.* A sync that was aborted and had brought something goes on as soon as its cooldown allows; so does one that
   found nodes below which nothing is missing, since it need not walk them again (ours).
6. *Back-off* (ours). A sync that fails, or brings nothing of what the peer had advertised, is followed by a pause that
   doubles each time. An Update is unverified: all it can cause is a sync, and then this pause.
7. *Turns* (ours). A sync without bytes is stopped; so is one that has had its turn while others wait. The latter goes
   on later.
8. *Refused here.* A message that the local application refuses blames nobody, is not forwarded, and is not asked for
   again until its retry is due (ours: with back-off). What descends from it is treated likewise. When the application
   takes one after all, everything that was skipped is requested at once; when the peer that sent it goes, others
   that have it are asked.
9. *Blame.* Who pushes an invalid message is to be disconnected; so is the source of a sync that breaks the protocol,
   holds an invalid message, or lacks a parent of one that it holds; so is a peer that again and again advertises
   messages that it does not have (ours: an honest peer holds what it advertises, by rule 3). Invalid gossip is
   rejected: its router penalises. What a driver finds by itself (a broken frame, a second or a missing stream, a peer
   that does not read) it blames without the machine: see `PeerSession.blame`.
10. *Slow readers* (ours). Nothing is sent to a peer that is behind; when it has caught up it is sent our heads.
11. *Lost gossip* (ours). Peers that gossip reaches are sent our heads some seconds after a message went out by it, or
    after a sync for which not all of them were sent the heads.
12. *Gossip out of order* (ours). Gossip keeps no order: an orphan that came by it waits a moment for its parents, and
    is tried again when they are there. Only then, or when too many wait, it is ignored, and calls for a sync. A
    router that accepts gossip by itself (3) has it wait in the same way before.

The machine knows messages by keys and values, and asks its driver for all that touches the log or the network. It
remembers of a peer at most `BroadcastConfig.advertised` keys and twice `BroadcastConfig.skipped`, which go when the
peer disconnects, and no values but those of orphans that wait. It reads no clock, and draws no random numbers but from
the generator that it is given.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from gossiplog.core import encode_id
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    ACCEPTED,
    AnnounceDue,
    Appended,
    Delivery,
    Disconnect,
    GossipAnswer,
    GossipAnswered,
    HeadsReceived,
    InEvent,
    Insert,
    Judged,
    OrphansDue,
    OutEvent,
    OverlapDue,
    PeerBehind,
    PeerCaughtUp,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Publish,
    Received,
    RetryDue,
    SendInsert,
    SendUpdate,
    ServingAborted,
    SetTimer,
    SyncAdvanced,
    SyncBrought,
    SyncCheck,
    SyncDue,
    SyncEnded,
    SyncOver,
    SyncProgress,
    SyncResult,
    SyncStarted,
    Timer,
    TimerExpired,
    Verdict,
)
from gossiplog.protocol.broadcast.orphans import Orphans
from gossiplog.protocol.broadcast.schedule import Schedule, Sync
from gossiplog.protocol.broadcast.skipped import SkippedSets


@dataclass(slots=True)
class _Peer:
    gossips: bool
    behind: bool = False
    missed: bool = False


class Broadcast:
    """Decides what is sent to whom, whom to sync with, what gossip is answered, and who is blamed.

    Args:
        random: for the jitter of back-offs.
        config: limits and delays.
        numbers: of its syncs; a machine that takes another's place goes on with the other's.
    """

    def __init__(
        self, random: Random, config: BroadcastConfig | None = None, numbers: Iterator[int] | None = None
    ) -> None:
        self._config = config or BroadcastConfig()
        self._random = random
        self._out: list[OutEvent] = []
        self._peers: dict[PeerId, _Peer] = {}
        self._announcing = False
        self._schedule = Schedule(self._config, random, self._emit, numbers or itertools.count(1))
        self._rejected = SkippedSets(self._config, random, self._emit)
        self._orphans = Orphans(self._config, self._emit)

    @property
    def skipped(self) -> Collection[bytes]:
        """Keys of the messages that are skipped: the application refuses them, or they descend from such messages."""
        return self._rejected.keys()

    @property
    def is_idle(self) -> bool:
        """Whether no sync runs, and peers have advertised nothing that needs one."""
        return self._schedule.is_idle

    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        """Take what happened, and return what is to be done, in this order.

        Args:
            event: the driver reports events in the order in which they happened.
            now: the time; it never goes back.

        Raises:
            ValueError: a peer connects that is connected.
        """
        match event:
            case Received(delivery):
                self._receive(delivery)
            case Judged():
                self._judge(event, now)
            case HeadsReceived(peer, keys, unchecked):
                unknown = [key for key in keys if key not in self._rejected]
                if len(unknown) < len(keys):
                    self._rejected.mention(peer)
                self._schedule.request(peer, unknown, now, more=unchecked > 0)
            case Appended(messages):
                for key, value in messages:
                    self._hold([key], now)
                    self._forward(key, value, None, now)
            case SyncAdvanced(number, statistics):
                if (sync := self._schedule.get(number)) is not None:
                    sync.active = True
                    self._emit(SyncProgress(sync.peer, sync.inserted, statistics))
            case SyncBrought():
                if (sync := self._schedule.get(event.sync)) is not None:
                    self._take_batch(sync, event, now)
            case SyncEnded():
                self._end_sync(event, now)
            case TimerExpired(timer):
                self._expire(timer, now)
            case PeerConnected(peer, gossips):
                self._connect(peer, gossips)
            case PeerDisconnected(peer):
                self._forget(peer, now)
            case PeerBehind(peer):
                if peer in self._peers:
                    self._peers[peer].behind = True
            case PeerCaughtUp(peer):
                self._catch_up(peer)
            case ServingAborted(peer):
                if peer in self._peers:
                    self._update((peer,))
        for peer in self._schedule.start(now, self._rejected.keys):
            self._emit(SyncStarted(peer))
        out = self._out.copy()
        self._out.clear()
        return out

    def _emit(self, event: OutEvent) -> None:
        self._out.append(event)

    # Peers

    def _connect(self, peer: PeerId, gossips: bool) -> None:
        if peer in self._peers:
            raise ValueError(f"peer {peer!r} is connected already: report the end of its other connection first")
        self._peers[peer] = _Peer(gossips)
        self._schedule.connect(peer, gossips)
        self._rejected.connect(peer)
        self._emit(SendUpdate((peer,)))

    def _forget(self, peer: PeerId, now: float) -> None:
        if self._peers.pop(peer, None) is not None:
            self._schedule.disconnect(peer)
            self._retry(self._rejected.disconnect(peer), now)

    def _blame(self, peer: PeerId, reason: str, now: float) -> None:
        if peer in self._peers:
            self._emit(Disconnect(peer, reason))
            self._forget(peer, now)

    def _retry(self, peers: Iterable[PeerId], now: float) -> None:
        for peer in peers:
            self._schedule.request(peer, (), now, more=True, retry=True)

    def _catch_up(self, peer: PeerId) -> None:
        state = self._peers.get(peer)
        if state is not None:
            if state.missed:
                self._emit(SendUpdate((peer,)))
            state.behind = state.missed = False

    def _reachable(self, peers: Iterable[PeerId]) -> Sequence[PeerId]:
        """Return those that are not behind; the others are sent the heads when they have caught up."""
        found: list[PeerId] = []
        for peer in peers:
            if self._peers[peer].behind:
                self._peers[peer].missed = True
            else:
                found.append(peer)
        return tuple(found)

    def _update(self, peers: Iterable[PeerId]) -> None:
        reachable = self._reachable(peers)
        if reachable:
            self._emit(SendUpdate(reachable))

    def _spread(self, source: PeerId, now: float) -> None:
        """Send the heads to all but the source of what is new: of many that gossip reaches, to some now, all later."""
        others = {peer: state.gossips for peer, state in self._peers.items() if peer != source}
        gossiping = [peer for peer, gossips in others.items() if gossips]
        if len(gossiping) > self._config.fanout:
            for peer in self._random.sample(gossiping, len(gossiping) - self._config.fanout):
                del others[peer]
            self._announce_later(now)
        self._update(others)

    def _announce_later(self, now: float) -> None:
        if not self._announcing:
            self._announcing = True
            self._emit(SetTimer(AnnounceDue(), now + self._config.announce))

    # Messages

    def _receive(self, delivery: Delivery) -> None:
        # A peer that pushes is known. Gossip of one that left, or has not joined yet, counts: it is not sent again.
        stranger = delivery.ticket is None and delivery.source not in self._peers
        if stranger or delivery.key in self._rejected:
            self._answer(delivery, GossipAnswer.IGNORE)
            self._rejected.mention(delivery.source)
        else:
            self._emit(Insert(delivery))

    def _judge(self, event: Judged, now: float) -> None:
        delivery = event.delivery
        match event.verdict:
            case Verdict.INSERTED:
                self._hold([delivery.key], now)
                self._answer(delivery, GossipAnswer.ACCEPT)
                self._forward(delivery.key, delivery.value, delivery, now)
            case Verdict.DUPLICATE:
                self._hold([delivery.key], now)
                self._answer(delivery, GossipAnswer.ACCEPT)
            case Verdict.ORPHAN:
                refused = any(parent in self._rejected for parent in event.missing)
                waits = delivery.ticket is not None and not refused
                if not waits or not self._orphans.add(delivery, event.missing, now):
                    self._give_up(delivery, event.missing, now)
            case Verdict.REFUSED:
                self._answer(delivery, GossipAnswer.IGNORE)
                self._skip(delivery.source, delivery.key, now)
            case Verdict.UNSTORED:
                # A sync asks for it until the log takes it, and says so as long as it does not.
                self._answer(delivery, GossipAnswer.IGNORE)
                self._schedule.request(delivery.source, [delivery.key], now, promised=delivery.ticket is None)
            case Verdict.INVALID:
                self._answer(delivery, GossipAnswer.REJECT)
                if delivery.ticket is None:
                    self._blame(delivery.source, f"it pushed an invalid message: {event.reason}", now)

    def _give_up(self, orphan: Delivery, missing: Sequence[bytes], now: float) -> None:
        """Give up an orphan: its parents are not on their way. Who passed on gossip may not have stored it yet."""
        self._answer(orphan, GossipAnswer.IGNORE)
        if any(parent in self._rejected for parent in missing):
            self._skip(orphan.source, orphan.key, now)
        else:
            self._schedule.request(orphan.source, [orphan.key], now, promised=orphan.ticket is None)

    def _answer(self, delivery: Delivery, answer: GossipAnswer) -> None:
        if delivery.ticket is not None and delivery.ticket != ACCEPTED:
            self._emit(GossipAnswered(delivery.source, delivery.ticket, answer))

    def _forward(self, key: bytes, value: bytes, delivery: Delivery | None, now: float) -> None:
        source = delivery.source if delivery is not None else None
        targets = self._reachable(
            peer for peer, state in self._peers.items() if not state.gossips and (delivery is None or peer != source)
        )
        if targets:
            self._emit(SendInsert(targets, key, value))
        if delivery is None or delivery.ticket is None:
            self._emit(Publish(key, value))
        if any(state.gossips for state in self._peers.values()):
            self._announce_later(now)

    def _hold(self, keys: Sequence[bytes], now: float) -> None:
        self._schedule.resolve(keys)
        self._retry(self._rejected.discard(keys), now)
        for orphan in self._orphans.resolve(keys):
            self._emit(Insert(orphan))

    def _skip(self, peer: PeerId, key: bytes, now: float) -> None:
        self._rejected.add(peer, key, now)
        self._cancel_requests(key)

    def _cancel_requests(self, key: bytes) -> None:
        """Stop requesting a skipped message until its retry: then all that have it can be asked."""
        for peer in self._schedule.resolve([key]):
            self._rejected.mention(peer)

    # Syncs

    def _take_batch(self, sync: Sync, event: SyncBrought, now: float) -> None:
        sync.active = True
        sync.inserted += event.inserted
        self._hold(event.held, now)
        for key in event.refused:
            sync.skipped.add(key)
            self._skip(sync.peer, key, now)
        for key, missing in event.orphans:
            hole = sync.skipped.hole(missing, self._rejected)
            if hole is not None:
                self._blame(
                    sync.peer, f"its log has message {encode_id(key)}, but not its parent {encode_id(hole)}", now
                )
                return
            sync.skipped.add(key)
            # An orphan that only waits for a message that this sync skips may be inserted by the next one.
            if any(parent in self._rejected for parent in missing):
                self._skip(sync.peer, key, now)
            else:
                self._cancel_requests(key)
        if event.invalid:
            self._blame(sync.peer, f"its log has an invalid message: {event.invalid}", now)

    def _end_sync(self, event: SyncEnded, now: float) -> None:
        self._hold(event.held, now)
        ended = self._schedule.end(event, now)
        if ended is None:
            return
        sync, error = ended
        complete = event.result is SyncResult.FINISHED
        blamed = event.result is SyncResult.VIOLATION or sync.unreliable
        self._emit(SyncOver(sync.peer, complete, sync.inserted, sync.skipped.keys, event.statistics, error, blamed))
        if sync.inserted:
            self._spread(sync.peer, now)
        if event.result is SyncResult.VIOLATION:
            self._blame(sync.peer, f"it broke the sync protocol: {event.reason}", now)
        elif sync.unreliable:
            self._blame(
                sync.peer, f"it advertised messages that it does not have, {self._config.broken_promises} times", now
            )

    # Timers

    def _expire(self, timer: Timer, now: float) -> None:
        match timer:
            case SyncDue(peer):
                self._schedule.due(peer, now)
            case SyncCheck(sync):
                self._schedule.check(sync, now)
            case RetryDue(peer):
                if self._rejected.retry(peer, now):
                    self._retry([peer], now)
            case OrphansDue():
                for orphan, missing in self._orphans.expire(now):
                    self._give_up(orphan, missing, now)
            case OverlapDue():
                self._schedule.overlap_due()
            case AnnounceDue():
                self._announcing = False
                self._update(peer for peer, state in self._peers.items() if state.gossips)
