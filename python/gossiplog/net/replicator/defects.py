"""Defects of this package that peers' input brings to light: each costs that peer its connection, and nobody else.

Whatever is raised while a peer's bytes are handled, and is none of the errors that mean something, is a defect. What
one peer has of its own (machines of push and sync, streams) ends with its connection; the machine that all share is
made anew (`machine`). The peer may come back, but not after STRIKES defects within SECONDS: then it is dropped as for
a broken rule. Functions of the application do not run where a peer's bytes are handled, or what they raise becomes
a RefusedMessage there.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from gossiplog._core import PanicException
from gossiplog.errors import NetworkError, StorageError
from gossiplog.net import events
from gossiplog.net.rate_limited_log import keep_latest
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.service import leaves

STRIKES = 3
SECONDS = 600.0
TOO_MANY = f"its input brought defects of this side to light {STRIKES} times within {SECONDS:g} s"


def defect_in(error: BaseException) -> BaseException | None:
    """Find what should not have been raised while a peer's input was handled.

    Not a defect are cancellation and whatever else is no Exception, a database that fails, is closed or damaged, and a
    network that ends. A panic of the core's is one, although it is no Exception either.

    Args:
        error: that was caught, or a group.

    Returns:
        The first defect; None if the error, or a part of the group, has to go its way.
    """
    parts = list(leaves(error))
    if not all(isinstance(part, (Exception, PanicException)) for part in parts):
        return None
    if any(isinstance(part, StorageError) for part in parts):
        return None
    defects = [part for part in parts if not isinstance(part, NetworkError)]
    # Tasks that passed something on to the one that failed have errors of their own.
    first = [part for part in defects if not isinstance(part, (anyio.BrokenResourceError, anyio.ClosedResourceError))]
    return next(iter(first or defects), None)


class DefectFound(NetworkError):
    """An exchange ended because the peer's input brought a defect to light, which was reported then."""


class Defects:
    """Reports defects, and disconnects the peers whose input brought them to light.

    Args:
        telemetry: counts them, and notifies the application.
        sessions: the peers that are being exchanged with, by number.
    """

    def __init__(self, telemetry: Telemetry, sessions: Mapping[int, PeerSession]) -> None:
        self._telemetry = telemetry
        self._sessions = sessions
        # The oldest first, each within a limit: when the latest defects of a peer were, by its culprit or origin; names
        # and those of peers that left, by number; numbers of those that caused one, which may not have left yet.
        self._times: dict[str, list[float]] = {}
        self._left: dict[int, tuple[str, str]] = {}
        self._faulty: dict[int, None] = {}

    def catch(self, kind: str, number: int | None, doing: str, error: BaseException) -> bool:
        """Report a defect, and disconnect a peer for it.

        Args:
            kind: of `NetworkCounters.defects`.
            number: of the peer; None where nobody's input can be named.
            doing: what was being done.
            error: that was caught.

        Returns:
            Whether it is one. Otherwise nothing was done, and the error has to go its way.
        """
        defect = defect_in(error)
        if defect is not None:
            self.report(kind, number, doing, defect)
        return defect is not None

    def report(self, kind: str, number: int | None, doing: str, defect: BaseException) -> None:
        """Report what is known to be a defect; otherwise as `catch`."""
        peer, name, origin = None, "", ""
        if number is not None:
            keep_latest(self._faulty, number, None)
            peer = self._sessions.get(number)
            name, origin = self._names(number)
        times: list[float] = []
        if origin:
            now = anyio.current_time()
            times = [*self._recent(origin, now), now][-STRIKES:]
            keep_latest(self._times, origin, times)
        self._telemetry.defect(kind, events.Defect(name, doing, defect, len(times)))
        if peer is not None:
            peer.part(f"a defect of this side, {doing}: {type(defect).__name__}: {defect}")
            if len(times) >= STRIKES:
                peer.blame(TOO_MANY)

    def bans(self, origin: str) -> bool:
        """Return whether peers from this origin have caused STRIKES defects within SECONDS."""
        return len(self._recent(origin, anyio.current_time())) >= STRIKES

    @property
    def any_faulty(self) -> bool:
        """Whether any peer has caused one."""
        return bool(self._faulty)

    def is_faulty(self, number: int | None) -> bool:
        """Return whether a peer, which may have left since, has caused one."""
        return number in self._faulty

    def name(self, number: int) -> str:
        """Return the name of a peer, which may have left since; "" where it is not remembered."""
        return self._names(number)[0]

    def leave(self, peer: PeerSession) -> None:
        """Remember a peer that left: what it sent may still bring a defect to light."""
        keep_latest(self._left, peer.number, (peer.name, peer.culprit or peer.origin))

    def _names(self, number: int) -> tuple[str, str]:
        peer = self._sessions.get(number)
        return (peer.name, peer.culprit or peer.origin) if peer is not None else self._left.get(number, ("", ""))

    def _recent(self, origin: str, now: float) -> list[float]:
        return [time for time in self._times.get(origin, ()) if now - time < SECONDS]
