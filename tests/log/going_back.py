"""An earlier state of a log that is put in the place of the log while programs have it open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def keep(path: Path) -> Path:
    """Return a file with the log as it is now."""
    kept = path.with_suffix(".kept")
    _copy(path, kept)
    return kept


def bring_back(path: Path) -> None:
    """Do what `.restore` of SQLite's shell does: write a kept log over the open one, as a commit."""
    _copy(path.with_suffix(".kept"), path)


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
