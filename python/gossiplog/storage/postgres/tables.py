"""The tables of a log in Postgres, and the statements that read them.

In the text of a statement, @ stands for the log's schema. Its functions are named with their schema (see
`gossiplog.storage.postgres.connections`), and its operators stand between types for which Postgres has one of its own:
otherwise Postgres would prefer one for exactly these types that anybody has made who may create things in the schema,
and run its function with the rights of the role that has opened the log.

Damage that Postgres does not notice leaves a column its type, but may make it null or move a row away from its key in
an index. So what is null is read as what no sound column is, and columns that are searched by are compared with what
was searched for.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from itertools import accumulate, pairwise
from typing import Any

from gossiplog.errors import CorruptLog
from gossiplog.reprs import counted
from gossiplog.storage.base import (
    PAGE_BYTES,
    PREFIX,
    SCHEMA,
    ApplicationTables,
    Position,
    Reader,
    ScanColumn,
    divisions,
    parse_tables,
)
from gossiplog.storage.postgres.connections import ByteaArray, IntegerArray, Session, TextArray, quoted
from gossiplog.storage.postgres.meta import GET, POSITION, read_position

GUARD = f"{PREFIX}guard"
"""The name of the trigger on each table, and of its function."""
GUARD_BODY = (
    " BEGIN RAISE EXCEPTION USING ERRCODE = 'GL001', MESSAGE ="
    " '`apply` and `setup` must not write to ' || TG_TABLE_NAME; END "
)
"""What the function does."""
IN_APPLY = "gossiplog.in_apply"
"""The setting of a transaction in which the statements of an application run."""

COLUMNS: Mapping[str, Sequence[str]] = {
    "gossiplog_meta": ("name text", "value text"),
    "gossiplog_messages": ("seq bigint", "links bytea", "value bytea"),
    "gossiplog_leaves": ("key bytea", "hash bytea", "seq bigint"),
    "gossiplog_children": ("parent bigint", "child bigint"),
    "gossiplog_heads": ("key bytea", "seq bigint"),
    "gossiplog_tree": ("key bytea", "hash bytea"),
    "gossiplog_alternatives": ("seq bigint", "content bytea"),
}
"""The tables of a log with the names and types of their columns, none of which may be null."""
KEYS: Mapping[str, str] = {
    "gossiplog_meta": "name",
    "gossiplog_messages": "seq",
    "gossiplog_leaves": "key",
    "gossiplog_children": "parent, child",
    "gossiplog_heads": "key",
    "gossiplog_tree": "key",
    "gossiplog_alternatives": "seq",
}
"""The primary keys."""
# Rows that change in place: with room on their pages, a change needs no new entry in an index.
_FILL = {"gossiplog_meta": 20, "gossiplog_tree": 70}

_KEY, _HASH, _SEQUENCE = "coalesce(key, '')", "coalesce(hash, '')", "coalesce(l.seq, 0)"
_VALUE = "coalesce(value, '')"
_JOINED = "@.gossiplog_leaves AS l LEFT JOIN @.gossiplog_messages AS m ON m.seq = l.seq"
_BYTES = "pg_catalog.octet_length"
_MOST_STRAYS = 20
# Keys or sequences in one statement.
_CHUNK = 16_384
# From so many keys on, it pays to ask first whether they are all above those of the log.
_MANY = 16
# Rows of a scan in one statement.
_SCANNED = 4096
_STRAYS: Mapping[str, tuple[str, str]] = {
    "messages": ("seq", "seq BETWEEN 1 AND %(count)b"),
    "leaves": ("pg_catalog.encode(key, 'hex') || ', ' || seq::pg_catalog.text", "seq BETWEEN 1 AND %(count)b"),
    "children": (
        "parent::pg_catalog.text || ', ' || child::pg_catalog.text",
        "parent BETWEEN 1 AND %(indexed)b AND child BETWEEN 1 AND %(indexed)b",
    ),
    "alternatives": ("seq", "seq BETWEEN 1 AND %(count)b"),
}


def statements_of_log(schema: str) -> Iterator[bytes]:
    """Yield the statements that make the tables of a log in a schema, none of which is there."""
    place = quoted(schema)
    for table, columns in COLUMNS.items():
        # Signatures, hashes and CBOR: compressing them takes time and saves little. What is longer than a quarter of a
        # page goes elsewhere as it is, so that a part of it could be read by itself.
        storage = "".join(
            f"; ALTER TABLE {place}.{table} ALTER COLUMN {column.split()[0]} SET STORAGE EXTERNAL"
            for column in columns
            if column.endswith(" bytea")
        )
        fill = f" WITH (fillfactor = {_FILL[table]})" if table in _FILL else ""
        listed = ", ".join(f"{column} NOT NULL" for column in columns)
        yield f"CREATE TABLE {place}.{table}({listed}, PRIMARY KEY ({KEYS[table]})){fill}{storage}".encode()
    yield f"CREATE INDEX gossiplog_contents ON {place}.gossiplog_alternatives(content, seq)".encode()
    yield (
        f"CREATE FUNCTION {place}.{GUARD}() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS"
        f" $body${GUARD_BODY}$body$"
    ).encode()
    for table in COLUMNS:
        yield (
            f"CREATE TRIGGER {GUARD} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {place}.{table}"
            f" FOR EACH STATEMENT WHEN (pg_catalog.current_setting('{IN_APPLY}', true) = 'on')"
            f" EXECUTE FUNCTION {place}.{GUARD}()"
        ).encode()


class Statements:
    """The texts of statements over one log's tables."""

    def __init__(self, schema: str) -> None:
        self._plain = quoted(schema)
        # In a statement with parameters, a percent sign of a name stands twice.
        self._doubled = self._plain.replace("%", "%%")
        self._known: dict[str, bytes] = {}

    def __getitem__(self, statement: str) -> bytes:
        """Return the text of a statement that may have parameters."""
        known = self._known.get(statement)
        if known is None:
            known = self._known[statement] = statement.replace("@", self._doubled).encode()
        return known

    def plain(self, statement: str) -> bytes:
        """Return the text of a statement without parameters."""
        return statement.replace("@", self._plain).encode()


class PostgresReader(Reader):
    """Reads what a session sees.

    Args:
        session: with the connection.
        statements: the texts of the statements.
        identity: of the log that was opened, as `Found.mark`.
    """

    def __init__(self, session: Session, statements: Statements, identity: str) -> None:
        self._session = session
        self._statements = statements
        self._identity = identity

    def _rows(self, statement: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self._session.rows(self._statements[statement], parameters)

    def _position_rows(self) -> list[tuple[Any, ...]]:
        return self._rows(POSITION)

    def position(self) -> Position:
        return read_position(self._position_rows(), SCHEMA, self._identity)

    def level1(self, start: bytes = b"", end: bytes | None = None) -> Sequence[tuple[bytes, bytes]]:
        condition, bounds = _from_to(start, end)
        return self._rows(f"SELECT {_KEY}, {_HASH} FROM @.gossiplog_tree AS l WHERE {condition} ORDER BY key", bounds)

    def index_fingerprint(self) -> str | None:
        return self._meta("index_fingerprint")

    def _meta(self, name: str) -> str | None:
        rows = self._rows(GET, (name,))
        return rows[0][0] if rows else None

    def leaves(
        self, start: bytes, end: bytes | None, count: int, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        condition, bounds = _from_to(start, end)
        return self._rows(
            f"SELECT {_KEY}, {_HASH} FROM @.gossiplog_leaves AS l"
            f" WHERE {condition} AND seq <= %(count)b ORDER BY key LIMIT %(limit)b",
            bounds | {"count": count, "limit": limit},
        )

    def sequences(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        # New messages mostly come after all others: then one look is enough.
        above = ""
        if len(keys) >= _MANY:
            keys = sorted(keys)
            above = " AND %b <= (SELECT key FROM @.gossiplog_leaves ORDER BY key DESC LIMIT 1)"
        found: dict[bytes, int] = {}
        for chunk in _chunks(keys):
            parameters = (ByteaArray(chunk), chunk[0]) if above else (ByteaArray(chunk),)
            found |= self._rows(
                f"SELECT key, {_SEQUENCE} FROM @.gossiplog_leaves AS l WHERE key = ANY(%b){above}", parameters
            )
        self._check_found(found, keys, "key")
        if found and min(found.values()) < 1:
            key = min(found, key=found.__getitem__)
            raise CorruptLog([f"the leaf with the key {key.hex()} has the sequence {found[key]}: expected 1 or more"])
        return found

    def leaf_rows(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        found: dict[bytes, tuple[bytes, int]] = {}
        for chunk in _chunks(keys):
            rows = self._rows(
                f"SELECT key, {_HASH}, {_SEQUENCE} FROM @.gossiplog_leaves AS l WHERE key = ANY(%b)",
                (ByteaArray(chunk),),
            )
            found.update((key, (hash, sequence)) for key, hash, sequence in rows)
        self._check_found(found, keys, "key")
        return found

    def values(self, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
        room = limit
        found: dict[bytes, bytes] = {}
        for chunk in _chunks(keys if limit is None else sorted(keys)):
            parameters = {"keys": ByteaArray(chunk), "count": count, "room": room}
            # A leaf without its message is damaged, whatever its sequence is.
            source = f"FROM {_JOINED} WHERE key = ANY(%(keys)b) AND (l.seq <= %(count)b OR m.seq IS NULL)"
            rows = self._rows(
                f"SELECT key, {_VALUE} {source} ORDER BY key"
                if room is None
                else f"SELECT key, value FROM (SELECT key, {_VALUE} AS value, {_before('key')} {source}) AS each"
                " WHERE before <= %(room)b ORDER BY key",
                parameters,
            )
            found |= rows
            if room is not None:
                room -= sum(len(value) for _, value in rows)
                if room < 0:
                    break
        self._check_found(found, keys, "key")
        return found

    def page(
        self, after: bytes | None, before: bytes | None, reverse: bool, limit: int, count: int
    ) -> Sequence[tuple[bytes, bytes, bytes]]:
        condition, bounds = _between(after, before)
        order = "key DESC" if reverse else "key"
        return self._rows(
            f"SELECT key, hash, value FROM (SELECT {_KEY} AS key, {_HASH} AS hash, {_VALUE} AS value,"
            f" {_before(order)} FROM {_JOINED}"
            f" WHERE {condition} (l.seq <= %(count)b OR m.seq IS NULL) ORDER BY l.{order} LIMIT %(limit)b) AS each"
            f" WHERE before <= {PAGE_BYTES} ORDER BY {order}",
            bounds | {"count": count, "limit": limit},
        )

    def scan(
        self, columns: Sequence[ScanColumn], start: bytes, end: bytes | None, count: int
    ) -> AbstractContextManager[Iterator[tuple[Any, ...]]]:
        return closing(self._scan(tuple(columns), start, end, count))

    def _scan(
        self, columns: tuple[ScanColumn, ...], start: bytes, end: bytes | None, count: int
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows of a scan, page by page: a page begins behind the last key of the one before."""
        condition, bounds = _from_to(start, end)
        bounds |= {"count": count}
        if "value" in columns:
            source = f"{_VALUE} AS value, {_before('key')} FROM {_JOINED}"
            value = "value"
        else:
            source = "0 AS before FROM @.gossiplog_leaves AS l"
            value = "NULL"
        places = [("seq", "key", "value").index(column) for column in columns]
        while True:
            rows = self._rows(
                f"SELECT seq, key, {value} FROM (SELECT {_SEQUENCE} AS seq, {_KEY} AS key, {source}"
                f" WHERE {condition} AND l.seq <= %(count)b ORDER BY l.key LIMIT {_SCANNED}) AS each"
                f" WHERE before <= {PAGE_BYTES} ORDER BY key",
                bounds,
            )
            for row in rows:
                yield tuple(row[place] for place in places)
            # It may have ended for its bytes.
            if not rows or (len(rows) < _SCANNED and "value" not in columns):
                return
            if rows[-1][1] < bounds["start"]:
                raise CorruptLog(["the leaves do not ascend by their keys"])
            # The least key above.
            bounds["start"] = rows[-1][1] + b"\0"

    def split_keys(self, start: bytes, end: bytes | None, parts: int) -> Sequence[bytes]:
        condition, bounds = _from_to(start, end)
        # The anchor is no divider, though its key is in the range of a whole log.
        condition += " AND key > %(start)b"
        ((nodes,),) = self._rows(f"SELECT pg_catalog.count(*) FROM @.gossiplog_tree AS l WHERE {condition}", bounds)
        rows = self._rows(
            "SELECT key FROM"
            f" (SELECT {_KEY} AS key, pg_catalog.row_number() OVER (ORDER BY key) AS place FROM @.gossiplog_tree AS l"
            f" WHERE {condition}) AS each WHERE place = ANY(%(wanted)b) ORDER BY place",
            bounds | {"wanted": IntegerArray([index + 1 for index in divisions(nodes, parts)])},
        )
        found = [key for (key,) in rows]
        # In a damaged tree they may not ascend; any that do divide the range.
        ascending = [key for key, greatest in zip(found, accumulate(found, max), strict=True) if key == greatest]
        return [key for key in dict.fromkeys(ascending) if key > start and (end is None or key < end)]

    def number(self, after: bytes | None, before: bytes | None, count: int) -> int:
        condition, bounds = _between(after, before)
        ((found, strays),) = self._rows(
            "SELECT pg_catalog.count(*) FILTER (WHERE seq <= %(count)b), pg_catalog.count(*) FILTER"
            " (WHERE seq IS NULL OR seq > (SELECT coalesce(pg_catalog.max(seq), 0) FROM @.gossiplog_messages))"
            f" FROM @.gossiplog_leaves AS l WHERE {condition} TRUE",
            bounds | {"count": count},
        )
        if strays:
            raise CorruptLog([f"{counted(strays, 'leaf has', 'leaves have')} the sequence of no message"])
        return int(found)

    def arrivals(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        rows = self._rows(
            "SELECT seq, value FROM"
            f" (SELECT seq, {_VALUE} AS value, {_before('seq')} FROM @.gossiplog_messages AS m WHERE seq > %(after)b"
            f" ORDER BY seq LIMIT %(limit)b) AS each WHERE before <= {PAGE_BYTES} ORDER BY seq",
            {"after": after, "limit": limit},
        )
        # A damaged index may have some of them twice.
        sequences = [after, *(sequence for sequence, _ in rows)]
        for sound, (one, other) in enumerate(pairwise(sequences)):
            if one >= other:
                if not sound:
                    raise CorruptLog([f"behind the sequence {after} Postgres finds the message with {other}"])
                return rows[:sound]
        return rows

    def newest(self) -> tuple[int, bytes] | None:
        rows = self._rows(f"SELECT seq, {_VALUE} FROM @.gossiplog_messages AS m ORDER BY seq DESC LIMIT 1")
        return rows[0] if rows else None

    def links(self, sequences: Sequence[int]) -> Sequence[bytes]:
        found: dict[int, bytes] = {}
        for chunk in _chunks(sequences):
            found |= self._rows(
                "SELECT seq, coalesce(links, '') FROM @.gossiplog_messages AS m WHERE seq = ANY(%b)",
                (IntegerArray(chunk),),
            )
        try:
            return [found[sequence] for sequence in sequences]
        except KeyError as error:
            raise CorruptLog([f"there is no message with the sequence {error.args[0]}"]) from None

    def children(self, parents: Sequence[int], first: int, last: int) -> Sequence[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for chunk in _chunks(parents):
            found += self._rows(
                "SELECT parent, coalesce(child, 0) FROM @.gossiplog_children WHERE parent = ANY(%b)"
                " AND child BETWEEN %b AND %b",
                (IntegerArray(chunk), first, last),
            )
        self._check_found([parent for parent, _ in found], parents, "parent")
        return sorted(found)

    def contents(self, sequences: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for chunk in _chunks(sequences):
            found |= self._rows(
                "SELECT seq, coalesce(content, '') FROM @.gossiplog_alternatives WHERE seq = ANY(%b)",
                (IntegerArray(chunk),),
            )
        self._check_found(found, sequences, "seq")
        return found

    def alternatives(self, contents: Sequence[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for chunk in _chunks(contents):
            # One look-up in the index for each: grouped, every encoding of a message would be gone through.
            rows = self._rows(
                "SELECT content, (SELECT coalesce(seq, 0) FROM @.gossiplog_alternatives AS other"
                " WHERE other.content = wanted.content ORDER BY other.seq LIMIT 1)"
                " FROM pg_catalog.unnest(%b) AS wanted(content)",
                (ByteaArray(chunk),),
            )
            found.update((content, sequence) for content, sequence in rows if sequence is not None)
        if found and min(found.values()) < 1:
            raise CorruptLog(["the index of the alternative encodings has one without a sequence"])
        return found

    def heads(
        self, start: bytes = b"", end: bytes | None = None, limit: int | None = None
    ) -> Sequence[tuple[bytes, int]]:
        condition, bounds = _from_to(start, end)
        return self._rows(
            f"SELECT {_KEY}, {_SEQUENCE} FROM @.gossiplog_heads AS l WHERE {condition} ORDER BY key LIMIT %(limit)b",
            bounds | {"limit": limit},
        )

    def application_tables(self) -> ApplicationTables:
        has_setup = self._meta("setup")
        if has_setup not in ("0", "1"):
            raise CorruptLog([f"whether `setup` has run is {has_setup!r}: expected 0 or 1"])
        return ApplicationTables(has_setup == "1", sorted(self._missing(self._written_tables())))

    def _written_tables(self) -> frozenset[str]:
        """Return the names of the tables that the application has written to, as the log's search path finds them.

        Raises:
            CorruptLog: something else is stored.
        """
        text = self._meta("tables")
        names = parse_tables(text)
        if names is None:
            raise CorruptLog(
                [f"the application's tables are named {reprlib.repr(text)}: expected a JSON list of texts"]
            )
        return names

    def _missing(self, names: Collection[str]) -> frozenset[str]:
        """Return which of the names no table has."""
        if not names:
            return frozenset()
        rows = self._rows(
            "SELECT name FROM pg_catalog.unnest(%b) AS each(name) WHERE pg_catalog.to_regclass(name) IS NULL",
            (TextArray(sorted(names)),),
        )
        return frozenset(name for (name,) in rows)

    def strays(self, position: Position) -> Sequence[tuple[str, str]]:
        sequences = {"count": position.count, "indexed": position.indexed}
        found: list[tuple[str, str]] = []
        for table, (row, condition) in _STRAYS.items():
            rows = self._rows(
                f"SELECT coalesce(({row})::pg_catalog.text, 'NULL') FROM @.{PREFIX}{table}"
                f" WHERE NOT coalesce({condition}, false) LIMIT {_MOST_STRAYS}",
                sequences,
            )
            found += [(table, text) for (text,) in rows]
        return found

    def _check_found(self, found: Collection[Any], wanted: Sequence[Any], column: str) -> None:
        """Refuse rows that were not searched for, as a damaged index leads to."""
        if found and (others := set(found).difference(wanted)):
            raise CorruptLog([f"a search for another {column} finds the row with {reprlib.repr(next(iter(others)))}"])


def _before(order: str) -> str:
    """Return the expression of the bytes of the values in the rows before one, in an order of rows.

    It ends a page before the values are read that do not belong to it: those that are long are elsewhere than their
    rows, and only their lengths are looked at.
    """
    column = "l" if "key" in order else "m"
    return (
        f"coalesce(pg_catalog.sum({_BYTES}(m.value)) OVER (ORDER BY {column}.{order} ROWS BETWEEN UNBOUNDED PRECEDING"
        " AND 1 PRECEDING), 0) AS before"
    )


def _between(after: bytes | None, before: bytes | None) -> tuple[str, dict[str, Any]]:
    """Return the condition of a range of keys, to be followed by another one, and its parameters."""
    condition = f"{'' if after is None else 'l.key > %(after)b AND'} {'' if before is None else 'l.key < %(end)b AND'}"
    return condition, {name: key for name, key in (("after", after), ("end", before)) if key is not None}


def _from_to(start: bytes, end: bytes | None) -> tuple[str, dict[str, Any]]:
    """Return the condition of a half-open range of keys, and its parameters."""
    if end is None:
        return "l.key >= %(start)b", {"start": start}
    return "l.key >= %(start)b AND l.key < %(end)b", {"start": start, "end": end}


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    if len(items) <= _CHUNK:
        if items:
            yield items
        return
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
