"""`gossiplog pipeline verify`: every defect of logs, by id."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, note
from gossiplog.cli.pipeline.session import (
    Logs,
    OutputFolder,
    SessionOptions,
    show_rows,
    spark_session,
    write_parquet,
)

SHOWN_DEFECTS = 20
"""Defects that are shown on a terminal: enough to see what is wrong. A file has room for all."""

Topic = Annotated[str | None, typer.Option(help="The topic that every log must have.")]


def verify(
    logs: Logs,
    topic: Topic = None,
    output: OutputFolder = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Check every message, parent, head and tree of logs; end with status 1 if anything is wrong.

    With --output all defects go to Parquet; with --json they come before the summary, a line each.
    """
    from gossiplog import spark
    from gossiplog.spark.jobs.verify import reports
    from gossiplog.spark.source.locations import check_logs

    result = Output(json)
    rows: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    topics = check_logs(logs, topic)
    options.check_output(output)
    with spark_session(options, "verify") as running:
        checked = [(log, spark.verify_log(running, log, topic)) for log in topics]
        report = reports(checked)
        if output is not None:
            report = write_parquet(report, output)
        for defect in report.toLocalIterator() if result.json else report.take(SHOWN_DEFECTS):
            if result.json:
                result.record(defect.asDict())
            else:
                shown.append(defect.asDict())
        for log, found in checked:
            defects = sum(found.defects.values())
            rows.append({"log": log, "messages": found.messages, "defects": defects, "root": found.root.hash.hex()})
            found.report.unpersist()
    if shown:
        show_rows(result, shown)
    show_rows(result, rows)
    total = sum(row["defects"] for row in rows)
    if 0 < len(shown) < total:
        note(f"The first {len(shown)} of {total:,} defects are shown; --output and --json give all.")
    if total:
        raise typer.Exit(1)
