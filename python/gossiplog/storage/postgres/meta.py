"""What a log in Postgres says of itself: the rows of gossiplog_meta, each a name with a text.

The names and their meanings are those of `gossiplog.storage.sqlite.meta`, so that a reader of one knows the other.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from gossiplog.errors import CorruptLog, LogReplaced, NewerSchema
from gossiplog.storage.base import Position, check_position

POSITION = """
    SELECT name, CASE name WHEN 'identity' THEN value || ' ' || tableoid::pg_catalog.text ELSE value END
    FROM @.gossiplog_meta WHERE name NOT IN ('tables', 'index_fingerprint')
    UNION ALL SELECT '#count', pg_catalog.max(seq)::pg_catalog.text FROM @.gossiplog_messages
    UNION ALL SELECT '#alternative', pg_catalog.max(seq)::pg_catalog.text FROM @.gossiplog_alternatives
"""
"""The statement whose rows are a position; the names that no row of gossiplog_meta has are those of other tables."""
GET = "SELECT value FROM @.gossiplog_meta WHERE name = %b"
SET = "UPDATE @.gossiplog_meta SET value = %b WHERE name = %b"
PUT = (
    "INSERT INTO @.gossiplog_meta(name, value) VALUES (%b, %b) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_IDENTITY = re.compile("[0-9a-f]{32}")


def integer(text: object) -> int | None:
    """Return a number that is stored as text; None for anything else."""
    return int(text) if isinstance(text, str) and _INTEGER.fullmatch(text) else None


def read_position(rows: Iterable[tuple[Any, ...]], schema: int, identity: str) -> Position:
    """Return how far a state has come, from the rows of POSITION.

    Args:
        rows: of the state.
        schema: that the log must have.
        identity: of the log and its table, as `Found.mark`: a copy that was restored has tables of its own.

    Raises:
        CorruptLog: what is stored of it cannot be.
        NewerSchema: the log has another schema.
        LogReplaced: it is another log.
    """
    found: Mapping[str, Any] = dict(rows)
    if found.get("identity") != identity:
        raise LogReplaced
    if found.get("schema") != str(schema):
        raise NewerSchema(
            f"another process has changed the log's schema from {schema} to {found.get('schema')!r}: open it again,"
            " with the version of gossiplog that did"
        )
    stored = {**found, "count": found["#count"] or "0", "alternative": found["#alternative"] or "0"}
    return check_position(stored, integer)


def check_identity(text: object) -> bytes:
    """Return the random bytes that a log has, from their text.

    Raises:
        CorruptLog: something else is stored.
    """
    if not isinstance(text, str) or not _IDENTITY.fullmatch(text):
        raise CorruptLog([f"the identity of the log is {reprlib.repr(text)}: expected 32 hexadecimal digits"])
    return bytes.fromhex(text)
