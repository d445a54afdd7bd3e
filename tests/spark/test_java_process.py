"""The start of Java, interrupted, with another program in its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

import gossiplog
from gossiplog.spark.java_process import _Launch, launched

POPEN: Any = vars(java_gateway)["Popen"]
# Says that it is Java 17, then which program `spark-class` is to run in its place: itself, which never answers.
JAVA = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "17"' >&2 ;;
  *launcher.Main*) printf '\\0\\n%s\\0gateway\\0' "$0" ;;
  *) echo $$ > "$STARTED.part" && mv "$STARTED.part" "$STARTED" && exec sleep 600 ;;
esac
"""


class Call:
    """Starts a process as PySpark does, and waits for it or for what is to be done first."""

    def __init__(self, before: threading.Event | None = None) -> None:
        self.process: Any = None
        self.is_cleaned_up = False
        self._before = before

    def __call__(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        try:
            if self._before is not None:
                signal.pthread_kill(main, signal.SIGINT)
                self._before.wait()
            self.process = vars(java_gateway)["Popen"](["sleep", "600"])
            if self._before is None:
                signal.pthread_kill(main, signal.SIGINT)
            while self.process.poll() is None:
                time.sleep(0.01)
            raise RuntimeError("Java ended")
        finally:
            self.is_cleaned_up = True


def test_an_interrupt_ends_java_and_lets_the_call_clean_up() -> None:
    call = Call()
    with pytest.raises(KeyboardInterrupt):
        launched(call)
    assert call.process.returncode == -signal.SIGTERM
    assert call.is_cleaned_up
    assert vars(java_gateway)["Popen"] is POPEN


def test_an_interrupt_before_java_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is ended as soon as it is there."""
    is_interrupted = threading.Event()
    call, abandon = Call(is_interrupted), _Launch.abandon

    def abandoned(launch: _Launch) -> None:
        threading.Timer(0.05, is_interrupted.set).start()
        abandon(launch)

    monkeypatch.setattr(_Launch, "abandon", abandoned)
    with pytest.raises(KeyboardInterrupt):
        launched(call)
    assert call.process.returncode == -signal.SIGTERM
    assert call.is_cleaned_up


def test_what_the_call_raises() -> None:
    def fail() -> None:
        raise RuntimeError("no Java")

    with pytest.raises(RuntimeError, match="no Java"):
        launched(fail)
    assert vars(java_gateway)["Popen"] is POPEN


@pytest.mark.integration
def test_a_command_that_is_ended_as_java_starts_leaves_no_process(tmp_path: Path) -> None:
    """PySpark removes the folder in which Java says where it listens: Java was left, with nobody to end it."""
    java, log, temporary = tmp_path / "java" / "bin" / "java", tmp_path / "log.db", tmp_path / "temporary"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    temporary.mkdir()
    gossiplog.open(log, "org.example.spark").close()
    started = tmp_path / "started"
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "java"), "STARTED": str(started), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "gossiplog", "pipeline", "root", str(log)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        while not started.exists():
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate()
    assert (process.returncode, out, error) == (128 + signal.SIGTERM, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert list(temporary.iterdir()) == []
