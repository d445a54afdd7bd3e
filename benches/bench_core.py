"""The core: verifying a batch, building the tree, adding to it."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable

from conftest import Comparison, Results
from data import AUTHORS, TOPIC, history

from gossiplog import core

BATCH = 10_000
# What surrounds the payload in the signed map, less what surrounds it in the stored tuple, for two parents.
SIGNED_LESS_THAN_STORED = 80


def test_verify_batch(compare: Comparison, bare: Callable[..., float], results: Results) -> None:
    values = history("mixed", BATCH)
    stored = round(statistics.mean(map(len, values)))
    signed = stored - SIGNED_LESS_THAN_STORED
    assert core.verify_batch(values, TOPIC).fresh == BATCH
    compare.run(lambda: core.verify_batch(values, TOPIC), lambda: bare("signatures", BATCH, AUTHORS, signed, stored))
    share = 1 / compare.ratio
    results.add(
        "`verify_batch`, 10,000 messages, 100 authors",
        "85 % of a bare batch verification plus SHA-256, same threads, best batch size",
        f"{share:.0%}",
        share >= 0.85,
        f"{BATCH / compare.seconds:,.0f}/s beside {BATCH / compare.floor_seconds:,.0f}/s",
    )


def test_tree(compare: Comparison, bare: Callable[..., float], results: Results, mixed: list[bytes], size: int) -> None:
    entries = [(core.read_message(value, TOPIC).key, value) for value in mixed]
    length = round(statistics.mean(map(len, mixed)))
    trees: list[core.Tree] = []
    compare.run(lambda: trees.append(core.Tree().insert(entries)), lambda: bare("leaves", size, 20, length))
    results.add(
        f"tree of {size:,} entries from scratch",
        "3x the time of hashing the leaves alone",
        f"{compare.ratio:.2f}x",
        compare.ratio <= 3,
        f"{compare.seconds:.2f} s beside {compare.floor_seconds:.2f} s, both on all cores",
    )
    tree = trees[-1]
    keys = [hashlib.sha256(b"%d" % number).digest()[:20] for number in range(1000)]
    value = bytes(length)
    times = []
    for _ in range(3):
        grown = tree
        start = time.perf_counter()
        for key in keys:
            grown = grown.insert([(key, value)])
            assert grown.root is not None
        times.append(time.perf_counter() - start)
    each = statistics.median(times) / len(keys) * 1e6
    results.add(
        "then 1,000 random inserts with a root after each",
        "20 microseconds each",
        f"{each:.1f} microseconds",
        each <= 20,
    )
