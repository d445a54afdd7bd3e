"""`gossiplog pipeline verify` and `root`: whether any number of logs are sound, and their roots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, note
from gossiplog.cli.pipeline.fleet import show_fleet
from gossiplog.cli.pipeline.session import (
    Logs,
    NameFilter,
    OutputFolder,
    Recursive,
    SessionOptions,
    check_output,
    show_rows,
    spark_session,
)
from gossiplog.errors import REPAIR_ADVICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from gossiplog.spark import LogRoot, LogVerifyResult

SHOWN_DEFECTS = 20
"""Defects that are shown on a terminal: enough to see what is wrong. A file has room for all."""

Topic = Annotated[str | None, typer.Option(help="The topic that every log must have.")]
SummaryFolder = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Write a row for each log as Parquet to this new folder."),
]


def root(
    logs: Logs,
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Build each log's tree from its messages, in parallel, and show the root.

    Of several logs a table has those that cannot be read first, and a line for all together. Ends with status 1 if one
    of the logs cannot be read.
    """
    from gossiplog import spark

    result = Output(json)
    locations = _locations(logs, None, recursive, name_filter)
    with spark_session(options, "root", brief=True) as running:
        found = spark.fleet_roots(running, *locations)
    summary = {
        "logs": len(found),
        "messages": sum(each.messages or 0 for each in found),
        "unreadable": sum(1 for each in found if each.problem is not None),
    }
    show_fleet(result, [_root_row(each) for each in found], summary)
    if summary["unreadable"]:
        raise typer.Exit(1)


def verify(
    logs: Logs,
    topic: Topic = None,
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    output: OutputFolder = None,
    summary: SummaryFolder = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Check every message, parent, head and tree of logs; end with status 1 if anything is wrong.

    Of several logs a table has the worst first, those that cannot be read before all, and a line for all together.
    Defects come before it, in the order in which tasks found them: 20 of them, with --json all, a line each; with
    --output all go to Parquet. Its messages, and its root, are of those that have a key and a value.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import write_parquet

    result = Output(json)
    locations = _locations(logs, topic, recursive, name_filter)
    check_output(output)
    check_output(summary, output)
    with spark_session(options, "verify", brief=True) as running:
        found = spark.verify_fleet(running, *locations, topic=topic)
        report = found.report if output is None else write_parquet(found.report, output)
        if summary is not None:
            write_parquet(_summary(running, found.logs), summary)
        shown: list[dict[str, Any]] = []
        for defect in report.toLocalIterator() if result.json else report.take(SHOWN_DEFECTS):
            if result.json:
                result.record(defect.asDict())
            else:
                shown.append(defect.asDict())
        found.report.unpersist()
    if shown:
        show_rows(result, shown)
    figures = _figures(found.logs)
    show_fleet(result, [_verify_row(each) for each in found.logs], figures)
    total = figures["defects"]
    if 0 < len(shown) < total:
        note(f"The first {len(shown)} of {total:,} defects are shown; --output and --json give all.")
    if any(_is_damaged(each) for each in found.logs) and not result.json:
        note(REPAIR_ADVICE.replace("{}", "LOG"))
    if total:
        raise typer.Exit(1)


def _is_damaged(each: LogVerifyResult) -> bool:
    """Return whether there is something to repair: not in a log that is missing, locked or of another topic."""
    return bool(each.defects.keys() - {"log"}) or (each.problem is not None and each.problem.kind == "damaged")


def _root_row(each: LogRoot) -> dict[str, Any]:
    return {
        "log": each.log,
        "messages": each.messages,
        "level": None if each.node is None else each.node.level,
        "root": None if each.node is None else each.node.hash.hex(),
        "problem": None if each.problem is None else asdict(each.problem),
    }


def _verify_row(each: LogVerifyResult) -> dict[str, Any]:
    return {
        "log": each.log,
        "messages": each.messages,
        "defects": each.defect_count,
        "root": None if each.root is None else each.root.hash.hex(),
        "problem": None if each.problem is None else asdict(each.problem),
    }


def _figures(logs: Sequence[LogVerifyResult]) -> dict[str, int]:
    """Return what there is to say of all logs together."""
    return {
        "logs": len(logs),
        "messages": sum(each.messages or 0 for each in logs),
        "defects": sum(each.defect_count for each in logs),
        "defective": sum(1 for each in logs if each.defects),
        "unreadable": sum(1 for each in logs if each.problem is not None),
    }


def _locations(logs: Sequence[str], topic: str | None, recursive: bool, name_filter: str | None) -> list[str]:
    """Return the locations of the logs. What is wrong with a single one is an error, before Spark is started."""
    from gossiplog.spark.source.opening import check_logs
    from gossiplog.spark.source.problems import fleet_locations

    found, problems = fleet_locations(logs, recursive=recursive, name_filter=name_filter)
    all_of_them = [*found, *problems]
    if len(all_of_them) == 1:
        check_logs(all_of_them, topic)
    return all_of_them


def _summary(session: SparkSession, logs: Sequence[LogVerifyResult]) -> DataFrame:
    import pyarrow as pa

    rows = [_verify_row(each) | {"kinds": list(each.defects.items()), "seconds": each.seconds} for each in logs]
    columns = {
        "log": pa.string(),
        "messages": pa.int64(),
        "root": pa.string(),
        "defects": pa.int64(),
        "kinds": pa.map_(pa.string(), pa.int64()),
        "problem": pa.struct({"kind": pa.string(), "text": pa.string()}),
        "seconds": pa.float64(),
    }
    return session.createDataFrame(pa.Table.from_pylist(rows, pa.schema(columns)))
