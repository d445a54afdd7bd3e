"""A last-writer-wins register: names and their values, the same on every peer that has the same messages.

Content ids are a total order in which effects follow their causes, the same everywhere; so of all writes to a name the
one with the largest wins, in whatever order they arrive. `apply` keeps the winners in a table of the log's own
database.

    python examples/register.py
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter, ValidationError

import gossiplog


@dataclass(frozen=True, slots=True)
class Write:
    """A payload: the name is set to the value."""

    name: str
    value: str


_WRITE = TypeAdapter(Write)


def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
    """Write a message to the register, in the transaction that stores it; pass over what is no `Write`.

    Raising instead would refuse the message, and cut this register off from those that have it.
    """
    try:
        write = _WRITE.validate_python(message.payload)
    except ValidationError:
        return
    transaction.execute(
        "INSERT INTO register (name, value, id) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET value = excluded.value, id = excluded.id WHERE excluded.id > register.id",
        (write.name, write.value, message.content_id),
    )


def setup(transaction: gossiplog.ApplyTransaction) -> None:
    """Make the register's table, before the first message and before the register is built anew."""
    transaction.execute("DROP TABLE IF EXISTS register")
    transaction.execute("CREATE TABLE register (name TEXT PRIMARY KEY, value TEXT, id TEXT)")


def open_register(location: str, signer: gossiplog.Signer) -> gossiplog.Log:
    """Open a log whose `apply` keeps the register in a table of the same file."""
    return gossiplog.open(location, "org.example.register", apply=apply, setup=setup, signer=signer)


def write(log: gossiplog.Log, name: str, value: str) -> gossiplog.SignedMessage:
    """Set a name to a value."""
    return log.append(asdict(Write(name, value)))


def read(path: str) -> dict[str, str]:
    """Read the register, as any SQLite client can."""
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
            write(ada, "colour", "green")
            write(ben, "colour", "blue")
            write(ben, "size", "large")
            ben.append({"name": "colour", "value": 7})  # by another program; no register shows it
            print("apart:", *(read(path) for path in paths), sep="\n  ")
            ada.pull(ben)
            ben.pull(ada)
            print("synced:", *(read(path) for path in paths), sep="\n  ")
            print("equal roots:", ada.root == ben.root)


if __name__ == "__main__":
    main()
