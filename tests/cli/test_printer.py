"""Lines for readers that are slow or gone, over real pipes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gossiplog.cli import printer
from gossiplog.cli.printer import Printer

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def dropped(count: int) -> bytes:
    return b"dropped %d\n" % count


def unexpected(error: OSError) -> None:
    raise AssertionError(error)


def test_lines_come_in_order(pipe: Pipe) -> None:
    reading, writing = pipe
    lines = [b"%d\n" % number for number in range(1000)]
    with Printer(writing, dropped, unexpected) as printing:
        for line in lines:
            printing.say(line)
    os.close(writing)
    with open(reading, "rb", closefd=False) as written:
        assert written.readlines() == lines


def test_what_a_slow_reader_leaves_is_dropped_and_counted(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printer, "MOST_BYTES", 2**18)
    reading, writing = pipe
    lines = [b"%-998d\n" % number for number in range(2000)]
    with Printer(writing, dropped, unexpected) as printing, open(reading, "rb", closefd=False) as written:
        # More than a pipe takes, of which a byte is read: the thread is in the middle of writing it.
        printing.say(bytes(2**17) + b"\n")
        assert os.read(reading, 1) == b"\0"
        for line in lines:
            printing.say(line)
        assert written.readline() == bytes(2**17 - 1) + b"\n"
        found = []
        while not (line := written.readline()).startswith(b"dropped"):
            found.append(line)
        missing = int(line.split()[1])
        assert found == lines[: len(found)]
        assert len(found) + missing == len(lines)
        assert len(found) == 2**18 // len(lines[0])
        printing.say(b"later\n")
        assert written.readline() == b"later\n"


def test_a_closed_pipe_is_reported_once(pipe: Pipe) -> None:
    reading, writing = pipe
    os.close(reading)
    told: list[OSError] = []
    known = threading.Event()

    def gone(error: OSError) -> None:
        told.append(error)
        known.set()

    with Printer(writing, dropped, gone) as printing:
        printing.say(b"one\n")
        assert known.wait(60)
        for _ in range(100):
            printing.say(bytes(2**16))
    (error,) = told
    assert isinstance(error, BrokenPipeError)


def test_a_reader_that_never_reads_does_not_keep_it_from_ending(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printer, "_LAST_SECONDS", 0.01)
    reading, writing = pipe
    told: list[OSError] = []
    before = {*threading.enumerate()}
    with Printer(writing, dropped, told.append) as printing:
        printing.say(bytes(2**19))
        (thread,) = {*threading.enumerate()} - before
    assert [str(error) for error in told] == ["the last lines were not read"]
    # It would write on into the file that is opened next under the number of the pipe's end.
    os.close(reading)
    thread.join()
