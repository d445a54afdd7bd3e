from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.storage.sqlite.commit_count import CommitCount
from tests.cli.support import Program, Server


@pytest.fixture
def damaged(home: Path) -> Path:
    """A log of which `whole.db` is a replica."""
    path = home / "damaged.db"
    with gossiplog.open(path, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(40))
        with gossiplog.open(home / "whole.db", "org.example.test") as whole:
            whole.pull(log)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = zeroblob(100) WHERE seq IN (7, 9)")
    return path


@pytest.mark.parametrize("source", ["whole.db", "file:whole.db"])
def test_from_a_file(program: Program, damaged: Path, source: str) -> None:
    assert program("verify", damaged).code == 1
    record = program("repair", damaged, "--from", source).record
    assert (record["messages"], record["fetched"], record["moved"], record["notes"]) == (40, 2, 0, [])
    assert any(problem.startswith("sequence 7: ") for problem in record["damaged"])
    assert record["root"] == program("verify", damaged).record["root"] == program("verify", "whole.db").record["root"]
    assert Path(record["former"]).exists()
    assert program("repair", damaged).record["damaged"] == []


def test_what_cannot_be_repaired(program: Program, damaged: Path) -> None:
    result = program("repair", damaged)
    assert (result.code, result.out) == (1, "")
    assert f"is lost here; the log is as it was. No replica was named: gossiplog repair {damaged} --from" in result.err
    assert result.err.index(f"gossiplog repair {damaged} --from") < result.err.index(f"gossiplog recover {damaged} NEW")
    with gossiplog.open("empty.db", "org.example.test"):
        pass
    result = program("repair", damaged, "--from", "empty.db")
    assert result.err.startswith(f"gossiplog: {damaged}, from empty.db: the log is damaged: message ")
    assert "is neither here nor in the source; the log is as it was. Name another replica: " in result.err


def test_a_terminal_shows_what_was_damaged_and_that_it_is_repaired(
    program: Program, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with damaged.open("r+b") as file:
        file.write(bytes(16))
    lines = program("repair", damaged, "--from", "whole.db").out.splitlines()
    assert lines[0] == "Was damaged:"
    assert any(line.endswith("is not a log: it is not an SQLite database") for line in lines)
    assert lines[lines.index("Repaired.") - 1] == ""
    assert not any("gossiplog repair" in line for line in lines)


def test_a_terminal_shows_the_first_of_many_notes(
    program: Program, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(damaged)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq > 15")
    with gossiplog.open("first.db", "org.example.test") as first, gossiplog.open("whole.db", read_only=True) as whole:
        first.insert_many(message.value for message in list(whole)[:15])
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = program("repair", damaged, "--from", "first.db", "--accept-loss")
    assert result.code == 0
    lines = result.err.splitlines()
    assert sum("is neither here nor in the source, as was accepted" in line for line in lines) == 20
    assert lines[-1] == "gossiplog: and 5 more notes, which --json lists"


def test_lost_messages_that_the_source_lacks(program: Program, home: Path) -> None:
    path = home / "log.db"
    with gossiplog.open(path, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(40))
        log.backup(home / "stale.db")
    counts = CommitCount(str(path))
    found = counts.read()
    assert found is not None
    counts.write(found[0], 60)
    counts.close()
    before = path.read_bytes()
    result = program("repair", path, "--from", "stale.db")
    assert (result.code, result.out) == (1, "")
    assert "20 messages are lost here and in the source, and not even their ids are left" in result.err
    assert f"gossiplog repair {path} --from SOURCE --accept-loss goes on with 40 of the 60 ack" in result.err
    assert path.read_bytes() == before
    assert program("repair", path, "--from", "stale.db", "--accept-loss").record["messages"] == 40
    assert program("info", path).code == 0


def test_messages_beyond_those_named_are_counted_once(program: Program, damaged: Path) -> None:
    with closing(sqlite3.connect(damaged)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = zeroblob(100) WHERE seq > 10")
    err = program("repair", damaged).err
    assert err.count(" more") == 1
    assert "; and 27 more; the log is as it was" in err


@pytest.mark.parametrize("command", ["repair", "recover"])
def test_a_journal_beside_a_file_that_cannot_be_opened(program: Program, damaged: Path, command: str) -> None:
    """`repair` advised `info`, and that `repair`."""
    with damaged.open("r+b") as file:
        file.write(b"x")
    journal = damaged.with_name("damaged.db-journal")
    journal.write_bytes(bytes(512))
    arguments = [damaged, "--from", "whole.db"] if command == "repair" else [damaged, "new.db"]
    err = program(command, *arguments).err
    assert program("info", damaged).code == 1
    assert (
        f"If it cannot, the file is damaged as well: mv {journal} {journal}.former. Then run this command again" in err
    )
    journal.rename(f"{journal}.former")
    result = program(command, *arguments)
    assert (result.code, "messages of" in result.err) == ((0, False) if command == "repair" else (1, True))


def test_mistakes(program: Program, damaged: Path) -> None:
    assert program("repair", "no.db").err == "gossiplog: there is no log no.db\n"
    assert "gossiplog: --from: there is no log no.db: expected" in program("repair", damaged, "--from", "no.db").err
    assert program("repair", damaged, "--from", "whole.db", "--token-file", "t").code == 2
    result = program("repair", damaged, "--from", "http://127.0.0.1:1/")
    assert result.code == 2
    assert "--from: a hub's address begins with ws:// or wss://: ws://127.0.0.1:1/" in result.err


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["hub", "peer"])
def test_from_a_hub_or_a_peer(program: Program, damaged: Path, home: Path, port: int, kind: str) -> None:
    options = ["--hub", f"127.0.0.1:{port}"] if kind == "hub" else ["--listen", f"/ip4/127.0.0.1/tcp/{port}"]
    with Server(home / "whole.db", *options) as server:
        address = f"ws://127.0.0.1:{port}" if kind == "hub" else server.ready["listen"][0]
        record = program("repair", damaged, "--from", address).record
    assert (record["messages"], record["fetched"], record["moved"]) == (40, 2, 0)
    assert record["root"] == program("verify", home / "whole.db").record["root"]
