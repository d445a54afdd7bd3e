"""One column of one row gets another value, of any storage class: in the record itself, or by SQL where that takes it.

The tables and their columns are those of the schema, so that a new one is covered. A record is changed in its place:
its row stays where the value that it had belongs, as after a flipped bit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

# SQL expressions for the values of `VALUES` that an UPDATE can set.
_SQL: Mapping[str, str] = {
    "text": "CAST({column} AS TEXT) || 'x'",
    "integer": "7",
    "real": "1.5",
    "blob": "x'00'",
    "large": "9223372036854775807",
}
VALUES = ("null", "as text", "other", *_SQL)
"""What a column gets: NULL, its own bytes as text, what another row has in it, or what the SQL expression gives."""
_ROWS = {"first": 0.0, "middle": 0.5, "last": 1.0}
_HEADER = 100
_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13


class Unchanged(Exception):
    """A column that cannot have the value, or has it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of a row.

    Attributes:
        shape: of the log.
        table: or index.
        column: its name.
        row: a name of `_ROWS`, or in a table of settings the name of the setting.
        value: one of `VALUES`.
    """

    shape: str
    table: str
    column: str
    row: str
    value: str

    def __str__(self) -> str:
        return f"{self.shape}:{self.table}.{self.column}:{self.row}:{self.value}"

    def apply(self, folder: Path) -> None:
        """Change the column in the log in a folder.

        Raises:
            Unchanged: it cannot have the value, or has it.
        """
        path = folder / "log.db"
        before = path.read_bytes()
        if self.value in _SQL:
            self._update(path)
        else:
            with closing(sqlite3.connect(path)) as connection:
                tree = _Tree(connection, bytearray(before), self.table)
            tree.change(self.column, self.row, self.value)
            path.write_bytes(tree.content)
        if path.read_bytes() == before:
            raise Unchanged

    def _update(self, path: Path) -> None:
        value = _SQL[self.value].format(column=self.column)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            order = ", ".join(_columns(connection, self.table))
            (count,) = connection.execute(f"SELECT count(*) FROM {self.table}").fetchone()
            if self.row in _ROWS:
                offset = _index(self.row, count)
            else:
                names = [name for (name,) in connection.execute(f"SELECT name FROM {self.table} ORDER BY {order}")]
                offset = names.index(self.row)
            row = f"SELECT {order} FROM {self.table} ORDER BY {order} LIMIT 1 OFFSET {offset}"
            try:
                connection.execute(
                    f"UPDATE {self.table} SET {self.column} = {value} WHERE ({order}) = ({row})",
                )
            except sqlite3.DatabaseError as error:
                raise Unchanged from error


def cells(shape: str, path: Path) -> Iterator[Cell]:
    """Yield what can be changed in a log of a shape."""
    with closing(sqlite3.connect(path)) as connection:
        schema = connection.execute("SELECT type, name FROM sqlite_schema WHERE name LIKE 'gossiplog%'").fetchall()
        for kind, table in schema:
            rows: Sequence[str] = [*_ROWS]
            if table == "gossiplog_meta":
                rows = [name for (name,) in connection.execute(f"SELECT name FROM {table}")]
            for column in _columns(connection, table):
                for row in rows:
                    for value in VALUES if kind == "table" else VALUES[:3]:
                        yield Cell(shape, table, column, row, value)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table or an index, in the order of its records, the rowid of an index as `rowid`."""
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    return columns or [name or "rowid" for _, _, name, *_ in connection.execute(f"PRAGMA index_xinfo({table})")]


def _index(row: str, count: int) -> int:
    if not count:
        raise Unchanged
    return round(_ROWS[row] * (count - 1))


class _Tree:
    """The records of a table or an index."""

    def __init__(self, connection: sqlite3.Connection, content: bytearray, table: str) -> None:
        self.content = content
        (self._size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        self._columns = _columns(connection, table)
        # Places of the rowids, None in trees without, and of the records with their lengths.
        self._places = [*self._walk(root)]

    def _walk(self, number: int) -> Iterator[tuple[int | None, int, int]]:
        start = (number - 1) * self._size
        header = start + (_HEADER if number == 1 else 0)
        kind = self.content[header]
        is_interior = kind in (_INTERIOR_INDEX, _INTERIOR_TABLE)
        first = header + (12 if is_interior else 8)
        for index in range(int.from_bytes(self.content[header + 3 : header + 5])):
            at = start + int.from_bytes(self.content[first + 2 * index : first + 2 * index + 2])
            if is_interior:
                yield from self._walk(int.from_bytes(self.content[at : at + 4]))
                at += 4
            if kind != _INTERIOR_TABLE:
                length, at = _varint(self.content, at)
                rowid = None
                if kind == _LEAF_TABLE:
                    rowid = at
                    _, at = _varint(self.content, at)
                yield rowid, at, length
        if is_interior:
            yield from self._walk(int.from_bytes(self.content[header + 8 : header + 12]))

    def change(self, column: str, row: str, value: str) -> None:
        """Give a column of a row another value.

        Raises:
            Unchanged: it cannot have the value, or has it.
        """
        index = self._columns.index(column)
        if row in _ROWS:
            at = _index(row, len(self._places))
        else:
            names = [self._record(place)[0][1] for place in self._places]
            at = names.index(row.encode())
        other = at - 1 if at else 1
        if other >= len(self._places) and value == "other":
            raise Unchanged
        rowid, start, length = self._places[at]
        record = self._record(self._places[at])
        kind, body = record[index]
        if rowid is not None and index == 0:
            if value == "other":
                self._copy_rowid(rowid, self._places[other][0])
                return
            # The rowid is none of the record's columns.
            raise Unchanged
        match value:
            case "null":
                record[index] = (0, b"")
            case "as text" if kind >= 12 and kind % 2 == 0:
                record[index] = (kind + 1, body)
            case "other":
                record[index] = self._record(self._places[other])[index]
            case _:
                raise Unchanged
        self.content[start : start + length] = _written(record, length)

    def _copy_rowid(self, at: int, other: int | None) -> None:
        assert other is not None
        (_, end), (_, other_end) = _varint(self.content, at), _varint(self.content, other)
        if end - at != other_end - other:
            raise Unchanged
        self.content[at:end] = self.content[other:other_end]

    def _record(self, place: tuple[int | None, int, int]) -> list[tuple[int, bytes]]:
        """Return the columns of a record: their serial types and their bytes."""
        _, start, length = place
        if length > self._size // 5:
            # It may overflow the page.
            raise Unchanged
        end, at = _varint(self.content, start)
        body = start + end
        columns = []
        while at < start + end:
            kind, at = _varint(self.content, at)
            size = (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]
            columns.append((kind, bytes(self.content[body : body + size])))
            body += size
        return columns


def _written(record: Sequence[tuple[int, bytes]], length: int) -> bytes:
    """Return a record of a length: a column that no table has takes what is left."""
    kinds = b"".join(_as_varint(kind) for kind, _ in record)
    body = b"".join(value for _, value in record)
    left = length - 1 - len(kinds) - len(body)
    if left < 0:
        raise Unchanged
    if left:
        size = 1 if left <= 58 else 2
        kind = 12 + 2 * (left - size)
        kinds += bytes([kind]) if size == 1 else bytes([0x80 | kind >> 7, kind & 0x7F])
    return (bytes([1 + len(kinds)]) + kinds + body).ljust(length, b"\0")


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = 0
    while data[at] >= 0x80:
        value = value << 7 | data[at] & 0x7F
        at += 1
    return value << 7 | data[at], at + 1


def _as_varint(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(0x80 | value & 0x7F)
    return bytes(reversed(groups))
