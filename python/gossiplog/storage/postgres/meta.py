"""What a log in Postgres says of itself: the rows of gossiplog_meta, each a name with a text.

The names and their meanings are those of `gossiplog.storage.sqlite.meta`, so that a reader of one knows the other.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from gossiplog.errors import CorruptLog, LogReplaced, NewerSchema
from gossiplog.reprs import counted
from gossiplog.storage.base import REBUILD_REQUESTED, Position

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
# No log comes so far; what follows a sequence must be a number that Postgres holds.
_MOST_SEQUENCE = 2**62
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
    count, alternative = integer(found["#count"] or "0"), integer(found["#alternative"] or "0")
    applied, indexed, rebuild = (integer(found.get(name)) for name in ("applied", "indexed", "rebuild"))
    generation, apply_version = integer(found.get("generation")), integer(found.get("apply_version"))
    if count is None or alternative is None or not 0 <= count <= _MOST_SEQUENCE:
        raise CorruptLog([f"the last message has the sequence {found['#count']}: expected 0 to {_MOST_SEQUENCE}"])
    if applied is None or not 0 <= applied <= _MOST_SEQUENCE:
        raise CorruptLog(
            [f"the cursor of `apply` is {found.get('applied')!r}: expected the sequence of a message, or 0"]
        )
    if indexed is None or not 0 <= indexed <= count:
        raise CorruptLog(
            [
                f"the index goes up to {found.get('indexed')!r}: expected the sequence of one of"
                f" {counted(count, 'message')}, or 0"
            ]
        )
    if generation is None or generation < 0:
        raise CorruptLog([f"the generation is {found.get('generation')!r}: expected an integer of 0 or more"])
    if apply_version is None or apply_version < 1:
        raise CorruptLog(
            [f"the version of `apply` is {found.get('apply_version')!r}: expected an integer of 1 or more"]
        )
    if rebuild is None or not REBUILD_REQUESTED <= rebuild <= count:
        raise CorruptLog(
            [
                f"the rebuild of the application's tables goes up to {found.get('rebuild')!r}: expected the sequence of"
                " a message"
            ]
        )
    return Position(count, applied, indexed, alternative, generation, apply_version, rebuild)


def check_identity(text: object) -> bytes:
    """Return the random bytes that a log has, from their text.

    Raises:
        CorruptLog: something else is stored.
    """
    if not isinstance(text, str) or not _IDENTITY.fullmatch(text):
        raise CorruptLog([f"the identity of the log is {reprlib.repr(text)}: expected 32 hexadecimal digits"])
    return bytes.fromhex(text)
