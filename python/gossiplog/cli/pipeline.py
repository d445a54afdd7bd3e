"""`gossiplog pipeline`: jobs on Apache Spark, for logs that outgrow one machine's patience or memory."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, note
from gossiplog.cli.pipeline_analyze import analyze
from gossiplog.cli.pipeline_ingest import ingest
from gossiplog.cli.pipeline_materialize import materialize
from gossiplog.cli.pipeline_reconcile import reconcile
from gossiplog.cli.pipeline_session import (
    Conf,
    DriverMemory,
    Logs,
    Master,
    OutputFolder,
    SessionOptions,
    show_rows,
    spark_session,
    write_parquet,
)

SHOWN_DEFECTS = 20
"""Defects that are shown on a terminal: enough to see what is wrong. A file has room for all."""

Topic = Annotated[str | None, typer.Option(help="What every log must have as its topic.")]

app = typer.Typer(name="pipeline", help="Jobs on Apache Spark, for logs and fleets of logs that outgrow one machine.")


@app.callback()
def _jobs() -> None:
    """Keeps the jobs' names on the command line, however many there are."""


@app.command("read")
def read(
    logs: Logs,
    output: OutputFolder = None,
    master: Master = None,
    conf: Conf = None,
    driver_memory: DriverMemory = None,
    json: Json = False,
) -> None:
    """Read logs: how many messages, authors and bytes each has; with --output, all columns as Parquet."""
    result = Output(json)
    with spark_session(SessionOptions(master, conf, driver_memory), "read") as running:
        from gossiplog import spark

        messages = spark.read(running, *logs)
        rows = spark.summarize(messages if output is None else write_parquet(messages, output))
    show_rows(result, [dataclasses.asdict(row) for row in rows])


@app.command("root")
def root(
    logs: Logs, master: Master = None, conf: Conf = None, driver_memory: DriverMemory = None, json: Json = False
) -> None:
    """Build each log's tree from its messages, in parallel, and show the root."""
    result = Output(json)
    with spark_session(SessionOptions(master, conf, driver_memory), "root") as running:
        from gossiplog import spark

        rows = []
        for log in spark.locations(logs):
            found = spark.root(spark.read(running, log, columns="key,value"), ascending=True)
            rows.append(
                {"log": log, "messages": found.entries, "level": found.node.level, "root": found.node.hash.hex()}
            )
    show_rows(result, rows)


@app.command("verify")
def verify(
    logs: Logs,
    topic: Topic = None,
    output: OutputFolder = None,
    master: Master = None,
    conf: Conf = None,
    driver_memory: DriverMemory = None,
    json: Json = False,
) -> None:
    """Check every message, parent, head and tree of logs; end with 1 where anything is wrong.

    With --output all defects go to Parquet; with --json they come before the summary, a line each.
    """
    result = Output(json)
    rows: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    with spark_session(SessionOptions(master, conf, driver_memory), "verify") as running:
        from gossiplog import spark

        checked = [(log, spark.verify_log(running, log, topic)) for log in spark.locations(logs)]
        report = spark.reports(checked)
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


app.command("reconcile")(reconcile)
app.command("analyze")(analyze)
app.command("materialize")(materialize)
app.command("ingest")(ingest)
