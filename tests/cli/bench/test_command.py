from __future__ import annotations

from collections.abc import Iterator

import pytest

from gossiplog.cli.bench import suite
from gossiplog.cli.bench.stage import Result
from tests.cli.support import Program

RESULTS = [
    Result("`pull` of some", "1.3x `insert_many`", "1.10x", True, 1.1, 1.0, "100/s beside 110/s"),
    Result("open a log", "0.1 s", "0.05 s", True, 0.05),
    Result("a tree", "3x hashing", "90/s", None, 0.05),
]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes that the suite was run with; it is not."""
    given: list[int] = []

    def run(size: int) -> Iterator[Result]:
        given.append(size)
        yield from RESULTS

    monkeypatch.setattr(suite, "run", run)
    return given


def test_results_are_records(program: Program, sizes: list[int]) -> None:
    first, second, third = program("bench", "--size", "500").records
    assert first == {
        "work": "`pull` of some",
        "target": "1.3x `insert_many`",
        "result": "1.10x",
        "seconds": 1.1,
        "floor_seconds": 1,
        "detail": "100/s beside 110/s",
    }
    assert second["floor_seconds"] is None
    # A share of what only a checkout measures is no target of a rate.
    assert third["target"] == ""
    assert sizes == [500]


def test_results_are_a_table_on_a_terminal(program: Program, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    shown = program("bench").out
    assert "pull of some" in shown
    assert "1.10x" in shown
    assert sizes == [10_000]


def test_a_size_that_is_too_small(program: Program) -> None:
    assert program("bench", "--size", "1").code == 2
