from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.support import Program

MODULE = """
def setup(transaction):
    transaction.execute("DROP TABLE IF EXISTS seen")
    transaction.execute("CREATE TABLE seen (payload)")


def apply(message, transaction):
    transaction.execute("INSERT INTO seen VALUES (?)", (message.payload,))
"""


@pytest.fixture
def application(home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module in the working folder, by a name that no other test imports."""
    name = f"application_{abs(hash(request.node.name))}"
    (home / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(home))
    return name


def seen(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [payload for (payload,) in connection.execute("SELECT payload FROM seen ORDER BY payload")]


def test_rebuild_with_the_application(program: Program, log: Path, application: str) -> None:
    program("append", log, "1", "2")
    options = ("--apply", f"{application}:apply", "--setup", f"{application}:setup")
    for version in ("1", "2", "2"):
        found = program("rebuild", log, *options, "--apply-version", version)
        assert (found.code, found.err) == (0, "")
        record = found.record
        assert (record["log"], record["messages"], record["rebuilt"]) == (str(log), 2, True)
        assert seen(log) == [1, 2]
    assert "rebuilding" not in program("info", log).record
    result = program("rebuild", log, *options)
    assert result.code == 1
    assert "written by version 2 of `apply`, this is version 1" in result.err
    # Nor does the newer program build them anew when it opens the log.
    assert "rebuilding" not in program("info", log).record


def test_rebuild_without_the_application_is_a_request(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    for _ in range(2):
        assert not program("rebuild", log).record["rebuilt"]
    assert program("info", log).record["rebuilding"] == {"requested": True, "applied": 0, "apply_version": 1}


def test_a_requested_rebuild_has_applied_nothing_anew(program: Program, log: Path, application: str) -> None:
    program("append", log, "1", "2")
    program("rebuild", log, "--apply", f"{application}:apply", "--setup", f"{application}:setup")
    program("rebuild", log)
    assert program("info", log).record["rebuilding"] == {"requested": True, "applied": 0, "apply_version": 1}


def test_rebuild_says_what_it_did_on_a_terminal(
    program: Program, log: Path, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("append", log, "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    assert "when it next opens or writes" in program("rebuild", log).out
    assert "requested; the application begins when it next opens" in program("info", log).out
    options = ("--apply", f"{application}:apply", "--setup", f"{application}:setup")
    assert "built anew from 1 message." in program("rebuild", log, *options).out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--apply", "json:loads"], "--setup is missing"),
        (["--setup", "json:loads"], "--apply is missing"),
        (["--apply-version", "2"], "--apply-version is that of --apply"),
        (["--apply", "json", "--setup", "json:loads"], "--apply json: expected MODULE:NAME"),
        (["--apply", "json:nothing", "--setup", "json:loads"], "the module json has no nothing"),
        (["--apply", "no_module:x", "--setup", "json:loads"], "No module named 'no_module'"),
    ],
)
def test_wrong_options_of_rebuild(program: Program, log: Path, options: list[str], reason: str) -> None:
    result = program("rebuild", log, *options)
    assert result.code == 2
    assert reason in result.err
    assert "rebuilding" not in program("info", log).record


def test_backup(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1", "2")
    found = program("backup", log, "copy.db")
    assert (found.code, found.err) == (0, "")
    size = (home / "copy.db").stat().st_size
    record = found.record
    assert (record["log"], record["backup"], record["messages"], record["bytes"]) == (str(log), "copy.db", 2, size)
    assert program("verify", "copy.db").record["messages"] == 2
    again = program("backup", log, "copy.db")
    assert (again.code, again.err) == (1, "gossiplog: copy.db is there already: give the name of a new file\n")


def test_backup_says_what_it_did_on_a_terminal(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "1 message," in program("backup", log, "copy.db").out
