"""Recordings: the events of a network in a file, one JSON object a line, which the page plays.

The first line says what the file is: `{"format": "gossiplog-events", "version": 1, "title": "64 peers"}`. Times do
not go back. A line counts once it has ended: what a killed program left of its last one is passed over.

A recording may be anybody's: what is read is bounded, and what is wrong is named with its line.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gossiplog.dashboard.events import Event, Text, from_json, to_json
from gossiplog.errors import DecodeError
from gossiplog.files import open_file
from gossiplog.reprs import escaped, frozen

FORMAT = "gossiplog-events"
VERSION = 1
MOST_LINE_BYTES = 2**20
"""Bytes of a line: of two groups of thousands of peers, and no more."""
MOST_EVENTS = 2_000_000
"""Events that a page can hold."""


@frozen
class Header:
    """The first line of a recording.

    Attributes:
        format: FORMAT.
        version: VERSION, or that of a later program.
        title: of the page that plays it.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")
    format: str
    version: int
    title: Text = ""


@frozen
class Summary:
    """What a recording holds.

    Attributes:
        title: as its header has it.
        events: how many.
        seconds: from the network's beginning to the last event.
        is_cut: whether its last line has not ended, and does not count.
    """

    title: str
    events: int
    seconds: float
    is_cut: bool


_HEADER = TypeAdapter(Header)


class Recorder:
    """Writes a recording, for the time of its context. An earlier one is replaced when the first event is written.

        with Recorder("run.jsonl", "64 peers") as recorder:
            recorder.write([PeerAdded(0.0, "12D3KooW…", "1")])

    Args:
        path: of the file.
        title: of the page that plays it.

    Raises:
        FileExistsError: there is a file that is no recording of this version.
        OSError: it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], title: str = "") -> None:
        self._path = os.fspath(path)
        header = {"format": FORMAT, "version": VERSION, "title": title}
        self._header = json.dumps(header).encode() + b"\n"
        self._last = 0.0
        # Unbuffered: `write` says whether the file has what it was given, and closing it can fail no more.
        self._file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)  # noqa: SIM115 - `close`
        self._is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        try:
            self._check_earlier()
        except BaseException:
            self._file.close()
            raise

    def _check_earlier(self) -> None:
        found = os.pread(self._file.fileno(), MOST_LINE_BYTES, 0) if self._is_regular else b""
        if not found:
            return
        try:
            _header(found.partition(b"\n")[0], escaped(self._path))
        except DecodeError as error:
            raise FileExistsError(
                errno.EEXIST, "the file there is no recording as this program makes them: take another name", self._path
            ) from error

    def write(self, events: Iterable[Event]) -> None:
        """Write events; what is written is the file's when this returns.

        One whose time is before that of the last, as where several processes report, gets that time.

        Raises:
            OSError: they cannot be written.
        """
        lines: list[bytes] = []
        for event in events:
            if event.at < self._last:
                event = replace(event, at=self._last)
            self._last = event.at
            lines.append(to_json(event) + b"\n")
        if lines:
            self._write(b"".join(lines))

    def _write(self, data: bytes) -> None:
        try:
            if self._header:
                if self._is_regular:
                    self._file.truncate(0)
                data, self._header = self._header + data, b""
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), self._path) from error

    def close(self) -> None:
        """Close the file. Where nothing was written, an earlier recording stays, and a new one has its header alone.

        Raises:
            OSError: the header cannot be written.
        """
        if self._file.closed:
            return
        try:
            if self._header and self._is_regular and not os.fstat(self._file.fileno()).st_size:
                self._write(b"")
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read(path: str | os.PathLike[str]) -> Iterator[Event]:
    """Yield the events of a recording.

    Raises:
        DecodeError: it is none, or a line is damaged; the text names the file and the line.
        OSError: it cannot be read.
    """
    for _, event in _lines(path):
        if event is not None:
            yield event


def check(path: str | os.PathLike[str]) -> Summary:
    """Read all of a recording, and return what it holds.

    Raises:
        DecodeError: as `read`.
        OSError: it cannot be read.
    """
    title, events, seconds, is_cut = "", 0, 0.0, False
    for header, event in _lines(path):
        title = header.title
        if event is None:
            is_cut = True
        else:
            events, seconds = events + 1, event.at
    return Summary(title, events, seconds, is_cut)


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[Header, Event | None]]:
    """Yield the header with each event; with None for the end of a file whose last line has not ended."""
    place = escaped(os.fspath(path))
    with open_file(path) as file:
        first = file.readline(MOST_LINE_BYTES)
        header = _header(first, place)
        if not first.endswith(b"\n"):
            yield header, None
            return
        before, number = 0.0, 1
        empty = True
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) > MOST_LINE_BYTES:
                    raise DecodeError(f"line {number} of {place} is longer than {MOST_LINE_BYTES} bytes")
                yield header, None
                return
            if number > MOST_EVENTS + 1:
                raise DecodeError(f"{place} has more than {MOST_EVENTS:,} events, which no page can hold")
            try:
                event = from_json(line)
            except DecodeError as error:
                raise DecodeError(f"line {number} of {place} is damaged: {error}") from error
            if event.at < before:
                raise DecodeError(f"line {number} of {place} is damaged: its time {event.at} is before {before}")
            before, empty = event.at, False
            yield header, event
        if empty:
            raise DecodeError(f"{place} has no events: nothing happened while it was recorded")


def _header(line: bytes, place: str) -> Header:
    try:
        header = _HEADER.validate_json(line)
    except ValidationError as error:
        raise DecodeError(
            f"{place} is no recording of a network: expected a first line as {FORMAT} have it; `gossiplog network"
            " --record FILE` and `gossiplog simulate --record FILE` make one"
        ) from error
    if header.format != FORMAT:
        raise DecodeError(f"{place} has the format {header.format[:50]!r}: expected {FORMAT!r}")
    if header.version != VERSION:
        raise DecodeError(f"{place} is of version {header.version}, and this program reads {VERSION}: update it")
    return header
