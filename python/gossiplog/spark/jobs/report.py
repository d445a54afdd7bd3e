"""An analysis as files: a page with plots that needs nothing else, and all tables as JSON and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from html import escape
from typing import Any

from gossiplog.charts import Chart, Series, svg
from gossiplog.spark.folders import filling
from gossiplog.spark.jobs.analyze import LIMIT, TOP, AnalyzeResult, Author, ClockRange
from gossiplog.spark.jobs.log_metadata import LogMetadata

_NO_KEY = "no key"
PAGE = "report.html"
TABLES = "analysis.json"
# Characters of a text in a table: a hot key may be a whole payload.
_LONGEST_TEXT = 300
# Figures whose field alone does not say what is counted.
_LABELS = {
    "damaged": "damaged messages",
    "bytes": "bytes of stored values",
    "longest_chain": "messages in the longest chain",
    "first": "messages without parents",
    "heads": "messages without children",
    "branches": "messages with several children",
    "merges": "messages with several parents",
    "widest": "most messages with one clock",
    "not_canonical": "encodings that are not canonical",
    "reencoded": "messages with such encodings",
    "suspects": "suspects among the authors",
    "forked": "authors that forked",
    "messages_ratio": "messages × median",
    "messages_score": "messages score",
    "bytes_ratio": "bytes × median",
}
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
th:first-child { text-align: left; } .none { color: #666; font-style: italic; }
td.none:first-child { text-align: left; }
.facts { display: table; } .facts div { display: table-row; }
.facts dt, .facts dd { display: table-cell; font-size: 1rem; }
.facts dt { padding-right: 1.5rem; white-space: nowrap; } .facts dd { overflow-wrap: anywhere; }
div { overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class _Remark:
    """What a cell says in place of a value."""

    text: str


def write_report(analysis: AnalyzeResult, folder: str, title: str, state: LogMetadata | None = None) -> None:
    """Write an analysis to a folder: `report.html`, `analysis.json`, and the frames as Parquet, a folder each.

    Args:
        analysis: of a log.
        folder: to be made; it is there when all in it is complete.
        title: of the page: which log it is about.
        state: of that log when it was analysed, as `log_metadata` and `analysed_state` give it: the page then names its
            topic and its root.

    Raises:
        OptionError: something is there already.
        StorageError: so is `folder` with ".partial" after it, and no process that was killed has left it.
        OSError: the folder cannot be written.
        GossipLogError: what computing the frames raises.
    """
    now = datetime.now(UTC)
    session = next((frame.sparkSession for frame in analysis.frames.values()), None)
    with filling(folder, "the report", session) as new:
        for name, frame in analysis.frames.items():
            new.write_parquet(frame, name)
        new.write_text(PAGE, page(analysis, title, now, state))
        new.write_text(TABLES, json.dumps({**_facts(title, now, state), **tables(analysis)}, indent=2))


def analysed_state(before: LogMetadata, after: LogMetadata) -> LogMetadata:
    """Return the state of a log that an analysis between two looks at it has read.

    Args:
        before: what the log said of itself before the analysis.
        after: what it said afterwards.

    Returns:
        That state; without its root where the log grew meanwhile, because the analysis read a state in between.
    """
    if before.count == after.count:
        return after
    return replace(after, root=None, heads=None, problem="the log grew during the analysis")


def _facts(title: str, now: datetime, state: LogMetadata | None) -> dict[str, Any]:
    """Return which log an analysis is about, and when it was made, as JSON has it."""
    root = None if state is None or state.root is None else {"level": state.root.level, "hash": state.root.hash.hex()}
    return {
        "log": title,
        "topic": None if state is None else state.topic,
        "root": root,
        "date": now.isoformat(timespec="seconds"),
    }


def tables(analysis: AnalyzeResult) -> dict[str, Any]:
    """Return everything but the frames, as JSON has it."""
    names = ("ranges", "widths", "authors", "suspects", "hot_keys", "alternative_encodings", "forks")
    rows = {name: getattr(analysis, name) for name in names}
    listed = {name: None if found is None else list(map(asdict, found)) for name, found in rows.items()}
    return {"totals": asdict(analysis.totals), **listed}


def page(analysis: AnalyzeResult, title: str, now: datetime, state: LogMetadata | None = None) -> str:
    """Return the page, in one piece: its style and its plots are in it, and it loads nothing.

    Args:
        analysis: of a log.
        title: which log it is about.
        now: when the analysis was made.
        state: of the log, as `write_report` takes it.
    """
    facts = {"date": f"{now:%Y-%m-%d %H:%M} {now.tzname() or ''}".rstrip()}
    if state is not None:
        root = f"not known: {state.problem}"
        if state.root is not None:
            root = f"{state.root.hash.hex()} at level {state.root.level}, over {state.count:,} stored values"
        facts |= {"topic": state.topic, "root": root}
    named = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    totals = "".join(
        f"<div><dt>{_label(name)}</dt><dd>{value:,}</dd></div>"
        for name, value in asdict(analysis.totals).items()
        if value is not None
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{escape(title)}</h1><dl class="facts">{named}</dl><dl>{totals}</dl>'
        f"{_plots(analysis)}{_tables(analysis)}</body></html>\n"
    )


def _plots(analysis: AnalyzeResult) -> str:
    if not analysis.ranges:
        return "<p>The log has no messages, so there is nothing to plot.</p>"
    ranges = analysis.ranges
    edges = [ranges[0].first_clock, *(part.last_clock + 1 for part in ranges)]

    def over_clocks(title: str, y: str, *names: tuple[str, str]) -> Chart:
        series = tuple(Series(label, [getattr(part, name) for part in ranges]) for name, label in names)
        return Chart(title, "clock: messages in the longest chain up to here", y, series, edges=edges)

    width, last = (part.last_clock - part.first_clock + 1 for part in (ranges[0], ranges[-1]))
    each = "each clock" if width == 1 else f"{width:,} clocks"
    text = (
        "A message's clock is the number of messages in the longest chain that ends with it, itself included: a reply"
        " to the first message has 2. It does not say when the message was written."
    )
    if width > 1:
        text += f" Each bar or step is {width:,} clocks"
        text += "." if last == width else f"; the last, narrower one is {last:,}, and has less for that reason alone."
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
    figures = (f"<h2>{escape(chart.title)}</h2><figure>{svg(chart)}</figure>" for chart in charts)
    return f"<p>{text}</p>{''.join(figures)}"


def _tables(analysis: AnalyzeResult) -> str:
    columns = (
        "author",
        "messages",
        "bytes",
        "first_clock",
        "last_clock",
        "messages_ratio",
        "messages_score",
        "bytes_ratio",
        "bytes_score",
    )
    parts = [
        _section(
            "Authors",
            f"Those with the most messages, {TOP} at most. “× median” compares with the author in the middle: 10 is ten"
            " times as many messages, or bytes, as that author has. The score says how unusual this is in this log: 0"
            " is that author; at least half of the authors are between −0.67 and 0.67; a score above"
            f" {LIMIT} is rare, and makes a suspect. There is no score (–) where all authors have equally many.",
            columns,
            map(_values, analysis.authors),
        ),
        _section(
            "Suspects",
            f"Authors with far more messages or bytes than the others: a score above {LIMIT}. They may well be the ones"
            f" who do the work: look before you judge. {TOP} at most. The score is the modified z-score (Iglewicz and"
            " Hoaglin, 1993) of the logarithm.",
            columns,
            map(_values, analysis.suspects),
        ),
    ]
    if analysis.forks is not None:
        parts.append(
            _section(
                "Forks",
                "Authors of whom two messages are concurrent, as where two machines write with one key, or a backup was"
                " restored and goes on. The messages are those that do not follow the author's one before; the first"
                f" two that are concurrent are named. {TOP} at most, those with the most such messages.",
                ("author", "messages", "first"),
                ((fork.author, fork.messages, ", ".join(fork.first)) for fork in analysis.forks),
            )
        )
    if analysis.hot_keys is not None:
        rows = ((_key(row.key), row.messages, row.bytes) for row in analysis.hot_keys)
        text = f"What the messages are about: the {TOP} keys with the most messages."
        if any(row.key is None for row in analysis.hot_keys):
            text += f" For those under “{_NO_KEY}” the expression gives null."
        parts.append(_section("Hot keys", text, ("key", "messages", "bytes"), rows))
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


def _key(key: str | None) -> str | _Remark:
    """Return a hot key as it can be seen: one that is empty, has spaces at its ends or control characters is quoted."""
    if key is None:
        return _Remark(_NO_KEY)
    return key if key and key.isprintable() and key == key.strip() else json.dumps(key)


def _label(field: str) -> str:
    return _LABELS.get(field, field.replace("_", " "))


def _values(row: Author | ClockRange) -> tuple[object, ...]:
    return tuple(asdict(row).values())


def _section(title: str, text: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head = "".join(f"<th>{escape(_label(name))}</th>" for name in columns)
    table = f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>" if body else "<p>None.</p>"
    return f"<h2>{escape(title)}</h2><p>{escape(text)}</p>{table}"


def _cell(value: object) -> str:
    match value:
        case None:
            return '<td class="none">–</td>'
        case _Remark():
            return f'<td class="none">{escape(value.text)}</td>'
        case float():
            return f"<td>{value:,.2f}</td>"
        case int():
            return f"<td>{value:,}</td>"
    text = str(value)
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return f'<td class="text">{escape(shown)}</td>'
