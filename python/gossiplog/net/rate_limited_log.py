"""Failed attempts of peers, and limits that they exceed: counted by kind, and logged at a limited rate.

So nobody fills a disk by repeating it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from gossiplog.reprs import escaped

MOST_REMEMBERED = 4096
"""Entries of each, unless the caller says otherwise."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def keep_latest(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int | None = None) -> None:
    """Set an entry and make it the last; beyond `most` entries, or MOST_REMEMBERED, delete the first."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > (MOST_REMEMBERED if most is None else most):
        del kept[next(iter(kept))]


LINES = 20
"""Lines about one kind of incident, in each period of SECONDS, unless the caller says otherwise."""
SECONDS = 60.0
FIELDS = "gossiplog"
"""The attribute of a log record that has the facts of its text as a mapping, for logs that programs read."""
SERVER_KEY = "gossiplog.server"
"""The key of a scope for what its server has counted: a mapping from kinds to numbers."""
CERTIFICATE_KEY = "gossiplog.certificate"
"""The key of a scope for the time when its server's certificate expires, in seconds since the epoch; None if that is
not known."""
VIOLATION_KEY = "gossiplog.violation"
"""The key of a `websocket.disconnect` for the rule of WebSockets that the client broke, as a clause; absent where the
client left."""

_LONGEST_TEXT = 1000


@dataclass(slots=True)
class _Period:
    start: float
    lines: int = 0
    texts: set[tuple[str, str]] = field(default_factory=set)


class RateLimitedLog:
    """Counts incidents and writes lines about them.

    Args:
        logger: takes the lines, as warnings.
        clock: seconds, on a clock that never goes back.

    Attributes:
        counts: how often each kind has happened; it goes with the time.

    Examples:
        >>> import logging
        >>> from gossiplog.lowlevel import RateLimitedLog
        >>> limited = RateLimitedLog(logging.getLogger("hub"))
        >>> limited.counts["refused"]
        0
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self.counts: Mapping[str, int] = MappingProxyType(self._counts)
        # By kind, of which a program has a handful.
        self._periods: dict[str, _Period] = {}
        self._suppressed: Counter[str] = Counter()

    def note(
        self,
        kind: str,
        peer: str,
        text: str,
        count: int = 1,
        error: BaseException | None = None,
        lines: int = LINES,
        level: int = logging.WARNING,
        subject: str = "peer",
        more: Mapping[str, str] = MappingProxyType({}),
        repeats: bool = True,
    ) -> None:
        """Note that something has happened.

        Args:
            kind: under which it is counted.
            peer: who did it.
            text: what, as a clause.
            count: how often.
            error: a defect, whose traceback is written as well.
            lines: written about the kind in each period.
            level: of the line; that of a defect is an error.
            subject: the field of the line that has `peer`, where something else than a peer is meant.
            more: fields of the line.
            repeats: whether a line of the same peer and text is written more than once in a period.
        """
        self._counts[kind] += count
        now = self._clock()
        period = self._periods.setdefault(kind, _Period(now))
        if now - period.start >= SECONDS:
            period = self._periods[kind] = _Period(now)
        if period.lines >= lines or (not repeats and (peer, text) in period.texts):
            self._suppressed[kind] += count
            return
        period.lines += 1
        period.texts.add((peer, text))
        times = f" ({count} times)" if count > 1 else ""
        suppressed = self._suppressed.pop(kind, 0)
        before = f"; {suppressed} similar suppressed" if suppressed else ""
        level = level if error is None else logging.ERROR
        fields = {"kind": kind, subject: one_line(peer), "count": count, "suppressed": suppressed, **more}
        self._logger.log(
            level, "%s: %s%s%s", one_line(peer), one_line(text), times, before, exc_info=error, extra={FIELDS: fields}
        )


def client_name(client: Sequence[str | int] | None) -> str:
    """Return the name of a client in lines of a log, and in events.

    Args:
        client: its host and port, as an ASGI server has them in a scope; None where it does not know.
    """
    host, port = client or ("unknown", 0)
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def one_line(text: str) -> str:
    """Return a text, parts of which a stranger may have written, in one line of a log."""
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return escaped(shown)
