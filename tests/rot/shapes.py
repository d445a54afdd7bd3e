"""The logs that rot: of several shapes, each with a replica that stays whole."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Log, SignedMessage, Signer, core
from gossiplog.log import writing
from gossiplog.storage.base import ApplyTransaction
from tests.strategies import longer_author

TOPIC = "org.example.rot"
SIGNER = Signer(bytes(32))
SCHEMAS = Path(__file__).parent.parent / "storage" / "schemas"


@dataclass(frozen=True, slots=True)
class Shape:
    """A log of some shape, in a folder of its own.

    Attributes:
        name: of the shape.
        folder: with `log.db` and the files beside it, which change.
        replica: a log with the same messages, which does not.
        later: a log with some messages more.
    """

    name: str
    folder: Path
    replica: Path
    later: Path


def _apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
    transaction.execute("INSERT INTO notes(id, text) VALUES (?, ?)", (message.id, str(message.payload)))


def _linear(path: Path) -> None:
    with _indexing(), gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        log.append_many({"number": number} for number in range(150))


def _wide(path: Path) -> None:
    """Many concurrent messages, and some that join them."""
    with _indexing(), gossiplog.open(path, TOPIC, synchronous="off") as log:
        roots = [core.sign(TOPIC, 1, [], number, bytes(32)) for number in range(90)]
        ids = [core.encode_id(key) for key, _ in roots]
        joins = [core.sign(TOPIC, 2, ids[at : at + 10], at, bytes(32)) for at in range(0, 80, 8)]
        log.insert_many([value for _, value in roots])
        log.insert_many([value for _, value in joins])
        log.append("all", signer=SIGNER)


def _encodings(path: Path) -> None:
    """Messages in several encodings, of two authors, not in the order of their ids."""
    with (
        _indexing(),
        gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log,
        gossiplog.open(":memory:", TOPIC, signer=Signer(b"\1" * 32)) as other,
    ):
        for number in range(5):
            log.append_many(range(number, 20))
            other.append_many(range(number, 12))
            log.pull(other)
        some = list(log.messages(limit=60))[::4]
        log.insert_many([core.verify(longer_author(message.value), TOPIC) for message in some])


def _unindexed(path: Path) -> None:
    """The index covers half of the messages."""
    with gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        with _indexing():
            log.append_many(range(80))
        for number in range(80):
            log.append(number)


def _application(path: Path) -> None:
    """An application's tables, beside the log's."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes(id TEXT PRIMARY KEY, text TEXT)")
    with _indexing(), gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off", apply=_apply) as log:
        log.append_many({"text": f"note {number}"} for number in range(120))


def _large(path: Path) -> None:
    """Values of many pages."""
    with _indexing(), gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        for number in range(12):
            log.append({"text": f"{number}" * 9_000})


def _upgraded(path: Path) -> None:
    """A log of an earlier schema, just upgraded."""
    shutil.copy(SCHEMAS / "schema-2.db", path)
    with gossiplog.open(path):
        pass


def _log_only(path: Path) -> None:
    """All messages are in a write-ahead log that was not checkpointed: see `make`."""
    with gossiplog.open(path, TOPIC, signer=SIGNER) as log:
        log.append("first")


SHAPES: Mapping[str, Callable[[Path], None]] = {
    "linear": _linear,
    "wide": _wide,
    "encodings": _encodings,
    "unindexed": _unindexed,
    "application": _application,
    "large": _large,
    "upgraded": _upgraded,
}


@contextmanager
def _indexing() -> Iterator[None]:
    """Write the index with every message."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "INDEX_LAG", 0)
        yield


def make(name: str, folder: Path) -> Shape:
    """Make a log of a shape, and what is compared with it.

    Args:
        name: one of `SHAPES`, or `WAL`.
        folder: to be made.
    """
    shape = Shape(name, folder / "rot", folder / "replica.db", folder / "later.db")
    shape.folder.mkdir(parents=True)
    path = folder / "made.db"
    if name == WAL:
        _log_only(path)
        with gossiplog.open(path, signer=SIGNER) as log:
            for number in range(40):
                log.append({"number": number})
            _copy(path, shape, log)
    else:
        SHAPES[name](path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with gossiplog.open(path) as log:
            _copy(path, shape, log)
    return shape


WAL = "write-ahead log"


def _copy(path: Path, shape: Shape, log: Log) -> None:
    for file in path.parent.glob("made.db*"):
        if not file.name.endswith("-shm") and (shape.name == WAL or not file.name.endswith("-wal")):
            shutil.copy(file, shape.folder / file.name.replace("made.db", "log.db"))
    for place in (shape.replica, shape.later):
        with gossiplog.open(place, log.topic, synchronous="off") as other:
            other.pull(log)
            if place == shape.later:
                other.append_many(["later"] * 3, signer=SIGNER)
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
