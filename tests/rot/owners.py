"""Which table each page of a database belongs to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gossiplog.storage.sqlite.pages import HEADER

_INTERIOR = (2, 5)


def owner_of(path: Path) -> Callable[[int], str]:
    """Return a function that names what a byte of a sound database belongs to: a table, the header, or no page in use.

    Overflow pages have no name of their own in the file: they count as those of values.
    """
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        roots = connection.execute("SELECT rootpage, tbl_name FROM sqlite_schema WHERE rootpage").fetchall()
    content = path.read_bytes()
    owners: dict[int, str] = {1: "schema"}

    def walk(number: int, name: str) -> None:
        owners[number] = name
        page = content[(number - 1) * size : number * size]
        if page[0] in _INTERIOR:
            cells = int.from_bytes(page[3:5])
            pointers = [int.from_bytes(page[12 + 2 * index : 14 + 2 * index]) for index in range(cells)]
            for at in (*pointers, 8):
                walk(int.from_bytes(page[at : at + 4]), name)

    for root, name in roots:
        walk(root, name)

    def owner(offset: int) -> str:
        return "header" if offset < HEADER else owners.get(offset // size + 1, "overflow pages and free ones")

    return owner
