"""What the names of files beside a log say."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Signer
from gossiplog.storage.sqlite.files import WORKING_KINDS, free_name
from gossiplog.storage.sqlite.names import is_remains, is_working_folder, log_names
from gossiplog.storage.sqlite.salvage import _KINDS, working_folder
from gossiplog.storage.sqlite.set_aside import SET_ASIDE_SUFFIXES
from gossiplog.storage.sqlite.tables import BESIDE

KEPT = [".generation-0", ".generation-12", ".rebasing", ".damaged", ".former", ".saved"]
NAMES = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=20)


@given(NAMES, st.sampled_from(KEPT), st.sampled_from(["", "-2", "-13"]), st.sampled_from(["", *BESIDE]))
@example("a\nb.db", ".damaged", "", "")
def test_what_is_kept_is_no_log_whatever_it_was_kept_of(name: str, kept: str, number: str, beside: str) -> None:
    left = f"{name}{kept}{number}{beside}"
    assert is_remains(left)
    assert left not in log_names([left])
    assert left not in log_names([name, left])


@given(NAMES, st.sampled_from([".copy", ".copy-2", *BESIDE]))
def test_some_are_known_by_the_log_beside_them(name: str, end: str) -> None:
    if is_remains(name) or is_remains(name + end):
        return
    assert log_names([name + end]) == [name + end]
    assert name + end not in log_names([name, name + end])


@pytest.mark.parametrize(
    "name", ["generation-1", "a.generations", "damaged", "a.damaged.db", "saved.db", ".saved", "copy"]
)
def test_names_of_logs(name: str) -> None:
    assert log_names([name]) == [name]


def test_every_suffix_under_which_a_log_is_set_aside(tmp_path: Path) -> None:
    (path := tmp_path / "a.db").touch()
    for suffix in SET_ASIDE_SUFFIXES:
        for _ in range(2):
            Path(free_name(path, suffix)).touch()
    assert len(os.listdir(tmp_path)) == 1 + 2 * len(SET_ASIDE_SUFFIXES)
    assert log_names(os.listdir(tmp_path)) == ["a.db"]


def test_a_folder_that_a_repair_works_in(tmp_path: Path) -> None:
    assert {*WORKING_KINDS} == {*_KINDS}
    for kind in ("repair", "recover"):
        with working_folder(tmp_path / "a.db", kind) as folder:  # type: ignore[arg-type]
            assert is_working_folder(folder.name)
    assert not is_working_folder("a.db")


def test_a_rebase_and_a_repair_leave_one_log_each(tmp_path: Path, make_two: Callable[[], tuple[Path, Path]]) -> None:
    log, other = make_two()
    with gossiplog.open(log) as opened:
        dropped = opened.append({"secret": "to be dropped"}, signer=Signer.generate()).id
    gossiplog.rebase(log, other, [dropped], signer=Signer.generate())
    with closing(sqlite3.connect(log)) as database, database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 1")
    gossiplog.repair(log, other)
    names = os.listdir(log.parent)
    assert {"a.db.generation-0", "a.db.damaged"} <= {*names}
    assert log_names(names) == ["a.db"]


@pytest.fixture
def make_two(tmp_path: Path) -> Callable[[], tuple[Path, Path]]:
    def make() -> tuple[Path, Path]:
        (folder := tmp_path / "hub").mkdir()
        paths = folder / "a.db", tmp_path / "b.db"
        with gossiplog.open(paths[1], "t") as log:
            log.append_many([1, 2], signer=Signer.generate())
        with gossiplog.open(paths[0], "t") as log:
            log.pull(paths[1])
        return paths

    return make
