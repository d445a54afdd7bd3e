"""What the jobs of `gossiplog pipeline` show of many logs at once: a summary, and the worst first."""

from __future__ import annotations

from typing import Any

from gossiplog.cli.output import Output, fields_table, note
from gossiplog.cli.pipeline.session import show_rows

SHOWN_LOGS = 20
"""Logs that are shown on a terminal, the worst ones. A file or another program gets all."""


def problem_text(problem: dict[str, Any] | None) -> str | None:
    """Return what is wrong with a log, of a row as JSON has it; None where nothing is."""
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
