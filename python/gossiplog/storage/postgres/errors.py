"""Errors of Postgres and its driver as this package's, without secrets.

Codes are those of https://www.postgresql.org/docs/current/errcodes-appendix.html. What the server says is in the
language that its operator has chosen, so that only codes are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import psycopg

from gossiplog.errors import CorruptLog, StorageError
from gossiplog.storage.base import PREFIX, DiskFailure
from gossiplog.storage.postgres.url import PostgresURL

READ_ONLY = "25006"
"""The server takes no writes: it is a standby, or its operator or the role's settings say so."""
GUARDED = "GL001"
"""What the log's own triggers raise where `apply` writes to its tables; no code of Postgres' begins like it."""
SWALLOWED = "22012"
"""A division by zero, by which a statement fails that has not stored its rows."""
LOCK_NOT_AVAILABLE = "55P03"
DENIED = "42501"

_WAYS_BACK = "pg_restore brings them back from a backup, and gossiplog sync a new log from a replica"
# What the operator can do about it, by code.
_CAUSES: Mapping[str, str] = {
    READ_ONLY: "the server takes no writes: it is a standby, or default_transaction_read_only is on for it or the role",
    LOCK_NOT_AVAILABLE: "another process did not release its lock in time",
    DENIED: (
        "the role lacks a right: readers need USAGE on the schema and SELECT on its tables, writers INSERT, UPDATE and"
        " DELETE, too"
    ),
    "53100": "the server's disk is full",
    "53300": "the server has no connections left: raise max_connections, or put a pooler before it",
    "57014": "the statement was cancelled, by an operator or by statement_timeout",
    "22P05": "the database has an encoding without a character of what was sent, as of a schema: make one of UTF8",
    "25P03": "idle_in_transaction_session_timeout ended the transaction: does an `apply` function wait for something?",
    "25P04": "transaction_timeout ended the transaction: does an `apply` function wait for something?",
    "3F000": f"its schema was dropped or renamed meanwhile: {_WAYS_BACK}",
    "42P01": f"its tables were dropped or renamed meanwhile: {_WAYS_BACK}",
}
# What no other try mends, of a connection that was not made: the driver gives such errors no code. Its own words are
# English; those of a server in another language are taken for an error that may pass.
_REFUSED: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), cause)
    for pattern, cause in (
        ("no password supplied", "the server asks for a password: set PGPASSWORD, or write it into ~/.pgpass"),
        ("password authentication failed", "the server takes no such password: see PGPASSWORD, ~/.pgpass and the URL"),
        (
            "no pg_hba.conf entry",
            "the server's pg_hba.conf lets this role into this database in no such way: from here, or without TLS"
            " (sslmode=require)",
        ),
        ("authentication failed", "the server does not take this program for the role: name another as USER@"),
        ('role ".*" (does not exist|is not permitted to log in)', "name a role that may log in as USER@, or make it"),
        ('database ".*" does not exist', "make the database first, as by createdb, or name another"),
        ("permission denied for database", "the role lacks CONNECT on the database: as its owner, GRANT it"),
        ("SSL|certificate", "what the URL asks for of TLS (sslmode and others) is not what the server has"),
        ("unrecognized configuration parameter|cannot be changed|invalid value for", "see the options of the URL"),
        # Of the settings of a connection that was not even tried.
        ("^connection is bad: (?!connection to server)", "see the URL, and libpq's variables, as PGSERVICE"),
    )
]
# Of a server that is away or begins; with several hosts, one of them is enough.
_AWAY = re.compile(
    "Is the server running|timeout|timed out|starting up|shutting down|in recovery|closed the connection"
)
# Another try may succeed: the transaction was a victim of others, or the server is on its way down or up.
_PASSING = frozenset(
    {
        "40001",  # serialization_failure; on a standby, a conflict with what it replays
        "40P01",  # deadlock_detected
        "57P01",  # admin_shutdown, which pg_terminate_backend also raises
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
        "58030",  # io_error
        "53100",  # disk_full
        "53200",  # out_of_memory
        "53300",  # too_many_connections
        LOCK_NOT_AVAILABLE,
        "0A000",  # among others: a prepared statement over a table that was changed since
    }
)
# Damage, and what our own statements only meet over rows or tables that no log has.
_DAMAGE = frozenset({"XX001", "XX002", "58P01"})
_CONSTRAINED = frozenset({"23503", "23505", "23514", "23P01"})
_MISFITS = ("22", "23", "42")


def error_code(error: psycopg.Error) -> str:
    """Return the code of an error; "" where the driver itself raised it, as for a lost connection."""
    return error.sqlstate or ""


def is_connection_lost(error: psycopg.Error) -> bool:
    """Return whether the connection is gone on which an error was raised, and nothing more can be said to the server.

    What it was told before may still happen.
    """
    code = error_code(error)
    if code.startswith("08") or code in ("57P01", "57P02", "57P05", "25P03", "25P04"):
        return True
    return not code and isinstance(error, psycopg.OperationalError)


def is_no_verdict(error: psycopg.Error) -> bool:
    """Return whether a statement of an application failed for what has nothing to do with the message.

    That is the server, its disk, other transactions, or the role's rights; or a plan of a statement over a table that
    somebody has changed since, which is made anew when it is run again.
    """
    code = error_code(error)
    return (
        is_connection_lost(error)
        or code.startswith(("25", "40", "53", "55", "57", "58", "XX"))
        or code == DENIED
        or error.diag.source_function == "RevalidateCachedQuery"
    )


def storage_error(place: str, doing: str, error: psycopg.Error, hide: Callable[[str], str] = str) -> StorageError:
    """Return what to raise for an error of the driver: CorruptLog for damage, DiskFailure where another try may do.

    Args:
        place: the URL of the log, without secrets.
        doing: what was tried, after "cannot".
        error: of the driver.
        hide: removes secrets from the driver's words.
    """
    code = error_code(error)
    said = hide(_said(error))
    what = f"cannot {doing} {place}: "
    if code == SWALLOWED and not _is_anothers(error):
        return StorageError(f"{what}a trigger on its tables keeps rows from being stored: drop it ({said}; {code})")
    if error.diag.source_function == "RewriteQuery":
        return StorageError(f"{what}a rule on its tables keeps messages from being stored: drop it ({said}; {code})")
    if code in _DAMAGE:
        return CorruptLog([f"{what}{said} ({code})"])
    if code in _CAUSES:
        what += f"{_CAUSES[code]} ({said}; {code})"
    elif code in _CONSTRAINED and (added := _added_constraint(error)):
        what += f"somebody has added the constraint or index {added} to the log's tables: drop it ({said}; {code})"
    elif code.startswith(_MISFITS):
        if _is_anothers(error):
            return StorageError(f"{what}the application's tables do not take what it wrote ({said}; {code})")
        return CorruptLog([f"{what}its tables are not those of a log ({said}; {code})"])
    elif cause := _why_refused(error):
        return StorageError(f"{what}{cause} ({said})")
    else:
        what += f"{said} ({code})" if code else said
    kind = DiskFailure if code in _PASSING or is_connection_lost(error) else StorageError
    return kind(what)


def _why_refused(error: psycopg.Error) -> str:
    """Return why a connection was not made, and what to do; "" where another try may make it, or it was made."""
    text = str(error)
    if error_code(error) or not isinstance(error, psycopg.OperationalError) or _AWAY.search(text):
        return ""
    return next((cause for pattern, cause in _REFUSED if pattern.search(text)), "")


def _is_anothers(error: psycopg.Error) -> bool:
    """Return whether an error is about a table that is not the log's, as of a constraint that waits for the commit."""
    table = error.diag.table_name
    return table is not None and not table.startswith(PREFIX)


def _added_constraint(error: psycopg.Error) -> str | None:
    """Return the name of a constraint of a log's table that this package has not made; None for any other."""
    table, name = error.diag.table_name or "", error.diag.constraint_name
    return name if table.startswith(PREFIX) and name != f"{table}_pkey" else None


def _said(error: psycopg.Error) -> str:
    """Return what the server or the driver says, in one line."""
    said = error.diag.message_primary or str(error) or type(error).__name__
    return " ".join(said.split())


def hiding(url: PostgresURL) -> Callable[[str], str]:
    """Return a function that removes the secrets of a URL from a text."""
    secrets = sorted((secret for secret in url.secrets if len(secret) > 1), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    return hide


class PostgresErrors:
    """A block whose errors of the driver are raised as StorageError.

    Args:
        place: of the log.
        doing: what the block does, after "cannot".
        hide: removes secrets from a text.
    """

    __slots__ = ("_doing", "_hide", "_place")

    def __init__(self, place: str, doing: str, hide: Callable[[str], str]) -> None:
        self._place = place
        self._doing = doing
        self._hide = hide

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, psycopg.Error):
            raise self.translated(error) from self.without_secrets(error)

    def translated(self, error: psycopg.Error) -> StorageError:
        """Return what to raise for an error."""
        return storage_error(self._place, self._doing, error, self._hide)

    def without_secrets(self, error: psycopg.Error) -> psycopg.Error:
        """Return the error, whose text is shown in tracebacks, without secrets."""
        error.args = tuple(self._hide(each) if isinstance(each, str) else each for each in error.args)
        return error
