"""`gossiplog pipeline`: jobs on Apache Spark, for logs that outgrow one machine's patience or memory."""

from __future__ import annotations

import dataclasses

import typer

from gossiplog.cli.output import Json, Output
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
