"""The core: verifying a batch, building the tree, adding to it."""

from __future__ import annotations

import hashlib
import statistics

from gossiplog import core
from gossiplog.cli.bench.histories import AUTHORS, TOPIC
from gossiplog.cli.bench.stage import Result, Stage

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
