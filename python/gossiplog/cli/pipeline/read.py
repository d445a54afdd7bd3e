"""`gossiplog pipeline read`: what logs hold, as Parquet."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, TypeAlias

import typer

from gossiplog.cli.output import Json, Output
from gossiplog.cli.pipeline.session import (
    Logs,
    OutputFolder,
    SessionOptions,
    show_rows,
    spark_session,
    write_parquet,
)

Encodings: TypeAlias = Annotated[
    Literal["all", "first"],
    typer.Option(
        help="The encodings of each message to read: all, or first, which is the one that arrived first in its log."
    ),
]


def read(
    logs: Logs,
    output: OutputFolder = None,
    encodings: Encodings = "all",
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Read logs: how many messages, authors and bytes each has; with --output, all columns as Parquet."""
    from gossiplog import spark
    from gossiplog.spark.source.locations import check_logs

    result = Output(json)
    check_logs(logs)
    options.check_output(output)
    with spark_session(options, "read") as running:
        columns = "log,clock,author,size" if output is None else "*"
        messages = spark.read(running, *logs, encodings=encodings, columns=columns)
        rows = spark.summarize(messages if output is None else write_parquet(messages, output))
    show_rows(result, [dataclasses.asdict(row) for row in rows])
