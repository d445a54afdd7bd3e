"""Where results go: colour and tables on a terminal, JSON Lines anywhere else; progress on stderr."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from typing import IO, TYPE_CHECKING, Annotated, Any, Self

import typer

from gossiplog import core
from gossiplog.errors import EncodeError, GossipLogError
from gossiplog.reprs import counted

if TYPE_CHECKING:
    # It takes a quarter of the time of a short command, and most write to no terminal.
    from rich.console import Console, RenderableType
    from rich.progress import ProgressColumn
    from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Write JSON Lines, on a terminal as well.")]

# A terminal obeys control characters; line separators and bidirectional controls make text look like other text, and a
# lone surrogate cannot be written.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Variables with which rich takes anything for a terminal.
_FORCING = ("FORCE_COLOR", "TTY_COMPATIBLE")
_DELAY = 1.0  # seconds before a progress bar appears
_LOOKS = 0.25  # seconds between two looks at work that is done elsewhere
# What a bar has beside it.
_DONE = "{task.completed:,.0f}"
_DONE_OF_ALL = "{task.completed}/{task.total}"
_EXCHANGED = "{task.fields[received]:,} received, {task.fields[sent]}"
_NOTE_SECONDS = 5.0  # seconds between lines that say how far an exchange is
WORK_NOTE_SECONDS = 60.0
"""Seconds between lines that say how far work is that is done elsewhere, where stderr is no terminal."""


class Output:
    """What a command says, in the form that its reader can use.

    As for all that `rich` writes, FORCE_COLOR=1 in the environment makes a terminal of anything.

    Attributes:
        json: whether that is JSON Lines.
    """

    def __init__(self, json: bool) -> None:
        self._is_terminal = _may_be_terminal() and self.console.is_terminal
        self.json = json or not self._is_terminal

    @cached_property
    def console(self) -> Console:
        """The terminal, for where results are no JSON."""
        from rich.console import Console

        return Console(markup=False, highlight=False, emoji=False)

    def record(self, fields: Mapping[str, Any]) -> None:
        """One line of JSON: dag-json, as payloads are (https://ipld.io/specs/codecs/dag-json/spec)."""
        sys.stdout.buffer.write(self.encoded(fields))

    def flush(self) -> None:
        """Hand what was written to its reader: Python buffers what it writes into a pipe."""
        sys.stdout.flush()

    def encoded(self, fields: Mapping[str, Any]) -> bytes:
        """Return the line that `record` writes."""
        try:
            line = core.json_encode(dict(fields))
        except EncodeError:
            # Names of files may be no text.
            line = core.json_encode(_encodable(dict(fields)))
        if self._is_terminal:
            line = printable(line.decode("utf-8")).encode("utf-8")
        # JSON is UTF-8, whatever the locale says of text.
        return line + b"\n"

    def show(self, *renderables: RenderableType) -> None:
        """On the terminal: strings as they are, `rich.text.Text` cut to its width, other things laid out to fit."""
        from rich.text import Text

        for renderable in renderables:
            match renderable:
                case str():
                    self.console.print(renderable, soft_wrap=True)
                case Text():
                    self.console.print(renderable, no_wrap=True, overflow="ellipsis")
                case _:
                    self.console.print(renderable)

    @contextmanager
    def paged(self) -> Iterator[None]:
        """Send what a block shows on a terminal through a pager; the block ends where the reader leaves the pager.

        The variable PAGER has the command of the pager, by default `less`. There is none if PAGER is empty or `cat`, or
        if the command is not installed.
        """
        command = _pager()
        if self.json or not sys.stdout.isatty() or not command:
            yield
            return
        # As Git sets it: show colours, and leave what fits on one screen there.
        environment = {"LESS": "FRX"} | os.environ
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, encoding="utf-8")
        terminal = self.console
        self.console = _pager_console(process.stdin, terminal)
        try:
            yield
        except BrokenPipeError:
            # The reader left the pager.
            pass
        finally:
            self.console = terminal
            _end(process)


def _may_be_terminal() -> bool:
    """Return whether rich may take stdout for a terminal, without asking it."""
    return sys.stdout.isatty() or any(os.environ.get(name) for name in _FORCING)


def _pager_console(file: IO[str] | None, terminal: Console) -> Console:
    """Return a console that raises BrokenPipeError where its reader is gone; rich would end the program."""
    from rich.console import Console

    class PagerConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PagerConsole(
        file=file,
        force_terminal=True,
        width=terminal.width,
        color_system=terminal.color_system,  # type: ignore[arg-type] # a name, which rich types as any text
        markup=False,
        highlight=False,
        emoji=False,
    )


def _pager() -> list[str]:
    """Return the command of the pager; [] for none."""
    try:
        words = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:
        # A quote that is not closed.
        return []
    return words if words and words != ["cat"] and shutil.which(words[0]) is not None else []


def _end(process: subprocess.Popen[str]) -> None:
    """Wait until the reader leaves the pager, which goes on after Ctrl-C."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    while True:
        with suppress(KeyboardInterrupt):
            process.wait()
            return


def fields_table() -> Table:
    """Return a table to be filled with rows of a name and a value."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    return table


def headed_table(*texts: str, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table, with headings for columns of texts and, after them, columns of numbers."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _encodable(value: Any) -> Any:
    """Return a value whose strings are UTF-8: bytes that are not, as Python has them in names of files, are escaped."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {key: _encodable(item) for key, item in value.items()}
        case list():
            return [_encodable(item) for item in value]
    return value


def printable(text: str) -> str:
    """Return a line that holds nothing that a terminal obeys; if it is JSON, it means the same."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def unwrapped(text: str) -> str:
    """Return a text in one line: with a space for each line break or run of spaces."""
    return " ".join(text.split())


def as_option(text: str) -> str:
    """Return a text in which an error names an option of commands, not the argument of Python's that stands for it."""
    return text.replace("(ca_file)", "(--ca-file)")


def failure(error: Exception) -> str:
    """Return the line that reports an error: the system's begin with the file that they are about."""
    if not isinstance(error, OSError) or not error.strerror:
        return as_option(unwrapped(str(error)))
    if error.filename is not None:
        place = f"{os.fspath(error.filename)}: "
    else:
        place = "the output cannot be written: " if error.errno == errno.ENOSPC else ""
    return unwrapped(f"{place}{error.strerror}")


def note(text: str) -> None:
    """Print a line on stderr, after the results so far, for people."""
    with suppress(OSError):
        # Python buffers what it writes into pipes and files. The next write or the end of the program names an error.
        sys.stdout.flush()
    print(f"gossiplog: {printable(as_option(text))}", file=sys.stderr)  # noqa: T201


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show what goes on, on stderr, when that is a terminal and the work takes longer than a second.

    Args:
        description: what is being done.
        total: how many steps there are, where that is known.

    Yields:
        A function to call with the number of steps just made.
    """
    with _shown(description, total, _DONE if total is None else _DONE_OF_ALL) as update:
        yield lambda steps: update(advance=steps)


@contextmanager
def steps_of(description: str, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """As `progress`, for calls that say themselves how far they are.

    Args:
        description: what is being done.
        total: how many steps there are, where that is known before.

    Yields:
        A function to call with the numbers of steps that are done and of all steps.
    """
    with _shown(description, total, _DONE_OF_ALL) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextmanager
def exchange(description: str) -> Iterator[Callable[[int, int, bool], None]]:
    """As `progress`, for messages that come and go; where stderr is no terminal, a line on it now and then.

    Args:
        description: who exchanges them.

    Yields:
        A function to call with the numbers of messages received and sent so far, and whether the other side asks for
        messages again that it was sent.
    """
    noted = time.monotonic()

    def report(received: int, sent: int, is_asked_again: bool) -> None:
        nonlocal noted
        sent_text = f"{sent:,} sent{', and asked for again' if is_asked_again else ''}"
        update(received=received, sent=sent_text)
        if not sys.stderr.isatty() and time.monotonic() - noted >= _NOTE_SECONDS:
            note(f"{description}: {counted(received, 'message')} received, {sent_text}")
            noted = time.monotonic()

    with _shown(description, None, _EXCHANGED, received=0, sent="0 sent") as update:
        yield report


@contextmanager
def spinner(description: str) -> Iterator[None]:
    """As `progress`, for work that has no steps to count."""
    with _shown(description, None):
        yield


@contextmanager
def occasional(description: str) -> Iterator[Callable[[int, int], None]]:
    """Like `progress`, but show nothing before the first update.

    Yields:
        A function to call with the numbers of steps that are done and of all steps: nothing is shown before.
    """
    with ExitStack() as shown:
        update: Callable[..., None] | None = None

        def advance(done: int, total: int) -> None:
            nonlocal update
            if update is None:
                update = shown.enter_context(_shown(description, total, _DONE_OF_ALL))
            update(completed=done)

        yield advance


@contextmanager
def watching(description: str, look: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """As `progress`, for work that is done elsewhere: its steps are looked up, on a thread of their own.

    Where stderr is no terminal, there is a line on it each minute, so that nobody takes the work for hung.

    Args:
        description: what is being done.
        look: returns how many steps are done, and how many there are, as far as is known. It is not called again
            when it has raised a GossipLogError, since the work itself will say what is wrong.
    """
    done = threading.Event()
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()

    def follow(update: Callable[..., None]) -> None:
        while not done.wait(_LOOKS if is_terminal else WORK_NOTE_SECONDS):
            try:
                completed, total = look()
            except GossipLogError:
                return
            if is_terminal:
                update(completed=completed, total=total)
            else:
                seconds = time.monotonic() - started
                tasks = f": {completed:,} of {total:,} tasks are done" if total else ""
                note(f"{description} has run for {seconds:,.0f} s{tasks}")

    with _shown(description, None, _DONE_OF_ALL) as update:
        thread = threading.Thread(target=follow, args=(update,), name="gossiplog-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def _shown(
    description: str, total: int | None, counter: str | None = None, **fields: Any
) -> Iterator[Callable[..., None]]:
    if not sys.stderr.isatty():
        yield lambda **changes: None
        return
    from rich import progress as parts
    from rich.console import Console

    columns: list[ProgressColumn] = []
    if counter is not None:
        columns.append(parts.BarColumn())
        columns.append(parts.TextColumn(counter) if counter != _DONE_OF_ALL else parts.MofNCompleteColumn())
    bar = parts.Progress(
        parts.SpinnerColumn(),
        parts.TextColumn("{task.description}"),
        *columns,
        parts.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(description, total=total, **fields)
    timer = threading.Timer(_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield partial(bar.update, task)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


class Stopwatch:
    """Measures the wall-clock time of a `with` block.

    Attributes:
        seconds: how long the block took.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start

    def rate(self, count: int) -> int:
        """Return the rate, per second, of a block that did `count` of something."""
        return round(count / self.seconds) if self.seconds else 0
