from __future__ import annotations

from conftest import Results

from gossiplog.cli.bench import suite
from gossiplog.cli.bench.stage import Stage


def test_verify_batch(stage: Stage, results: Results) -> None:
    results.add(suite.verify_batch(stage))


def test_build_tree(stage: Stage, results: Results) -> None:
    results.add(suite.build_tree(stage))


def test_insert_into_tree(stage: Stage, results: Results) -> None:
    results.add(suite.insert_into_tree(stage))
