"""The vocabulary of the broadcast machine: its input, its output, and its timers.

Peers are named by any hashable value that the driver chooses. Times are seconds on any clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

from gossiplog.protocol.sync.events import SyncStatistics
from gossiplog.reprs import frozen

PeerId: TypeAlias = Hashable

ACCEPTED: Final = "accepted"
"""The ticket of a message that the gossip router accepted before it was stored: it waits for no answer."""


@frozen
class Delivery:
    """A message on its way into the log. It travels to the driver and back, so that the machine remembers none of it.

    Attributes:
        source: the peer that sent it: with gossip the one that delivered it, not its author.
        key: whose hash part is the value's, as `push.Push` has checked; a gossip driver checks the same.
        value: not verified.
        ticket: names it to the gossip router, which waits for its `GossipAnswered`, unless it is ACCEPTED; None for
            one that came by push.
    """

    source: PeerId
    key: bytes
    value: bytes
    ticket: Hashable | None = None


class Verdict(Enum):
    """What became of a delivery."""

    INSERTED = "inserted"
    DUPLICATE = "duplicate"
    """It was in the log before."""
    ORPHAN = "orphan"
    """It is valid, and parents of it are missing."""
    REFUSED = "refused"
    """It is valid, and the local application refuses it."""
    UNSTORED = "unstored"
    """It could not be judged, because the log failed."""
    INVALID = "invalid"
    """Every peer refuses it, or its key is not the message's."""


class SyncResult(Enum):
    """How a sync stream ended."""

    FINISHED = "finished"
    """Everything that the source had was handed out."""
    ABORTED = "aborted"
    """The source sent Abort, or the driver ended the stream because it was asked to."""
    FAILED = "failed"
    """It could not be opened, or broke."""
    VIOLATION = "violation"
    """The source broke a rule of the protocol."""


# In-events


@frozen
class PeerConnected:
    """A push stream to the peer is open, either way.

    Attributes:
        peer: not connected before.
        gossips: whether gossip brings it messages; otherwise they are pushed to it.
    """

    peer: PeerId
    gossips: bool = False


@frozen
class PeerDisconnected:
    """The connection to the peer has ended, on whichever side."""

    peer: PeerId


@frozen
class ServingAborted:
    """This side aborted the last sync that it served to the peer, and the peer has not begun another since."""

    peer: PeerId


@frozen
class PeerBehind:
    """More waits to be written to the peer than the driver holds: nothing is sent to it until it caught up."""

    peer: PeerId


@frozen
class PeerCaughtUp:
    """Everything that waited to be written to the peer is."""

    peer: PeerId


@frozen
class Appended:
    """The log has these messages (key, value), and no `Insert` of the machine named their keys; in causal order."""

    messages: Sequence[tuple[bytes, bytes]]


@frozen
class Received:
    """A peer sent a message, by push or gossip."""

    delivery: Delivery


@frozen
class HeadsReceived:
    """A peer sent an Update with heads that the log lacks (`push.unknown_heads`)."""

    peer: PeerId
    keys: Sequence[bytes]
    unchecked: int = 0


@frozen
class Judged:
    """What became of a delivery; says so after the transaction, of those that it inserted in causal order.

    Attributes:
        delivery: of an `Insert`.
        verdict: over it.
        missing: keys of an orphan's missing parents.
        reason: why it is invalid.
    """

    delivery: Delivery
    verdict: Verdict
    missing: Sequence[bytes] = ()
    reason: str = ""


@frozen
class SyncAdvanced:
    """Bytes came in on a sync stream. Said now and then, more often than every `BroadcastConfig.stall` seconds."""

    sync: int
    statistics: SyncStatistics


@frozen
class SyncBrought:
    """What became of a batch that came by sync; says so after the transaction.

    Attributes:
        sync: the number of the sync.
        held: keys of the batch that are in the log now.
        inserted: how many of them are new.
        refused: keys that the local application refuses.
        orphans: keys of valid messages, each with those of its missing parents.
        invalid: what is wrong with the first invalid message; "" where there is none.
    """

    sync: int
    held: Sequence[bytes]
    inserted: int
    refused: Sequence[bytes] = ()
    orphans: Sequence[tuple[bytes, Sequence[bytes]]] = ()
    invalid: str = ""


@frozen
class SyncEnded:
    """Said once for every `StartSync`, after its last `SyncBrought`, also after `StopSync` and when the peer is gone.

    Attributes:
        sync: the number of the sync.
        result: how it ended.
        held: those of the keys of `StartSync.advertised` that are in the log now.
        statistics: what it cost.
        cooldown: seconds that the source asked to wait.
        reason: why it failed, or which rule the source broke.
        unanswered: what the source had been asked for, and had not answered (`Client.unanswered`).
    """

    sync: int
    result: SyncResult
    held: Sequence[bytes] = ()
    statistics: SyncStatistics = field(default_factory=SyncStatistics)
    cooldown: float = 0.0
    reason: str = ""
    unanswered: str = ""


# Timers


@frozen
class SyncDue:
    """The peer's back-off is over."""

    peer: PeerId


@frozen
class SyncCheck:
    """A look at whether a sync stalls, or has had its turn."""

    sync: int


@frozen
class RetryDue:
    """What the application refused of the peer's messages is to be tried again."""

    peer: PeerId


@frozen
class AnnounceDue:
    """Peers reached by gossip are to be sent the heads."""


@frozen
class OrphansDue:
    """Orphans that came by gossip have waited for their parents."""


@frozen
class OverlapDue:
    """Another sync with a peer that gossip reaches may start."""


Timer: TypeAlias = SyncDue | SyncCheck | OverlapDue | RetryDue | AnnounceDue | OrphansDue


@frozen
class TimerExpired:
    """The time of a `SetTimer` has come."""

    timer: Timer


InEvent: TypeAlias = (
    PeerConnected
    | PeerDisconnected
    | PeerBehind
    | PeerCaughtUp
    | ServingAborted
    | Appended
    | Received
    | HeadsReceived
    | Judged
    | SyncAdvanced
    | SyncBrought
    | SyncEnded
    | TimerExpired
)


# Out-events


@frozen
class SendUpdate:
    """Send the log's heads, as they are now, to these peers."""

    peers: Sequence[PeerId]


@frozen
class SendInsert:
    """Push a message to these peers; where it is too large for a frame, send an Update instead."""

    peers: Sequence[PeerId]
    key: bytes
    value: bytes


@frozen
class Publish:
    """Hand a message to the gossip router, if there is one, as an own one."""

    key: bytes
    value: bytes


class GossipAnswer(Enum):
    """What the router does with a message that it holds back: gossipsub's answers to asynchronous validation."""

    ACCEPT = "accept"
    """Forward it."""
    IGNORE = "ignore"
    """Drop it, and blame nobody."""
    REJECT = "reject"
    """Drop it, and penalise who delivered it."""


@frozen
class GossipAnswered:
    """The answer for a message that came by gossip."""

    source: PeerId
    ticket: Hashable
    answer: GossipAnswer


@frozen
class Insert:
    """Verify a message, insert it, and say what became of it: `Judged`.

    A driver that collects several for one transaction reads no more from a peer than it has room for.
    """

    delivery: Delivery


@frozen
class StartSync:
    """Open a sync stream to the peer.

    Attributes:
        sync: its number, in every report on it.
        peer: to sync with.
        advertised: keys that it advertised.
        skip: keys not to ask for (`SyncClientConfig.skip`).
    """

    sync: int
    peer: PeerId
    advertised: Sequence[bytes]
    skip: frozenset[bytes]


@frozen
class StopSync:
    """End a sync stream, keep what it brought, and report it as any other."""

    sync: int


@frozen
class Disconnect:
    """The peer broke the rules: end the connection, and hold it against the peer."""

    peer: PeerId
    reason: str


@frozen
class SetTimer:
    """Say `TimerExpired(timer)` at a time. It replaces an equal timer that was set before."""

    timer: Timer
    at: float


@frozen
class SyncStarted:
    """For the application: a sync began."""

    peer: PeerId


@frozen
class SyncProgress:
    """For the application: what a sync has brought so far."""

    peer: PeerId
    inserted: int
    statistics: SyncStatistics


@frozen
class SyncOver:
    """For the application: a sync ended.

    Attributes:
        peer: that was synced with.
        complete: whether everything that the peer had was asked for.
        inserted: messages that it brought.
        refused: keys of messages that the application refuses, and of those that descend from them; of the first ones
            (`BroadcastConfig.skipped`).
        statistics: what it cost.
        error: why it is not complete, or did not bring what the peer had advertised; "" where all went well.
        blamed: whether the peer is dropped for it, by the order that follows.
    """

    peer: PeerId
    complete: bool
    inserted: int
    refused: Collection[bytes]
    statistics: SyncStatistics
    error: str
    blamed: bool = False


OutEvent: TypeAlias = (
    SendUpdate
    | SendInsert
    | Publish
    | GossipAnswered
    | Insert
    | StartSync
    | StopSync
    | Disconnect
    | SetTimer
    | SyncStarted
    | SyncProgress
    | SyncOver
)
