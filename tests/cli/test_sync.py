from __future__ import annotations

from pathlib import Path

from tests.cli.support import Program


def test_sync_makes_the_log(program: Program, log: Path) -> None:
    program("append", log, "1", "2", "3")
    result = program("sync", "copy.db", log).record
    assert (result["log"], result["source"]) == ("copy.db", str(log))
    assert (result["inserted"], result["messages"]) == (3, 3)
    for cost in ("requests", "round_trips", "bytes_sent", "bytes_received", "seconds", "messages_per_second"):
        assert result[cost] > 0
    assert result["root"] == program("info", log).record["root"]
    again = program("sync", "copy.db", log).record
    assert again["inserted"] == 0


def test_sync_pulls_and_both_gives(program: Program, log: Path) -> None:
    program("sync", "copy.db", log)
    program("append", log, "1")
    program("append", "copy.db", "2", "3")
    (pull,) = program("sync", log, "copy.db").records
    assert pull["inserted"] == 2
    there, back = program("sync", "copy.db", log, "--both").records
    assert (there["inserted"], back["inserted"]) == (1, 0)
    assert there["root"] == back["root"]


def test_sync_refuses_another_topic(program: Program, log: Path) -> None:
    program("init", "other.db", "--topic", "other")
    result = program("sync", "other.db", log)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "topic" in result.err


def test_sync_without_a_source(program: Program, log: Path, home: Path) -> None:
    result = program("sync", log, "no.db")
    assert result.code == 1
    assert "there is no log no.db" in result.err
    assert not (home / "no.db").exists()
