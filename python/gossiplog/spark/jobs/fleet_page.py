"""The page about many logs: all of them together, the most conspicuous first, a section for each that stands out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from html import escape

from gossiplog.charts import Chart, Series
from gossiplog.reprs import shell_path
from gossiplog.spark.jobs.analyze import LIMIT, AnalyzeResult
from gossiplog.spark.jobs.fleet_figures import FleetAnalyzeResult, LogFigures
from gossiplog.spark.jobs.report import (
    Link,
    Words,
    authors_table,
    charts,
    clock_text,
    document,
    encodings_table,
    figures,
    forks_table,
    plot,
    section,
)

MOST_ROWS = 200
"""Logs in the table of the page: analysis.json has all."""
# The plots of a log that stands out; its own report has all.
_PLOTS = ("Messages", "Concurrency", "Branches and merges")
# Totals that count logs, which the fields of a log's own analysis do not.
_LABELS = {
    "forked": "logs with authors that forked",
    "reencoded": "logs with alternative encodings",
    "suspects": "logs of unusual size",
}
_COLUMNS = ("messages", "bytes", "authors", "heads", "branches", "merges", "damaged", "forked", "reencoded")


def fleet_page(analysis: FleetAnalyzeResult, title: str, now: datetime) -> str:
    """Return the page, in one piece: its style and its plots are in it, and it loads nothing.

    Args:
        analysis: of many logs.
        title: which logs it is about.
        now: when the analysis was made.
    """
    targets = {log: f"log-{number}" for number, log in enumerate(analysis.details, 1)}
    body = [_conspicuous(analysis, targets), *map(plot, _charts(analysis.logs)), _every(analysis, targets)]
    by_log = {row.log: row for row in analysis.logs}
    body += [_log(by_log[log], targets[log], found) for log, found in analysis.details.items()]
    facts = {"date": f"{now:%Y-%m-%d %H:%M} {now.tzname() or ''}".rstrip()}
    totals = {_LABELS.get(name, name): value for name, value in asdict(analysis.totals).items()}
    return document(title, facts, totals, "".join(body))


def _named(row: LogFigures, targets: Mapping[str, str]) -> object:
    return Link(row.log, targets[row.log]) if row.log in targets else row.log


def _conspicuous(analysis: FleetAnalyzeResult, targets: Mapping[str, str]) -> str:
    rows = [row for row in analysis.logs if row.remarks]
    text = (
        "Logs that cannot be read, with damaged messages, with authors that forked, with messages in several encodings,"
        f" or of an unusual size: a score above {LIMIT}. An unusual log may well be a sound one."
    )
    if len(rows) > MOST_ROWS:
        text += f" The first {MOST_ROWS} of {len(rows):,} are shown."
    shown = ((_named(row, targets), Words("; ".join(row.remarks)), row.topic) for row in rows[:MOST_ROWS])
    return section("Logs that stand out", text, ("log", "why", "topic"), shown)


def _every(analysis: FleetAnalyzeResult, targets: Mapping[str, str]) -> str:
    rows = [row for row in analysis.logs if row.problem is None]
    text = (
        "Those that could be read, the most conspicuous first. “Score” says how unusual the size is: 0 is that of the"
        " log in the middle, and there is none (–) where all have equally many messages and bytes."
    )
    if len(rows) > MOST_ROWS:
        text += f" The first {MOST_ROWS} of {len(rows):,} are shown; analysis.json has all."
    shown = (
        (_named(row, targets), row.topic, *(getattr(row, name) for name in _COLUMNS), row.score or None)
        for row in rows[:MOST_ROWS]
    )
    return section("Logs", text, ("log", "topic", *_COLUMNS, "score"), shown)


def _charts(logs: Sequence[LogFigures]) -> list[Chart]:
    rows = [row for row in logs if row.problem is None]
    if not rows:
        return []
    return [
        _histogram("Sizes", "messages of a log", [row.messages for row in rows]),
        _histogram("Bytes", "bytes of stored values of a log", [row.bytes for row in rows]),
        _histogram("Authors", "authors of a log", [row.authors for row in rows]),
        _histogram("Heads", "messages without children of a log", [row.heads for row in rows]),
    ]


def _histogram(title: str, x: str, values: Sequence[int]) -> Chart:
    """Return how many logs have how much, in ranges of which each is twice as wide as the one before."""
    digits = Counter((value - 1).bit_length() + 1 if value else 0 for value in values)
    places = range(min(digits), max(digits) + 1)
    labels = [_range(place) for place in places]
    return Chart(title, x, "logs", (Series("logs", [digits[place] for place in places]),), labels=labels)


def _range(place: int) -> str:
    if place < 2:
        return str(place)
    least, most = 2 ** (place - 2) + 1, 2 ** (place - 1)
    return _short(most) if least == most else f"{_short(least)}–{_short(most)}"


def _short(number: int) -> str:
    """Return a number as a mark below a plot has room for it: of a large one only the power of two below it matters."""
    for unit, name in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if number > unit:
            return f"{number // unit}{name}"
    return str(number)


def _log(row: LogFigures, target: str, found: AnalyzeResult) -> str:
    topic = "" if row.topic is None else f"<p>Topic: {escape(row.topic)}</p>"
    why = f"<p>{escape('; '.join(row.remarks))}</p>" if row.remarks else ""
    plots = ""
    if found.ranges:
        plots = f"<p>{escape(clock_text(found))}</p>"
        plots += "".join(plot(chart, 3) for chart in charts(found) if chart.title in _PLOTS)
    tables = "".join(
        table(found, 3)
        for table, applies in (
            (forks_table, bool(found.forks)),
            (encodings_table, bool(found.alternative_encodings)),
            (authors_table, True),
        )
        if applies
    )
    more = f"All plots and tables of it: gossiplog pipeline analyze {shell_path(row.log)} --output FOLDER"
    return (
        f'<section id="{target}"><h2>{escape(row.log)}</h2>{why}{topic}{figures(asdict(found.totals))}{plots}{tables}'
        f"<p>{escape(more)}</p></section>"
    )
