from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog.cli.demo import made_up_history
from tests.cli.support import Program, Repository


@pytest.mark.slow
def test_the_history_of_a_repository(program: Program, branching: Repository) -> None:
    steps = program("demo", branching.path).records
    assert [step["step"] for step in steps] == ["import", *["sync"] * 2, *["append"] * 3, *["sync"] * 5, "compare"]
    assert steps[0]["commits"] == 9
    assert len({step["root"]["hash"] for step in steps if step["step"] == "append"}) == 3
    assert steps[-1]["equal"] is True
    assert steps[-1]["messages"] == 9 + 3 + 4 + 2
    assert steps[-1]["heads"] == 3


@pytest.mark.slow
def test_without_a_repository_a_history_is_made_up(program: Program) -> None:
    steps = program("demo").records
    assert steps[0]["source"].startswith("A made-up history (there is no Git repository in ")
    assert steps[0]["commits"] == 2000
    assert steps[-1]["equal"] is True


def test_a_repository_that_was_asked_for_has_to_be_one(program: Program, home: Path) -> None:
    result = program("demo", home)
    assert (result.code, result.out) == (1, "")


def test_a_made_up_history_branches_and_merges() -> None:
    commits = list(made_up_history(200))
    assert commits == list(made_up_history(200))
    assert {len(commit.parents) for commit in commits} == {0, 1, 2}
    seen: set[str] = set()
    for commit in commits:
        assert seen.issuperset(commit.parents)
        seen.add(commit.sha)
    assert len(seen) == 200
