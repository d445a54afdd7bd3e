"""What a log in SQLite says of itself: the rows of gossiplog_meta, each a name with a value.

- schema: the version of the tables; topic: that all messages have.
- indexed, and index_fingerprint: how far the index goes, and the text that it is compared with.
- applied, apply_version, rebuild, generation: see `Position`.
- setup: 1 where `setup` made the application's tables.
- tables: a JSON list of the names of the tables that `setup` and `apply` have written to.
- identity: random; no two files that are written to have the same.
- origins: of a backup, or of a log that was repaired: a JSON list of [identity, sequence], from which databases it has
  its messages, with the last sequence that each gave to one, ascending. Those after them got theirs here.

A damaged file may have any values: what is read is checked.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from gossiplog.errors import CorruptLog, NewerSchema
from gossiplog.storage.base import Position, check_position, parse_tables

POSITION_ADDED = ", ".join(
    f"(SELECT value FROM gossiplog_meta WHERE name = '{name}')" for name in ("generation", "apply_version", "rebuild")
)
"""The columns of the position that schema 4 added."""
_IDENTITY = re.compile("[0-9a-f]{32}")


def new_meta() -> Mapping[str, int | str]:
    """Return the rows of gossiplog_meta that schema 4 added, as a new log or one that was just upgraded has them."""
    position = Position()
    return {
        "generation": position.generation,
        "apply_version": position.apply_version,
        "rebuild": position.rebuild,
        "setup": 0,
        "tables": "[]",
        "identity": os.urandom(16).hex(),
    }


def read_position(connection: sqlite3.Connection, schema: int, last_alternative: str, added: str) -> Position:
    """Return how far the state has come that a connection reads.

    Args:
        connection: to the database.
        schema: that the log must have.
        last_alternative: the expression of the sequence of the last alternative encoding.
        added: the expressions of what POSITION_ADDED reads; an earlier schema has constants.

    Raises:
        CorruptLog: what is stored of it cannot be.
        NewerSchema: the log has another schema.
    """
    row = connection.execute(
        "SELECT (SELECT value FROM gossiplog_meta WHERE name = 'schema'),"
        " (SELECT coalesce(max(seq), 0) FROM gossiplog_messages),"
        " (SELECT value FROM gossiplog_meta WHERE name = 'applied'),"
        " (SELECT value FROM gossiplog_meta WHERE name = 'indexed'),"
        f" {last_alternative}, {added}"
    ).fetchone()
    found, count, applied, indexed, alternative, generation, apply_version, rebuild = row
    if found != schema:
        raise NewerSchema(
            f"another process has changed the log's schema from {schema} to {found!r}: open it again, with the version"
            " of gossiplog that did"
        )
    stored = {
        "count": count,
        "applied": applied,
        "indexed": indexed,
        "alternative": alternative,
        "generation": generation,
        "apply_version": apply_version,
        "rebuild": rebuild,
    }
    return check_position(stored, _integer)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def stored_identity(connection: sqlite3.Connection) -> bytes:
    """Return the random bytes that a database of schema 4 or later has.

    Raises:
        CorruptLog: something else is stored.
    """
    text = _read_meta(connection, "identity")
    identity = parse_identity(text)
    if identity is None:
        raise CorruptLog([f"the identity of the database is {text!r}: expected 32 hexadecimal digits"])
    return identity


def parse_identity(text: object) -> bytes | None:
    """Return the identity that is stored as hexadecimal digits; None for anything else."""
    return bytes.fromhex(text) if isinstance(text, str) and _IDENTITY.fullmatch(text) else None


def stored_origins(connection: sqlite3.Connection) -> tuple[tuple[bytes, int], ...]:
    """Return from which other databases one has messages, with the last sequence that each gave to one, ascending."""
    row = connection.execute("SELECT CAST(value AS BLOB) FROM gossiplog_meta WHERE name = 'origins'").fetchone()
    return () if row is None else parse_origins(row[0])


def parse_origins(text: object) -> tuple[tuple[bytes, int], ...]:
    """Return what is stored as origins; nothing for anything else, since a log may be read without them."""
    try:
        listed = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return ()
    origins: list[tuple[bytes, int]] = []
    for each in listed if isinstance(listed, list) else ():
        match each:
            case [text, int(last)] if last > (origins[-1][1] if origins else 0):
                if (identity := parse_identity(text)) is None:
                    return ()
                origins.append((identity, last))
            case _:
                return ()
    return tuple(origins)


def format_origins(origins: Collection[tuple[bytes, int]], identity: bytes, last: int) -> str:
    """Return what to store as the origins of a log that has the first messages of another one, with their sequences.

    Args:
        origins: of the other one.
        identity: of the other one.
        last: the last sequence that they have in common.
    """
    listed: list[tuple[str, int]] = []
    for each, end in (*origins, (identity, last)):
        # Beyond these, the other one may have had messages that this one has not.
        if min(end, last) > (listed[-1][1] if listed else 0):
            listed.append((each.hex(), min(end, last)))
    return json.dumps(listed)


def read_text(connection: sqlite3.Connection, name: str) -> str | None:
    """Return a value as text; None where there is none."""
    row = connection.execute("SELECT CAST(value AS TEXT) FROM gossiplog_meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def read_has_setup(connection: sqlite3.Connection) -> bool:
    """Return whether `setup` made the application's tables.

    Raises:
        CorruptLog: something else is stored.
    """
    has_setup = _read_meta(connection, "setup")
    if has_setup not in (0, 1):
        raise CorruptLog([f"whether `setup` has run is {has_setup!r}: expected 0 or 1"])
    return bool(has_setup)


def read_tables(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the names of the tables that the application has written to.

    Raises:
        CorruptLog: something else is stored.
    """
    text = _read_meta(connection, "tables")
    names = parse_tables(text)
    if names is None:
        raise CorruptLog([f"the application's tables are named {reprlib.repr(text)}: expected a JSON list of texts"])
    return names


def missing_tables(connection: sqlite3.Connection, names: Collection[str]) -> frozenset[str]:
    """Return which of the names no table has."""
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return frozenset(names) - {name for (name,) in rows}


def write_tables(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Store the names of the tables that the application has written to."""
    set_meta(connection, "tables", json.dumps(sorted(names)))


def set_meta(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    """Change a value that is there."""
    connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = ?", (value, name))


def put_meta(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    """Change a value, or add it."""
    connection.execute(
        "INSERT INTO gossiplog_meta(name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _read_meta(connection: sqlite3.Connection, name: str) -> Any:
    row = connection.execute("SELECT value FROM gossiplog_meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]
