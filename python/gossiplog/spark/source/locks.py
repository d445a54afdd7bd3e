"""How long logs are waited for that another process has locked.

A reader waits for a writer in a few moments alone, milliseconds each: when the last program that has a log open closes
it, and when the next one takes up what a crashed one has left. A lock that lasts is of a program that has the log for
itself. One log is waited for as everywhere; of many, the locked ones must not be waited for one after the other.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from gossiplog.storage.sqlite.files import error_code

FLEET_LOCK_SECONDS = 1.0
"""Seconds to wait for the first locked one of many logs: a hundred times what a lock of these moments lasts."""
_TASK_LOGS = 5
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOCK_NOT_AVAILABLE = "55P03"


@dataclass(slots=True)
class LockPatience:
    """How long the locked ones of many logs are waited for, which one task opens.

    Each takes the fifth part of what is left, so that any number of them take less than five seconds together, and the
    first ones nearly as long as a single one.

    Attributes:
        left: seconds.
    """

    left: float = field(default_factory=lambda: _TASK_LOGS * FLEET_LOCK_SECONDS)

    @property
    def seconds(self) -> float:
        """How long the next log is waited for."""
        return self.left / _TASK_LOGS

    def spend(self) -> None:
        """Take note of a log that was waited for in vain."""
        self.left -= self.seconds


def is_locked(error: BaseException) -> bool:
    """Return whether an error is of a lock that another process has not released."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, sqlite3.Error) and error_code(cause) in _LOCKED:
            return True
        if getattr(cause, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            return True
        cause = cause.__cause__
    return False
