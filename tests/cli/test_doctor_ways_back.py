"""What `gossiplog doctor` and errors say to run is the way back from damage."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from tests.cli.doctoring import DAMAGE, damaged, files_of_a_log, first_command, found, log_to_look_at, run_as_printed
from tests.cli.support import Program


@pytest.fixture
def path(home: Path) -> Path:
    return log_to_look_at(home)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, bytes]]:
    return files_of_a_log(tmp_path_factory.mktemp("files"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_it_says_to_run_is_the_way_back(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    """Issue 19: of a file of less than a page `repair` had nothing left, and of an empty one `sync` asked for more."""
    path, new = damaged(files, home, damage), home / "new.db"
    for _ in range(3):
        records = program("doctor", path).records
        wrong = [record["run"] for record in records if record["severity"] == "wrong"]
        if not wrong:
            break
        assert run_as_printed(program, wrong[0], home / "whole.db") == ""
        if new.exists():
            path = new
    assert program("verify", path).record["messages"] >= 300
    if damage != "a backup":
        assert program("info", path).record["root"] == program("info", "whole.db").record["root"]


WITHOUT_REPLICA = re.compile("Without a (?:replica|source), |Only if [a-z ]+: ")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage[:2] not in ("0 ", "1 ", "51")])
def test_without_a_replica_as_many_messages_are_left_as_was_said(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    """Issue 19: "gives up at most 110 messages" were 300, 69 were 928, and a chain of steps ended in an empty log."""
    path, new = damaged(files, home, damage), home / "new.db"
    there = read_identity_and_count(str(path))
    err, said = program("verify", path).err, None
    for _ in range(5):
        if not err or "no log can be made" in err or "nothing of a log is left" in err:
            break
        if number := re.search(r"(?:(?<!True goes on )with|of) (\d+) (?:of the \d+ acknowledged )?messages", err):
            said = int(number[1])
        command = first_command(err.removeprefix("gossiplog: "))
        if "SOURCE" in command:
            # What names no other way is tried without a source.
            rest = WITHOUT_REPLICA.split(err, maxsplit=1)[1:]
            command = first_command(rest[0]) if rest else command.removesuffix(" --from SOURCE")
        assert "SOURCE" not in command
        # Nothing is given up before.
        assert said is not None or ("--accept-loss" not in command and ".former" not in command)
        err = run_as_printed(program, command, home / "none.db")
        path = new if new.exists() else path
        err = err or program("verify", path).err
    if err:
        assert not new.exists()
        return
    left = program("verify", path).record["messages"]
    assert said is None or left == said
    assert left >= (there[1] if there is not None and there[1] is not None else 0)


# Of an empty file the error says first how a log is made.
@pytest.mark.slow
@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage != "0 bytes left, no count"])
def test_what_errors_say_to_run_is_the_way_back(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    path, new = damaged(files, home, damage), home / "new.db"
    err = program("verify", path).err
    for _ in range(4):
        if not err:
            break
        err = run_as_printed(program, first_command(err.removeprefix("gossiplog: ")), home / "whole.db")
        path = new if new.exists() else path
        err = err or program("verify", path).err
    assert program("verify", path).record["messages"] >= 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 3",
        "DELETE FROM gossiplog_heads",
        "UPDATE gossiplog_tree SET hash = zeroblob(16)",
        "UPDATE gossiplog_messages SET links = x'ff' WHERE seq = 9",
    ],
)
def test_what_follows_from_the_messages_is_repaired_without_a_source(program: Program, path: Path, damage: str) -> None:
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append_many(range(300))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(damage)
    _, _, run = found(program, path, 1)["damage"]
    assert run == f"gossiplog repair {path}"
    assert program(*shlex.split(run)[1:]).code == 0
    found(program, path, 0)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE gossiplog_messages SET value = x'00' WHERE seq = 9",
        "DELETE FROM gossiplog_messages WHERE seq = 20",
        "DELETE FROM gossiplog_messages WHERE seq = 5; DELETE FROM gossiplog_leaves WHERE seq = 5",
    ],
)
def test_lost_messages_are_repaired_from_a_source(program: Program, path: Path, damage: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(damage)
    _, _, run = found(program, path, 1)["damage"]
    assert run == f"gossiplog repair {path} --from SOURCE"
