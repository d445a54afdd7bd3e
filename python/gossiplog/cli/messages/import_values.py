"""`gossiplog import`: messages from JSON Lines and from Parquet.

JSON Lines are the output of `gossiplog export`; Parquet are repair sets, and the output of `gossiplog pipeline read`.

A set of Parquet is a file with a binary column `value`, or a folder of such files, which are read in the order of their
names. Other columns are ignored, because the value has the whole message. Every message is verified as if a peer had
sent it.
"""

from __future__ import annotations

import io
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer

from gossiplog.cli.logs import LogPath, NewTopic, open_log
from gossiplog.cli.messages.json_lines import message_value, read_lines, read_mark, text_encoding
from gossiplog.cli.messages.parquet_values import NoValues, Rows
from gossiplog.cli.output import Json, Output, Stopwatch, printable, progress
from gossiplog.errors import DecodeError, GossipLogError, MissingParents, ValuesRefused
from gossiplog.files import open_file
from gossiplog.reprs import counted

Advance: TypeAlias = Callable[[int], object]

_STDIN = "-"
_SHOWN = 20  # refusals on a terminal
# How a file of Parquet begins, and others that import cannot read.
_PARQUET = b"PAR1"
_OTHER_FILES = {
    b"\x1f\x8b": "is compressed with gzip: import what gunzip makes of it",
    b"SQLi": "is an SQLite database: gossiplog sync takes the messages of another log",
}
_SHOWN_START = 8  # bytes
# Lines of a file that are no messages, and refusals that are kept: each takes a kilobyte of memory until the end of the
# import, and two bytes of the file.
_MOST_FAULTS = 10_000
_CUT_OFF = "the export was cut off or changed; if you left out lines yourself, leave out its first and last, too"
_NO_END = f"before the last line of the export, which has the number of messages: {_CUT_OFF}"


def import_values(
    path: LogPath,
    sets: Annotated[
        list[Path],
        typer.Argument(
            metavar="SET...",
            help="The messages: files of JSON Lines, as gossiplog export writes them, - for standard input, and files"
            " or folders of Parquet with a column `value`.",
        ),
    ],
    topic: NewTopic = None,
    json: Json = False,
) -> None:
    """Import the messages of an export or of a repair set; end with status 1 if any is refused.

    Every message is verified. They may come in any order, and the log may have some of them already. An export that was
    cut off ends with status 1, too.
    """
    output = Output(json)
    with ExitStack() as stack:
        sources = [_opened(file, stack) for each in sets for file in _files(each)]
        values = _Values(sources)
        log = stack.enter_context(open_log(path, topic, makes=True))
        # Lines are not counted before they are read.
        total = None if any(source.rows is None for source in sources) else sum(source.rows or 0 for source in sources)
        advance = stack.enter_context(progress("Importing", total))
        with Stopwatch() as watch:
            inserted = log.insert_many(values.read(log.topic, advance), max_refused=_MOST_FAULTS)
        messages, root = len(log), log.root
    count = len(inserted.refused) + inserted.more_refused
    # What lacks its parents does so for another refusal, mostly.
    causes = [
        values.refusal(index, error)
        for index, error in sorted(inserted.refused, key=lambda found: isinstance(found[1], MissingParents))[:_SHOWN]
    ]
    if output.json:
        output.record(
            {
                "log": str(path),
                "values": values.count,
                "inserted": inserted.inserted,
                "duplicates": inserted.duplicates,
                "refused": [values.refusal(index, error) for index, error in inserted.refused],
                "more_refused": inserted.more_refused,
                "incomplete": values.incomplete,
                "messages": messages,
                "root": {"level": root.level, "hash": root.hash.hex()},
                "seconds": round(watch.seconds, 6),
            }
        )
    else:
        for refusal in causes:
            output.show(printable(_described(refusal)))
        output.show(
            f"{inserted.inserted:,} of {counted(values.count, 'message was', 'messages were')} new,"
            f" {counted(inserted.duplicates, 'was', 'were')} there, {counted(count, 'was', 'were')} refused; the log"
            f" holds {counted(messages, 'message')}."
        )
    if count or values.incomplete:
        found = [_described(each) for each in values.incomplete]
        if count:
            others = f", and {path} has the remaining ones" if count < values.count else ""
            found.append(
                f"{count:,} of {counted(values.count, 'value was', 'values were')} refused{others};"
                f" {_described(causes[0])}"
            )
        if inserted.more_refused:
            place = _place(values.refusal(*inserted.refused[-1]))
            found.append(
                f"those after the first {len(inserted.refused):,}, up to {place}, are counted only: leave out or mend"
                " what is named, and import the rest again"
            )
        raise ValuesRefused("; ".join(found))


def _described(refusal: dict[str, Any]) -> str:
    return f"{_place(refusal)}: {refusal['error']}"


def _place(refusal: dict[str, Any]) -> str:
    return f"{refusal['file']}, " + (f"row {refusal['row']}" if "row" in refusal else f"line {refusal['line']}")


class _Values:
    """The values of several sources, one after the other.

    Args:
        sources: to read.

    Attributes:
        count: how many were read.
    """

    def __init__(self, sources: Iterable[_Source]) -> None:
        self._sources = sources
        self._starts: list[tuple[int, _Source]] = []
        self.count = 0

    def read(self, topic: str, advance: Advance) -> Iterator[bytes]:
        """Yield all values; in place of what is none, b"", which the log refuses.

        Args:
            topic: the topic of the log; an export of another one is refused.
            advance: called with numbers of values read.

        Raises:
            NoValues: a damaged file, an export of another topic, or a file with very many lines that are no messages.
            LongLine: a line that is too long for a message.
            OtherEncoding: lines in UTF-16 or UTF-32.
        """
        for source in self._sources:
            self._starts.append((self.count, source))
            # A Parquet file names no topic: its values are refused one by one.
            for value in source.read(advance) if isinstance(source, Rows) else source.read(topic, advance):
                self.count += 1
                yield value

    @property
    def incomplete(self) -> list[dict[str, Any]]:
        """Where messages of an export are missing: the file, the line and the error."""
        return [each for _, source in self._starts if isinstance(source, _Lines) for each in source.incomplete]

    def refusal(self, index: int, error: GossipLogError) -> dict[str, Any]:
        """Return the file of a value, its row, from 0, or its line, from 1, its id, and why it is refused."""
        start, source = self._source(index)
        # Of a line that is no message, the log knows only that there is no value.
        reason = source.errors.get(index - start, error) if isinstance(source, _Lines) else error
        return source.place(index - start) | {"id": getattr(error, "id", None), "error": str(reason)}

    def _source(self, index: int) -> tuple[int, _Source]:
        return self._starts[bisect_right(self._starts, index, key=itemgetter(0)) - 1]


class _Lines:
    """The values of messages in JSON Lines.

    Args:
        name: of the file.
        stream: to read.

    Attributes:
        rows: None, since lines are not counted before they are read.
        errors: why a line is no message, by the index of its value.
        incomplete: where messages of an export are missing.
    """

    def __init__(self, name: str, stream: io.BufferedIOBase) -> None:
        self._name = name
        self._stream = stream
        self.rows: int | None = None
        self.errors: dict[int, GossipLogError] = {}
        self.incomplete: list[dict[str, Any]] = []
        # The indices of the first value and of those after lines without one, and the numbers of their lines. They are
        # kept to the end of the import: tuples of them would take four times what a file of short lines does.
        self._gap_indices, self._gap_lines = array("Q", [0]), array("Q", [1])

    def read(self, topic: str, advance: Advance) -> Iterator[bytes]:
        index, expected, number = 0, 1, 0
        # The index of the first message of an export whose last line has not come.
        start: int | None = None
        for lines in read_lines(self._stream, self._name):
            for number, line in lines:
                if len(self.errors) + len(self.incomplete) > _MOST_FAULTS:
                    raise NoValues(
                        f"{self._name} has more than {_MOST_FAULTS:,} lines that are no messages of an export; some"
                        f" messages before are in the log. The first: {_described(self._first_fault())}"
                    )
                mark = read_mark(line)
                if mark is not None:
                    if isinstance(mark, str) and mark != topic:
                        raise NoValues(
                            f"{self._name}, line {number}: here begins the export of a log with the topic"
                            f" {mark!r}; this log has the topic {topic!r}"
                        )
                    start = self._start_after(mark, start, index, number)
                    continue
                if number != expected:
                    self._gap_indices.append(index)
                    self._gap_lines.append(number)
                try:
                    value = message_value(line)
                except DecodeError as error:
                    self.errors[index] = error
                    value = b""
                yield value
                index, expected = index + 1, number + 1
            advance(len(lines))
        if start is not None:
            self._note(number, f"the file ends here, {_NO_END}")

    def _start_after(self, mark: str | int, start: int | None, index: int, line: int) -> int | None:
        """Return the `start` of `read` after the first or the last line of an export; note what is missing before it.

        Args:
            mark: of the line (`read_mark`).
            start: as before the line.
            index: of the next message.
            line: its number.
        """
        if isinstance(mark, str):
            if start is not None:
                self._note(line, f"another export begins here, {_NO_END}")
            return index
        found = index - (start or 0)
        if mark != found:
            self._note(
                line,
                f"{counted(mark, 'message')} should precede this line, and {counted(found, 'does', 'do')}: {_CUT_OFF}",
            )
        return None

    def _first_fault(self) -> dict[str, Any]:
        if not self.errors:
            return self.incomplete[0]
        index, error = next(iter(self.errors.items()))
        return self.place(index) | {"error": str(error)}

    def _note(self, line: int, error: str) -> None:
        self.incomplete.append({"file": self._name, "line": line, "error": error})

    def place(self, index: int) -> dict[str, Any]:
        gap = bisect_right(self._gap_indices, index) - 1
        return {"file": self._name, "line": self._gap_lines[gap] + index - self._gap_indices[gap]}


_Source: TypeAlias = Rows | _Lines


def _opened(path: Path, stack: ExitStack) -> _Source:
    """Open a source of values, of the kind that its first bytes show; the stack closes it."""
    if str(path) == _STDIN:
        return _Lines("standard input", cast(io.BufferedReader, sys.stdin.buffer))
    try:
        stream = stack.enter_context(open_file(path))
        start = stream.peek(_SHOWN_START)[:_SHOWN_START]
    except OSError as error:
        raise NoValues(f"{path} cannot be read: {error.strerror}") from error
    for beginning, reason in _OTHER_FILES.items():
        if start.startswith(beginning):
            raise NoValues(f"{path} {reason}")
    is_text = text_encoding(start) or (start.lstrip() or b"{").startswith(b"{")
    if path.suffix == ".parquet" or not is_text:
        if not stream.seekable():
            raise NoValues(f"{path} is not JSON Lines, and Parquet is not read from a pipe: give its file")
        if start and not start.startswith(_PARQUET):
            raise NoValues(
                f"{path} is neither JSON Lines nor Parquet: it begins with {start!r}, expected a line of"
                " gossiplog export or a file of Parquet"
            )
        return Rows(path, stream)
    return _Lines(str(path), stream)


def _files(path: Path) -> list[Path]:
    if str(path) == _STDIN:
        return [path]
    if not path.exists():
        raise NoValues(f"there is no file or folder {path}")
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.parquet"))
    if not found:
        sets = sorted({file.parent for file in path.glob("*/*.parquet")})
        hint = f": name one of the sets in it, as {sets[0]}" if sets else ""
        raise NoValues(f"{path} has no files named *.parquet{hint}")
    return found
