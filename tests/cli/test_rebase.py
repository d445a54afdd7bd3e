"""`gossiplog rebase`, onto the log in another file."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.signer import default_key_path
from tests.cli.support import Program

US, OTHERS = Signer(b"\1" * 32), Signer(b"\2" * 32)


@pytest.fixture
def bad(home: Path) -> str:
    """The id of a message in mine.db, from which the others there descend; theirs.db has one of its own."""
    US.save(home / "us.key")
    OTHERS.save(home / "others.key")
    with gossiplog.open(home / "theirs.db", "notes", signer=OTHERS) as log:
        log.append("theirs")
    with gossiplog.open(home / "mine.db", "notes", signer=US) as log:
        found = log.append("bad")
        log.append_many(["good", "better"])
    return found.id


def test_a_rebase(program: Program, home: Path, bad: str) -> None:
    given = ["rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key"]
    planned = program(*given, "--dry-run")
    *rows, plan = planned.records
    assert [row["outcome"] for row in rows] == ["dropped", "signed anew", "signed anew"]
    assert (plan["dry_run"], plan["former"], plan["generation"]) == (True, None, 0)
    assert not (home / "mine.db.generation-0").exists()
    result = program(*given, "--mapping", "ids.jsonl")
    record = result.record
    del record["seconds"]
    assert record == {
        "log": "mine.db",
        "onto": "theirs.db",
        "signed": 2,
        "dropped": 1,
        "kept": 0,
        "messages": 3,
        "generation": 1,
        "former": str(home / "mine.db.generation-0"),
        "tables": [],
        "same_payload": 0,
        "dry_run": False,
    }
    assert (
        result.err == "gossiplog: peers that hold the dropped messages bring them back when they sync with this log\n"
    )
    mapping = [json.loads(line) for line in (home / "ids.jsonl").read_text().splitlines()]
    assert program("info", "mine.db").record["generation"] == 1
    assert "generation" not in program("info", "theirs.db").record
    assert mapping == [{"old": row["old"], "new": row["new"]} for row in rows[1:]]
    with gossiplog.open(home / "mine.db") as log:
        log.verify()
        assert [message.payload for message in log.messages()] == ["theirs", "good", "better"]
        assert all(each["new"] in log for each in mapping)


def test_the_plan_as_a_table(program: Program, home: Path, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    given = ["rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key"]
    shown = program(*given, "--dry-run").out
    assert "signed anew" in shown
    assert bad in shown
    assert "2 messages would be signed anew, 1 would be dropped, 0 would be kept." in shown
    shown = program(*given).out
    assert "2 messages signed anew, 1 dropped, 0 kept." in shown
    assert "mine.db has 3 messages, and is of generation 1. The former file is " in shown
    with gossiplog.open(home / "theirs.db") as log:
        log.pull(home / "mine.db")
    assert "Nothing has changed" in program("rebase", "mine.db", "--onto", "theirs.db", "--key", "us.key").out


@pytest.mark.parametrize("columns", ["60", "80", "100"])
def test_the_plan_splits_no_id(
    program: Program, home: Path, bad: str, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    given = ["rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key", "--dry-run"]
    rows = program(*given).records[:-1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    shown = program(*given).out
    assert all(row["old"] in shown and (row["new"] or "") in shown for row in rows)


@pytest.mark.parametrize("dry_run", [True, False])
def test_messages_that_the_target_has_under_other_ids_are_named(
    program: Program, home: Path, bad: str, dry_run: bool
) -> None:
    shutil.copy("mine.db", "copy.db")
    options = ["--onto", "theirs.db", "--drop", bad, "--key", "us.key"]
    program("rebase", "mine.db", *options, "--mapping", "ids.jsonl")
    program("sync", "theirs.db", "mine.db")
    mapping = [json.loads(line) for line in (home / "ids.jsonl").read_text().splitlines()]
    result = program("rebase", "copy.db", *options, *(["--dry-run"] if dry_run else []))
    assert result.records[-1]["same_payload"] == 2
    if dry_run:
        assert [row["same_payload"] for row in result.records[1:-1]] == [each["new"] for each in mapping]
    (line,) = [line for line in result.err.splitlines() if "the author and the payload" in line]
    assert "2 messages signed anew with the author and the payload of a message that theirs.db has already" in line
    assert all(f"{each['old']} (there {each['new']})" in line for each in mapping)
    # As it stands, the command leaves them out.
    _, command = line.split("leave them out: gossiplog ")
    program(*shlex.split(command))
    with gossiplog.open(home / "copy.db") as log:
        assert [message.payload for message in log.messages()] == ["theirs", "good", "better"]


def test_many_messages_that_the_target_has_are_counted(program: Program, home: Path, bad: str) -> None:
    with gossiplog.open(home / "mine.db", signer=US) as log:
        log.append_many(range(30))
    shutil.copy("mine.db", "copy.db")
    options = ["--onto", "theirs.db", "--drop", bad, "--key", "us.key"]
    program("rebase", "mine.db", *options)
    program("sync", "theirs.db", "mine.db")
    found = program("rebase", "copy.db", *options, "--dry-run").err
    assert " and 12 more. If this log is a copy" in found
    assert "replace it by that log" in found


def test_another_key(program: Program, home: Path, bad: str) -> None:
    result = program("rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "others.key", "--mapping", "m")
    assert result.code == 1
    assert "messages descend from dropped ones whose authors' keys were not given" in result.err
    assert "(--key)" in result.err
    # Nothing is left of what did not happen.
    assert not (home / "m").exists()
    several = ["--key", "others.key", "--key", "us.key"]
    assert program("rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, *several).record["signed"] == 2


def test_another_key_does_not_replace_the_users_own(program: Program, home: Path, bad: str) -> None:
    own = default_key_path()
    own.parent.mkdir(parents=True, exist_ok=True)
    given = ["rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "others.key", "--dry-run"]
    assert program(*given).code == 1
    # None is made for that.
    assert not own.exists()
    US.save(own)
    assert program(*given).records[-1]["signed"] == 2


def test_others_messages_are_dropped_on_request(program: Program, home: Path, bad: str) -> None:
    with gossiplog.open(home / "mine.db", signer=OTHERS) as log:
        other = log.append("of another")
    error = program("rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key").err
    assert other.id in error
    _, command = error.split("To drop these as well: gossiplog ")
    assert program(*shlex.split(command)).record["dropped"] == 2


def test_a_mapping_that_is_there_is_not_overwritten(program: Program, home: Path, bad: str) -> None:
    (home / "ids.jsonl").write_text("precious")
    given = ["rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key", "--mapping", "ids.jsonl"]
    assert program(*given).code == 1
    assert (home / "ids.jsonl").read_text() == "precious"
    assert not (home / "mine.db.generation-0").exists()


def test_tables_of_an_application_are_named(program: Program, home: Path, bad: str) -> None:
    def apply(message: object, transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS notes (id TEXT)")

    with gossiplog.open(home / "mine.db", apply=apply):
        pass
    result = program("rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key")
    assert result.record["tables"] == ["notes"]
    assert f"tables of an application stay in {home / 'mine.db.generation-0'}: notes; its `apply` fills" in result.err


def test_what_is_on_top_of_the_target_already_is_left_as_it_is(program: Program, home: Path) -> None:
    US.save(home / "us.key")
    with gossiplog.open(home / "theirs.db", "notes", signer=US) as log:
        log.append_many(range(3))
        with gossiplog.open(home / "mine.db", "notes", signer=US) as mine:
            mine.pull(log)
            mine.append_many(range(3))
    record = program("rebase", "mine.db", "--onto", "theirs.db", "--key", "us.key").record
    assert (record["signed"], record["kept"], record["generation"], record["former"]) == (0, 3, 0, None)
    assert not (home / "mine.db.generation-0").exists()


def test_help_says_once_that_an_option_may_be_repeated(program: Program) -> None:
    text = " ".join(program("rebase", "--help").out.split())
    assert text.count("several times") == 2  # --drop and --key
    assert "may be given several times. The" not in text


def test_mistakes(program: Program, home: Path, bad: str) -> None:
    assert "there is no log none.db" in program("rebase", "none.db", "--onto", "theirs.db", "--key", "us.key").err
    assert program("rebase", "mine.db", "--key", "us.key").code == 2
    given = ["rebase", "mine.db", "--onto", "none.db", "--key", "us.key"]
    assert "--onto: there is no log none.db" in program(*given).err
    result = program("rebase", "mine.db", "--onto", "http://127.0.0.1:1/", "--key", "us.key")
    assert result.code == 2
    assert "--onto: a hub's address begins with ws:// or wss://: ws://127.0.0.1:1/" in result.err
    result = program("rebase", "mine.db", "--onto", "theirs.db", "--drop", bad[:8], "--key", "us.key")
    assert result.code == 2
    assert f"--drop takes the whole id, 32 characters; gossiplog show mine.db {bad[:8]} prints it" in result.err
    with gossiplog.open(home / "mine.db"):
        result = program("rebase", "mine.db", "--onto", "theirs.db", "--drop", bad, "--key", "us.key")
    assert "is open in another program, or elsewhere in this one: close it there (stop the server)" in result.err
