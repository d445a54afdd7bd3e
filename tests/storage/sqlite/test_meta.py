"""What a log in SQLite says of itself, and what is refused of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from gossiplog.errors import CorruptLog, NewerSchema
from gossiplog.storage.base import REBUILD_REQUESTED, SCHEMA, Position
from gossiplog.storage.sqlite import meta
from gossiplog.storage.sqlite.tables import TABLES


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """To the tables of a new log."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in TABLES:
            connection.execute(statement)
        rows = {"schema": SCHEMA, "topic": "notes", "applied": 0, "indexed": 0, **meta.new_meta()}
        connection.executemany("INSERT INTO gossiplog_meta VALUES (?, ?)", rows.items())
        yield connection


def position(connection: sqlite3.Connection) -> Position:
    return meta.read_position(connection, SCHEMA, "0", meta.POSITION_ADDED)


def test_a_new_log(connection: sqlite3.Connection) -> None:
    assert position(connection) == Position()
    assert len(meta.stored_identity(connection)) == 16
    assert not meta.read_has_setup(connection)
    assert meta.read_tables(connection) == frozenset()
    assert meta.read_text(connection, "index_fingerprint") is None


def test_values_are_changed_and_added(connection: sqlite3.Connection) -> None:
    meta.set_meta(connection, "rebuild", REBUILD_REQUESTED)
    meta.set_meta(connection, "no such name", 1)
    meta.write_tables(connection, {"b", "a"})
    for text in ("one", "another"):
        meta.put_meta(connection, "index_fingerprint", text)
    assert position(connection).rebuild == REBUILD_REQUESTED
    assert meta.read_text(connection, "no such name") is None
    assert meta.read_text(connection, "tables") == '["a", "b"]'
    assert meta.read_tables(connection) == {"a", "b"}
    assert meta.read_text(connection, "index_fingerprint") == "another"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("applied", "indexed", "generation", "apply_version")
            for value in (-1, "1", 1.5, None)
        ),
        ("indexed", 1),
        ("apply_version", 0),
        ("rebuild", -2),
        ("rebuild", 1),
        ("rebuild", "0"),
    ],
)
def test_a_position_that_cannot_be_is_damage(connection: sqlite3.Connection, name: str, value: object) -> None:
    connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = ?", (value, name))
    with pytest.raises(CorruptLog, match=repr(value)):
        position(connection)


def test_another_schema_is_that_of_another_version(connection: sqlite3.Connection) -> None:
    meta.set_meta(connection, "schema", SCHEMA + 1)
    with pytest.raises(NewerSchema, match=f"from {SCHEMA} to {SCHEMA + 1}"):
        position(connection)


@pytest.mark.parametrize("value", [None, 1, b"[]", "", "{}", "[1]", "[" * 100_000])
def test_names_of_tables_that_are_no_list_are_damage(connection: sqlite3.Connection, value: object) -> None:
    connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'tables'", (value,))
    with pytest.raises(CorruptLog, match="expected a JSON list of texts"):
        meta.read_tables(connection)


@pytest.mark.parametrize("value", [None, 2, "1", b""])
def test_setup_is_a_yes_or_a_no(connection: sqlite3.Connection, value: object) -> None:
    connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'setup'", (value,))
    with pytest.raises(CorruptLog, match="expected 0 or 1"):
        meta.read_has_setup(connection)


@pytest.mark.parametrize("value", [None, 1, "", "0" * 31, "G" * 32, "0" * 32 + "\n"])
def test_an_identity_has_32_digits(connection: sqlite3.Connection, value: object) -> None:
    connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'identity'", (value,))
    with pytest.raises(CorruptLog, match="expected 32 hexadecimal digits"):
        meta.stored_identity(connection)


A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("origins", "last", "stored"),
    [
        ((), 0, ()),
        ((), 5, ((C, 5),)),
        (((A, 3), (B, 4)), 5, ((A, 3), (B, 4), (C, 5))),
        (((A, 3), (B, 5)), 5, ((A, 3), (B, 5))),
        (((A, 3), (B, 5)), 4, ((A, 3), (B, 4))),
        (((A, 3), (B, 5)), 3, ((A, 3),)),
        (((A, 3), (B, 5)), 0, ()),
    ],
)
def test_origins_go_as_far_as_the_messages_that_are_the_same(
    connection: sqlite3.Connection,
    origins: tuple[tuple[bytes, int], ...],
    last: int,
    stored: tuple[tuple[bytes, int], ...],
) -> None:
    assert meta.stored_origins(connection) == ()
    meta.put_meta(connection, "origins", meta.format_origins(origins, C, last))
    assert meta.stored_origins(connection) == stored


@pytest.mark.parametrize(
    "text",
    [
        None,
        1,
        b"\xff",
        "{}",
        "[1]",
        "[" * 100_000,
        '[["a", 1]]',
        f'[["{A.hex()}", "1"]]',
        f'[["{A.hex()}", 0]]',
        f'[["{A.hex()}", 2], ["{B.hex()}", 2]]',
    ],
)
def test_what_is_no_list_of_origins_is_none(connection: sqlite3.Connection, text: object) -> None:
    connection.execute("INSERT INTO gossiplog_meta VALUES ('origins', ?)", (text,))
    assert meta.stored_origins(connection) == ()
