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
from pathlib import Path

from conftest import Comparison, Logs, Results
from data import TOPIC, history, private_key

import gossiplog
from gossiplog import Signer, core

APPENDS = 300
QUESTIONS = 1000


def bare_database(path: Path) -> sqlite3.Connection:
    """A table with the least that a log needs: rows by sequence, and by key."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)")
    return database


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_insert_many(compare: Comparison, logs: Logs, results: Results, mixed: list[bytes], size: int) -> None:
    keys = [core.read_message(value, TOPIC).key for value in mixed]
    rows = [(number, key, value) for number, (key, value) in enumerate(zip(keys, mixed, strict=True), 1)]
    parts: list[tuple[float, float]] = []

    def floor() -> float:
        # In one batch for each 10,000, as good a size as any: see bench_core.
        verify = timed(lambda: [core.verify_batch(mixed[at : at + 10_000], TOPIC) for at in range(0, size, 10_000)])

        def write() -> None:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
            database.execute("COMMIT")

        with closing(bare_database(logs.path())) as database:
            parts.append((verify, timed(write)))
        return sum(parts[-1])

    def work(log: gossiplog.Log) -> None:
        inserted = log.insert_many(mixed)
        assert inserted.inserted == size, inserted
        log.close()

    compare.run(work, floor, lambda: (gossiplog.open(logs.path(), topic=TOPIC),))
    verify, write = (statistics.median(column) for column in zip(*parts, strict=True))
    results.add(
        f"`insert_many` of {size:,} signed messages into a SQLite file",
        "1.5x the sum of verifying them and of one bare `executemany`",
        f"{compare.ratio:.2f}x",
        compare.ratio <= 1.5,
        f"{compare.seconds:.1f} s ({size / compare.seconds:,.0f}/s) beside {verify:.1f} s + {write:.1f} s",
    )


OPEN = """
import json, resource, sys, time
import gossiplog
from gossiplog import Signer
with open("/proc/self/statm") as file:
    bare = int(file.read().split()[1])
signer = Signer(bytes(32))
start = time.perf_counter()
log = gossiplog.open(sys.argv[1])
log.append({"text": "first"}, signer=signer)
seconds = time.perf_counter() - start
with open("/proc/self/statm") as file:
    resident = int(file.read().split()[1])
print(json.dumps([seconds, resident * resource.getpagesize() / 1e6, bare * resource.getpagesize() / 1e6]))
"""


def test_open(compare: Comparison, logs: Logs, results: Results, mixed: list[bytes], size: int) -> None:
    path = logs.copy(logs.full("mixed", mixed))
    figures = []

    def work() -> None:
        output = subprocess.run([sys.executable, "-c", OPEN, path], check=True, capture_output=True, text=True).stdout
        figures.append(json.loads(output))

    compare.run(work, lambda: 1.0)
    seconds, resident, before = (statistics.median(column) for column in zip(*figures, strict=True))
    results.add(
        f"open a log of {size:,} messages, then append one",
        "0.1 s; resident memory below 150 MB",
        f"{seconds:.3f} s; {resident:.0f} MB",
        seconds <= 0.1 and resident < 150,
        f"the interpreter with the package imported: {before:.0f} MB",
    )


def test_append(compare: Comparison, logs: Logs, results: Results) -> None:
    signer = Signer(private_key(0))
    with gossiplog.open(logs.path(), topic=TOPIC) as log, closing(bare_database(logs.path())) as database:
        numbers = iter(range(10**9))
        values = history("mixed", 10_000)
        rows = iter([(number, value[-20:] + value[70:100], value) for number, value in enumerate(values, 1)])

        def floor() -> float:
            def commit() -> None:
                for _ in range(APPENDS):
                    database.execute("BEGIN IMMEDIATE")
                    database.execute("INSERT INTO messages VALUES (?, ?, ?)", next(rows))
                    database.execute("COMMIT")

            return timed(commit)

        def work() -> None:
            for _ in range(APPENDS):
                number = next(numbers)
                log.append(
                    {"number": number, "text": f"message {number} of a benchmark, of about the usual length"},
                    signer=signer,
                )

        work()
        floor()
        compare.run(work, floor)
    results.add(
        "a durable `append`",
        "1.5x of a bare SQLite commit of the same bytes",
        f"{compare.ratio:.2f}x",
        compare.ratio <= 1.5,
        f"{compare.seconds / APPENDS * 1e6:.0f} beside {compare.floor_seconds / APPENDS * 1e6:.0f} microseconds",
    )


def ask(path: Path, pairs: list[tuple[str, str]]) -> tuple[float, float, int]:
    """The mean and the largest seconds that `is_ancestor` takes, and how many answers were yes."""
    times = []
    yes = 0
    with gossiplog.open(path) as log:
        for ancestor, descendant in pairs:
            start = time.perf_counter()
            yes += log.is_ancestor(ancestor, descendant)
            times.append(time.perf_counter() - start)
    return statistics.mean(times), max(times), yes


def test_is_ancestor(logs: Logs, results: Results, size: int) -> None:
    choice = random.Random(2)
    titles = {
        "chain": f"`is_ancestor` on a chain of {size:,}",
        "braid": "`is_ancestor` on a braid of 100,000 by 16 authors in step",
        "gossip": "`is_ancestor` on a braid of 100,000 by 16 authors out of step",
    }
    for name, count in (("chain", size), ("braid", 100_000), ("gossip", 100_000)):
        values = history(name, count)
        path = logs.full(name, values)
        ids = [core.read_message(value, TOPIC).id for value in choice.sample(values, 2 * QUESTIONS)]
        pairs = [(min(pair), max(pair)) for pair in zip(ids[::2], ids[1::2], strict=True)]
        runs = [ask(path, pairs) for _ in range(3)]
        mean = statistics.median(run[0] for run in runs)
        slowest = statistics.median(run[1] for run in runs)
        results.add(
            titles[name],
            "below 1 ms",
            f"{mean * 1e3:.2f} ms",
            mean < 1e-3,
            f"mean of {QUESTIONS:,} random pairs, {runs[0][2]} of them related; the slowest {slowest * 1e3:.2f} ms",
        )


TURN = """
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


def take_turns(path: Path, processes: int) -> float:
    """The seconds that appends take when so many processes take turns, one append each."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", TURN, path, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(processes)
    ]
    spent = 0.0
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for number in range(APPENDS + 20):
        worker = workers[number % processes]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{number}\n")
        worker.stdin.flush()
        seconds = float(worker.stdout.readline())
        spent += seconds if number >= 20 else 0
    for worker in workers:
        worker.communicate()
    return spent


def test_two_processes(compare: Comparison, logs: Logs, results: Results, mixed: list[bytes], size: int) -> None:
    path = logs.copy(logs.full("mixed", mixed))
    spent: list[float] = []
    alone: list[float] = []

    def floor() -> float:
        alone.append(take_turns(path, 1))
        return alone[-1]

    compare.run(lambda: spent.append(take_turns(path, 2)), floor)
    ratio = statistics.median(two / one for two, one in zip(spent, alone, strict=True))
    each, one = (statistics.median(times) / APPENDS * 1e6 for times in (spent, alone))
    results.add(
        f"two processes appending in turn to a log of {size:,}",
        "within 2x of one",
        f"{ratio:.2f}x",
        ratio <= 2,
        f"{each:.0f} beside {one:.0f} microseconds an append",
    )
