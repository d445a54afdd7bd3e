"""`gossiplog pipeline ingest`: a log from an application's files."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from gossiplog.cli.output import Json, Output, Stopwatch
from gossiplog.cli.pipeline.session import SessionOptions, show_rows, spark_session


def ingest(
    events: Annotated[
        list[str],
        typer.Argument(metavar="EVENTS...", help="The events: files or folders of Parquet, CSV or JSON Lines."),
    ],
    log: Annotated[str, typer.Option(help="The file of the log to make.")],
    topic: Annotated[str, typer.Option(help="The topic of the log.")],
    keys: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="The folder of the authors' key files, each named after its author, such as ann.key."
        ),
    ],
    author: Annotated[
        str, typer.Option(metavar="SQL", help="The column that names the author of an event, or an expression.")
    ],
    merger: Annotated[
        str, typer.Option(metavar="AUTHOR", help="The author whose key signs the messages that join heads.")
    ],
    sequence: Annotated[
        str | None, typer.Option(metavar="SQL", help="The column of an integer that orders the events of an author.")
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="SQL", help="The column of your own id of an event.")] = None,
    parents: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="An array of the ids that an event follows, as \"split(after, ' ')\"."),
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Option(metavar="SQL", help="A column of the payload. The default is all other columns."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of the events: parquet, csv or jsonl. The default is what the names of the files say.",
        ),
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Columns of CSV (else all strings) or JSON Lines (else inferred).")
    ] = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Make a signed log of an application's events, in an order that their columns say."""
    from gossiplog import spark
    from gossiplog.spark.jobs.event_files import check_event_files, event_format
    from gossiplog.spark.jobs.ingest import check_new_log
    from gossiplog.spark.jobs.keystore import KeyStore

    result = Output(json)
    layout = spark.Layout(author, sequence, id, parents, tuple(payload) if payload else None)
    if options.has_local_files():
        check_event_files(events)
    event_format(events, format, schema)
    check_new_log(log, topic)
    KeyStore(keys).load(merger)
    with spark_session(options, "ingest") as running, Stopwatch() as watch:
        rows = spark.read_events(running, events, format, schema)
        done = spark.ingest(rows, log, topic, layout, keys, merger=merger)
    show_rows(result, [{"log": log} | dataclasses.asdict(done) | {"seconds": round(watch.seconds, 3)}])
