"""What `gossiplog bench` measures: kinds of work, each beside the least that it could cost, on the same data.

The floors are made of what any Python program can call. The benchmarks in the repository (`benches/`) hold the core
against bare Rust as well, and use larger logs.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import gossiplog.log
from gossiplog import core
from gossiplog.log import Log
from gossiplog.signer import Signer

TOPIC = "org.gossiplog.bench"
_AUTHORS = 16
_REPEATS = 3  # alternating with the floor; the median counts
_APPENDS = 50
_QUESTIONS = 1000


@dataclass(frozen=True, slots=True)
class Measurement:
    """How long one kind of work took.

    Attributes:
        work: what was done.
        count: how many times.
        seconds: how long all of them took.
        floor: the least that it could cost, in words; None where no program in Python can tell.
        floor_seconds: how long that took.
    """

    work: str
    count: int
    seconds: float
    floor: str | None = None
    floor_seconds: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times its floor the work took."""
        return None if self.floor_seconds is None else self.seconds / self.floor_seconds


def measure(size: int) -> Iterator[Measurement]:
    """Measures on logs of `size` messages by sixteen authors, in a temporary folder; yields each result at once."""
    entries = braid(size)
    with TemporaryDirectory(prefix="gossiplog-bench-") as folder:
        bench = _Bench(Path(folder), entries)
        verify = _median(bench.verify)
        yield Measurement("verify_batch", size, verify)
        tree, leaves = _alternate(bench.build_tree, bench.hash_leaves)
        yield Measurement("build a tree", size, tree, "hash its leaves", leaves)
        insert, rows = _alternate(bench.insert_many, bench.write_rows)
        yield Measurement("insert_many", size, insert, "verify_batch, then a bare executemany", verify + rows)
        yield Measurement("pull into an empty log", size, _median(bench.pull), "insert_many", insert)
        append, commit = _alternate(bench.append, bench.commit)
        yield Measurement("append, durably", _APPENDS, append, "a bare commit of the same bytes", commit)
        yield Measurement("is_ancestor", _QUESTIONS, _median(bench.is_ancestor))


def braid(size: int) -> list[tuple[bytes, bytes]]:
    """The keys and values of a history in which sixteen authors write at once, each after two of the others."""
    keys = [Signer.generate().private_key for _ in range(_AUTHORS)]
    entries: list[tuple[bytes, bytes]] = []
    for number in range(size):
        turn, author = divmod(number, _AUTHORS)
        before = (turn - 1) * _AUTHORS
        parents = {before + author, before + (author + 1) % _AUTHORS} if turn else set()
        ids = sorted(core.encode_id(entries[parent][0]) for parent in parents)
        entries.append(core.sign(TOPIC, turn + 1, ids, {"text": f"message {number}"}, keys[author]))
    return entries


class _Bench:
    """The kinds of work: each method does its own once, and returns the seconds that took without the preparations."""

    def __init__(self, folder: Path, entries: list[tuple[bytes, bytes]]) -> None:
        self._folder = folder
        self._entries = entries
        self._values = [value for _, value in entries]
        self._numbers = count()
        self._signer = Signer.generate()
        self._full = self._open()
        self._full.insert_many(self._values)

    def verify(self) -> float:
        return _timed(lambda: core.verify_batch(self._values, TOPIC))

    def build_tree(self) -> float:
        return _timed(lambda: core.Tree().insert(self._entries).root)

    def hash_leaves(self) -> float:
        return _timed(lambda: [core.leaf_hash(key, value) for key, value in self._entries])

    def insert_many(self) -> float:
        with self._open() as log:
            return _timed(lambda: log.insert_many(self._values))

    def write_rows(self) -> float:
        rows = [(number, *entry) for number, entry in enumerate(self._entries, 1)]
        with closing(self._database()) as database:

            def write() -> None:
                with database:
                    database.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)

            return _timed(write)

    def pull(self) -> float:
        with self._open() as log:
            return _timed(lambda: log.pull(self._full))

    def append(self) -> float:
        payloads = [{"text": f"appended {next(self._numbers)}"} for _ in range(_APPENDS)]
        return _timed(lambda: [self._full.append(payload, signer=self._signer) for payload in payloads])

    def commit(self) -> float:
        with closing(self._database()) as database:

            def commit() -> None:
                for number, entry in enumerate(self._entries[:_APPENDS], 1):
                    with database:
                        database.execute("INSERT INTO rows VALUES (?, ?, ?)", (number, *entry))

            return _timed(commit)

    def is_ancestor(self) -> float:
        choice = random.Random(0)
        ids = [core.encode_id(key) for key, _ in self._entries]
        pairs = [(choice.choice(ids), choice.choice(ids)) for _ in range(_QUESTIONS)]
        return _timed(lambda: [self._full.is_ancestor(a, b) for a, b in pairs])

    def _open(self) -> Log:
        return gossiplog.log.open(str(self._folder / f"{next(self._numbers)}.db"), topic=TOPIC)

    def _database(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._folder / f"{next(self._numbers)}.db")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)")
        return database


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _median(work: Callable[[], float]) -> float:
    return statistics.median(work() for _ in range(_REPEATS))


def _alternate(work: Callable[[], float], floor: Callable[[], float]) -> tuple[float, float]:
    pairs = [(work(), floor()) for _ in range(_REPEATS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
