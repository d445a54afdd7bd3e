"""Repair sets: for each of several replicas, the stored values that it lacks, as Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import functions as F

from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import building
from gossiplog.spark.jobs.reconcile import ReconcileResult

SUMMARY = "summary.json"


def write_repairs(result: ReconcileResult, folder: str) -> tuple[str, ...]:
    """Write what each replica lacks, as far as it can be read, ascending by key.

    Args:
        result: of a comparison.
        folder: to be made; it is there when all in it is complete. `summary.json` in it is the comparison in figures.

    Returns:
        The folders in it, one for each replica, in their order: Parquet with the columns key, clock, author, value.

    Raises:
        OptionError: something is there already.
        StorageError: so is `folder` with ".partial" after it, and no process that was killed has left it.
        OSError: the folder cannot be written.
        GossipLogError: what reading the missing messages raises.
    """
    names = set_names([replica.log for replica in result.replicas])
    with building(folder, "the repair sets") as partial:
        for number, name in enumerate(names):
            lacking = result.missing.where(F.array_contains("lacking", number) & F.col("error").isNull())
            with worker_errors():
                lacking.select("key", "clock", "author", "value").sort("key").write.parquet(os.path.join(partial, name))
        with open(os.path.join(partial, SUMMARY), "w", encoding="utf-8") as file:
            json.dump(_summary(result, names), file, indent=2)
    return tuple(os.path.join(folder, name) for name in names)


def set_names(logs: Sequence[str]) -> list[str]:
    """Return names of folders for logs: those of their files, with a number where several are called the same."""
    names: list[str] = []
    for log in logs:
        base = os.path.basename(log.rstrip("/")) or "log"
        name, number = base, 1
        while name in (*names, SUMMARY):
            number += 1
            name = f"{base}-{number}"
        names.append(name)
    return names


def _summary(result: ReconcileResult, names: Sequence[str]) -> dict[str, object]:
    return {
        "union": result.union,
        "shared": result.shared,
        "replicas": [
            {**asdict(replica), "lacks": asdict(lack), "repair": name}
            for replica, lack, name in zip(result.replicas, result.lacks, names, strict=True)
        ],
    }
