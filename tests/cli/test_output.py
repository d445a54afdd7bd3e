"""What is shown while a command works."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from gossiplog.cli import output
from gossiplog.errors import GossipLogError


class Terminal(io.StringIO):
    """A terminal that says when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        if "Thinking" in text:
            self.written.set()
        return count


@pytest.mark.parametrize(("show", "counts"), [(output.progress, True), (output.spinner, False)])
def test_what_has_no_steps_shows_no_count(
    monkeypatch: pytest.MonkeyPatch, show: Callable[[str], AbstractContextManager[object]], counts: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(output, "_DELAY", 0.0)
    # Here and not in a fixture: pytest puts its own in place when the test begins.
    monkeypatch.setattr(sys, "stderr", terminal)
    with show("Thinking"):
        assert terminal.written.wait(10)
    before_the_time = terminal.getvalue().partition("0:00:0")[0]
    assert (" 0 " in before_the_time) is counts


def test_calls_that_say_how_far_they_are(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.steps_of("Thinking") as advance:
        advance(3, 7)
        advance(5, 7)
    assert "5/7" in terminal.getvalue()


def test_an_exchange_shows_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(output, "_DELAY", 0.0)
    monkeypatch.setattr(output, "_NOTE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.exchange("Thinking") as report:
        report(1234, 5678, False)
        assert terminal.written.wait(10)
    # The last state is drawn at the end.
    assert "1,234 received, 5,678 sent" in terminal.getvalue()
    assert "gossiplog:" not in terminal.getvalue()


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 3), (3600.0, 0)])
def test_an_exchange_is_reported_in_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], seconds: float, lines: int
) -> None:
    monkeypatch.setattr(output, "_NOTE_SECONDS", seconds)
    with output.exchange("Thinking") as report:
        for step in range(3):
            report(step, 1000 * step, step == 2)
    counts = ["0 messages received, 0", "1 message received, 1,000", "2 messages received, 2,000"]
    texts = [f"{count} sent" for count in counts]
    # All seemed well where the other side could not store them.
    texts[2] += ", and asked for again"
    expected = [f"gossiplog: Thinking: {text}\n" for text in texts[:lines]]
    assert capfd.readouterr() == ("", "".join(expected))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(output, "_DELAY", 0.0)
    monkeypatch.setattr(output, "_LOOKS", 0.0)


def test_work_that_is_done_elsewhere_is_looked_up(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    looked = threading.Event()

    def look() -> tuple[int, int]:
        if "3/7" in terminal.getvalue():
            looked.set()
        return 3, 7

    with output.watching("Thinking", look):
        assert looked.wait(10)


def test_a_look_that_fails_is_the_last(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    looks = []
    ready = threading.Event()

    def look() -> tuple[int, int]:
        looks.append(terminal)
        ready.wait(10)
        raise GossipLogError

    with output.watching("Thinking", look):
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "gossiplog-progress"]
        ready.set()
        thread.join(10)
        assert not thread.is_alive()
    assert looks == [terminal]


def test_long_work_is_noted_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "WORK_NOTE_SECONDS", 0.01)
    looks = 0
    seen = threading.Event()

    def look() -> tuple[int, int]:
        nonlocal looks
        looks += 1
        if looks == 3:
            seen.set()
        return (0, 0) if looks == 1 else (looks, 7)

    with output.watching("Verify", look):
        assert seen.wait(10)
    written = capfd.readouterr()
    assert written.out == ""
    lines = written.err.splitlines()
    assert lines[:2] == [
        "gossiplog: Verify has run for 0 s",
        "gossiplog: Verify has run for 0 s: 2 of 7 tasks are done",
    ]


def test_nothing_is_shown_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    with output.progress("Thinking", 2) as advance:
        advance(1)
    with output.steps_of("Thinking") as say:
        say(1, 2)
    with output.spinner("Thinking"):
        pass
    with output.watching("Thinking", lambda: pytest.fail("nobody looks")):
        pass
    assert capfd.readouterr() == ("", "")


def test_names_of_files_that_are_no_text_are_escaped() -> None:
    line = output.Output(json=True).encoded({"log": "a\udcff.db", "refused": [{"file": "\udc80", "row": 1}]})
    assert line == b'{"log":"a\\\\udcff.db","refused":[{"file":"\\\\udc80","row":1}]}\n'
