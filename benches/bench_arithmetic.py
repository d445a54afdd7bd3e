from __future__ import annotations

from conftest import Results

from gossiplog.cli.bench import arithmetic
from gossiplog.cli.bench.stage import Stage


def test_verify_batch(stage: Stage, results: Results) -> None:
    results.add(arithmetic.verify_batch(stage))


def test_build_tree(stage: Stage, results: Results) -> None:
    results.add(arithmetic.build_tree(stage))


def test_insert_into_tree(stage: Stage, results: Results) -> None:
    results.add(arithmetic.insert_into_tree(stage))
