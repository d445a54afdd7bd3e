"""The harness itself: what it flips, and that it finds what it looks for."""

from __future__ import annotations

from pathlib import Path

import pytest

import gossiplog
from gossiplog.log.results import RepairResult
from tests.rot.__main__ import flips, run
from tests.rot.judging import Flip, Known, judge, know
from tests.rot.owners import owner_of
from tests.rot.shapes import WAL, make


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Known:
    return know(make("linear", tmp_path_factory.mktemp("linear") / "linear"))


def test_the_same_seed_is_the_same_run(linear: Known) -> None:
    assert flips("1", 40, [linear]) == flips("1", 40, [linear]) != flips("2", 40, [linear])
    assert len(flips("1", 41, [linear, linear])) == 41


def test_pages_have_owners(linear: Known) -> None:
    path = linear.shape.folder / "log.db"
    owner = owner_of(path)
    found = {owner(offset) for offset in range(0, path.stat().st_size, 512)}
    assert {"header", "schema", "gossiplog_messages", "gossiplog_leaves", "gossiplog_tree"} <= found


@pytest.mark.slow
def test_a_flip_that_changes_nothing_is_harmless(linear: Known, tmp_path: Path) -> None:
    """The bytes of a version number that SQLite passes over (file format, "Version-valid-for Number")."""
    outcome = judge(Flip("linear", "log.db", 97, 0), linear, tmp_path / "work")
    assert (outcome.fate, outcome.failures, outcome.repaired) == ("harmless", [], False)


@pytest.mark.slow
def test_a_damaged_page_is_named_and_repaired(linear: Known, tmp_path: Path) -> None:
    path = linear.shape.folder / "log.db"
    owner = owner_of(path)
    start = next(offset for offset in range(0, path.stat().st_size, 4096) if owner(offset) == "gossiplog_leaves")
    (outcome,) = run([Flip("linear", "log.db", start, 5)], [linear], tmp_path, 1)
    assert outcome.fate in ("named", "refused")
    assert (outcome.failures, outcome.repaired) == ([], True)


def test_a_repair_that_does_nothing_is_a_failure(
    linear: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> RepairResult:
        return RepairResult(linear.count, linear.root)

    monkeypatch.setattr(gossiplog, "repair", nothing)
    outcome = judge(Flip("linear", "log.db", 0, 0), linear, tmp_path / "work")
    assert any(failure.startswith("repair: ") for failure in outcome.failures)


def test_all_messages_of_the_write_ahead_log_are_only_there(tmp_path: Path) -> None:
    known = know(make(WAL, tmp_path / "wal"))
    assert known.count == 41
    assert (known.shape.folder / "log.db-wal").stat().st_size > 40 * 4096
