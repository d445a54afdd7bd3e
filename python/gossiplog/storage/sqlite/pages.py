"""Rows of an SQLite file read page by page, whatever connects the pages: what is left where SQLite gives up.

Of the file format (https://sqlite.org/fileformat2.html) this is the part that a log's tables need: the cells of b-tree
pages, with their overflow pages, and records. A cell that does not hold together is passed over. SQLite's own recovery
(`sqlite_dbdata`) is compiled into neither Python's module nor the program `sqlite3` of the large distributions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeAlias

Value: TypeAlias = int | float | str | bytes | None

HEADER = 100
"""Bytes of a database's header ("The Database Header")."""
_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE = 4096
SMALLEST_PAGE = 512
"""Bytes of the smallest page that SQLite has, and so of the smallest database."""
_PAGE_SIZES = frozenset(SMALLEST_PAGE << power for power in range(8))
_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
_INTERIOR: Final = (_INTERIOR_INDEX, _INTERIOR_TABLE)
# In a sound file no two cells share bytes. Damage may make some do; a hostile file would have all of them do.
_MOST_SHARED = 4
# As both Python and SQLite's pragma call them.
_ENCODINGS: Final = {1: "UTF-8", 2: "UTF-16le", 3: "UTF-16be"}
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class _Damaged(Exception):
    """A cell that does not hold together."""


def page_size(header: bytes) -> int:
    """Return the page size that a header names, or the usual one where it names none."""
    size = int.from_bytes(header[16:18])
    size = 65536 if size == 1 else size
    return size if size in _PAGE_SIZES else _DEFAULT_PAGE


def is_writable(header: bytes) -> bool:
    """Return whether SQLite writes to a database with this header ("File format version numbers")."""
    return header[18:19] <= b"\2"


def initial_settings(header: bytes) -> Sequence[str]:
    """Return the statements that make an empty database one with the encoding and the vacuum of a header."""
    codec = _ENCODINGS.get(int.from_bytes(header[56:60]), _ENCODINGS[1])
    vacuum = ("INCREMENTAL" if any(header[64:68]) else "FULL") if any(header[52:56]) else "NONE"
    return f"PRAGMA encoding = '{codec}'", f"PRAGMA auto_vacuum = {vacuum}"


def restored_header(path: Path) -> tuple[bytes, bytes]:
    """Return the header of a database with a log, as it is and with what is known of it in its place.

    The database may be an application's: its encoding is that in which its schema can be read, and whether it is
    vacuumed automatically, its second page says, which then maps others ("Pointer Map or Ptrmap Pages").
    """
    with closing(Pages(path)) as pages:
        header, length, encoding, is_mapped = pages.header, pages.length, pages.detect_encoding(), pages.is_mapped
    size = page_size(header)
    restored = bytearray(header)
    restored[0:16] = _MAGIC
    restored[16:18] = (1 if size == 65536 else size).to_bytes(2)
    # Write-ahead log, no reserved space, the fractions that never change.
    restored[18:24] = bytes([2, 2, 0, 64, 32, 32])
    restored[28:32] = (length // size).to_bytes(4)
    # The schema's format.
    restored[44:48] = (4).to_bytes(4)
    restored[56:60] = encoding.to_bytes(4)
    if not is_mapped:
        restored[52:56] = restored[64:68] = bytes(4)
    restored[72:92] = bytes(20)
    return header, bytes(restored)


class Pages:
    """The pages of a file.

    Args:
        path: of the file.

    Attributes:
        header: its first 100 bytes, as far as it has them.
        length: of the file, in bytes.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.header = self._file.read(HEADER)
        self.length = self._file.seek(0, 2)
        self._size = page_size(self.header)
        self._count = self.length // self._size
        self._codec = _ENCODINGS.get(int.from_bytes(self.header[56:60]), _ENCODINGS[1])
        # How many overflow pages may still be read.
        self._overflow_left = _MOST_SHARED * self._count

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def is_mapped(self) -> bool:
        """Whether the second page maps others: that the third is the root of a table or an index."""
        return self._count > 1 and self._page(2)[:5] == b"\1\0\0\0\0"

    def detect_encoding(self) -> int:
        """Return the number of the encoding ("Text Encoding") in which the schema can be read, and read texts in it."""
        stored = self._codec
        for self._codec in dict.fromkeys([stored, *_ENCODINGS.values()]):
            texts = (value for _, values in self.rows() for value in values if isinstance(value, str))
            if any(text.startswith("CREATE ") for text in texts):
                break
        else:
            self._codec = stored
        return next(number for number, codec in _ENCODINGS.items() if codec == self._codec)

    def missing(self, header: bytes) -> int:
        """Return how many pages the file lacks of those that a header counts ("In-header database size").

        The count itself may be damaged: it is believed if one of these pages is the root of a table or the child of a
        page that is there. Of pages that others overflow to, rows are left that name what is lost.

        Args:
            header: the first 100 bytes of the file, as they were found.
        """
        counted = int.from_bytes(header[28:32])
        if counted <= self._count or not any(self._count < number <= counted for number in self._references()):
            return 0
        return counted - self._count

    def _references(self) -> Iterator[int]:
        """Yield the numbers of the pages that the schema and interior pages name: roots and children."""
        for _, values in self.rows():
            match values:
                case [str(), str(), str(), int(root), _]:
                    yield root
        for page, start, cells in self._trees():
            if page[start] in _INTERIOR:
                yield from (int.from_bytes(page[at : at + 4]) for at in (start + 8, *cells))

    def rows(self) -> Iterator[tuple[int | None, Sequence[Value]]]:
        """Yield the rows of all tables: their rowids, None in those without, and the values of their columns.

        The rows of a hostile file have up to eight times as many bytes as the file.
        """
        for page, start, cells in self._trees():
            kind = page[start]
            if kind == _INTERIOR_TABLE:
                continue
            left = _MOST_SHARED * self._size
            for at in cells:
                try:
                    rowid, payload, own = self._cell(page, at, kind)
                    left -= own
                    if left < 0:
                        break
                    yield rowid, _record(payload, self._codec)
                except (_Damaged, IndexError, UnicodeDecodeError):
                    continue

    def _trees(self) -> Iterator[tuple[bytes, int, Sequence[int]]]:
        """Yield the pages of b-trees, with where their headers and their cells begin ("B-tree Pages")."""
        for number in range(1, self._count + 1):
            page = self._page(number)
            start = HEADER if number == 1 else 0
            kind, cells = page[start], int.from_bytes(page[start + 3 : start + 5])
            if kind in (*_INTERIOR, _LEAF_INDEX, _LEAF_TABLE):
                first = start + (12 if kind in _INTERIOR else 8)
                pointers = range(first, first + 2 * min(cells, self._size // 4), 2)
                yield page, start, [int.from_bytes(page[pointer : pointer + 2]) for pointer in pointers]

    def _page(self, number: int) -> bytes:
        self._file.seek((number - 1) * self._size)
        return self._file.read(self._size)

    def _cell(self, page: bytes, at: int, kind: int) -> tuple[int | None, bytes, int]:
        """Return a cell's rowid, its payload, and how many bytes of that are in its page."""
        if kind == _INTERIOR_INDEX:
            at += 4
        length, at = _varint(page, at)
        rowid: int | None = None
        if kind == _LEAF_TABLE:
            rowid, at = _varint(page, at)
        return rowid, *self._payload(page, at, length, kind)

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> tuple[bytes, int]:
        """Return a cell's payload, with what overflows its page ("Cell Payload Overflow Pages")."""
        usable = self._size
        most = usable - 35 if kind == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        if not 0 <= length <= self._count * usable:
            raise _Damaged
        if length <= most:
            return _cut(page, at, length), length
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        payload = bytearray(_cut(page, at, local))
        following = int.from_bytes(_cut(page, at + local, 4))
        while len(payload) < length:
            # Pages that name each other have no end.
            if not 1 <= following <= self._count or not self._overflow_left:
                raise _Damaged
            self._overflow_left -= 1
            overflow = self._page(following)
            following = int.from_bytes(overflow[:4])
            payload += overflow[4 : 4 + length - len(payload)]
        return bytes(payload), local


def _cut(data: bytes, at: int, length: int) -> bytes:
    part = data[at : at + length]
    if len(part) < length:
        raise _Damaged
    return part


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64 if value >> 63 else 0), at + 9


def _record(payload: bytes, codec: str) -> list[Value]:
    """Read the values of a record ("Record Format")."""
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Value] = []
    at = end
    for kind in kinds:
        if kind == 0:
            values.append(None)
        elif kind in (8, 9):
            values.append(kind - 8)
        elif kind == 7:
            values += struct.unpack(">d", _cut(payload, at, 8))
            at += 8
        elif kind in _INTEGERS:
            values.append(int.from_bytes(_cut(payload, at, _INTEGERS[kind]), signed=True))
            at += _INTEGERS[kind]
        elif kind >= 12:
            part = _cut(payload, at, (kind - 12) // 2)
            values.append(part.decode(codec) if kind % 2 else part)
            at += len(part)
        else:
            raise _Damaged
    return values
