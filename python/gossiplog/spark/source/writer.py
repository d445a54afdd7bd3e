"""Adding stored values to a log: executors verify, the driver merges.

The driver takes the values in the order of their keys, which is causal, in transactions of the log's usual length. So a
job that is killed meanwhile leaves a log that holds the ancestors of every message in it, and that the same job, run
again, completes: what is there already is no error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StructType

import gossiplog.log
from gossiplog.errors import NotALog, OptionError, ValuesRefused
from gossiplog.log.insertion import insert_many
from gossiplog.log.log import replica_of
from gossiplog.message import check_topic
from gossiplog.reprs import counted
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import building, check_building, local_path
from gossiplog.spark.source.locations import is_uri
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.options import WriteOptions
from gossiplog.spark.source.staging import Staged, make_folder, merged, refused, remove_folder, stage
from gossiplog.spark.tasks import frame_of
from gossiplog.storage.postgres.url import is_postgres_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Messages of which it is kept in memory at a time what became of them.
_SLICE = 2**16
SUMMARY = "summary.json"
REFUSED = "refused.jsonl"
# What the folder is for, in errors.
_REPORT = "the option report"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of stored values that were to be added to a log.

    Attributes:
        values: how many there were.
        inserted: how many are new to the log.
        duplicates: how many were in the log before, or came twice.
        refused: how many are not in the log: null, invalid, of another topic, or without their parents.
    """

    values: int
    inserted: int
    duplicates: int
    refused: int


class LogArrowWriter(DataSourceArrowWriter):
    """Adds the column `value` of a frame to a log. Other columns do not matter: a message is all in its value.

    Args:
        options: of the write.
        schema: of the frame.

    Raises:
        OptionError: a frame without values, a report that is there already, or a log that has no folder for staging.
        NotALog: there is no log, and no topic to make it with.
        StorageError: the log cannot be read.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_values(schema)
        self._report = report_folder(options)
        if self._report is not None:
            check_building(self._report, _REPORT)
        self._path = options.path
        self._topic = topic_of(options)
        self._staging = make_folder(staging_base(options), os.path.basename(options.path))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        return stage(self._staging, self._topic, 0 if context is None else context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Merge what the tasks left into the log, and report.

        Raises:
            ValuesRefused: values were refused, and no report was asked for. The remaining ones are in the log.
            StorageError: the log cannot be written. What came before is in it.
        """
        staged = [message for message in messages if isinstance(message, Staged)]
        try:
            add(self._path, self._topic, staged, self._report)
        finally:
            remove_folder(self._staging)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks left."""
        remove_folder(self._staging)


def check_values(schema: StructType) -> None:
    """Check that a frame has stored values.

    Raises:
        OptionError: it has no column of them.
    """
    if "value" not in schema.fieldNames() or not isinstance(schema["value"].dataType, BinaryType):
        raise OptionError(f"the frame has no column value of the type binary: it is {schema.simpleString()}")


def add(path: str, topic: str, staged: list[Staged], report: str | None) -> WriteResult:
    """Merge what tasks staged into a log, and report.

    Args:
        path: of the log.
        topic: of the log.
        staged: what the tasks left.
        report: a folder to be made, or None.

    Raises:
        ValuesRefused: values were refused, and no report was asked for. The remaining ones are in the log.
        StorageError: the log cannot be written. What came before is in it.
    """
    with _Report(report) as written:
        for record in refused(staged):
            written.refuse(record)
        inserted, duplicates = _merge(path, topic, staged, written)
        result = WriteResult(sum(task.values for task in staged), inserted, duplicates, written.refused)
        written.finish(result)
    if report is None and result.refused:
        remaining = f", and {path} has the remaining ones" if result.refused < result.values else ""
        raise ValuesRefused(
            f"{result.refused:,} of {counted(result.values, 'value was', 'values were')} refused{remaining}; the first:"
            f" {written.first} (the option report, a new folder, gets all of them instead of this error)"
        )
    return result


def _merge(path: str, topic: str, staged: list[Staged], report: _Report) -> tuple[int, int]:
    runs = [run for task in staged for run in task.runs]
    if report.refused and not runs:
        # No log is made for nothing: a topic that no value has may be a slip.
        return 0, 0
    values = merged(runs)
    inserted = duplicates = 0
    with gossiplog.log.open(path, topic) as log:
        while some := list(islice(values, _SLICE)):
            result = insert_many(replica_of(log), some, signed=True)
            inserted += result.inserted
            duplicates += result.duplicates
            for _, error in result.refused:
                report.refuse({"id": getattr(error, "id", None), "error": str(error)})
    return inserted, duplicates


def write(frame: DataFrame, path: str, *, report: str, **options: str) -> WriteResult:
    """Add the column `value` of a frame to a log.

    Args:
        frame: with stored values.
        path: of the log.
        report: a folder to be made: `summary.json` in it says what this returns, `refused.jsonl` has a line for each
            value that was refused: the partition and row where it was found, its id, the error.
        options: as `WriteOptions` has them.

    Raises:
        OptionError: an option that there is not, or a value that it cannot have.
        NotALog: there is no log, and no topic to make it with.
        StorageError: the log cannot be read or written.
    """
    summary = os.path.join(local_path(report, _REPORT), SUMMARY)
    given = {"path": path, "report": report, **options}
    # The working folder of Java is the one in which it was started, and that of a server of Spark Connect any other.
    places = {name: place for name, place in given.items() if name in ("path", "report", "staging")}
    given |= {name: place if is_uri(place) else os.path.abspath(place) for name, place in places.items()}
    with worker_errors():
        # Java looks for the source in the session that is active in this thread: in one that has not made a frame, as
        # also after an interrupted call, there is none.
        frame_of(frame.sparkSession, [], pa.schema([("value", pa.binary())]))
        frame.write.format("gossiplog").mode("append").options(**given).save()
    with open(summary, encoding="utf-8") as file:
        return WriteResult(**json.load(file))


class _Report:
    """What became of the values, in a folder that is there when it is complete.

    Args:
        folder: to be made, or None.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._partial = ""
        self._stack = ExitStack()
        self._lines: TextIO | None = None
        self.refused = 0
        self.first = ""

    def __enter__(self) -> _Report:
        if self._folder is not None:
            self._partial = self._stack.enter_context(building(self._folder, "the report"))
            path = os.path.join(self._partial, REFUSED)
            self._lines = self._stack.enter_context(open(path, "w", encoding="utf-8"))
        return self

    def refuse(self, record: dict[str, Any]) -> None:
        self.refused += 1
        self.first = self.first or str(record["error"])
        if self._lines is not None:
            self._lines.write(json.dumps(record) + "\n")

    def finish(self, written: WriteResult) -> None:
        if self._lines is not None:
            with open(os.path.join(self._partial, SUMMARY), "w", encoding="utf-8") as file:
                json.dump(asdict(written), file)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


def topic_of(options: WriteOptions) -> str:
    """Return the topic of the log that is written to, or that is to be made.

    Raises:
        NotALog: there is no log, and no topic to make it with.
        TopicMismatch: it has another topic.
        StorageError: it cannot be read.
    """
    if is_uri(options.path) or os.path.exists(options.path):
        try:
            with opened(options.path, options.topic) as (_, topic):
                return topic
        except NotALog:
            # A schema in which a log is to be made; a file that is there holds something else.
            if options.topic is None or not is_postgres_url(options.path):
                raise
    if options.topic is None:
        raise NotALog(f"there is no log {options.path}: the option topic makes one")
    check_topic(options.topic)
    return options.topic


def report_folder(options: WriteOptions) -> str | None:
    """Return the path of the folder for reports, if there is to be one.

    Raises:
        OptionError: it is on another file system.
    """
    return None if options.report is None else local_path(options.report, _REPORT)


def staging_base(options: WriteOptions) -> str:
    """Return the folder in which a staging folder is made.

    Raises:
        OptionError: none is named, and the log is in no folder; or it is on another file system.
    """
    if options.staging is not None:
        # Executors have working folders of their own.
        return os.path.abspath(local_path(options.staging, "the option staging"))
    if is_uri(options.path):
        raise OptionError("the option staging is missing: a database has no folder to stage values in")
    return os.path.dirname(os.path.abspath(options.path))
