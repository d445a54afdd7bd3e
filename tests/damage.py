"""Kinds of damage to a log: one table, for the tests of all that looks for damage.

Each is made behind the log's back in a log of `make_log`, of which the index covers everything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer, core
from gossiplog.log import writing
from tests.strategies import longer_author

TOPIC = "org.example.test"


@dataclass(frozen=True, slots=True)
class Damage:
    """A kind of damage.

    Attributes:
        name: of the kind.
        sql: statements that make it.
        write_version: of the file's header; None leaves what it is.
        words: of a problem that `Log.verify` finds.
        kinds: of the defects that a check through Spark finds; one of them at least. None where the log does not open.
    """

    name: str
    sql: Sequence[str]
    words: str
    kinds: Sequence[str] | None
    write_version: int | None = None


# A message in the midst of the log, one whose key the tree has at level 1, and another.
_IT = "seq = 20"
_NODE = "key = (SELECT key FROM gossiplog_tree ORDER BY key LIMIT 1 OFFSET 2)"
_LAST = "seq = (SELECT max(seq) FROM gossiplog_messages)"


def _one(name: str, words: str, kinds: Sequence[str] | None, *sql: str) -> Damage:
    return Damage(name, sql, words, kinds)


def _swap(table: str, column: str, one: str, other: str) -> Sequence[str]:
    return (
        f"CREATE TEMP TABLE swapped AS SELECT (SELECT {column} FROM {table} WHERE {one}) AS one,"
        f" (SELECT {column} FROM {table} WHERE {other}) AS other",
        f"UPDATE {table} SET {column} = CASE WHEN {one} THEN (SELECT other FROM swapped)"
        f" ELSE (SELECT one FROM swapped) END WHERE {one} OR {other}",
    )


DAMAGE: Sequence[Damage] = (
    # Values
    _one(
        "value overwritten",
        "sequence 20: ",
        ["value"],
        f"UPDATE gossiplog_messages SET value = zeroblob(200) WHERE {_IT}",
    ),
    _one(
        "value with a flipped bit",
        "sequence 20: ",
        ["value"],
        "UPDATE gossiplog_messages SET value = CAST(substr(value, 1, 60) || x'01' || substr(value, 62) AS BLOB)"
        f" WHERE {_IT}",
    ),
    _one("values swapped", "is not under its key", ["value"], *_swap("gossiplog_messages", "value", "seq = 9", _IT)),
    _one(
        "value of another message",
        "sequence 20: ",
        ["value"],
        f"UPDATE gossiplog_messages SET value = (SELECT value FROM gossiplog_messages WHERE seq = 9) WHERE {_IT}",
    ),
    _one("value of another type", "sequence 20: ", ["value"], f"UPDATE gossiplog_messages SET value = 7 WHERE {_IT}"),
    _one("message lost", "no message with the sequence 20", ["value"], f"DELETE FROM gossiplog_messages WHERE {_IT}"),
    _one("last message lost", "the index goes up", None, f"DELETE FROM gossiplog_messages WHERE {_LAST}"),
    _one(
        "message before the first",
        "the row 0 of messages is of no message",
        ["order"],
        "INSERT INTO gossiplog_messages VALUES (0, x'', x'')",
    ),
    # Link records
    _one(
        "link record of another",
        "sequence 20: its links",
        ["links"],
        f"UPDATE gossiplog_messages SET links = x'01' WHERE {_IT}",
    ),
    _one(
        "link record of the one before",
        "sequence 20: its links",
        ["links"],
        f"UPDATE gossiplog_messages SET links = (SELECT links FROM gossiplog_messages WHERE seq = 19) WHERE {_IT}",
    ),
    _one(
        "link record of another type",
        "sequence 20: its links",
        ["links"],
        f"UPDATE gossiplog_messages SET links = 'abc' WHERE {_IT}",
    ),
    # Leaves
    _one(
        "leaf hash",
        "its leaf is not that of its value",
        ["leaf"],
        f"UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE {_IT}",
    ),
    _one(
        "leaf hash of another type",
        "the tree's node",
        ["leaf"],
        f"UPDATE gossiplog_leaves SET hash = 'abc' WHERE {_IT}",
    ),
    _one("leaf lost", "is not under its key", ["leaf", "count", "root"], f"DELETE FROM gossiplog_leaves WHERE {_IT}"),
    _one("leaf key", "is not under its key", ["value"], f"UPDATE gossiplog_leaves SET key = x'05' WHERE {_IT}"),
    _one(
        "leaf key of the right length",
        "sequence 20: message",
        ["value"],
        f"UPDATE gossiplog_leaves SET key = CAST(substr(key, 1, 19) || x'55' AS BLOB) WHERE {_IT}",
    ),
    _one("leaf sequence", "is not under its key", ["leaf"], f"UPDATE gossiplog_leaves SET seq = 21 WHERE {_IT}"),
    _one(
        "leaf sequence of another type",
        "is not under its key",
        ["leaf"],
        f"UPDATE gossiplog_leaves SET seq = 'abc' WHERE {_IT}",
    ),
    _one(
        "leaf sequence above the count",
        ", 9999 of leaves is of no message",
        ["leaf"],
        f"UPDATE gossiplog_leaves SET seq = 9999 WHERE {_IT}",
    ),
    _one(
        "leaf of no message, above the count",
        ", 9999 of leaves is of no message",
        ["leaf"],
        "INSERT INTO gossiplog_leaves VALUES (x'0b0102030405060708090a0b0c0d0e0f10111213', zeroblob(16), 9999)",
    ),
    _one(
        "leaf of no message",
        "the tree's node",
        ["value"],
        "INSERT INTO gossiplog_leaves VALUES (x'0b0102030405060708090a0b0c0d0e0f10111213', zeroblob(16), 20)",
    ),
    # The tree
    _one(
        "tree hash of the anchor",
        "the tree's node",
        ["tree"],
        "UPDATE gossiplog_tree SET hash = zeroblob(16) WHERE key = x''",
    ),
    _one("tree hash", "the tree's node", ["tree"], f"UPDATE gossiplog_tree SET hash = zeroblob(16) WHERE {_NODE}"),
    _one("tree hashes of another type", "the tree", ["index", "tree"], "UPDATE gossiplog_tree SET hash = 'abc'"),
    _one(
        "tree key",
        "the tree's node",
        ["tree"],
        f"UPDATE gossiplog_tree SET key = CAST(substr(key, 1, 19) || x'00' AS BLOB) WHERE {_NODE}",
    ),
    _one(
        "tree row lost",
        "the tree's node",
        ["tree"],
        "DELETE FROM gossiplog_tree WHERE key = (SELECT max(key) FROM gossiplog_tree)",
    ),
    _one(
        "tree row too many",
        "the tree's node",
        ["tree"],
        "INSERT INTO gossiplog_tree SELECT CAST(substr(key, 1, 19) || x'00' AS BLOB), hash FROM gossiplog_tree"
        f" WHERE {_NODE}",
    ),
    _one("tree without its anchor", "the tree", ["index", "tree"], "DELETE FROM gossiplog_tree WHERE key = x''"),
    # Children
    _one(
        "child lost",
        "sequence 20: not stored as a child",
        ["children"],
        "DELETE FROM gossiplog_children WHERE child = 20",
    ),
    _one("children lost", "not stored as a child", ["children"], "DELETE FROM gossiplog_children"),
    _one("child too many", "pairs of parent and child", ["children"], "INSERT INTO gossiplog_children VALUES (1, 40)"),
    _one(
        "child above the count",
        "the row 5, 9999 of children is of no message",
        ["children"],
        "INSERT INTO gossiplog_children VALUES (5, 9999)",
    ),
    _one(
        "parent of no message",
        "the row 0, 5 of children is of no message",
        ["children"],
        "INSERT INTO gossiplog_children VALUES (0, 5)",
    ),
    _one(
        "child of another type",
        "not stored as a child",
        ["children"],
        "UPDATE gossiplog_children SET child = 'abc' WHERE child = 20",
    ),
    # Heads
    _one("heads lost", "heads are stored that should not be, or missing", ["head"], "DELETE FROM gossiplog_heads"),
    _one(
        "head lost",
        "head is stored that should not be, or missing",
        ["head"],
        "DELETE FROM gossiplog_heads WHERE key = (SELECT max(key) FROM gossiplog_heads)",
    ),
    _one(
        "head of no message",
        "the index covers no such message",
        ["index"],
        "INSERT INTO gossiplog_heads VALUES (zeroblob(20), 1)",
    ),
    _one(
        "head that has children",
        "head is stored that should not be, or missing",
        ["head"],
        f"INSERT INTO gossiplog_heads SELECT key, seq FROM gossiplog_leaves WHERE {_IT}",
    ),
    _one(
        "head with a wrong sequence",
        "the index covers no such message",
        ["index"],
        "UPDATE gossiplog_heads SET seq = 3",
    ),
    # The order of arrival
    _one(
        "messages in another order",
        "parents are missing or came later",
        ["order"],
        *_swap("gossiplog_messages", "value", "seq = 1", "seq = 2"),
        *[sql.replace("swapped", "moved") for sql in _swap("gossiplog_messages", "links", "seq = 1", "seq = 2")],
        "UPDATE gossiplog_leaves SET seq = 3 - seq WHERE seq IN (1, 2)",
    ),
    # Alternative encodings
    _one("alternative lost", "missing wrongly as an encoding", ["encoding"], "DELETE FROM gossiplog_alternatives"),
    _one(
        "alternative of another",
        "missing wrongly as an encoding",
        ["encoding"],
        f"INSERT INTO gossiplog_alternatives SELECT seq, key FROM gossiplog_leaves WHERE {_IT}",
    ),
    _one(
        "alternative above the count",
        "the row 9999 of alternatives is of no message",
        ["encoding"],
        "INSERT INTO gossiplog_alternatives VALUES (9999, zeroblob(20))",
    ),
    # What the log says of itself
    _one(
        "cursor above the count",
        "ran up to sequence 9999",
        ["index"],
        "UPDATE gossiplog_meta SET value = 9999 WHERE name = 'applied'",
    ),
    _one(
        "cursor below 0",
        "the cursor of `apply` is -1",
        None,
        "UPDATE gossiplog_meta SET value = -1 WHERE name = 'applied'",
    ),
    _one("cursor lost", "the cursor of `apply` is None", None, "DELETE FROM gossiplog_meta WHERE name = 'applied'"),
    _one(
        "index above the count",
        "the index goes up to 9999",
        None,
        "UPDATE gossiplog_meta SET value = 9999 WHERE name = 'indexed'",
    ),
    _one("index lost", "the index goes up to None", None, "DELETE FROM gossiplog_meta WHERE name = 'indexed'"),
    _one(
        "index below its rows",
        "the index covers no such message",
        ["index"],
        "UPDATE gossiplog_meta SET value = 20 WHERE name = 'indexed'",
    ),
    *(
        _one(f"{name} of another type", words, None, f"UPDATE gossiplog_meta SET value = 'abc' WHERE name = '{name}'")
        for name, words in {
            "generation": "the generation is 'abc'",
            "apply_version": "the version of `apply` is 'abc'",
            "rebuild": "the rebuild of the application's tables goes up to 'abc'",
        }.items()
    ),
    *(
        _one(f"{name}: {value}", words, ["index"], f"UPDATE gossiplog_meta SET value = {value} WHERE name = '{name}'")
        for name, value, words in (
            ("setup", "2", "whether `setup` has run is 2"),
            ("tables", "'[[]]'", "the application's tables are named '[[]]'"),
        )
    ),
    *(
        _one(f"table {name} lost", f"the table gossiplog_{name} is missing", None, f"DROP TABLE gossiplog_{name}")
        for name in ("messages", "leaves", "children", "heads", "tree", "alternatives")
    ),
    # The file
    Damage("unknown write version", (), "its header says that SQLite must not write it", ["file"], write_version=6),
)

parametrized = pytest.mark.parametrize("damage", DAMAGE, ids=[damage.name for damage in DAMAGE])


def make_log(path: Path) -> None:
    """Make a log of two authors' messages, all indexed, that came in several batches, not in the order of their ids."""
    with (
        pytest.MonkeyPatch.context() as patch,
        gossiplog.open(path, TOPIC, signer=Signer(bytes(32))) as log,
        gossiplog.open(":memory:", TOPIC, signer=Signer(b"\1" * 32)) as other,
    ):
        patch.setattr(writing, "INDEX_LAG", 0)
        for number in range(6):
            log.append_many(range(number, 30))
            other.append_many(range(number, 17))
            log.pull(other)
            if number % 2:
                other.pull(log)
        repeated = list(log.messages(reverse=True, limit=30))[20:]
        log.insert_many([core.verify(longer_author(message.value), TOPIC) for message in repeated])


def make_damage(path: Path, damage: Damage) -> None:
    """Damage a log that nobody has open."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for sql in damage.sql:
            changed = connection.execute(sql).rowcount
            assert changed != 0 or not sql.startswith(("UPDATE", "DELETE", "INSERT"))
    if damage.write_version is not None:
        with path.open("r+b") as file:
            file.seek(18)
            file.write(bytes([damage.write_version]))
