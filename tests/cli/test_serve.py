"""The hub and its clients as a user runs them: each a process, or this one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from gossiplog.cli import sync_hub
from tests.cli.support import Program

Serve = Callable[..., Any]


class Served:
    """A hub in a process of its own.

    Attributes:
        url: of its WebSocket.
        api: of its HTTP API.
    """

    def __init__(self, path: Path, *options: str) -> None:
        command = [sys.executable, "-m", "gossiplog", "serve", str(path), "--hub", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ready = self.record()
        self.url, self.api = ready["hub"], ready["api"]

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def record(self, event: str | None = None) -> dict[str, Any]:
        """The next record that it writes; the next of an event."""
        for line in self.out:
            record: dict[str, Any] = json.loads(line)
            if event is None or record.get("event") == event:
                return record
        raise AssertionError(f"the hub ended: {self.process.stderr.read() if self.process.stderr else ''!r}")

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ends it with a signal; its exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@contextmanager
def serving(path: Path, *options: str) -> Iterator[Served]:
    served = Served(path, *options)
    try:
        yield served
    finally:
        served.process.kill()
        served.process.communicate()


def test_a_log_and_a_hub_get_what_the_other_holds(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    program("init", "copy.db", "--topic", "notes")
    mine = program("append", "copy.db", '"mine"').record
    with serving(log) as served:
        result = program("sync", "copy.db", served.url)
        assert (result.code, result.err) == (0, "")
        assert (result.record["inserted"], result.record["messages"]) == (2, 3)
        assert served.record("sync")["inserted"] == 1
        assert program("sync", "copy.db", served.url).record["inserted"] == 0
        with urllib.request.urlopen(f"{served.api}/clock") as answer:
            assert set(json.load(answer)["parents"]) == set(program("info", log).record["heads"])
        assert served.stop() == 0
    assert mine["id"] in [record["id"] for record in program("read", log).records]
    assert program("info", log).record["root"] == result.record["root"]


def test_a_log_that_is_not_there_is_made_with_a_topic(program: Program, log: Path) -> None:
    program("append", log, "1")
    with serving(log) as served:
        assert program("sync", "new.db", served.url, "--topic", "notes").record["messages"] == 1
        result = program("sync", "none.db", served.url)
        assert result.code == 1
        assert "gossiplog init none.db --topic TOPIC" in result.err
        assert served.stop(signal.SIGTERM) == 0


def test_another_topic_is_said(program: Program, log: Path) -> None:
    with serving(log) as served:
        result = program("sync", "other.db", served.url, "--topic", "elsewhere")
        assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
        assert "/canvas/v1/elsewhere/push" in result.err


def test_tokens(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1")
    token = home / "token"
    token.write_text("not-to-be-guessed-0123456789\n")
    open_to_all = program("sync", "copy.db", "ws://127.0.0.1:1/", "--topic", "notes", "--token-file", token)
    assert (open_to_all.code, "chmod 600" in open_to_all.err) == (1, True)
    token.chmod(0o600)
    with serving(log, "--read-token", str(token)) as served:
        without = program("sync", "copy.db", served.url, "--topic", "notes")
        assert (without.code, without.err.count("\n")) == (1, 1)
        assert program("sync", "copy.db", served.url, "--token-file", token).record["messages"] == 1
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{served.api}/clock")


def test_who_may_only_read_is_told_so(program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_hub, "_PATIENCE", 0.5)
    program("append", log, "1")
    token = home / "token"
    token.touch(0o600)
    token.write_text("not-to-be-guessed-0123456789\n")
    with serving(log, "--write-token", str(token)) as served:
        assert program("sync", "copy.db", served.url, "--topic", "notes").record["messages"] == 1
        program("append", "copy.db", "2")
        result = program("sync", "copy.db", served.url)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "writing may need a token" in result.err
        assert len(program("read", log).records) == 1
        assert program("sync", "copy.db", served.url, "--token-file", token).code == 0
        assert len(program("read", log).records) == 2


def test_a_hub_that_cannot_be_reached_is_named(program: Program, log: Path) -> None:
    result = program("sync", log, "ws://127.0.0.1:1/")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith("gossiplog: ws://127.0.0.1:1/ cannot be reached: ")


def test_limits(program: Program, log: Path) -> None:
    limits = ("--connections", "1", "--streams", "2", "--peer-bytes", "9000000", "--total-bytes", "10000000")
    with serving(log, *limits) as served:
        first = ["sync", "first.db", served.url, "--topic", "notes", "--follow"]
        with subprocess.Popen([sys.executable, "-m", "gossiplog", *first], stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            follower.stdout.readline()
            second = program("sync", "second.db", served.url, "--topic", "notes")
            with urllib.request.urlopen(f"{served.api.removesuffix('/api')}/metrics") as answer:
                metrics = answer.read().decode()
            follower.kill()
    assert (second.code, "HTTP status 503" in second.err) == (1, True)
    assert 'gossiplog_network_total{event="connections"} 1.0' in metrics


def test_following_stays_connected(program: Program, log: Path) -> None:
    program("init", "copy.db", "--topic", "notes")
    with serving(log) as served:
        command = [sys.executable, "-m", "gossiplog", "sync", "copy.db", served.url, "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["messages"] == 0
            program("append", log, "1")
            program("append", "copy.db", "2")
            deadline = time.monotonic() + 30
            while len(program("read", "copy.db").records) < 2 or len(program("read", log).records) < 2:
                assert time.monotonic() < deadline
            follower.send_signal(signal.SIGINT)
            follower.communicate(timeout=30)
            assert follower.returncode == 130
    assert program("info", log).record["root"] == program("info", "copy.db").record["root"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--hub", "8000"], "is no address"),
        (["--hub", "localhost:99999"], "is no address"),
        (["--certificate", "chain.pem"], "go together"),
        (["--allow-origin", "example.org"], "is no origin"),
        (["--connections", "0"], "a limit of 0 connections"),
        (["--peer-bytes", "1000"], "expected 8388608 or more"),
    ],
)
def test_wrong_options_are_refused(program: Program, log: Path, arguments: list[str], reason: str) -> None:
    result = program("serve", log, *arguments)
    assert result.code == 2
    assert reason in result.err


def test_options_for_hubs_are_refused_for_files(program: Program, log: Path) -> None:
    result = program("sync", "copy.db", log, "--follow")
    assert (result.code, "are for hubs" in result.err) == (2, True)
