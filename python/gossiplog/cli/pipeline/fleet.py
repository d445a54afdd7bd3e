"""What the jobs of `gossiplog pipeline` show of many logs at once: a summary, and the worst first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossiplog.cli.output import Output, fields_table, note
from gossiplog.cli.pipeline.session import show_rows

SHOWN_LOGS = 20
"""Logs that are shown on a terminal, the worst ones. A file or another program gets all."""


def show_fleet(
    result: Output,
    rows: list[dict[str, Any]],
    summary: dict[str, Any],
    short: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Show logs, and after several of them all in figures: as JSON Lines, the last one being `{"summary": …}`.

    Args:
        result: where they go.
        rows: of all logs, with a `problem` as JSON has it.
        summary: in figures.
        short: returns what fits into a row of a table.
    """
    if result.json:
        show_rows(result, rows if len(rows) == 1 else [*rows, {"summary": summary}])
        return
    shown = rows[:SHOWN_LOGS]
    show_rows(result, [short(row) | {"problem": _problem_text(row["problem"])} for row in shown])
    if len(rows) == 1:
        return
    if len(shown) < len(rows):
        note(f"The first {len(shown)} of {len(rows):,} logs are shown; --json gives all.")
    table = fields_table()
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    result.show(table)


def _problem_text(problem: dict[str, Any] | None) -> str | None:
    return None if problem is None else f"{problem['kind']}: {problem['text']}"
