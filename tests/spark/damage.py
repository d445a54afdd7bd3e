"""Logs that are changed behind their backs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import gossiplog


def change(path: Path, values: Mapping[bytes, bytes]) -> None:
    """Writes other values under these keys, behind the log's back."""
    with sqlite3.connect(path) as database:
        for key, value in values.items():
            changed = database.execute(
                "UPDATE gossiplog_messages SET value = ? WHERE seq = (SELECT seq FROM gossiplog_leaves WHERE key = ?)",
                (value, key),
            )
            assert changed.rowcount == 1
    database.close()


def lose_entry(path: Path, sequence: int) -> None:
    """Delete a message's leaf by SQL and, unless it is the last message, its row."""
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM gossiplog_leaves WHERE seq = ?", (sequence,))
        database.execute(
            "DELETE FROM gossiplog_messages WHERE seq = ? AND seq < (SELECT max(seq) FROM gossiplog_messages)",
            (sequence,),
        )
    database.close()


def entries(path: Path) -> dict[bytes, bytes]:
    with gossiplog.open(path) as log:
        return {message.key: message.value for message in log}
