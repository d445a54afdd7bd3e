"""The broadcast machine of a driver; a new machine takes the place of one that has a defect.

A machine that raised halfway through an event cannot be trusted. The next one learns of the peers as if they had just
connected, but for the one whose doing the event was, which is disconnected. Nothing is lost: each peer is sent the
heads, and each is synced with, which finds what it had advertised and what only the old machine knew. Syncs of the old
machine are stopped; they keep what they brought.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

import anyio

from gossiplog.net.replicator.defects import Defects, defect_in
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.machine import Broadcast

MOST_REBUILDS = 10
"""Within REBUILD_SECONDS, where nobody's input can be named: beyond that the defect is this side's own doing."""
REBUILD_SECONDS = 60.0

_INPUT = (broadcast.Received, broadcast.Judged, broadcast.HeadsReceived)
"""What a peer that is being disconnected may still cause."""


class SharedMachine:
    """Reports events to a machine, one after the other.

    Args:
        make: makes one, whose syncs have numbers that no other's have.
        do: does what it asks for.
        defects: reports what it raises.
        members: gives the peers that a new machine has to know.
        start_over: is called before a new machine takes over, to stop the old one's syncs, and forget what else only
            the old one knew.
        update_all: announces the heads to all peers, when a sync of an earlier machine has ended.
        pass_over: skips a delivery whose source is being disconnected.
        give_up: ends the driver with a defect that a new machine does not cure.
    """

    def __init__(
        self,
        make: Callable[[], Broadcast],
        do: Callable[[broadcast.OutEvent], None],
        defects: Defects,
        *,
        members: Callable[[], Sequence[PeerSession]],
        start_over: Callable[[Sequence[int]], None],
        update_all: Callable[[], None],
        pass_over: Callable[[broadcast.Delivery], None],
        give_up: Callable[[BaseException], None],
    ) -> None:
        self._make = make
        self._machine = make()
        self._do = do
        self._defects = defects
        self._members = members
        self._start_over = start_over
        self._update_all = update_all
        self._pass_over = pass_over
        self._fail = give_up
        self._inbox: deque[broadcast.InEvent] = deque()
        self._is_handling = False
        self._has_failed = False
        # With whom the syncs are that have not ended, and those of them that earlier machines began.
        self._syncs: dict[int, broadcast.PeerId] = {}
        self._earlier: set[int] = set()
        self._rebuilds: list[float] = []

    @property
    def skipped(self) -> Collection[bytes]:
        """Keys of the messages that the machine skips (see `Broadcast.skipped`)."""
        return self._machine.skipped

    @property
    def is_idle(self) -> bool:
        """Whether the machine is idle (see `Broadcast.is_idle`)."""
        return self._machine.is_idle

    def report(self, *happened: broadcast.InEvent) -> None:
        """Report events to the machine, in order, and do what it asks for, before returning.

        While the machine handles others (what it asks for may report something), the events wait for their
        turn, and this returns at once. After `give_up` was called, events are ignored.
        """
        if self._has_failed:
            return
        self._inbox += happened
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._inbox:
                self._handle(self._inbox.popleft())
        finally:
            self._is_handling = False

    def _handle(self, event: broadcast.InEvent) -> None:
        if self._defects.any_faulty and isinstance(event, _INPUT) and self._defects.is_faulty(self._source_of(event)):
            if not isinstance(event, broadcast.HeadsReceived):
                self._pass_over(event.delivery)
            return
        try:
            self._apply(event)
        except BaseException as error:
            source, doing = self._source_of(event), f"reporting {type(event).__name__} to the broadcast machine"
            if not self._defects.catch("broadcast", source, doing, error):
                raise
            self._rebuild(error, is_explained=source is not None)
        if isinstance(event, broadcast.SyncEnded):
            self._syncs.pop(event.sync, None)
            if event.sync in self._earlier:
                self._earlier.discard(event.sync)
                self._update_all()

    def _apply(self, event: broadcast.InEvent) -> None:
        for out in self._machine.handle(event, anyio.current_time()):
            if isinstance(out, broadcast.StartSync):
                self._syncs[out.sync] = out.peer
            self._do(out)

    def _rebuild(self, error: BaseException, *, is_explained: bool) -> None:
        now = anyio.current_time()
        if not is_explained:
            self._rebuilds = [time for time in self._rebuilds if now - time < REBUILD_SECONDS] + [now]
            if len(self._rebuilds) > MOST_REBUILDS:
                self._give_up(error)
                return
        self._earlier.update(self._syncs)
        self._start_over(tuple(self._syncs))
        # Peers whose connection waits to be reported are reported below.
        self._inbox = deque(event for event in self._inbox if not isinstance(event, broadcast.PeerConnected))
        self._machine = self._make()
        try:
            for peer in self._members():
                if not self._defects.is_faulty(peer.number):
                    for event in _joining(peer):
                        self._apply(event)
        except BaseException as again:
            if defect_in(again) is None:
                raise
            # Nobody's input was in it.
            self._give_up(again)

    def _give_up(self, error: BaseException) -> None:
        self._has_failed = True
        self._inbox.clear()
        self._fail(error)

    def _source_of(self, event: broadcast.InEvent) -> int | None:
        """Return the number of the peer that caused an event; None where none is known."""
        match event:
            case broadcast.Received(delivery) | broadcast.Judged(delivery):
                found = delivery.source
            case broadcast.SyncAdvanced(sync) | broadcast.SyncBrought(sync) | broadcast.SyncEnded(sync):
                found = self._syncs.get(sync)
            case broadcast.TimerExpired(broadcast.SyncCheck(sync)):
                found = self._syncs.get(sync)
            case broadcast.TimerExpired(broadcast.SyncDue(peer) | broadcast.RetryDue(peer)):
                found = peer
            case broadcast.TimerExpired() | broadcast.Appended():
                found = None
            case _:
                found = event.peer
        # The number 0 is nobody's.
        return found if isinstance(found, int) and found else None


def _joining(peer: PeerSession) -> Iterator[broadcast.InEvent]:
    yield broadcast.PeerConnected(peer.number, peer.gossips)
    if peer.behind:
        yield broadcast.PeerBehind(peer.number)
    if peer.may_write:
        # What it had advertised is forgotten: a sync finds out.
        yield broadcast.HeadsReceived(peer.number, (), 1)
