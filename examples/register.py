"""A last-writer-wins register: names and their values, the same on every peer that has the same messages.

Content ids are a total order in which effects follow their causes, the same everywhere; so of all writes to a name the
one with the largest wins, in whatever order they arrive. `apply` keeps the winners in a table of the log's own
database.

    python examples/register.py
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gossiplog


@dataclass(frozen=True, slots=True)
class Write:
    """A payload: the name is set to the value."""

    name: str
    value: str


def apply(message: gossiplog.SignedMessage, transaction: Any) -> None:
    """Runs once for each message, in the transaction that stores it."""
    transaction.execute("CREATE TABLE IF NOT EXISTS register (name TEXT PRIMARY KEY, value TEXT, id TEXT)")
    transaction.execute(
        "INSERT INTO register (name, value, id) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET value = excluded.value, id = excluded.id WHERE excluded.id > register.id",
        (message.payload["name"], message.payload["value"], message.content_id),
    )


def open_register(location: str, signer: gossiplog.Signer) -> gossiplog.Log:
    """A log whose payloads are writes, and whose `apply` keeps the register."""
    return gossiplog.open(location, "org.example.register", apply=apply, payload=Write, signer=signer)


def read(path: str) -> dict[str, str]:
    """The register, by any SQLite client."""
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, value FROM register ORDER BY name"))


def main() -> None:
    """Two peers write the same names while apart, then sync, and agree."""
    with TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("ada.db", "ben.db")]
        with (
            open_register(paths[0], gossiplog.Signer.generate()) as ada,
            open_register(paths[1], gossiplog.Signer.generate()) as ben,
        ):
            ada.append({"name": "colour", "value": "green"})
            ben.append({"name": "colour", "value": "blue"})
            ben.append({"name": "size", "value": "large"})
            print("apart:", *(read(path) for path in paths), sep="\n  ")
            ada.pull(ben)
            ben.pull(ada)
            print("synced:", *(read(path) for path in paths), sep="\n  ")
            try:
                ada.append({"name": "colour", "value": 7})
            except gossiplog.Refused as error:
                print("refused:", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
