"""`gossiplog pipeline analyze`: what is in a log, or in many, and what is conspicuous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, fields_table, note, printable
from gossiplog.cli.pipeline.fleet import show_fleet
from gossiplog.cli.pipeline.session import Logs, NameFilter, Recursive, SessionOptions, spark_session
from gossiplog.reprs import counted

if TYPE_CHECKING:
    from gossiplog.spark.source.problems import Problem


def analyze(
    logs: Logs,
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
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Analyse a log: authors, rates, concurrency, branches and merges, hot keys, suspects, encodings, forks.

    Of several logs, the figures of each, the most conspicuous first, and a summary last; with --output one page about
    all of them, with a section for each log that stands out. Ends with 1 where one of several cannot be read.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import check_building
    from gossiplog.spark.jobs.log_metadata import log_figures
    from gossiplog.spark.jobs.report import tables
    from gossiplog.spark.source.fleet import split_open
    from gossiplog.spark.source.opening import check_logs, opened_log, unopened
    from gossiplog.spark.source.options import pruned
    from gossiplog.spark.source.problems import fleet_locations
    from gossiplog.spark.source.reader import number_of_partitions, ranges_frame

    result = Output(json)
    if output is not None:
        check_building(output, "the report")
    locations, problems = fleet_locations(logs, recursive=recursive, name_filter=name_filter)
    if len(locations) + len(problems) > 1:
        if hot is not None:
            raise typer.BadParameter("--hot is for one log: its keys say nothing of other logs")
        _analyze_fleet(locations, problems, " ".join(logs), output, result, options)
        return
    log = logs[0]
    found = list(check_logs([*locations, *problems]))
    with spark_session(options, "analyze") as running:
        columns = [name for name in spark.COLUMNS if hot is not None or name != "payload"]
        with opened_log(unopened(found[0])) as (storage, seen):
            before = None if output is None else log_figures(storage, seen.topic)
            ranges = split_open(storage, seen, number_of_partitions(seen.count, seen.size))
        messages = ranges_frame(running, ranges, pruned(columns))
        analysis = spark.analyze(messages, hot, location=found[0], count=seen.count)
        if before is not None:
            # Raises where another log is in its place.
            with opened_log(seen) as (storage, _):
                after = log_figures(storage, seen.topic)
            spark.write_report(analysis, str(output), log, spark.analysed_state(before, after))
        figures = tables(analysis)
    _show_analysis(result, {"log": log, "report": output, **figures})


def _show_analysis(output: Output, figures: dict[str, Any]) -> None:
    if output.json:
        output.record(figures)
        return
    table = fields_table()
    totals = figures["totals"]
    for name, value in totals.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    for author in figures["suspects"]:
        messages = f"{counted(author['messages'], 'message')} ({author['messages_ratio']:,.1f} × the median author)"
        size = f"{counted(author['bytes'], 'byte')} ({author['bytes_ratio']:,.1f} × the median author)"
        table.add_row("suspect", f"{author['author']}: {messages}, {size}")
    for fork in figures["forks"]:
        table.add_row("fork", f"{fork['author']}: {counted(fork['messages'], 'message')}, first {fork['first'][1]}")
    if (hidden := totals["forked"] - len(figures["forks"])) > 0:
        table.add_row("fork", counted(hidden, "more author"))
    if figures["report"] is not None:
        table.add_row("report", printable(f"{figures['report']}/report.html"))
    output.show(table)


def _analyze_fleet(
    found: list[str],
    problems: dict[str, Problem],
    title: str,
    output: str | None,
    result: Output,
    options: SessionOptions,
) -> None:
    """Analyse many logs, and end with 1 where one was left out.

    Args:
        found: the locations.
        problems: of paths that name no file.
        title: of the page: which logs it is about.
        output: a new folder for the page and the tables.
        result: where the rows go.
        options: of the session.
    """
    from gossiplog import spark
    from gossiplog.spark.jobs.analyze_fleet import fleet_tables

    with spark_session(options, "analyze") as running:
        analysis = spark.analyze_fleet(running, *found, *problems)
        if output is not None:
            spark.write_fleet_analysis(analysis, output, title)
        analysis.unpersist()
    tables = fleet_tables(analysis)
    show_fleet(result, tables["logs"], tables["totals"], _short_figures)
    if output is not None and not result.json:
        note(f"The page is {output}/report.html.")
    if analysis.totals.problems:
        raise typer.Exit(1)


def _short_figures(row: dict[str, Any]) -> dict[str, Any]:
    scores = [row[name] for name in ("messages_score", "bytes_score") if row[name] is not None]
    shown = ("log", "topic", "messages", "damaged", "bytes", "authors", "heads", "branches", "forked", "reencoded")
    return {
        **{name: row[name] for name in shown},
        "score": f"{max(scores):.1f}" if scores else None,
    }
