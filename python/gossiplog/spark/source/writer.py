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
from gossiplog.spark.source.locations import is_uri, opened
from gossiplog.spark.source.options import WriteOptions
from gossiplog.spark.source.staging import Staged, make_folder, merged, refused, remove_folder, stage
from gossiplog.storage.postgres.url import is_postgres_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Messages whose fate is kept in memory at a time.
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
        if "value" not in schema.fieldNames() or not isinstance(schema["value"].dataType, BinaryType):
            raise OptionError(f"the frame has no column value of the type binary: it is {schema.simpleString()}")
        report = None if options.report is None else local_path(options.report, _REPORT)
        if report is not None:
            check_building(report, _REPORT)
        self._path = options.path
        self._topic = _topic(options)
        self._report = report
        self._staging = _staging(options)

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
            with _Report(self._report) as report:
                for record in refused(staged):
                    report.refuse(record)
                inserted, duplicates = self._merge(staged, report)
                values = sum(task.values for task in staged)
                report.finish(WriteResult(values, inserted, duplicates, report.refused))
        finally:
            remove_folder(self._staging)
        if self._report is None and report.refused:
            remaining = f", and {self._path} has the remaining ones" if report.refused < values else ""
            raise ValuesRefused(
                f"{report.refused:,} of {counted(values, 'value was', 'values were')} refused{remaining}; the first:"
                f" {report.first} (the option report, a new folder, gets all of them instead of this error)"
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks left."""
        remove_folder(self._staging)

    def _merge(self, staged: list[Staged], report: _Report) -> tuple[int, int]:
        values = merged(run for task in staged for run in task.runs)
        inserted = duplicates = 0
        with gossiplog.log.open(self._path, self._topic) as log:
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
    with worker_errors():
        frame.write.format("gossiplog").mode("append").options(report=report, **options).save(path)
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


def _topic(options: WriteOptions) -> str:
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


def _staging(options: WriteOptions) -> str:
    if options.staging is not None:
        base = local_path(options.staging, "the option staging")
    else:
        if is_uri(options.path):
            raise OptionError("the option staging is missing: a database has no folder to stage values in")
        base = os.path.dirname(os.path.abspath(options.path))
    return make_folder(base, os.path.basename(options.path))
