"""What `over_logs` does, without Spark: tasks run in this process, one after the other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gossiplog.spark.jobs.over_logs import KnownLogs, LogOutcome, LogParts, WholeLogs, Work, placed_parts
from gossiplog.spark.source.fleet import FoundLog
from gossiplog.spark.source.opening import unopened


def inline(
    work: Work, locations: Sequence[str], most: int = 2**17
) -> tuple[dict[str, LogOutcome], list[dict[str, Any]]]:
    """Return what becomes of logs, and the rows of the report, before they are named.

    Args:
        work: travels as to an executor.
        locations: of the logs.
        most: messages of a log that is not split.
    """
    logs = [unopened(location) for location in locations]
    known = KnownLogs()
    first = task_rows(WholeLogs(work, most), [logs])
    large = known.take(internal(first))
    second = task_rows(LogParts(work), placed_parts(large, logs)) if large else []
    known.take(internal(second))
    local = [dict(zip(("log", "kind", "key", "detail"), row, strict=True)) for row in known.conclude(work, large)]
    report = [row for row in (*first, *second, *local) if not row["kind"].startswith("=")]
    return {log.name: known.outcome(log.name) for log in logs}, report


def task_rows(task: WholeLogs | LogParts, groups: Sequence[Sequence[FoundLog] | Sequence[Any]]) -> list[dict[str, Any]]:
    """Return what a stage's tasks report, one for each group; they travel as to an executor."""
    copied = pickle.loads(pickle.dumps(task))
    bundles = [pa.record_batch({"bundle": [pickle.dumps(group)]}) for group in groups]
    return [row for bundle in bundles for batch in copied([bundle]) for row in batch.to_pylist()]


def internal(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, bytes]]:
    """Return what `KnownLogs.take` is given of them."""
    return [(row["log"], row["kind"], row["other"]) for row in rows]
