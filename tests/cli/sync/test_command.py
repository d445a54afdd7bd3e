from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

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


def test_an_address_of_pages_is_told_apart(program: Program, home: Path) -> None:
    for source, right in (("http://localhost:8000", "ws://localhost:8000"), ("HTTPS://a/hub?token=b", "wss://a/hub?…")):
        result = program("sync", "new.db", source, "--topic", "notes")
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert f"a hub's address begins with ws:// or wss://: {right}" in result.err
    assert list(home.iterdir()) == []


def test_options_for_hubs_without_the_address_of_one(program: Program, home: Path) -> None:
    """As after a forgotten ws://."""
    result = program("sync", "new.db", "localhost:8000", "--topic", "notes")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "there is no log localhost:8000: a hub's address begins with ws://, as ws://localhost:8000" in result.err
    result = program("sync", "new.db", "localhost:8000", "--token-file", "t")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert (
        "localhost:8000 is taken for a file: a hub's address begins with ws://, as ws://localhost:8000; --token-file"
        in result.err
    )
    result = program("sync", "new.db", "other.db", "--follow")
    assert "other.db is taken for a file; --token-file and --ca-file are for hubs" in result.err
    assert list(home.iterdir()) == []


def test_a_file_as_the_source_has_the_topic_that_is_given(program: Program, log: Path, home: Path) -> None:
    result = program("sync", "new.db", log, "--topic", "elsewhere")
    assert (result.code, result.err) == (
        1,
        f"gossiplog: {log} is a log of the topic 'notes', not 'elsewhere': name that topic, or another log\n",
    )
    assert not (home / "new.db").exists()
    assert program("sync", "new.db", log, "--topic", "notes").code == 0


def test_a_file_with_the_name_of_a_host_and_port_is_a_source(program: Program, log: Path, home: Path) -> None:
    program("sync", "localhost:8000", log)
    assert program("sync", log, "localhost:8000").record["inserted"] == 0


@pytest.mark.parametrize(
    "command", [("sync", "new.db", "ws://127.0.0.1:1"), ("import", "new.db", "-"), ("serve", "new.db")], ids=" ".join
)
def test_a_command_that_would_make_the_log_says_how(program: Program, home: Path, command: tuple[str, ...]) -> None:
    result = program(*command)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert result.err.endswith(" there is no log new.db: give --topic TOPIC to make one\n")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("source", ["ws://127.0.0.1:99999", "ws://127.0.0.1:1", "/ip4/127.0.0.1/tcp/99999"])
def test_a_first_sync_that_fails_leaves_no_file(program: Program, home: Path, source: str) -> None:
    assert program("sync", "new.db", source, "--topic", "notes").code == 1
    assert list(home.iterdir()) == []


def test_a_log_that_was_there_stays_although_it_is_empty(program: Program, log: Path) -> None:
    assert program("sync", log, "ws://127.0.0.1:1").code == 1
    assert program("info", log).record["messages"] == 0


def test_sync_without_a_source(program: Program, log: Path, home: Path) -> None:
    result = program("sync", log, "no.db")
    assert result.code == 1
    assert result.err == (
        "gossiplog: SOURCE: there is no log no.db: expected the file of another log, a hub (ws://HOST:PORT) or a peer"
        " (/ip4/… or /dns4/…), or a log in Postgres (postgresql://…)\n"
    )
    assert not (home / "no.db").exists()


def test_a_file_is_named_by_its_uri_too(program: Program, log: Path, home: Path) -> None:
    program("append", log, '"a"', '"b"')
    assert program("sync", "new.db", f"{(home / log).as_uri()}?immutable=1").record["inserted"] == 2


def test_a_damaged_source_is_named(program: Program, log: Path) -> None:
    program("append", log, '"as it was"', '"and so on"')
    with closing(sqlite3.connect(log)) as database, database:
        ((value,),) = database.execute("SELECT value FROM gossiplog_messages WHERE seq = 1")
        database.execute("UPDATE gossiplog_messages SET value = ? WHERE seq = 1", (value.replace(b"was", b"is!"),))
    result = program("sync", "copy.db", log)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith(f"gossiplog: {log}: ")


def test_a_source_that_lost_a_message_is_named(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    with closing(sqlite3.connect(log)) as database, database:
        database.execute("DELETE FROM gossiplog_messages WHERE seq = 1")
    result = program("sync", "copy.db", log)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith(f"gossiplog: {log}: the source's log is damaged: there is no message ")
    way = rf"gossiplog doctor {log} says what to run, and the same sync then brings the rest\n$"
    assert re.search(rf"; \d+ messages? from before the damage came\. {way}", result.err)


def test_a_damaged_log_is_named_and_not_the_source(program: Program, log: Path) -> None:
    program("append", log, "1")
    program("sync", "copy.db", log)
    program("append", log, "2")
    with closing(sqlite3.connect("copy.db")) as database, database:
        database.execute("DELETE FROM gossiplog_leaves WHERE seq = 1")
    result = program("sync", "copy.db", log)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith("gossiplog: copy.db: the log is damaged: ")


def test_a_narrow_terminal_shows_all(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, "1", "2")
    root = program("info", log).record["root"]["hash"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    result = program("sync", "copy.db", log, "--both")
    assert result.code == 0
    assert "…" not in result.out
    assert result.out.count(root) == 2


def test_a_log_too_damaged_to_open_is_named(program: Program, log: Path) -> None:
    program("append", log, "1")
    with closing(sqlite3.connect(log)) as database, database:
        database.execute("UPDATE gossiplog_meta SET value = 1 WHERE name = 'indexed'")
    result = program("sync", "copy.db", log)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith(f"gossiplog: {log}: the log is damaged: ")
