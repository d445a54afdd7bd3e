"""Logs that cannot be read, as reports name them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gossiplog.errors import CorruptLog, LogChanged, NotALog, StorageError
from gossiplog.spark.jobs.replica_keys import FleetLook
from gossiplog.spark.source.locations import is_missing, locations
from gossiplog.spark.source.opening import unopened
from gossiplog.spark.source.problems import Problem, ProblemKind, fleet_locations, problem_error, problem_of

MakeLog = Callable[..., Path]


def test_paths_that_name_no_file(make_log: MakeLog, tmp_path: Path) -> None:
    path = str(make_log())
    gone = str(tmp_path / "gone.db")
    found, problems = fleet_locations([path, gone, str(tmp_path / "*.db"), f"{tmp_path}/./log.db"])
    assert found == [path]
    assert {log: problem.kind for log, problem in problems.items()} == {gone: "missing"}
    for mistake in (str(tmp_path / "*.none"), str(tmp_path / "{log,none}.db")):
        with pytest.raises(NotALog, match="no file fits the pattern"):
            fleet_locations([path, mistake])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotALog, match="has no file"):
        fleet_locations([path, str(tmp_path / "empty")])


@contextmanager
def another_user() -> Iterator[None]:
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_closed_folder_is_a_problem_of_its_own(make_log: MakeLog) -> None:
    """And what is in it is not said to be missing."""
    path = make_log()
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        logs = [Path(folder, hub, "log.db") for hub in ("north", "south")]
        for log in logs:
            log.parent.mkdir(mode=0o755)
            shutil.copyfile(path, log)
        closed = logs[0].parent
        closed.chmod(0)
        with another_user():
            found = fleet_locations([folder], recursive=True)
            alone = fleet_locations([str(closed)])
            named = fleet_locations([str(logs[0]), str(closed / "gone.db"), str(logs[1].parent / "gone.db")])
            look = FleetLook()(unopened(str(logs[0])))
            with pytest.raises(StorageError, match=rf"the folder {closed} cannot be read: Permission denied"):
                locations([folder], recursive=True)
            assert not is_missing(str(logs[0]))
        problem = Problem("unreadable", f"the folder {closed} cannot be read: Permission denied")
        assert found == ([str(logs[1])], {str(closed): problem})
        assert alone == ([], {str(closed): problem})
        gone = str(logs[1].parent / "gone.db")
        assert named == (
            [str(logs[0]), str(closed / "gone.db")],
            {gone: Problem("missing", f"there is no log {gone}")},
        )
        reason = f"cannot open {logs[0]}: user 65534 cannot look at it: Permission denied"
        assert look == (str(logs[0]), Problem("unreadable", reason))


def test_problems_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    assert len(problem_of(str(path), StorageError("x" * 10**6)).text) == 1000
    assert problem_of("s3://b/a.db?endpoint_override=127.0.0.1:1&scheme=http&region=r", StorageError("x")).kind == (
        "unreadable"
    )


def test_a_problem_says_something_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    assert problem_of(str(path), OSError()) == Problem("unreadable", "OSError")
    assert str(Problem("missing", "there is no log a.db")) == "missing: there is no log a.db"


def test_a_problem_has_the_name_of_the_log_that_stands_beside_it(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the log is, and once."""
    path = make_log("a.db")
    monkeypatch.chdir(path.parent)
    log = unopened("a.db")
    assert log.location == str(path)

    def named(error: Exception) -> Problem:
        return problem_of(log.location, error, log.name)

    several = CorruptLog([f"{path}: it has 2 keys", f"{path}: it has no head", f"the file {path} is cut off"])
    assert named(several) == Problem("damaged", "it has 2 keys; it has no head; the file a.db is cut off")
    assert named(StorageError(f"cannot read {path}: no")) == Problem("unreadable", "cannot read a.db: no")
    assert problem_of(str(path), several).text.count(f"{path}: ") == 2


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("damaged", "it has 2 keys", CorruptLog(["a.db: it has 2 keys"])),
        ("damaged", "a.db is cut off", CorruptLog(["a.db is cut off"])),
        ("no log", "a.db is not a log", NotALog("a.db is not a log")),
        ("missing", "there is no log a.db", NotALog("there is no log a.db")),
        ("replaced", "a.db was replaced while the job read it", LogChanged("a.db was replaced while the job read it")),
        ("unreadable", "OSError", StorageError("a.db: OSError")),
    ],
)
def test_the_error_of_a_log_alone_names_it(kind: ProblemKind, text: str, error: StorageError) -> None:
    made = problem_error("a.db", Problem(kind, text))
    assert (type(made), str(made)) == (type(error), str(error))
