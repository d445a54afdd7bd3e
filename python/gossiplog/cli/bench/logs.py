"""The log on SQLite: bulk inserts, opening, durable appends, ancestors, two processes."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import IO, cast

import gossiplog.log
from gossiplog import core
from gossiplog.cli.bench.stage import ROUNDS, TOPIC, Result, Stage, payload, private_key, timed
from gossiplog.log import Log
from gossiplog.signer import Signer

_BATCH = 10_000  # as good a size as any for verification: see `suite`
# Enough for the write-ahead log to have reached its full length: while it grows, the disk takes twice as long.
_APPENDS = 1000
_WARM_UP = 20
_QUESTIONS = 1000
_BRAID = 100_000
_ROOTS = 100_000


def insert_many(stage: Stage) -> Result:
    """Measure inserting signed messages into an empty log, beside verifying them and writing bare rows."""
    values, size = stage.mixed, stage.size
    parts: list[tuple[float, float]] = []
    bare = bare_insert(values)

    def floor() -> float:
        parts.append(bare(stage.logs.path()))
        return sum(parts[-1])

    def work(log: Log) -> None:
        log.insert_many(values)
        log.close()

    turns = stage.turns
    turns.run(work, floor, lambda: (gossiplog.log.open(stage.logs.path(), topic=TOPIC),))
    verify, write = parts[turns.middle]
    return Result(
        f"`insert_many` of {size:,} signed messages into a SQLite file",
        "1.5x the sum of verifying them and of one bare `executemany`",
        f"{turns.ratio:.2f}x",
        turns.ratio <= 1.5,
        turns.seconds,
        turns.floor_seconds,
        f"{turns.seconds:.2f} s ({size / turns.seconds:,.0f}/s) beside {verify:.2f} s + {write:.2f} s",
    )


def bare_insert(values: list[bytes]) -> Callable[[Path], tuple[float, float]]:
    """Return what measures, at a path, the least that an insert takes: seconds to verify, and to write bare rows."""
    keys = [core.read_message(value, TOPIC).key for value in values]
    rows = [(number, key, value) for number, (key, value) in enumerate(zip(keys, values, strict=True), 1)]

    def verify() -> None:
        for at in range(0, len(values), _BATCH):
            core.verify_batch(values[at : at + _BATCH], TOPIC)

    def run(path: Path) -> tuple[float, float]:
        with closing(_bare_database(path)) as database:

            def write() -> None:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
                database.execute("COMMIT")

            return timed(verify), timed(write)

    return run


def insert_roots(stage: Stage) -> Result:
    """Measure inserts of messages without parents into a log of nothing else, beside a log of half as many.

    Anybody can make them: each is a head for good, and stands alone on its page of the tree.
    """
    size = min(stage.size, _ROOTS)
    values = stage.history("roots", size + size // 10)
    more = values[size:]
    full, half = (stage.logs.full("roots", values[:count]) for count in (size, size // 2))

    def opened(path: Path) -> Log:
        return gossiplog.log.open(stage.logs.copy(path))

    def work(log: Log) -> None:
        log.insert_many(more)
        log.close()

    def floor() -> float:
        log = opened(half)
        return timed(lambda: work(log))

    turns = stage.turns
    turns.run(work, floor, lambda: (opened(full),))
    return Result(
        f"`insert_many` of {len(more):,} messages without parents into a log of {size:,} such",
        "1.5x the same into a log of half as many",
        f"{turns.ratio:.2f}x",
        turns.ratio <= 1.5,
        turns.seconds,
        turns.floor_seconds,
        f"{turns.seconds / len(more) * 1e6:.0f} beside {turns.floor_seconds / len(more) * 1e6:.0f} microseconds each",
    )


_OPEN = """
import json, os, resource, sys, time
import gossiplog
from gossiplog import Signer

def resident():
    if not os.path.exists("/proc/self/statm"):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6

bare = resident()
signer = Signer(bytes(32))
start = time.perf_counter()
log = gossiplog.open(sys.argv[1])
log.append({"text": "first"}, signer=signer)
print(json.dumps([time.perf_counter() - start, resident(), bare]))
"""


def open_and_append(stage: Stage) -> Result:
    """Measure a new process that opens a log and appends to it."""
    path = stage.logs.copy(stage.logs.full("mixed", stage.mixed))
    figures = []

    def work() -> None:
        output = subprocess.run([sys.executable, "-c", _OPEN, path], check=True, capture_output=True, text=True).stdout
        figures.append(json.loads(output))

    stage.turns.run(work)
    seconds, resident, before = (statistics.median(column) for column in zip(*figures, strict=True))
    return Result(
        f"open a log of {stage.size:,} messages, then append one",
        "0.1 s; resident memory below 150 MB",
        f"{seconds:.3f} s; {resident:.0f} MB",
        seconds <= 0.1 and resident < 150,
        seconds,
        None,
        f"the interpreter with the package imported: {before:.0f} MB",
    )


def append(stage: Stage) -> Result:
    """Measure appends, each on the disk before the next, beside bare commits of the same bytes."""
    signer = Signer(private_key(0))
    numbers = count()
    rows = iter([(number, value[-20:] + value[70:100], value) for number, value in enumerate(_own_values(signer), 1)])
    with (
        gossiplog.log.open(stage.logs.path(), topic=TOPIC) as log,
        closing(_bare_database(stage.logs.path())) as database,
    ):

        def commit() -> None:
            for _ in range(_APPENDS):
                database.execute("BEGIN IMMEDIATE")
                database.execute("INSERT INTO messages VALUES (?, ?, ?)", next(rows))
                database.execute("COMMIT")

        def work() -> None:
            for _ in range(_APPENDS):
                log.append(payload(next(numbers)), signer=signer)

        work()
        commit()
        turns = stage.turns
        turns.run(work, lambda: timed(commit))
    return Result(
        "a durable `append`",
        "1.5x of a bare SQLite commit of the same bytes",
        f"{turns.ratio:.2f}x",
        turns.ratio <= 1.5,
        turns.seconds,
        turns.floor_seconds,
        f"{turns.seconds / _APPENDS * 1e6:.0f} beside {turns.floor_seconds / _APPENDS * 1e6:.0f} microseconds",
    )


def _own_values(signer: Signer) -> list[bytes]:
    """Return as many values as are committed in all rounds, the first included, each as long as what is appended."""
    parent = core.encode_id(bytes(core.KEY_LENGTH))
    return [signer.sign(TOPIC, 1, [parent], payload(number))[1] for number in range(_APPENDS * (ROUNDS + 1))]


BRAIDS = {
    "chain": "chain of {:,}",
    "braid": "braid of {:,} by 16 authors in step",
    "gossip": "braid of {:,} by 16 authors out of step",
}
"""What `is_ancestor` is measured on: histories, and what they are called."""


def is_ancestor(stage: Stage, name: str) -> Result:
    """Measure `is_ancestor` on random pairs of messages of one of the BRAIDS."""
    size = stage.size if name == "chain" else min(stage.size, _BRAID)
    values = stage.history(name, size)
    path = stage.logs.full(name, values)
    chosen = random.Random(2).choices(values, k=2 * _QUESTIONS)
    ids = [core.read_message(value, TOPIC).id for value in chosen]
    pairs = [(min(pair), max(pair)) for pair in zip(ids[::2], ids[1::2], strict=True)]
    runs: list[tuple[float, float, int]] = []
    stage.turns.run(lambda: runs.append(_ask(path, pairs)))
    mean = statistics.median(run[0] for run in runs)
    slowest = statistics.median(run[1] for run in runs)
    return Result(
        f"`is_ancestor` on a {BRAIDS[name].format(size)}",
        "below 1 ms",
        f"{mean * 1e3:.2f} ms",
        mean < 1e-3,
        mean * _QUESTIONS,
        None,
        f"mean of {_QUESTIONS:,} random pairs, {runs[0][2]:,} of them related; the slowest {slowest * 1e3:.2f} ms",
    )


def _ask(path: Path, pairs: list[tuple[str, str]]) -> tuple[float, float, int]:
    """Return the mean and the largest seconds that `is_ancestor` takes, and how many answers were yes."""
    times = []
    yes = 0
    with gossiplog.log.open(path) as log:
        for ancestor, descendant in pairs:
            start = time.perf_counter()
            yes += log.is_ancestor(ancestor, descendant)
            times.append(time.perf_counter() - start)
    return statistics.mean(times), max(times), yes


_TURN = """
import sys, time
import gossiplog
from gossiplog import Signer
signer = Signer(bytes(31) + bytes([int(sys.argv[2])]))
log = gossiplog.open(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    log.append({"number": int(line)}, signer=signer)
    print(time.perf_counter() - start, flush=True)
"""


def two_processes(stage: Stage) -> Result:
    """Measure two processes that append in turn, beside one alone."""
    path = stage.logs.copy(stage.logs.full("mixed", stage.mixed))
    spent: list[float] = []
    alone: list[float] = []

    def floor() -> float:
        alone.append(_take_turns(path, 1))
        return alone[-1]

    stage.turns.run(lambda: spent.append(_take_turns(path, 2)), floor)
    # What the processes themselves measured: not their start.
    ratio = statistics.median(both / single for both, single in zip(spent, alone, strict=True))
    two, one = statistics.median(spent), statistics.median(alone)
    return Result(
        f"two processes appending in turn to a log of {stage.size:,}",
        "within 2x of one",
        f"{ratio:.2f}x",
        ratio <= 2,
        two,
        one,
        f"{two / _APPENDS * 1e6:.0f} beside {one / _APPENDS * 1e6:.0f} microseconds an append",
    )


def _take_turns(path: Path, processes: int) -> float:
    """Return the seconds that appends take when so many processes take turns, one append each."""
    workers = [_Worker(path, number) for number in range(processes)]
    seconds = [workers[number % processes].append(number) for number in range(_APPENDS + _WARM_UP)]
    for worker in workers:
        worker.end()
    return sum(seconds[_WARM_UP:])


class _Worker:
    """A process that appends on request."""

    def __init__(self, path: Path, number: int) -> None:
        command = [sys.executable, "-c", _TURN, str(path), str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pipes = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self._pipes[1].readline()

    def append(self, number: int) -> float:
        """Append, and return the seconds that took."""
        to, back = self._pipes
        to.write(f"{number}\n")
        to.flush()
        return float(back.readline())

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate()


def _bare_database(path: Path) -> sqlite3.Connection:
    """Return a database with the least that a log needs, in one table: rows by sequence, and by key."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)")
    return database
