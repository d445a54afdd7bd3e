"""All benchmarks, in the order of their results; here those of the core and of Merkle sync, in `logs` those of SQLite.

A sync is between two logs in one process, over the real protocol.
"""

from __future__ import annotations

import functools
import hashlib
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import gossiplog.log
from gossiplog import core
from gossiplog.cli.bench import logs
from gossiplog.cli.bench.stage import AUTHORS, TOPIC, Logs, Result, Stage, Turns, history, private_key, timed
from gossiplog.log import Log, PullResult

_BATCH = 10_000
_INSERTS = 1000
# What surrounds the payload in the signed map, less what surrounds it in the stored tuple, for two parents.
_SIGNED_LESS_THAN_STORED = 80


def verify_batch(stage: Stage) -> Result:
    """Measure the verification of messages by a hundred authors, beside the bare signatures and hashes."""
    values = stage.history("mixed", _BATCH)
    stored = _mean_length(values)
    signed = stored - _SIGNED_LESS_THAN_STORED
    turns, floors = stage.turns, stage.floors
    floor = None if floors is None else lambda: floors.signatures(_BATCH, AUTHORS, signed, stored)
    turns.run(lambda: core.verify_batch(values, TOPIC), floor)
    rate = f"{_BATCH / turns.seconds:,.0f}/s"
    work = f"`verify_batch`, {_BATCH:,} messages, {AUTHORS} authors"
    must = "85 % of a bare batch verification plus SHA-256, same threads, best batch size"
    if floor is None:
        return Result(work, must, rate, None, turns.seconds)
    share = 1 / turns.ratio
    detail = f"{rate} beside {_BATCH / turns.floor_seconds:,.0f}/s"
    return Result(work, must, f"{share:.0%}", share >= 0.85, turns.seconds, turns.floor_seconds, detail)


def build_tree(stage: Stage) -> Result:
    """Measure building the tree of a whole log, beside the hashes of its leaves."""
    values = stage.mixed
    entries, length = _entries(values), _mean_length(values)
    turns, floors = stage.turns, stage.floors
    floor = None if floors is None else lambda: floors.leaves(stage.size, core.KEY_LENGTH, length)
    turns.run(lambda: core.Tree().insert(entries).root, floor)
    work = f"tree of {stage.size:,} entries from scratch"
    must = "3x the time of hashing the leaves alone"
    if floor is None:
        return Result(work, must, f"{stage.size / turns.seconds:,.0f}/s", None, turns.seconds)
    detail = f"{turns.seconds:.2f} s beside {turns.floor_seconds:.2f} s, both on all cores"
    return Result(work, must, f"{turns.ratio:.2f}x", turns.ratio <= 3, turns.seconds, turns.floor_seconds, detail)


def insert_into_tree(stage: Stage) -> Result:
    """Measure single inserts at random places of a tree, and its root after each."""
    values = stage.mixed
    tree = core.Tree().insert(_entries(values))
    keys = [hashlib.sha256(b"%d" % number).digest()[: core.KEY_LENGTH] for number in range(_INSERTS)]
    value = bytes(_mean_length(values))

    def work() -> list[core.Node]:
        grown = tree
        roots = []
        for key in keys:
            grown = grown.insert([(key, value)])
            roots.append(grown.root)
        return roots

    turns = stage.turns
    turns.run(work)
    each = turns.seconds / _INSERTS * 1e6
    return Result(
        f"then {_INSERTS:,} random inserts with a root after each",
        "20 microseconds each",
        f"{each:.1f} microseconds",
        each <= 20,
        turns.seconds,
    )


def _entries(values: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [(core.read_message(value, TOPIC).key, value) for value in values]


def _mean_length(values: list[bytes]) -> int:
    return round(statistics.mean(map(len, values)))


_MISSING = 1000


def pull_everything(stage: Stage, size: int) -> tuple[Result, float]:
    """Measure a pull of a log into an empty one, beside `insert_many` of the same messages.

    Return the messages a second, too.
    """
    values = stage.mixed[:size]
    full = stage.logs.full("mixed", values)

    def floor() -> float:
        with gossiplog.log.open(stage.logs.path(), topic=TOPIC) as log:
            return timed(lambda: log.insert_many(values))

    def work(log: Log) -> None:
        with gossiplog.log.open(full) as source:
            log.pull(source)
        log.close()

    turns = stage.turns
    turns.run(work, floor, lambda: (gossiplog.log.open(stage.logs.path(), topic=TOPIC),))
    rate = size / turns.seconds
    result = Result(
        f"`pull` of {size:,} messages into an empty log",
        "1.3x `insert_many`",
        f"{turns.ratio:.2f}x",
        turns.ratio <= 1.3,
        turns.seconds,
        turns.floor_seconds,
        f"{rate:,.0f}/s beside {size / turns.floor_seconds:,.0f}/s",
    )
    return result, rate


def pull_the_end(stage: Stage) -> Result:
    """Measure a pull of the thousand messages that follow a log."""
    return _pull_a_difference(stage, "at the end", 0.05, 5)


def pull_scattered(stage: Stage) -> Result:
    """Measure a pull of a thousand messages, each a child of one from anywhere in the log."""
    return _pull_a_difference(stage, "scattered", 0.2, 8)


def difference(stage: Stage, place: str) -> tuple[Path, Path, list[bytes]]:
    """Two logs that nobody may change, of which the second has a thousand messages more, and those messages.

    Args:
        stage: of the benchmark.
        place: `at the end`, after all others; or `scattered`, each a child of a message from anywhere in the log.
    """
    count = min(_MISSING, stage.size)
    if place == "at the end":
        missing = stage.history("mixed", stage.size + count)[stage.size :]
    else:
        sample = random.Random(3).sample(stage.mixed, count)
        parents = [core.read_message(value, TOPIC) for value in sample]
        missing = [
            core.sign(TOPIC, parent.clock + 1, [parent.id], {"number": number}, private_key(number % AUTHORS))[1]
            for number, parent in enumerate(parents)
        ]
    shared = stage.logs.full("mixed", stage.mixed)
    return shared, stage.logs.extended(shared, place.replace(" ", "_"), missing), missing


def _pull_a_difference(stage: Stage, place: str, most_seconds: float, most_round_trips: int) -> Result:
    shared, larger, missing = difference(stage, place)
    pulled: list[PullResult] = []
    with ExitStack() as stack:
        source = stack.enter_context(gossiplog.log.open(larger))
        copies = stack.enter_context(ExitStack())

        def copy() -> Log:
            # The file of the last one is removed.
            copies.close()
            return copies.enter_context(gossiplog.log.open(stage.logs.copy(shared)))

        def insert() -> float:
            log = copy()
            return timed(lambda: log.insert_many(missing))

        turns = stage.turns
        turns.run(lambda log: pulled.append(log.pull(source)), insert, lambda: (copy(),))
    cost, over = pulled[-1], turns.seconds - turns.floor_seconds
    return Result(
        f"`pull` where {stage.size:,} are shared and {len(missing):,} differ: {place}",
        f"{most_seconds} s over inserting the {len(missing):,}; at most {most_round_trips} sequential round trips",
        f"{over:.3f} s; {cost.round_trips} round trips",
        over <= most_seconds and cost.round_trips <= most_round_trips,
        turns.seconds,
        turns.floor_seconds,
        f"{turns.seconds:.3f} s beside {turns.floor_seconds:.3f} s;"
        f" {cost.requests:,} requests, {cost.bytes_sent:,} bytes up, {cost.bytes_received:,} down",
    )


RESULTS = 14
"""How many results `run` yields."""


def run(size: int) -> Iterator[Result]:
    """Run everything on logs of `size` messages, in a temporary folder; yield each result at once.

    Bare Rust to compare the core's arithmetic with is there only in a checkout.
    """
    values = functools.cache(lambda name, count: list(history(name, count)))
    with TemporaryDirectory(prefix="gossiplog-bench-") as folder:
        changed, kept = Path(folder, "changed"), Path(folder, "kept")
        changed.mkdir()
        kept.mkdir()
        files = Logs(changed, kept)

        def stage() -> Stage:
            return Stage(size, values, files, Turns())

        for benchmark in (
            verify_batch,
            build_tree,
            insert_into_tree,
            logs.insert_many,
            logs.insert_roots,
            logs.open_and_append,
            logs.append,
            logs.two_processes,
        ):
            yield benchmark(stage())
        for name in logs.BRAIDS:
            yield logs.is_ancestor(stage(), name)
        yield pull_everything(stage(), size)[0]
        yield pull_the_end(stage())
        yield pull_scattered(stage())
