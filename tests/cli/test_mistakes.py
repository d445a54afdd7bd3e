"""Plausible mistakes of a newcomer: each ends with its exit code and one line that says what, where and what to do."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.cli import logs
from gossiplog.cli.logs import open_log
from gossiplog.cli.places import LogPlace
from gossiplog.errors import StorageError
from tests.cli.support import PATIENCE, Program

OPEN = 0o644
OWN = 0o600
FAILS = [
    ("info missing.db", "there is no log missing.db: gossiplog init missing.db --topic TOPIC makes one"),
    ("append missing.db 1", "there is no log missing.db: gossiplog init missing.db --topic TOPIC makes one"),
    ("info folder", "folder is a folder: expected the file of a log"),
    ("verify folder", "folder is a folder: expected the file of a log"),
    (
        "info empty.db",
        "empty.db is empty: gossiplog init empty.db --topic TOPIC makes .* gossiplog sync empty.db SOURCE",
    ),
    (
        "info text.txt",
        "text.txt is not a log: it is not an SQLite database; if it was a log: gossiplog repair text.txt --from SOURCE",
    ),
    ("append text.txt 1", "text.txt is not a log: it is not an SQLite database"),
    ("export text.txt", "text.txt is not a log: it is not an SQLite database"),
    ("info other.db", "other.db holds no log"),
    ("append other.db 1", "other.db holds no log"),
    ("info :memory:", ":memory: is no file"),
    ("init notes.db --topic notes", "notes.db is there already"),
    ("init folder --topic notes", "folder is there already"),
    ("init text.txt --topic notes", "text.txt is there already"),
    ("init nowhere/new.db --topic notes", "cannot make the log nowhere/new.db: there is no folder nowhere"),
    ("append notes.db {", "payload 1 is not dag-json: the text ends within a list or map"),
    ("append notes.db hello", "payload 1 is not dag-json: a value is expected: .*text needs its quotes"),
    ("append notes.db NaN", "payload 1 is not dag-json: .*finite numbers only"),
    ("append notes.db 1 --key missing.key", "cannot read the key file missing.key: No such file or directory"),
    ("append notes.db 1 --key bad.key", "the key file bad.key is damaged: expected 64 hexadecimal digits"),
    ("append notes.db 1 --key open.key", "the key file open.key is open to other users: run chmod 600 open.key"),
    ("append notes.db 1 --key folder", "cannot read the key file folder: it is a folder; expected a file"),
    ("keygen open.key", "open.key is there already: a key is never overwritten"),
    ("show notes.db 0000", "there is no message whose id begins with 0000"),
    ("recover notes.db other.db", "other.db is there already"),
    ("recover missing.db new.db", "there is no log missing.db"),
    (
        "sync notes.db missing.db",
        "SOURCE: there is no log missing.db: expected the file of another log, a hub",
    ),
    ("sync notes.db tcp://a:1", "a log is no tcp:// URL: expected the path of a file, or postgresql://"),
    ("sync notes.db 127.0.0.1:8000", "SOURCE: there is no log 127.0.0.1:8000: a hub's address begins with ws://"),
    ("sync notes.db about.db", "notes.db is a log of the topic 'notes', not 'about'"),
    ("sync notes.db folder", "folder is a folder: expected the file of a log"),
    ("sync new.db ws://127.0.0.1:1", "there is no log new.db: give --topic TOPIC to make one"),
    ("sync notes.db ws://127.0.0.1:99999", ".* has the port 99999, which is none from 1 to 65535"),
    ("sync notes.db ws://", ".* is not the URL of a WebSocket; expected something like ws://localhost:8000"),
    ("sync notes.db ws://127.0.0.1:1 --token-file short.token", "the token file short.token holds no token"),
    ("sync notes.db ws://127.0.0.1:1 --token-file missing", "cannot read the token file missing: No such file"),
    ("peers http://127.0.0.1:1 --token-file missing", "cannot read the token file missing: No such file"),
    ("serve notes.db --topic other", "notes.db is a log of the topic 'notes', not 'other'"),
    ("serve notes.db --hub 192.0.2.1:8000", "--hub: cannot listen at 192.0.2.1:8000: .*no address of this machine"),
    ("serve notes.db --read-token open.token", "the token file open.token is open to other users: run chmod 600"),
    ("network --folder text.txt", "text.txt: File exists"),
    ("simulate --scenarios missing.toml", "cannot read missing.toml: No such file or directory"),
    ("import notes.db missing.jsonl", "there is no file or folder missing.jsonl"),
    ("import notes.db folder", "folder has no files named"),
    ("import-git notes.db folder", "cannot read the Git repository folder: not a git repository"),
]
WRONG = [
    ("info", "Missing argument 'LOG'"),
    ("info notes.db extra", r"Got unexpected extra argument\(s\) \(extra\)"),
    ("init new.db", "Missing option '--topic'"),
    ("init new.db --topics notes", r"No such option: --topics \(Possible options: --topic\)"),
    ("apend notes.db 1", r"No such command 'apend'. Did you mean 'append'\?"),
    ("pipeline raed notes.db", r"No such command 'raed'. Did you mean 'read'\?"),
    ("append notes.db 1 --topic notes", "No such option: --topic"),
    ("read notes.db --after xyz", "Invalid value for '--after': 'xyz' is no id: an id has 32 ASCII characters"),
    ("read notes.db --limit -1", "Invalid value for '--limit': expected 0 or more"),
    ("read notes.db --limit many", "Invalid value for '--limit': expected a whole number"),
    ("read notes.db --author bob", "Invalid value for '--author': 'bob' is too short"),
    ("read notes.db --follow --reverse", "Invalid value: --follow cannot be combined with --reverse"),
    ("show notes.db xyz", "Invalid value for 'ID': 'xyz' is no id"),
    ("graph notes.db --limit 100000", "Invalid value for '--limit': expected 1000 or less"),
    ("sync notes.db notes.db", "Invalid value: SOURCE: notes.db is the log itself: expected the file of another log"),
    ("sync notes.db file:notes.db", "Invalid value: SOURCE: file:notes.db is the log itself: expected"),
    ("repair notes.db --from notes.db", "Invalid value: --from: notes.db is the log itself: expected"),
    ("rebase notes.db --onto notes.db", "Invalid value: --onto: notes.db is the log itself: expected"),
    ("rebase notes.db --onto about.db --ca-file text.txt", "Invalid value: --token-file and --ca-file are for hubs"),
    ("peers ws://127.0.0.1:1", "Invalid value: peers are listed over HTTP: gossiplog peers http://127.0.0.1:1"),
    ("sync notes.db http://127.0.0.1:1", "Invalid value: SOURCE: a hub's address begins with ws://"),
    ("serve notes.db --hub 8000", "Invalid value: --hub: '8000' is no address: expected HOST:PORT"),
    ("serve notes.db --connections -5", "Invalid value: a limit of -5 connections: expected 1 or more"),
    ("serve notes.db --log-level loud", "Invalid value for --log-level: 'loud' is not one of 'debug'"),
    ("serve notes.db --read-token s3cret", "Invalid value: --read-token names no file"),
    ("serve notes.db --certificate text.txt", "Invalid value: --certificate and --private-key go together"),
    (
        "serve notes.db --listen 127.0.0.1:9000",
        'Invalid value: --listen: "127.0.0.1:9000" is no address .*: .*; expected one such as /ip4/',
    ),
    (
        "serve notes.db --certificate no.pem --private-key no.key",
        "Invalid value: --certificate, --private-key: no.pem: No such file or directory",
    ),
    (
        "serve notes.db --certificate text.txt --private-key bad.key",
        "Invalid value: --certificate, --private-key: text.txt and bad.key cannot be used for TLS",
    ),
    ("serve notes.db --config bad.toml", "Invalid value for --config: bad.toml is not TOML"),
    (
        "serve notes.db --config folder",
        "Invalid value for --config: cannot read folder: it is a folder; expected a file",
    ),
    ("serve notes.db --trusted-proxy x", "Invalid value: --trusted-proxy: 'x' .*; expected an address such as"),
    ("serve notes.db --allow-host http://x", "Invalid value: 'http://x' is no host: expected a name"),
    ("simulate nosuch", "Invalid value: there is no run 'nosuch': expected run-1"),
    ("simulate --loss x", "Invalid value for '--loss': expected a number"),
    ("completion tcsh", "Invalid value: there is no completion for 'tcsh': expected one of bash, zsh, fish"),
    ("--frob", "No such option: --frob"),
]


@pytest.fixture
def files(program: Program, home: Path, log: Path) -> None:
    """Files of all kinds to mistake for others, beside the log notes.db."""
    assert program("init", "about.db", "--topic", "about").code == 0
    (home / "folder").mkdir()
    with sqlite3.connect("other.db") as other:
        other.execute("CREATE TABLE theirs (id)")
    other.close()
    contents = {"empty.db": "", "text.txt": "hello\n", "bad.toml": "connections =\n"}
    secrets = {"bad.key": "hello", "open.key": "0" * 64, "short.token": "abc", "open.token": "a" * 32}
    for name, text in (contents | secrets).items():
        path = home / name
        path.write_text(text, encoding="utf-8")
        path.chmod(OPEN if name in contents or name.startswith("open") else OWN)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [*((command, 1, reason) for command, reason in FAILS), *((command, 2, reason) for command, reason in WRONG)],
)
def test_a_mistake_is_named(program: Program, command: str, code: int, reason: str) -> None:
    result = program(*command.split(" "))
    assert (result.code, result.out) == (code, "")
    notes = [line for line in result.err.splitlines() if not line.startswith("gossiplog: made your key")]
    (line,) = notes
    assert re.match(rf"(gossiplog:|\d{{4}}-\S+ ERROR) {reason}", line)
    assert ("--help says how to call it" in line) is (code == 2)


def test_a_port_that_is_taken_is_named(program: Program, log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        result = program("serve", log, "--hub", place)
    assert result.code == 1
    assert f"ERROR --hub: cannot listen at {place}: Address already in use; another program listens there" in result.err


@pytest.mark.integration
@pytest.mark.parametrize("name", ["info", "doctor"])
def test_a_full_disk_is_named(log: Path, name: str) -> None:
    """Also by a command that ends with a status of its own, as `doctor` of a damaged log."""
    if name == "doctor":
        log.write_bytes(log.read_bytes()[:5000])
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "gossiplog", name, log]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 1
    assert run.stderr == "gossiplog: the output cannot be written: No space left on device\n"


@pytest.mark.integration
@pytest.mark.parametrize(("closed", "name", "status"), [(">&-", "notes.db", 0), ("2>&-", "missing.db", 1)])
def test_output_that_is_closed_goes_nowhere(log: Path, closed: str, name: str, status: int) -> None:
    command = ["sh", "-c", f'"$0" -m gossiplog info "$1" {closed}', sys.executable, log.with_name(name)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (status, "", "")


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@ONLY_ROOT
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "info notes.db",
            "cannot open {0}/notes.db: user 65534 may not read it: it is of user 0 and group 0, with mode 0600",
        ),
        (
            "init new.db --topic notes",
            "cannot make the log {0}/new.db in the folder {0}: user 65534 may not write to it: it is of user 0"
            " and group 0, with mode 0755",
        ),
    ],
)
def test_what_a_user_may_not_do_is_named(program: Program, log: Path, command: str, reason: str) -> None:
    name, file, *options = command.split(" ")
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copyfile(log, Path(folder, log.name))
        Path(folder, log.name).chmod(OWN)
        os.seteuid(65534)
        try:
            result = program(name, Path(folder, file), *options)
        finally:
            os.seteuid(0)
    assert (result.code, result.out, result.err) == (1, "", f"gossiplog: {reason.format(folder)}\n")


@pytest.fixture
def closed_folder(log: Path) -> Iterator[Path]:
    """A log in a folder in which another user makes no files; the test runs as that user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with gossiplog.open(log, signer=Signer(bytes(32))) as opened:
            opened.append("one")
        shutil.copyfile(log, folder / log.name)
        folder.chmod(0o755)
        (folder / log.name).chmod(0o644)
        os.seteuid(65534)
        try:
            yield folder / log.name
        finally:
            os.seteuid(0)


@ONLY_ROOT
def test_a_log_in_a_folder_that_is_read_only_can_be_read(program: Program, closed_folder: Path, home: Path) -> None:
    assert program("info", closed_folder).record["messages"] == 1
    (record,) = program("read", closed_folder).records
    assert program("show", closed_folder, record["id"]).record["payload"] == "one"
    assert program("graph", closed_folder).record["payload"] == "one"
    assert program("verify", closed_folder).record["messages"] == 1
    assert len(program("export", closed_folder).out.splitlines()) == 3
    assert os.listdir(closed_folder.parent) == [closed_folder.name]
    followed = program("read", closed_folder, "--follow", "--limit", "1")
    assert followed.code == 1
    assert "while no program writes to it, it opens as file:PATH?immutable=1" in followed.err


@ONLY_ROOT
def test_a_log_that_is_open_is_read_with_its_latest_messages(program: Program, closed_folder: Path) -> None:
    os.seteuid(0)
    with gossiplog.open(closed_folder, signer=Signer(bytes(32))) as opened:
        opened.append("two")
        os.seteuid(65534)
        assert program("info", closed_folder).record["messages"] == 2
        os.seteuid(0)


@ONLY_ROOT
def test_a_log_that_is_written_to_while_it_is_read_without_a_lock_is_said(closed_folder: Path) -> None:
    reading = open_log(LogPlace(closed_folder), unlocked=True)
    log = reading.__enter__()
    os.seteuid(0)
    with gossiplog.open(closed_folder, signer=Signer(bytes(32))) as opened:
        opened.append("two")
    os.seteuid(65534)
    assert len(log) == 1
    with pytest.raises(StorageError, match="was written to while it was read without a lock"):
        reading.__exit__(None, None, None)


def test_a_log_whose_writer_begins_as_it_is_opened_without_a_lock_is_said(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(path: Path) -> bool:
        path.with_name(f"{path.name}-wal").touch()
        return False

    monkeypatch.setattr(logs, "_can_lock", begin)
    with (
        pytest.raises(StorageError, match="was written to while it was read without a lock"),
        open_log(LogPlace(log), unlocked=True),
    ):
        pass
