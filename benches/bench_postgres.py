"""Logs in Postgres, on a private server whose files are on the disk, beside bare statements and beside SQLite.

The server has Postgres' own settings, with which a commit waits for the disk.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import data
import pytest
from conftest import Results
from network import Process

import gossiplog
from gossiplog import core
from gossiplog.cli.bench import logs
from gossiplog.cli.bench.stage import ROUNDS, TOPIC, Logs, Result, Stage, Turns, payload, private_key, timed
from gossiplog.signer import Signer
from tests import postgres
from tests.postgres import Server

SMALL = 100_000
# Small batches of appends, in turns with as many bare commits: a disk that others use changes from second to second.
TURNS, APPENDS = 15, 40
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "min_wal_size": "80MB",
    "max_wal_size": "1GB",
}


@pytest.fixture
def stage(size: int, history: Callable[[str, int], list[bytes]], tmp_path: Path) -> Iterator[Stage]:
    """The others' stage, but for pytest-benchmark: what is timed here is timed in turns with its floor."""
    data.FOLDER.mkdir(exist_ok=True)
    yield Stage(size, history, Logs(tmp_path, data.FOLDER), Turns())
    shutil.rmtree(tmp_path)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # The tests' servers are in memory, where there is no disk to wait for.
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="gossiplog-bench-", dir="/var/tmp"))
        folder.chmod(0o755)
        patch.setattr(postgres, "_FOLDER", folder / "servers")
        with postgres.own_server(**SETTINGS) as made:
            yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def places(server: Server) -> Places:
    return Places(server)


class Places:
    """Schemas for logs, one at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._numbers = count(1)
        self._last = ""

    def fresh(self) -> str:
        """Return the URL of a new schema, once the one before is dropped and what it has left is on the disk."""
        if self._last:
            self._server.drop_schema(self._last)
        self._server.run("CHECKPOINT")
        self._last = f"bench_{next(self._numbers)}"
        return self._server.url(self._last)


def bare_copy(server: Server, values: list[bytes]) -> Callable[[], tuple[float, float]]:
    """Return what measures the least that an insert takes: seconds to verify, and to copy bare rows."""
    keys = [core.read_message(value, TOPIC).key for value in values]
    rows = [(number, key, value) for number, (key, value) in enumerate(zip(keys, values, strict=True), 1)]

    def verify() -> None:
        for at in range(0, len(values), 10_000):
            core.verify_batch(values[at : at + 10_000], TOPIC)

    def run() -> tuple[float, float]:
        with server.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS bare")
            connection.execute("CREATE TABLE bare (seq bigint NOT NULL, key bytea PRIMARY KEY, value bytea NOT NULL)")
            connection.execute("CHECKPOINT")

            def write() -> None:
                with connection.cursor().copy("COPY bare FROM STDIN (FORMAT binary)") as copy:
                    copy.set_types(["int8", "bytea", "bytea"])
                    for row in rows:
                        copy.write_row(row)

            return timed(verify), timed(write)

    return run


def test_insert_many(stage: Stage, server: Server, places: Places, results: Results) -> None:
    values, size = stage.mixed, stage.size
    parts: list[tuple[float, float]] = []
    bare = bare_copy(server, values)

    def floor() -> float:
        parts.append(bare())
        return sum(parts[-1])

    def work(log: gossiplog.Log) -> None:
        log.insert_many(values)
        log.close()

    turns = stage.turns
    turns.run(work, floor, lambda: (gossiplog.open(places.fresh(), TOPIC),))
    verify, write = parts[turns.middle]
    results.add(
        Result(
            f"Postgres: `insert_many` of {size:,} signed messages",
            "2x the sum of verifying them and of a bare COPY into a table with the same key",
            f"{turns.ratio:.2f}x",
            turns.ratio <= 2,
            turns.seconds,
            turns.floor_seconds,
            f"{turns.seconds:.1f} s ({size / turns.seconds:,.0f}/s) beside {verify:.1f} s + {write:.1f} s;"
            f" {sizes(server, size)}",
        )
    )


def sizes(server: Server, messages: int) -> str:
    """Return how many bytes the tables of the last log take for each message, and how many rows in them are dead."""
    ((total, indices, dead),) = server.run(
        "SELECT sum(pg_total_relation_size(relid))::int8, sum(pg_indexes_size(relid))::int8, sum(n_dead_tup)::int8"
        " FROM pg_stat_user_tables WHERE relname LIKE 'gossiplog%'"
    )
    return f"{total / messages:.0f} bytes on disk each, {indices / messages:.0f} of them in indices; {dead:,} dead rows"


def test_append(server: Server, places: Places, results: Results) -> None:
    signer = Signer(private_key(0))
    numbers = count()
    with server.connect() as connection, gossiplog.open(places.fresh(), TOPIC) as log:
        connection.execute("CREATE TABLE commits (seq bigint PRIMARY KEY, key bytea, links bytea, value bytea)")
        value = bytes(len(log.append(payload(0), signer=signer).value))

        def commit() -> None:
            for _ in range(APPENDS):
                connection.execute(
                    "INSERT INTO commits VALUES (%b, %b, %b, %b)", (next(numbers), value[:20], value[:30], value)
                )

        def append() -> None:
            for _ in range(APPENDS):
                log.append(payload(next(numbers)), signer=signer)

        append()
        commit()
        rounds = [(timed(commit) / APPENDS, timed(append) / APPENDS) for _ in range(TURNS)]
    ratio = statistics.median(spent / floor for floor, spent in rounds)
    floor, spent = (statistics.median(column) for column in zip(*rounds, strict=True))
    results.add(
        Result(
            "Postgres: a durable `append`",
            "2x of a bare commit of the same bytes",
            f"{ratio:.2f}x",
            ratio <= 2,
            spent,
            floor,
            f"{spent * 1e3:.2f} beside {floor * 1e3:.2f} milliseconds",
        )
    )


def test_open(stage: Stage, places: Places, results: Results) -> None:
    url = places.fresh()
    with gossiplog.open(url, TOPIC) as log:
        log.insert_many(stage.mixed)
    opened = []
    # As with SQLite's, the driver is loaded before.
    program = f"import gossiplog.storage.postgres.storage\n{logs._OPEN}"
    for _ in range(ROUNDS):
        output = subprocess.run([sys.executable, "-c", program, url], check=True, capture_output=True, text=True)
        opened.append(json.loads(output.stdout)[:2])
    seconds, resident = (statistics.median(column) for column in zip(*opened, strict=True))
    results.add(
        Result(
            f"Postgres: open a log of {stage.size:,} messages, then append one",
            "0.3 s",
            f"{seconds:.3f} s; {resident:.0f} MB",
            seconds <= 0.3,
            seconds,
        )
    )


def test_fill(stage: Stage, places: Places, results: Results) -> None:
    size = min(SMALL, stage.size)
    with Process("hub", stage.logs.full("mixed", stage.mixed[:size])) as hub:

        def fill(place: str | Path) -> float:
            with Process("client", place, hub.url) as client:
                answer = client.call("sync")
            assert answer["messages"] == size
            return float(answer["seconds"])

        rounds = [(fill(stage.logs.path()), fill(places.fresh())) for _ in range(ROUNDS)]
    ratio = statistics.median(spent / floor for floor, spent in rounds)
    floor, spent = (statistics.median(column) for column in zip(*rounds, strict=True))
    results.add(
        Result(
            f"Postgres: a fresh client fills its log with {size:,} messages from a hub",
            "at least half the rate of one with SQLite",
            f"{1 / ratio:.0%}",
            ratio <= 2,
            spent,
            floor,
            f"{spent:.2f} s ({size / spent:,.0f}/s) beside {floor:.2f} s ({size / floor:,.0f}/s)",
        )
    )
