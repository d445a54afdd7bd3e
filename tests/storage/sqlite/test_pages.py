"""Pages of SQLite files that nobody vouches for: a repair reads them of damaged files, and of strangers'."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from gossiplog.storage.sqlite.pages import Pages, Value, page_size, restored_header
from tests.strategies import repeatable

PAGE = 512
LONG = bytes(range(256)) * 9
ROWS: Sequence[tuple[int, bytes, str, float]] = [(n, LONG[: n * 170], f"text {n}", n / 4) for n in range(1, 13)]


@cache
def database() -> bytes:
    """A database with small pages, a table with a rowid, one without, and values that overflow their pages."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "made.db")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("CREATE TABLE a(seq INTEGER PRIMARY KEY, value BLOB, text, number)")
            connection.execute("CREATE TABLE b(key BLOB PRIMARY KEY, seq) WITHOUT ROWID")
            connection.executemany("INSERT INTO a VALUES (?, ?, ?, ?)", ROWS)
            connection.executemany("INSERT INTO b VALUES (?, ?)", [(bytes([n]) * 300, n) for n in range(40)])
        return path.read_bytes()


def rows(content: bytes) -> list[tuple[int | None, Sequence[Value]]]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "read.db")
        path.write_bytes(content)
        with closing(Pages(path)) as pages:
            return [*pages.rows()]


def missing(content: bytes, counted: int) -> int:
    """How many pages are missing of a file whose header counts so many."""
    header = bytearray(content[:100])
    header[28:32] = counted.to_bytes(4)
    with TemporaryDirectory() as folder:
        path = Path(folder, "read.db")
        path.write_bytes(content)
        with closing(Pages(path)) as pages:
            return pages.missing(bytes(header))


def size_of(found: Sequence[tuple[int | None, Sequence[Value]]]) -> int:
    return sum(len(value) for _, values in found for value in values if isinstance(value, (bytes, str)))


def test_all_rows_of_a_sound_database() -> None:
    found = rows(database())
    by_rowid = {rowid: values for rowid, values in found if rowid is not None and values[0] is None}
    assert [(rowid, *values[1:]) for rowid, values in sorted(by_rowid.items())] == [*ROWS]
    # Those that pages were split for stand in two of them.
    others = {tuple(values) for rowid, values in found if rowid is None}
    assert others == {(bytes([n]) * 300, n) for n in range(40)}


def test_pages_that_are_missing_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "made.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("CREATE TABLE a(seq INTEGER PRIMARY KEY, value BLOB)")
        connection.execute("CREATE TABLE b(key BLOB PRIMARY KEY, seq) WITHOUT ROWID")
        for number in range(200):
            connection.execute("INSERT INTO a VALUES (?, zeroblob(80))", (number,))
            connection.execute("INSERT INTO b VALUES (?, ?)", (number.to_bytes(20), number))
    content = path.read_bytes()
    count = len(content) // PAGE
    for left in range(1, count + 1):
        assert missing(content[: left * PAGE], count) == count - left
    # A damaged count: no page refers to what it counts beyond the end.
    assert {missing(content, count ^ 1 << bit) for bit in range(32)} == {0}


def leaf(kind: int, cell: bytes) -> bytes:
    """A page with one cell, at its byte 100."""
    page = bytes([kind, 0, 0, 0, 1, 0, 0, 0, 0, 100]).ljust(100, b"\0") + cell
    return page.ljust(PAGE, b"\0")


def varint(value: int) -> bytes:
    """A number of SQLite's, in five bytes."""
    return bytes([*(value >> shift & 0x7F | 0x80 for shift in (28, 21, 14, 7)), value & 0x7F])


def overflowing(length: int) -> bytes:
    """A leaf with one cell, a record of one value of so many bytes, whose first overflow page is page 3."""
    payload = 6 + length
    local = 39 + (payload - 39) % (PAGE - 4)
    cell = varint(payload) + b"\1" + (b"\6" + varint(12 + 2 * length)).ljust(local, b"\0")
    return leaf(13, cell + (3).to_bytes(4))


def test_overflow_pages_that_name_each_other_have_an_end() -> None:
    first, circle = database()[:PAGE], (3).to_bytes(4) + bytes(PAGE - 4)
    fits, large = 150 + 508 * 3 - 6, 150 + 508 * 2**17 - 6
    sound = first + overflowing(fits) + b"".join((n).to_bytes(4) + bytes(PAGE - 4) for n in (4, 5, 0))
    assert [len(value) for _, (value, *_) in rows(sound)[-1:] if isinstance(value, bytes)] == [fits]
    assert rows(first + overflowing(large) + circle) == rows(first)
    assert size_of(rows(first + overflowing(fits) + circle * 3 + overflowing(fits) * 200)) <= 8 * PAGE * 205


def test_cells_that_share_their_bytes_are_read_up_to_a_limit() -> None:
    page = bytearray(PAGE)
    page[:5] = bytes([13, 0, 0, 0, 128])
    # As many pointers as a page has room for, to one cell of 200 bytes: a record of one value.
    page[8:264] = (280).to_bytes(2) * 128
    page[280:484] = bytes([0x81, 0x48, 1, 3, 0x83, 0x16]) + bytes(198)
    content = database()[:PAGE] + bytes(page) * 8
    assert 0 < size_of(rows(content)) <= 8 * len(content)


@repeatable(100)
@given(st.binary(max_size=4 * PAGE))
def test_any_bytes(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "any.db")
        path.write_bytes(content.ljust(100, b"\0"))
        header, restored = restored_header(path)
    assert page_size(restored) == page_size(header)
    assert len(restored) == 100
    for each in (content, database()[:100] + content):
        assert size_of(rows(each)) <= 8 * len(each)


@repeatable(100)
@given(st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=9)), max_size=8))
def test_a_database_with_other_bytes_in_some_places(changes: list[tuple[int, bytes]]) -> None:
    content = bytearray(database())
    for at, data in changes:
        at %= len(content) - len(data)
        content[at : at + len(data)] = data
    assert size_of(rows(bytes(content))) <= 8 * len(content)
