"""The root of a tree from its entries in a DataFrame: each partition makes a fragment, the driver joins them.

A fragment takes about 5 KB, whatever its partition holds, and that is all that reaches the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from gossiplog import columns, core
from gossiplog.errors import ColumnError, CorruptLog
from gossiplog.reprs import counted
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.jobs.over_logs import Conclusion, LogPart, over_logs
from gossiplog.spark.source.batches import columns_of
from gossiplog.spark.source.fleet import OpenedLog
from gossiplog.spark.source.opening import unopened
from gossiplog.spark.source.problems import Problem, fleet_logs, lost_entries
from gossiplog.spark.source.reader import pages
from gossiplog.storage import Storage


@dataclass(frozen=True, slots=True)
class RootResult:
    """The root of a tree, and how many entries it has.

    Attributes:
        entries: in the tree.
        node: the root.
    """

    entries: int
    node: core.Node


@dataclass(frozen=True, slots=True)
class LogRoot:
    """The root of one of several logs.

    Attributes:
        log: its location.
        messages: how many it has; None where it cannot be read.
        node: the root; None likewise.
        problem: why it cannot be read; None where it can.
    """

    log: str
    messages: int | None
    node: core.Node | None
    problem: Problem | None


def fleet_roots(
    session: SparkSession,
    *paths: str,
    topic: str | None = None,
    recursive: bool = False,
    name_filter: str | None = None,
) -> tuple[LogRoot, ...]:
    """Build the trees of any number of logs from their messages in one job, each log as it is when it is opened.

    Args:
        session: of Spark.
        paths: of the logs; each may be a pattern or a folder. One that names no file is a log with a problem.
        topic: that they must have; None takes any.
        recursive: as `gossiplog.spark.source.locations.locations` takes it.
        name_filter: likewise.

    Returns:
        The roots, the worst first: logs that cannot be read, and then the others, in the order of the paths.

    Raises:
        OptionError: a path that no location can be.
        NotALog: a pattern that no file fits, or a folder without files.
        SparkError: Spark gave up.
    """
    listed, missing = fleet_logs(session, paths, topic=topic, recursive=recursive, name_filter=name_filter)
    logs = [*listed, *(unopened(path, topic) for path in missing)]
    outcomes, report = over_logs(session, RootWork(), logs, lambda rows: rows.select("log"))
    report.unpersist()
    results: list[LogRoot] = []
    for log, found in outcomes.items():
        messages, node = found.result or (None, None)
        results.append(LogRoot(log, messages, node, found.problem))
    return tuple(sorted(results, key=lambda each: each.problem is None))


_READ = columns_of("key", "value")


@dataclass(frozen=True, slots=True)
class RootWork:
    """Builds the tree of a log, or a fragment of it, in one process."""

    @property
    def checks_file(self) -> bool:
        """False: a root needs the keys and values alone."""
        return False

    def look(self, storage: Storage, log: OpenedLog) -> OpenedLog:
        """Return the log: nothing else is to be known of it."""
        return log

    def part(
        self, storage: Storage, log: OpenedLog, own: OpenedLog, part: LogPart
    ) -> Iterator[pa.RecordBatch | tuple[bytes]]:
        """Yield the fragment of a part."""
        (found,) = partition_fragment(_refuse_lost_values(pages(_READ, storage, log, part.start, part.end)))
        yield (found.column("fragment")[0].as_py(),)

    def conclude(self, own: OpenedLog, figures: Sequence[tuple[bytes]]) -> Conclusion:
        """Return the number of entries and the root, or a problem where the log has lost entries."""
        whole = joined(fragment for (fragment,) in figures)
        if whole.count != own.count:
            return Conclusion(problem=Problem("damaged", lost_entries(whole.count, own.count)))
        return Conclusion((whole.count, whole.root))


def _refuse_lost_values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of a log whose values are there.

    Raises:
        CorruptLog: the storage has lost some, which it reads as no bytes.
    """
    for batch in batches:
        lost = pc.sum(pc.equal(pc.binary_length(batch.column("value")), 0)).as_py()
        if lost:
            them = counted(lost, "message is", "messages are")
            raise CorruptLog([f"at least {them} lost: there are keys without values"])
        yield batch


def root(frame: DataFrame, *, ascending: bool = False) -> RootResult:
    """Return the root of the tree over the entries of a frame.

    Args:
        frame: with the column `key`, and `hash` (a leaf hash) or `value`, all binary. What else it has is passed over.
        ascending: the keys ascend within each partition, and partitions do not overlap, as those of one log that the
            data source reads: they are not sorted again. It is an error where that is not so.

    Raises:
        ColumnError: a frame without these columns, or nulls in them.
        TreeError: a key that comes twice, or an empty one; partitions that overlap or do not ascend, as they should.
        SparkError: Spark gave up.
        GossipLogError: as reading the frame raises it.
    """
    content = next((name for name in ("hash", "value") if name in frame.columns), None)
    if content is None or "key" not in frame.columns:
        raise ColumnError(f"the frame has no columns key and value, or key and hash: it has {', '.join(frame.columns)}")
    entries = in_order(frame.select("key", content), ascending)
    with worker_errors():
        rows = entries.mapInArrow(partition_fragment, "fragment binary").collect()
    whole = joined(bytes(row.fragment) for row in rows)
    return RootResult(whole.count, whole.root)


def in_order(frame: DataFrame, ascending: bool) -> DataFrame:
    """Return the frame with partitions that ascend by key and do not overlap.

    Args:
        frame: with the column `key`.
        ascending: it has such partitions.
    """
    return frame if ascending else frame.repartitionByRange("key").sortWithinPartitions("key")


def joined(fragments: Iterable[bytes]) -> core.Fragment:
    """Return the fragment of the entries of all partitions, which may be given in any order.

    Raises:
        TreeError: partitions that overlap.
    """
    read = [columns.Fragment.from_bytes(fragment) for fragment in fragments]
    return reduce(columns.Fragment.join, sorted(read, key=lambda fragment: fragment.first or b""), columns.Fragment())


def entries_fragment(keys: pa.Array, hashes: pa.Array) -> core.Fragment:
    """Return the fragment of a batch.

    Raises:
        ColumnError: a null.
        TreeError: keys that do not ascend.
    """
    for name, array in (("key", keys), ("value or hash", hashes)):
        if array.null_count:
            raise ColumnError(f"{array.null_count} rows of a partition have no {name}: an entry has both")
    return columns.fragment(keys, hashes)


def partition_fragment(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row with the fragment of a partition's entries, for `mapInArrow`.

    Args:
        batches: with the column `key`, ascending, and after it `hash` or `value`.

    Raises:
        ColumnError: a null.
        TreeError: keys that do not ascend.
    """
    whole = columns.Fragment()
    for batch in batches:
        keys = batch.column("key")
        content = batch.column(1)
        hashes = content if batch.schema.names[1] == "hash" else columns.leaf_hashes(keys, content)
        whole = whole.join(entries_fragment(keys, hashes))
    yield pa.record_batch({"fragment": pa.array([whole.to_bytes()], pa.binary())})
