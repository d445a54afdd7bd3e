"""`gossiplog dashboard`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gossiplog.dashboard.events import Noted, to_json
from gossiplog.dashboard.recording import Recorder
from tests.cli.support import PATIENCE, Program


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    with Recorder(path, "a run") as recorder:
        recorder.write([Noted(1.0, "one"), Noted(2.5, "two")])
    return path


def test_what_a_recording_holds(program: Program, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert program("dashboard", recording, "--check").record == {"title": "a run", "events": 2, "seconds": 2.5}
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert program("dashboard", recording, "--check").out == "a run: 2 events, 2.5 s\n"


def test_a_last_line_that_has_not_ended_is_said(program: Program, recording: Path) -> None:
    with recording.open("ab") as file:
        file.write(to_json(Noted(3.0, "three")))
    done = program("dashboard", recording, "--check")
    assert done.record["events"] == 2
    assert "has not ended" in done.err


def test_a_file_that_is_none_is_refused(program: Program, tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"SQLite format 3\0")
    done = program("dashboard", tmp_path / "log.db")
    assert (done.code, done.out) == (1, "")
    assert "is no recording of a network" in done.err
    assert program("dashboard", tmp_path / "none").code == 1


@pytest.mark.parametrize("place", ["8080", "localhost:", "localhost:http", "localhost:65536", "localhost:-1"])
def test_places_that_are_none(place: str, program: Program, recording: Path) -> None:
    done = program("dashboard", recording, "--listen", place)
    assert done.code == 2
    assert "expected HOST:PORT" in done.err


@pytest.mark.integration
def test_it_serves_until_it_is_interrupted(recording: Path) -> None:
    command = [sys.executable, "-m", "gossiplog", "dashboard", recording]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        for path, text in (("/", b"<!doctype html>"), ("/recording", b'"a run"'), ("/about", b'"recording"')):
            with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
                assert text in answer.read()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=PATIENCE)
        assert (process.returncode, complaints) == (0, b"")


def test_an_address_that_is_taken_is_said(program: Program, recording: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = program("dashboard", recording, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.code == 1
    assert done.err.startswith("gossiplog: cannot listen at 127.0.0.1:")
    assert "Traceback" not in done.err
