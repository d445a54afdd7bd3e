"""What the jobs of `gossiplog pipeline` show of many logs at once: a summary, and the worst first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from gossiplog.cli.output import Output, fields_table, note
from gossiplog.cli.pipeline.session import SessionOptions, show_rows, spark_session
from gossiplog.errors import CorruptLog, NotALog
from gossiplog.reprs import counted

if TYPE_CHECKING:
    from gossiplog.spark.source.problems import Problem

SHOWN_LOGS = 20
"""Logs that are shown on a terminal, the worst ones. A file or another program gets all."""


def reconcile_fleet(
    found: list[str], problems: dict[str, Problem], output: str | None, result: Output, options: SessionOptions
) -> None:
    """Compare the replicas of many logs, and end with 1 where one was left out or a message is whole nowhere.

    Args:
        found: the locations.
        problems: of paths that name no file.
        output: a new folder for repair sets.
        result: where the rows go.
        options: of the session.
    """
    from gossiplog import spark
    from gossiplog.spark.jobs.reconcile_fleet import fleet_rows

    if len(found) < 2 and problems:
        raise NotALog(next(iter(problems.values())).text)
    with spark_session(options, "reconcile") as running:
        compared = spark.reconcile_fleet(running, *found, *problems)
        repairs = {} if output is None else spark.write_fleet_repairs(compared, output)
        compared.missing.unpersist()
    rows = fleet_rows(compared, repairs)
    show_fleet(result, rows, [_short_row(row) for row in rows[:SHOWN_LOGS]], asdict(compared.summary))
    if lossy := sum(row.lacks.unreadable > 0 for row in compared.logs):
        one = "replica lacks messages that are whole in none of the logs that have them"
        raise CorruptLog([counted(lossy, one, one.replace("replica lacks", "replicas lack"))])
    if compared.summary.problems:
        raise typer.Exit(1)


def analyze_fleet(
    found: list[str], problems: dict[str, Problem], output: str | None, result: Output, options: SessionOptions
) -> None:
    """Analyse many logs, and end with 1 where one was left out.

    Args:
        found: the locations.
        problems: of paths that name no file.
        output: a new folder for the tables.
        result: where the rows go.
        options: of the session.
    """
    from gossiplog import spark
    from gossiplog.spark.jobs.analyze_fleet import fleet_tables

    with spark_session(options, "analyze") as running:
        analysis = spark.analyze_fleet(running, *found, *problems)
        if output is not None:
            spark.write_fleet_analysis(analysis, output)
        analysis.authors.unpersist()
    tables = fleet_tables(analysis)
    rows = tables["logs"]
    show_fleet(result, rows, list(map(_short_figures, rows[:SHOWN_LOGS])), tables["totals"])
    if analysis.totals.problems:
        raise typer.Exit(1)


def _short_figures(row: dict[str, Any]) -> dict[str, Any]:
    scores = [row[name] for name in ("messages_score", "bytes_score") if row[name] is not None]
    shown = ("log", "topic", "messages", "damaged", "bytes", "authors", "longest_chain")
    return {
        **{name: row[name] for name in shown},
        "score": f"{max(scores):.1f}" if scores else None,
        "problem": _problem_text(row["problem"]),
    }


def _problem_text(problem: dict[str, Any] | None) -> str | None:
    return None if problem is None else f"{problem['kind']}: {problem['text']}"


def show_fleet(
    result: Output, rows: list[dict[str, Any]], short: list[dict[str, Any]], summary: dict[str, Any]
) -> None:
    """Show logs, and after them all of them in figures: as JSON Lines, the last one being `{"summary": …}`.

    Args:
        result: where they go.
        rows: of all logs.
        short: what fits into a table, of the first logs.
        summary: in figures.
    """
    if result.json:
        show_rows(result, [*rows, {"summary": summary}])
        return
    show_rows(result, short)
    if len(short) < len(rows):
        note(f"The first {len(short)} of {len(rows):,} logs are shown; --json gives all.")
    table = fields_table()
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    result.show(table)


def _short_row(row: dict[str, Any]) -> dict[str, Any]:
    lacks = row["lacks"]
    return {
        "log": row["log"],
        "topic": row["topic"],
        "root": None if row["root"] is None else row["root"]["hash"][:12],
        "messages": row["messages"],
        "replicas": row["replicas"],
        "lacks": lacks["messages"],
        "damaged": lacks["unreadable"],
        "repair": row["repair"],
        "problem": _problem_text(row["problem"]),
    }
