"""Tasks of a session: work of ours spread over them, how many run at a time, how far they are, and their end.

Everything here works under Spark Connect, too, where the process has no Java: `sparkContext` is asked in this module
alone, of a session that has one, for what Spark offers nowhere else.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from gossiplog.spark.failures import worker_errors

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler

Part = TypeVar("Part")
Found = TypeVar("Found")
Look: TypeAlias = Callable[[], tuple[int, int]]
"""Returns the tasks that are done, and all of them, in the stages that are known of the jobs that run now."""

Bundles: TypeAlias = Iterable[pa.RecordBatch]
"""What a task of `placed` gets."""

_BUNDLES = pa.schema([("task", pa.int32()), ("bundle", pa.binary())])
_FOUND = "result binary"
_RESULTS = "number bigint, result binary"
_RESULTS_ARROW = pa.schema([("number", pa.int64()), ("result", pa.binary())])
# More than any cluster has cores: Spark makes as many parts of a range as it runs tasks at a time.
_WIDE = 2**16


def spread(session: SparkSession, parts: Sequence[Part], work: Callable[[Part], Found]) -> list[Found]:
    """Return what a function finds for each part, in their order; each is a task.

    Args:
        session: of Spark.
        parts: few and small, since each task is sent all of them.
        work: what a task does, picklable as its results are, which the driver holds.
    """
    if not parts:
        return []
    numbers = session.range(0, len(parts), 1, len(parts))
    rows = numbers.mapInArrow(_Work(tuple(parts), work), _RESULTS).collect()
    # Pickles come from the session's own workers, as all that Spark's workers send.
    found = {row.number: pickle.loads(row.result) for row in rows}
    return [found[number] for number in range(len(parts))]


@dataclass(frozen=True, slots=True)
class _Work(Generic[Part, Found]):
    """Does the work of the parts whose numbers come in."""

    parts: tuple[Part, ...]
    work: Callable[[Part], Found]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(self.work(self.parts[number]))
                yield pa.RecordBatch.from_pylist([{"number": number, "result": result}], _RESULTS_ARROW)


def placed(session: SparkSession, groups: Sequence[Sequence[Any]]) -> DataFrame:
    """Return a frame with a partition for each group, which has it as a pickle in the column `bundle`.

    Nothing of a group goes to another task than its own.

    Args:
        session: of Spark.
        groups: of picklable items.
    """
    rows = frame_of(session, [(task, pickle.dumps(group)) for task, group in enumerate(groups)], _BUNDLES)
    return rows.repartitionById(max(len(groups), 1), "task")


def frame_of(session: SparkSession, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> DataFrame:
    """Return a frame of rows that the driver has. Of a list Spark would make it in workers, which it starts for that.

    Args:
        session: of Spark.
        rows: few.
        schema: their columns.
    """
    columns = [pa.array([row[number] for row in rows], field.type) for number, field in enumerate(schema)]
    # Of a table without rows Spark Connect wants to be told the columns.
    return session.createDataFrame(pa.table(columns, schema=schema), from_arrow_schema(schema))


def unpacked(batches: Bundles) -> Iterator[Any]:
    """Yield the items of the groups that a task of `placed` has."""
    for batch in batches:
        for bundle in batch.column("bundle").to_pylist():
            # From this session's own driver, as the code that reads it.
            yield from pickle.loads(bundle)


def spread_groups(
    session: SparkSession, groups: Sequence[Sequence[Part]], work: Callable[[Part], Found]
) -> list[Found]:
    """Return what a function finds for each item of groups, in any order; each group is a task, which gets it alone.

    Args:
        session: of Spark.
        groups: of picklable items, as many and as large as there are.
        work: what is done with an item, picklable as its results are, which the driver holds.
    """
    if not groups:
        return []
    return [pickle.loads(row.result) for row in placed(session, groups).mapInArrow(_Each(work), _FOUND).collect()]


@dataclass(frozen=True, slots=True)
class _Each(Generic[Part, Found]):
    """Does the work of each item of a group."""

    work: Callable[[Part], Found]

    def __call__(self, batches: Bundles) -> Iterator[pa.RecordBatch]:
        for item in unpacked(batches):
            yield pa.record_batch({"result": pa.array([pickle.dumps(self.work(item))], pa.binary())})


def parallelism(session: SparkSession) -> int:
    """Return how many tasks the session runs at a time, about: Spark's default parallelism.

    Under Spark Connect it costs a job of as many empty tasks.
    """
    if not over_connect(session):
        return session.sparkContext.defaultParallelism
    spans = session.range(_WIDE).select(F.spark_partition_id().alias("part")).agg(F.max("part").alias("last"))
    row = spans.first()
    assert row is not None
    return int(row["last"]) + 1


def over_connect(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    # That of Spark Connect is another class, no subclass, and its module needs packages that may be missing.
    return type(session).__module__.startswith("pyspark.sql.connect.")


def working_folder(session: SparkSession) -> str | None:
    """Return the working folder of a session's Java process; None of a server of Spark Connect."""
    if over_connect(session):
        return None
    java: Any = session._jvm
    return str(java.java.lang.System.getProperty("user.dir"))


@contextmanager
def followed(session: SparkSession) -> Iterator[Look]:
    """Provide a block with a function that says how far the jobs are that run meanwhile.

    The function raises SparkError once the session has ended.
    """
    if not over_connect(session):
        yield lambda: _local_tasks(session)
        return
    handler = _RemoteTasks()
    # Its class is in a module that needs the packages of Spark Connect, and says nothing but how it is called.
    registered = cast("ProgressHandler", handler)
    session.registerProgressHandler(registered)
    try:
        yield handler.look
    finally:
        session.removeProgressHandler(registered)


def _local_tasks(session: SparkSession) -> tuple[int, int]:
    with worker_errors():
        tracker = session.sparkContext.statusTracker()
        jobs = [job for number in tracker.getActiveJobsIds() if (job := tracker.getJobInfo(number)) is not None]
        numbers = {number for job in jobs for number in job.stageIds}
        stages = [stage for number in numbers if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


class _RemoteTasks:
    """Keeps what a server of Spark Connect tells of the operations that run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str | None, tuple[int, int]] = {}

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Take one report; the parameters have the names by which Spark gives them."""
        known = list(stages or ())
        with self._lock:
            if done:
                self._running.pop(operation_id, None)
            else:
                completed = sum(stage.num_completed_tasks for stage in known)
                self._running[operation_id] = completed, sum(stage.num_tasks for stage in known)

    def look(self) -> tuple[int, int]:
        with self._lock:
            running = [*self._running.values()]
        return sum(done for done, _ in running), sum(of for _, of in running)


def cancel(session: SparkSession) -> None:
    """Cancel all jobs of a session, without a word of theirs in Spark's log where that is this process's."""
    if over_connect(session):
        session.interruptAll()
    else:
        session.sparkContext.setLogLevel("OFF")
        session.sparkContext.cancelAllJobs()
