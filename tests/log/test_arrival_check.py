"""The check of ranges of messages, as `verify` and Spark's tasks run it (`gossiplog.log.arrival_check`)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import gossiplog
from gossiplog.errors import CorruptLog, InvalidMessage, StorageError
from gossiplog.log import arrival_check
from gossiplog.log.arrival_check import (
    ArrivalCheck,
    ChildCounts,
    Problem,
    Problems,
    TooManyProblems,
    log_problems,
    reporting,
)
from gossiplog.log.log import replica_of
from tests.damage import DAMAGE, TOPIC, Damage, make_damage, make_log, parametrized

# Damage with which a log opens, and which is found before its messages are read.
WRONG_INDEX = {
    "head lost",
    "head of no message",
    "head that has children",
    "head with a wrong sequence",
    "heads lost",
    "index below its rows",
    "tree hash",
    "tree hash of the anchor",
    "tree hashes of another type",
    "tree row lost",
    "tree row too many",
    "tree without its anchor",
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    return path


def check(path: Path, *bounds: int) -> tuple[set[Problem], Problem | None]:
    """What is wrong with the messages, checked in ranges that end at the bounds; and with the number of children."""
    found, counts = Problems(), ChildCounts()
    with gossiplog.open(path, read_only=True) as log:
        storage = replica_of(log).snapshot().storage
        indexed = replica_of(log).position().indexed
        for first, last in zip((0, *bounds), (*bounds, len(log)), strict=True):
            part = ArrivalCheck(storage, TOPIC, indexed, found.report)
            part.run(first + 1, last)
            counts.expected += part.children.expected
            counts.stored += part.children.stored
            counts.unknown |= part.children.unknown
    return set(found.found), counts.problem()


@pytest.mark.parametrize("bounds", [(), (1,), (7, 20, 21, 90)])
def test_a_sound_log_has_no_problem_in_whichever_ranges(intact: Path, bounds: Sequence[int]) -> None:
    assert check(intact, *bounds) == (set(), None)


@parametrized
def test_ranges_that_are_checked_apart_find_what_the_whole_finds(intact: Path, tmp_path: Path, damage: Damage) -> None:
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    make_damage(path, damage)
    if damage.kinds is None or damage.name in WRONG_INDEX:
        for bounds in ((), (7, 20, 21, 90)):
            with pytest.raises(CorruptLog):
                check(path, *bounds)
        return
    kinds, expected = ({problem.kind for problem in check(path, *bounds)[0]} for bounds in ((7, 20, 21, 90), ()))
    if damage.name == "values swapped":
        # Of the two messages, each is in a range without the other: neither range has both the child and its parent.
        expected -= {"order"}
    assert expected <= kinds
    assert bool(kinds) == bool(expected)


def test_problems_are_collected_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_check, "MOST_PROBLEMS", 2)
    problems = Problems()
    first, second = Problem("leaf", "first"), Problem("tree", "second")
    problems.report(first)
    with pytest.raises(TooManyProblems):
        problems.report(second)
    assert problems.found == [first, second]


@pytest.mark.parametrize(
    ("expected", "stored", "unknown", "is_sound"),
    [(3, 3, False, True), (3, 2, False, False), (2, 3, False, False), (2, 3, True, True), (3, 2, True, False)],
)
def test_children_are_counted(expected: int, stored: int, unknown: bool, is_sound: bool) -> None:
    """Where some parents are not known, more rows than those that are expected may be theirs."""
    assert (ChildCounts(expected, stored, unknown).problem() is None) == is_sound


def test_errors_of_what_is_stored_are_problems_and_others_are_raised() -> None:
    problems = Problems()
    with reporting(problems.report, "tree", "the tree"):
        raise InvalidMessage("it has no root")
    with reporting(problems.report, "index", "the index"):
        raise CorruptLog(["one", "two"])
    assert [(each.kind, each.text) for each in problems.found] == [
        ("tree", "the tree: it has no root"),
        ("index", "one"),
        ("index", "two"),
    ]
    with pytest.raises(StorageError, match="the disk is full"), reporting(problems.report, "tree", "the tree"):
        raise StorageError("the disk is full")


@pytest.mark.parametrize(
    ("name", "kind"), [("alternative above the count", "encoding"), ("cursor above the count", "index")]
)
def test_what_no_message_leads_to_is_found(intact: Path, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    make_damage(path, next(damage for damage in DAMAGE if damage.name == name))
    with gossiplog.open(path, read_only=True) as log, replica_of(log).snapshot().storage.reader() as reader:
        (problem,) = log_problems(reader, reader.position())
    assert problem.kind == kind
