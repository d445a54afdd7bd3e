"""What the jobs of `gossiplog pipeline` have in common: the options of a Spark session, its start, its progress.

Nothing of Spark is imported before a job is called: every other command would wait for it.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.output import Output, headed_table, printable, spinner, watching
from gossiplog.errors import NotALog, OptionError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...", help="The logs: files, folders, patterns such as '{a,b}*.db', or postgresql:// URLs."
    ),
]
Recursive = Annotated[
    bool, typer.Option("--recursive-file-lookup", help="Look into the folders in a folder, too, but not through links.")
]
NameFilter = Annotated[
    str | None,
    typer.Option("--path-glob-filter", metavar="PATTERN", help="Take the files whose names fit, such as '*.db'."),
]
IgnoreMissing = Annotated[
    bool, typer.Option("--ignore-missing-files", help="Pass over logs that are removed while the job runs.")
]
IgnoreCorrupt = Annotated[
    bool,
    typer.Option("--ignore-corrupt-files", help="Pass over logs that cannot be read: damaged, locked, or no logs."),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs, such as spark://host:7077. The default is every core of this machine."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Set a property of Spark."),
]
DriverMemory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of Spark's driver, such as 4g.")]
OutputFolder = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Write the result as Parquet to this new folder.")
]


_THREADS = r"[1-9][0-9]*|\*"
_COUNT = r"\s*[0-9]+\s*"
# As Spark's own cluster managers have them; others have URLs, too.
_MASTER = re.compile(
    rf"local(?:\[(?:{_THREADS})(?:\s*,\s*[0-9]+)?\])?|local-cluster\[{_COUNT},{_COUNT},{_COUNT}\]|yarn|[a-z0-9]+://\S+"
)
_DRIVER_MEMORY = "spark.driver.memory"
# Spark gives the driver's memory to Java as it is (-Xmx), which knows fewer units than Spark has elsewhere.
_MEMORY = re.compile(r"([0-9]{1,12})([kmgt])", re.IGNORECASE)
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
# Bytes; with less, Spark does not start (UnifiedMemoryManager).
_LEAST_MEMORY = 450 * 2**20
# Options of the data source that the commands have as flags, called as programs in shells call theirs.
_SOURCE_OPTIONS = re.compile(r"\b(?:recursiveFileLookup|pathGlobFilter|ignoreMissingFiles|ignoreCorruptFiles)\b")
# What is copied from a table, and stays on one line.
_COPIED = {"id", "root"}
# How long Ctrl-C waits for Spark to cancel its jobs.
_CANCELLING_SECONDS = 5.0
# From then on another Ctrl-C ends the process at once; `timeout` and terminals send a signal twice within an instant.
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the command line says of the session: the options that all jobs have.

    Attributes:
        master: as `gossiplog.spark.session` takes it.
        conf: properties as NAME=VALUE.
        driver_memory: as `gossiplog.spark.session` takes it.
    """

    master: Master = None
    conf: Conf = None
    driver_memory: DriverMemory = None

    def properties(self) -> dict[str, str]:
        """Return the properties by name.

        Raises:
            typer.BadParameter: one that is not NAME=VALUE.
        """
        pairs = [(text, *text.partition("=")) for text in self.conf or ()]
        for text, name, sign, _ in pairs:
            if not name or not sign:
                raise typer.BadParameter(f"--conf {text}: expected NAME=VALUE")
        return {name: value for _, name, _, value in pairs}

    def check(self) -> None:
        """Check the options that Spark would refuse only once it has started.

        Raises:
            typer.BadParameter: a value that an option cannot have.
        """
        properties = self.properties()
        if self.master is not None and not _MASTER.fullmatch(self.master):
            raise typer.BadParameter(
                f"--master {self.master}: expected local[NUMBER], local[*], spark://HOST:PORT, k8s://URL or yarn"
            )
        if self.driver_memory is not None:
            _check_memory("--driver-memory ", self.driver_memory)
        if _DRIVER_MEMORY in properties:
            _check_memory(f"--conf {_DRIVER_MEMORY}=", properties[_DRIVER_MEMORY])


def check_output(folder: str | None, *others: str | None) -> None:
    """Check that a folder for Parquet can be made, if it is to be on this machine.

    Args:
        folder: as the command line has it; None is none.
        others: what else the command writes to.

    Raises:
        OptionError: something is there already, or it cannot be made there; or something else is to be there.
        StorageError: so is the folder with ".partial" after it, and no process that was killed has left it.
    """
    from gossiplog.spark.folders import PARQUET_FILES, check_building

    if folder is None:
        return
    check_building(folder, PARQUET_FILES)
    if os.path.abspath(folder) in (os.path.abspath(other) for other in others if other is not None):
        raise OptionError(f"{folder} is named twice: what the command writes needs a folder each")


def _check_memory(option: str, text: str) -> None:
    """Refuse what Java does not take as the size of the driver's memory, and what is too little for Spark.

    Raises:
        typer.BadParameter: it is so.
    """
    found = _MEMORY.fullmatch(text)
    if found is None or int(found[1]) * _UNITS[found[2].lower()] < _LEAST_MEMORY:
        raise typer.BadParameter(
            f"{option}{text}: expected a size such as 512m or 4g, a number with k, m, g or t, of 450m at least"
        )


def job(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command for a function that has a parameter `options`.

    The command has the options of `SessionOptions` instead.

    Whatever can be checked without Spark is to be checked before `spark_session`, whose start takes many seconds.

    Args:
        function: whose other parameters are the command's own. It may import `gossiplog.spark`.
    """
    signature = inspect.signature(function, eval_str=True)
    shared = inspect.signature(SessionOptions, eval_str=True).parameters
    own = [parameter for name, parameter in signature.parameters.items() if name != "options"]

    @wraps(function)
    def command(**arguments: Any) -> None:
        options = SessionOptions(**{name: arguments.pop(name) for name in shared})
        options.check()
        try:
            import_module("gossiplog.spark")
        except ImportError as error:
            raise SparkError(str(error)) from error
        try:
            function(**arguments, options=options)
        except (NotALog, OptionError) as error:
            error.args = tuple(map(_with_flags, error.args))
            raise

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [parameter.replace(kind=keyword) for parameter in (*own, *shared.values())]
    vars(command)["__signature__"] = signature.replace(parameters=parameters)
    return command


def _with_flags(part: object) -> object:
    """Return an argument of an error in which options of the data source are called as those of the commands."""
    if not isinstance(part, str):
        return part
    return _SOURCE_OPTIONS.sub(lambda match: "--" + re.sub("[A-Z]", lambda sign: f"-{sign[0].lower()}", match[0]), part)


@contextmanager
def spark_session(options: SessionOptions, name: str, *, brief: bool = False) -> Iterator[SparkSession]:
    """Open a Spark session for a block, and show its progress; what fails in Spark is raised as an error of ours.

    A session that this process has already is used, and left as it is.

    Args:
        options: of the session.
        name: of the job.
        brief: the work is that of Python's tasks, and Java is to start as fast as it can.

    Raises:
        SparkError: Java is missing, or Spark fails.
        GossipLogError: what was raised in a worker.
    """
    from gossiplog import spark
    from gossiplog.spark.session import brief_settings, names_server
    from gossiplog.spark.session import running as running_session
    from gossiplog.spark.tasks import followed

    properties = options.properties()
    if brief:
        properties = brief_settings(options.master) | properties
    if not names_server(options.master):
        # The command draws its own; of a server it is not this process's to set.
        properties = {"spark.ui.showConsoleProgress": "false"} | properties
    running = running_session()
    # It stays: objects of Java's are released later, of which py4j tells Java.
    logging.getLogger().addFilter(_is_not_of_py4j)
    with interruptible() as interruption:
        if running is None:
            with spinner("Starting Spark"):
                started = spark.session(
                    options.master, conf=properties, driver_memory=options.driver_memory, name=f"gossiplog {name}"
                )
        else:
            started = running
        interruption.watch(started)
        try:
            with spark.worker_errors(), followed(started) as look, watching(name.capitalize(), look):
                yield started
        finally:
            if running is None:
                _stop(started)


def _stop(session: SparkSession) -> None:
    """Stop a session, also one whose Java has ended: PySpark warns of that, and what the job raised says it."""
    with warnings.catch_warnings(action="ignore"), suppress(Exception):
        session.stop()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for what py4j logs, in nobody's name, of an error that it also raises, or that concerns nobody.

    Java has ended: a signal to a group of processes ends it, too.
    """
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


@dataclass(slots=True)
class Interruption:
    """What a signal has to end.

    Attributes:
        session: whose jobs run; None while it is started.
        received: when the signal came, by the monotonic clock.
        handler: of the signal; None where it is ignored, or this is no main thread.
    """

    session: SparkSession | None = None
    received: float | None = None
    handler: Callable[[int, FrameType | None], None] | None = None

    def watch(self, session: SparkSession) -> None:
        """Have the signal end the jobs of a session: PySpark sets a handler of its own as it starts one.

        Args:
            session: that runs.
        """
        self.session = session
        if self.handler is not None:
            signal.signal(signal.SIGINT, self.handler)

    def cancel(self) -> None:
        """Cancel all jobs, as far as there is somebody to do so: a signal to a group of processes ends Java, too."""
        from gossiplog.spark.tasks import cancel

        assert self.session is not None
        with suppress(Exception):
            cancel(self.session)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Cancel Spark's jobs at Ctrl-C, and keep Spark and py4j from logging the stacks of their ends.

    A second one, some time after the first, ends the process at once.

    PySpark's own handler fails: it asks Java on the connection on which this thread waits for the job. However the
    block ends after the signal, it raises KeyboardInterrupt: an exception of a handler may be lost in a callback of the
    interpreter's, and what ends then, Java among it, raises something else.

    Yields:
        What is to be ended, which the block keeps up to date.

    Raises:
        KeyboardInterrupt: the signal came.
    """
    interruption = Interruption()

    def interrupt(number: int, frame: FrameType | None) -> None:
        logging.disable()
        if interruption.received is None:
            interruption.received = time.monotonic()
            if interruption.session is not None:
                # Each thread has a connection of its own.
                thread = threading.Thread(target=interruption.cancel, name="gossiplog-cancel", daemon=True)
                thread.start()
                thread.join(_CANCELLING_SECONDS)
        elif time.monotonic() - interruption.received > _PATIENCE_SECONDS:
            # A server that does not answer would be waited for.
            os._exit(128 + number)
        raise KeyboardInterrupt

    # A shell has its background jobs ignore Ctrl-C.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    interruption.handler = interrupt
    former = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interruption
    except Exception as error:
        if interruption.received is not None:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, former)
        logging.disable(logging.NOTSET)
    if interruption.received is not None:
        raise KeyboardInterrupt


def show_rows(output: Output, rows: list[dict[str, Any]]) -> None:
    """Show rows with the same fields: as a table on a terminal, as JSON Lines elsewhere."""
    if output.json:
        for row in rows:
            output.record(row)
        return
    names = [*rows[0]] if rows else []
    table = headed_table(*(name.replace("_", " ") for name in names))
    for column, name in zip(table.columns, names, strict=True):
        column.no_wrap = name in _COPIED
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    output.show(table)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else printable(str(value))
