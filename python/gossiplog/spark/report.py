"""An analysis as files: a page with plots that needs nothing else, and all tables as JSON and Parquet."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from gossiplog.charts import Chart, Series, svg
from gossiplog.errors import OptionError
from gossiplog.spark.analysis import LIMIT, TOP, Analysis, Author, ClockRange
from gossiplog.spark.failures import worker_errors

PAGE = "report.html"
TABLES = "analysis.json"
# Characters of a text in a table: a hot key may be a whole payload.
_LONGEST_TEXT = 300
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, figcaption, caption { color: #444; } figure { margin: 1rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem; }
dt { color: #555; font-size: .85rem; } dd { margin: 0; font-size: 1.35rem; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: #333; }
.grid { stroke: #ddd; } .axis { stroke: #666; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums; }
th { color: #555; font-weight: 600; } .text { text-align: left; overflow-wrap: anywhere; font-family: monospace; }
th:first-child { text-align: left; }
div { overflow-x: auto; }
"""


def write_report(analysis: Analysis, folder: str, title: str) -> None:
    """Writes an analysis to a folder: `report.html`, `analysis.json`, and the frames as Parquet, a folder each.

    Args:
        analysis: of a log.
        folder: to be made; it is there when all in it is complete.
        title: of the page: which log it is about.

    Raises:
        OptionError: something is there already.
        OSError: the folder cannot be written.
        GossipLogError: what computing the frames raises.
    """
    if os.path.lexists(folder):
        raise OptionError(f"{folder} is there already: name a new folder for the report")
    partial = f"{folder}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    try:
        for name, frame in analysis.frames.items():
            with worker_errors():
                frame.write.parquet(os.path.join(partial, name))
        with open(os.path.join(partial, PAGE), "w", encoding="utf-8") as file:
            file.write(page(analysis, title))
        with open(os.path.join(partial, TABLES), "w", encoding="utf-8") as file:
            json.dump(tables(analysis), file, indent=2)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def tables(analysis: Analysis) -> dict[str, Any]:
    """Everything but the frames, as JSON has it."""
    names = ("ranges", "widths", "authors", "suspects", "hot_keys", "alternative_encodings")
    rows = {name: getattr(analysis, name) for name in names}
    listed = {name: None if found is None else list(map(asdict, found)) for name, found in rows.items()}
    return {"totals": asdict(analysis.totals), **listed}


def page(analysis: Analysis, title: str) -> str:
    """The page, in one piece: its style and its plots are in it, and it loads nothing.

    Args:
        analysis: of a log.
        title: which log it is about.
    """
    totals = "".join(
        f"<div><dt>{name.replace('_', ' ')}</dt><dd>{value:,}</dd></div>"
        for name, value in asdict(analysis.totals).items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><dl>{totals}</dl>{_plots(analysis)}{_tables(analysis)}</body></html>\n"
    )


def _plots(analysis: Analysis) -> str:
    if not analysis.ranges:
        return "<p>The log has no messages, so there is nothing to plot.</p>"
    ranges = analysis.ranges
    edges = [ranges[0].first_clock, *(part.last_clock + 1 for part in ranges)]

    def over_clocks(title: str, y: str, *names: tuple[str, str]) -> Chart:
        series = tuple(Series(label, [getattr(part, name) for part in ranges]) for name, label in names)
        return Chart(title, "clock", y, series, edges=edges)

    each = "each clock" if all(part.first_clock == part.last_clock for part in ranges) else "each range of clocks"
    widths = [(f"{width.least:,}", f"{width.most:,}") for width in analysis.widths]
    labels = [most if least == most else f"{least}–{most}" for least, most in widths]
    clocks = [width.clocks for width in analysis.widths]
    charts = [
        over_clocks("Messages", f"messages in {each}", ("messages", "messages")),
        over_clocks("Bytes", f"bytes in {each}", ("bytes", "bytes")),
        over_clocks("Authors", f"authors in {each}", ("authors", "authors")),
        over_clocks(
            "Concurrency",
            "messages",
            ("heads", "heads at the end of the range"),
            ("widest", "most messages with one clock"),
        ),
        over_clocks("Branches and merges", f"messages in {each}", ("branches", "branches"), ("merges", "merges")),
        Chart("Width", "messages with one clock", "clocks", (Series("clocks", clocks),), labels=labels),
    ]
    return "".join(f"<h2>{escape(chart.title)}</h2><figure>{svg(chart)}</figure>" for chart in charts)


def _tables(analysis: Analysis) -> str:
    columns = ("author", "messages", "bytes", "first_clock", "last_clock", "messages_score", "bytes_score")
    parts = [
        _section(
            "Authors",
            f"Those with the most messages, {TOP} at most.",
            columns,
            map(_values, analysis.authors),
        ),
        _section(
            "Suspects",
            "Authors who are outliers by their messages or their bytes: by the modified z-score (Iglewicz and Hoaglin,"
            f" 1993) of the logarithm, above {LIMIT}. An outlier may well be the one who does the work: look before you"
            f" judge. {TOP} at most.",
            columns,
            map(_values, analysis.suspects),
        ),
    ]
    if analysis.hot_keys is not None:
        rows = ((row.key, row.messages, row.bytes) for row in analysis.hot_keys)
        parts.append(_section("Hot keys", f"The {TOP} with the most messages.", ("key", "messages", "bytes"), rows))
    parts.append(
        _section(
            "Alternative encodings",
            "Messages that somebody encoded in a way that is not canonical, each encoding under an id of its own. The"
            " first that arrived counts; the other figures leave the others out. The messages with the most encodings,"
            f" {TOP} at most.",
            ("content_id", "first", "others", "encodings", "bytes"),
            (
                (row.content_id, row.first, ", ".join(row.others), row.encodings, row.bytes)
                for row in analysis.alternative_encodings
            ),
        )
    )
    parts.append(_section("Clocks", "What the plots show.", ClockRange.__slots__, map(_values, analysis.ranges)))
    return "".join(parts)


def _values(row: Author | ClockRange) -> tuple[object, ...]:
    return tuple(asdict(row).values())


def _section(title: str, text: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    table = f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>" if body else "<p>None.</p>"
    return f"<h2>{escape(title)}</h2><p>{escape(text)}</p>{table}"


def _cell(value: object) -> str:
    match value:
        case None:
            return "<td></td>"
        case float():
            return f"<td>{value:,.2f}</td>"
        case int():
            return f"<td>{value:,}</td>"
    text = str(value)
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return f'<td class="text">{escape(shown)}</td>'
