"""Appending a stream to a log: executors verify each micro-batch, the driver merges it.

Spark makes a writer anew for each micro-batch, and another one to commit it; neither knows the query. What is handed to
the tasks does: so each leaves what it verified in a folder of its own within one that is called after the query, which
keeps its id when it is started again. A commit removes that folder with all that runs before it left there. Folders of
other queries into the same log have other names.

A micro-batch that is committed twice, because the driver was killed before Spark had noted that it was, finds its
messages in the log: they have the same ids, and no record of micro-batches is needed. After a kill amid a commit the
log holds some of them, with all their ancestors.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from gossiplog.errors import StorageError
from gossiplog.spark.folders import STAGING
from gossiplog.spark.source.options import WriteOptions
from gossiplog.spark.source.staging import Staged, raising_staging_error, stage
from gossiplog.spark.source.writer import add, check_values, report_folder, staging_base, topic_of

# Where Spark tells its tasks the query's id.
_QUERY = "sql.streaming.queryId"
# Its owner alone has access, because the driver takes what lies there as verified.
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """What a task of a micro-batch leaves.

    Attributes:
        query: its id.
        folder: of the query.
        own: the folder in it that is the task's.
        staged: what lies there.
    """

    query: str
    folder: str
    own: str
    staged: Staged


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Adds the column `value` of a stream to a log. Other columns do not matter: a message is all in its value.

    Args:
        options: of the write.
        schema: of the stream.

    Raises:
        OptionError: a stream without values, or a log that has no folder for staging.
        NotALog: there is no log, and no topic to make it with.
        StorageError: the log cannot be read.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_values(schema)
        self._path = options.path
        self._topic = topic_of(options)
        self._report = report_folder(options)
        self._prefix = os.path.join(staging_base(options), f"{os.path.basename(options.path)}{STAGING}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Verify the values of a task, and leave them for the commit.

        Raises:
            StorageError: somebody else has a folder where the query's is to be.
        """
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        if context is None or not query:
            raise StorageError("a stream is written to a log within a query of Spark alone, as writeStream.start makes")
        folder = self._prefix + query
        own = os.path.join(folder, uuid.uuid4().hex)
        _make_private(folder)
        try:
            os.mkdir(own, _PRIVATE)
            staged = stage(own, self._topic, context.partitionId(), iterator)
        except BaseException:
            # Its error reaches the driver without the folder's name.
            _remove_task(own)
            raise
        return StagedTask(query, folder, own, staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Merge what the tasks left into the log, and report. To do so again changes nothing.

        Raises:
            ValuesRefused: values were refused, and no report was asked for. The remaining ones are in the log.
            StorageError: the log cannot be written, or what the tasks left is gone. What came before is in the log.
        """
        tasks = [message for message in messages if isinstance(message, StagedTask)]
        folders = {task.folder for task in tasks}
        try:
            for folder in folders:
                _check_private(folder)
            self._add(tasks, batchId)
        except FileNotFoundError as error:
            raise StorageError(
                f"what the tasks of micro-batch {batchId} left is gone ({error.filename or error}): start a query once,"
                " on one driver, and give each of several a checkpointLocation of its own"
            ) from error
        finally:
            for folder in folders:
                _remove(folder)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks left. One that failed has done so itself."""
        for message in messages:
            if isinstance(message, StagedTask):
                _remove_task(message.own)

    def _add(self, tasks: list[StagedTask], batch: int) -> None:
        staged = [task.staged for task in tasks]
        if self._report is None or not tasks:
            add(self._path, self._topic, staged, None)
            return
        report = os.path.join(self._report, tasks[0].query, str(batch))
        # Of a commit before this one: the log may hold parents by now that were missing.
        shutil.rmtree(report, ignore_errors=True)
        if not add(self._path, self._topic, staged, report).refused:
            shutil.rmtree(report)
            with suppress(OSError):
                os.rmdir(os.path.dirname(report))


def _make_private(folder: str) -> None:
    """Make a folder that nobody else can enter, or find it made.

    Raises:
        StorageError: there is something else, or others can enter it; or it cannot be made.
    """
    with raising_staging_error(os.path.dirname(folder)), suppress(FileExistsError):
        os.mkdir(folder, _PRIVATE)
        return
    _check_private(folder)


def _check_private(folder: str) -> None:
    status = os.lstat(folder)
    private = stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o777 & ~_PRIVATE
    if not private or status.st_uid != os.geteuid():
        raise StorageError(
            f"a stream stages values in {folder}, which is there already and not a folder that this user alone can"
            " enter: remove it, or name another folder with the option staging"
        )


def _remove(folder: str) -> None:
    """Remove the folder of a query, and what was left where this was interrupted before."""
    # At once, so that no task that is still running adds to it meanwhile.
    with suppress(FileNotFoundError):
        os.rename(folder, f"{folder}.removed-{uuid.uuid4().hex}")
    for leaving in glob.glob(f"{glob.escape(folder)}.removed-*"):
        shutil.rmtree(leaving, ignore_errors=True)


def _remove_task(own: str) -> None:
    """Remove the folder of a task, and that of the query if nothing else is in it."""
    shutil.rmtree(own, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(os.path.dirname(own))
