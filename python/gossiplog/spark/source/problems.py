"""What is wrong with a log that cannot be read, as a report says it, and the locations of many logs with such ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from gossiplog.errors import CorruptLog, LogChanged, NotALog, StorageError
from gossiplog.reprs import counted
from gossiplog.spark.source.fleet import FoundLog
from gossiplog.spark.source.locations import (
    anchored_for,
    chosen,
    describe_folder,
    is_missing,
    is_pattern,
    matching,
    shown,
)
from gossiplog.spark.source.locks import is_locked
from gossiplog.spark.source.marks import is_replaced
from gossiplog.spark.source.opening import unopened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the error of a log may take in a report: an error names a few places.
_LONGEST_PROBLEM = 1000

_UNLOCK = "stop the program that has the log for itself, or run the job again when it is done"

ProblemKind = Literal["missing", "no log", "damaged", "replaced", "unreadable"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a log was left out.

    Attributes:
        kind: "missing" where there is no file, "no log" where it is something else, "damaged", "replaced" where it
            was rebased or another log took its place amid the job, or "unreadable", as one that is locked, of a newer
            version or of another topic.
        text: what was wrong.
    """

    kind: ProblemKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def parse_problem(text: str) -> Problem:
    """Return a problem from what `str` made of it."""
    kind, _, rest = text.partition(": ")
    return Problem(cast(ProblemKind, kind), rest)


def problem_of(location: str, error: Exception, name: str | None = None) -> Problem:
    """Return what a report says of a log that could not be read.

    Args:
        location: of the log.
        error: of what reads it.
        name: that stands beside the problem in the report, so that no sentence begins with it; None keeps the location.
    """
    kind: ProblemKind = "unreadable"
    try:
        missing = isinstance(error, StorageError) and is_missing(location)
    except StorageError:
        missing = False
    if missing:
        kind = "missing"
    elif is_replaced(error):
        kind = "replaced"
    elif isinstance(error, NotALog):
        kind = "no log"
    elif isinstance(error, CorruptLog):
        kind = "damaged"
    texts = error.problems if isinstance(error, CorruptLog) else (str(error),)
    if name is not None:
        texts = tuple(text.replace(location, name).removeprefix(f"{name}: ") for text in texts)
    text = ("; ".join(texts) or type(error).__name__)[:_LONGEST_PROBLEM]
    return Problem(kind, f"{text}; {_UNLOCK}" if is_locked(error) else text)


def problem_error(location: str, problem: Problem) -> StorageError:
    """Return the error of one log that a task could not read, from what the task said of it."""
    name = shown(location)
    text = problem.text if name in problem.text else f"{name}: {problem.text}"
    match problem.kind:
        case "damaged":
            return CorruptLog([text])
        case "missing" | "no log":
            return NotALog(text)
        case "replaced":
            return LogChanged(text)
        case _:
            return StorageError(text)


def lost_entries(keys: int, messages: int) -> str:
    """Return what is wrong with a log that has not as many keys as it says that it has messages."""
    return f"it has {counted(keys, 'key')} and says that it has {counted(messages, 'message')}"


def fleet_locations(
    paths: Iterable[str], *, recursive: bool = False, name_filter: str | None = None
) -> tuple[list[str], dict[str, Problem]]:
    """Return the locations of a fleet, and the problems of paths that name no file and of folders that are closed.

    Args:
        paths: as `gossiplog.spark.source.locations.locations` takes them.
        recursive: likewise.
        name_filter: likewise.

    Raises:
        OptionError: a path that no location can be.
        NotALog: a pattern that no file fits, or no file fits the filter.
    """
    found: list[str] = []
    problems: dict[str, Problem] = {}

    def leave_out(error: OSError) -> None:
        problems[error.filename] = Problem("unreadable", describe_folder(error))

    for path in paths:
        try:
            found += matching(path, recursive=recursive, on_unread=leave_out)
        except NotALog as error:
            # A pattern is a mistake of who wrote it; a path may come from a list that is older than the file's end.
            if is_pattern(path) or not is_missing(path):
                raise
            problems[path] = Problem("missing", str(error))
    return chosen(found, name_filter), problems


def fleet_logs(
    session: SparkSession, paths: Iterable[str], *, topic: str | None, recursive: bool, name_filter: str | None
) -> tuple[list[FoundLog], dict[str, Problem]]:
    """Return the logs of a fleet, none of them opened, and the problems that `fleet_locations` has.

    Args:
        session: whose tasks are to open them.
        paths: as `fleet_locations` takes them.
        topic: that the logs must have; None takes any.
        recursive: as `fleet_locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: as `fleet_locations` does.
        NotALog: likewise.
    """
    found, problems = fleet_locations(anchored_for(session, paths), recursive=recursive, name_filter=name_filter)
    return [unopened(location, topic) for location in found], problems
