"""`gossiplog pipeline read`: logs in figures, or as Parquet."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal, TypeAlias

import typer

from gossiplog.cli.output import Json, Output
from gossiplog.cli.pipeline.session import (
    IgnoreCorrupt,
    IgnoreMissing,
    Logs,
    NameFilter,
    OutputFolder,
    Recursive,
    SessionOptions,
    check_output,
    show_rows,
    spark_session,
)

# Logs of which each is looked at before Spark starts, which takes longer: two milliseconds each.
_LOOKED_AT = 100

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
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    ignore_missing: IgnoreMissing = False,
    ignore_corrupt: IgnoreCorrupt = False,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Read logs: how many messages, authors and bytes each has; with --output, all columns as Parquet.

    With --ignore-corrupt-files, of a log that cannot be read, or not to its end, what was read and the problem.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import write_parquet
    from gossiplog.spark.source.locations import locations
    from gossiplog.spark.source.opening import check_logs

    result = Output(json)
    found = locations(logs, recursive=recursive, name_filter=name_filter)
    if len(found) <= _LOOKED_AT and not ignore_corrupt:
        check_logs(found)
    check_output(output)
    with spark_session(options, "read") as running:
        columns = ["log", "clock", "author", "size"] if output is None else spark.SCHEMA.names
        if ignore_corrupt:
            columns = [*columns, "log_problem"]
        ignored = {"ignoreMissingFiles": str(ignore_missing).lower(), "ignoreCorruptFiles": str(ignore_corrupt).lower()}
        messages = spark.read(running, *found, encodings=encodings, columns=",".join(columns), **ignored)
        rows = spark.summarize(messages if output is None else write_parquet(messages, output))
    shown = list(map(asdict, rows))
    if not ignore_corrupt:
        for row in shown:
            # Nothing was passed over.
            del row["problem"]
    show_rows(result, shown)
