from __future__ import annotations

import pytest
from conftest import Results

from gossiplog.cli.bench import logs
from gossiplog.cli.bench.stage import Stage


def test_insert_many(stage: Stage, results: Results) -> None:
    results.add(logs.insert_many(stage))


def test_insert_roots(stage: Stage, results: Results) -> None:
    results.add(logs.insert_roots(stage))


def test_open_and_append(stage: Stage, results: Results) -> None:
    results.add(logs.open_and_append(stage))


def test_append(stage: Stage, results: Results) -> None:
    results.add(logs.append(stage))


@pytest.mark.parametrize("name", logs.BRAIDS)
def test_is_ancestor(name: str, stage: Stage, results: Results) -> None:
    results.add(logs.is_ancestor(stage, name))


def test_two_processes(stage: Stage, results: Results) -> None:
    results.add(logs.two_processes(stage))
