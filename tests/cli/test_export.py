"""`gossiplog export`, and `gossiplog import` of what it writes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from tests.cli.support import Program
from tests.strategies import alternative


@pytest.fixture
def written(log: Path) -> Path:
    """A log of messages in several encodings."""
    with gossiplog.open(log, signer=Signer(bytes(32))) as opened:
        opened.append_many({"n": n} for n in range(600))
        opened.append([b"bytes", 0.5, None], codec="dag-json")
        for message in list(opened)[:600:100]:
            assert opened.insert(alternative(message.value))
    return log


def test_a_log_comes_back_byte_for_byte(program: Program, written: Path, home: Path) -> None:
    exported = program("export", written)
    assert exported.err == ""
    (home / "notes.jsonl").write_text(exported.out, encoding="utf-8")
    record = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes").record
    assert (record["values"], record["inserted"], record["refused"]) == (607, 607, [])
    with gossiplog.open(written) as ours, gossiplog.open(home / "again.db") as theirs:
        assert [message.value for message in ours] == [message.value for message in theirs]
        assert ours.root == theirs.root
    assert program("export", home / "again.db").out == exported.out


def test_an_empty_log(program: Program, log: Path, home: Path) -> None:
    assert program("export", log).out == ""
    (home / "empty").touch()
    assert program("import", log, home / "empty").record["values"] == 0


def test_from_standard_input(program: Program, written: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = program("export", written).out.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(lines))))
    assert program("import", home / "again.db", "-", "--topic", "notes").record["inserted"] == 607


def test_what_is_imported_is_verified(program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals have the file and the line; what is right is in the log."""
    program("append", log, "1", "2", "3")
    first, second, third = program("export", log).out.splitlines()
    changed = json.loads(third)
    changed["message"]["payload"] = 4
    lines = [first, "", json.dumps(changed), "{}", "", second, "[1]"]
    (home / "notes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes")
    assert result.code == 1
    assert result.err == "gossiplog: 3 of 5 values were refused; the others are in " + f"{home / 'again.db'}\n"
    refused = result.record["refused"]
    assert [(refusal["file"], refusal["line"]) for refusal in refused] == [
        (str(home / "notes.jsonl"), line) for line in (3, 4, 7)
    ]
    assert "'signature' is missing" in refused[1]["error"]
    assert "the body must be a map, not list" in refused[2]["error"]
    assert result.record["messages"] == 2
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program("import", home / "again.db", home / "notes.jsonl").out
    assert f"{home / 'notes.jsonl'}, line 4: " in shown
