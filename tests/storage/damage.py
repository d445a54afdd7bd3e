"""Damage to an SQLite file, as a failing disk does it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def damage(path: Path, table: str, *, leaf: bool = False) -> None:
    """Overwrites the beginning of a table's first page in a database that nobody has open.

    Args:
        path: of the file.
        table: at the root of its tree of pages,
        leaf: or at its first leaf, so that what lies behind can be read.
    """
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        if leaf:
            # https://sqlite.org/fileformat.html, "B-tree Pages": the first cell begins with its left child's number.
            file.seek((page - 1) * size)
            root = file.read(size)
            assert root[0] == 2, "the table is too small to have a leaf of its own"
            cell = int.from_bytes(root[12:14])
            page = int.from_bytes(root[cell : cell + 4])
        file.seek((page - 1) * size)
        file.write(b"\xff" * 100)
