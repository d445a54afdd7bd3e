"""`gossiplog pipeline analyze`: the history of a log in figures and plots."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, fields_table
from gossiplog.cli.pipeline.session import SessionOptions, spark_session
from gossiplog.errors import OptionError
from gossiplog.reprs import counted


def analyze(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The file of the log.")],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Write report.html, analysis.json and tables in Parquet to this new folder."
        ),
    ] = None,
    hot: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION",
            help="What a message is about, in Spark's SQL, as \"get_json_object(payload, '$.key')\".",
        ),
    ] = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Analyse a log: authors, rates, concurrency, branches and merges, hot keys, suspects, alternative encodings."""
    from gossiplog import spark
    from gossiplog.spark.folders import check_building
    from gossiplog.spark.jobs.report import tables
    from gossiplog.spark.source.locations import check_logs

    result = Output(json)
    found = list(check_logs([log]))
    if len(found) > 1:
        raise OptionError(f"{log} names {len(found)} logs: a history is analysed by itself")
    if output is not None:
        check_building(output, "the report")
    with spark_session(options, "analyze") as running:
        columns = [name for name in spark.COLUMNS if hot is not None or name != "payload"]
        before = spark.log_metadata(found[0])
        analysis = spark.analyze(spark.read(running, *found, columns=",".join(columns)), hot)
        if output is not None:
            state = spark.analysed_state(before, spark.log_metadata(found[0]))
            spark.write_report(analysis, output, log, state)
        figures = tables(analysis)
    _show(result, {"log": log, "report": output, **figures})


def _show(output: Output, figures: dict[str, Any]) -> None:
    if output.json:
        output.record(figures)
        return
    table = fields_table()
    for name, value in figures["totals"].items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    for author in figures["suspects"]:
        messages = f"{counted(author['messages'], 'message')} ({author['messages_ratio']:,.1f} × the median author)"
        size = f"{counted(author['bytes'], 'byte')} ({author['bytes_ratio']:,.1f} × the median author)"
        table.add_row("suspect", f"{author['author']}: {messages}, {size}")
    if figures["report"] is not None:
        table.add_row("report", f"{figures['report']}/report.html")
    output.show(table)
