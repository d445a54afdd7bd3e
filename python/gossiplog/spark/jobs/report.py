"""An analysis as files: a page with plots that needs nothing else, and all tables as JSON and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
    "first_pair": "first two that are concurrent",
    "first_encoding": "first that arrived",
    "others": "those that followed",
    "largest_author": "messages of the largest author",
    "problems": "logs that cannot be read",
    "conspicuous": "logs that stand out",
}
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #444; --faint: #595959; --line: #ddd;
  --axis: #666; --link: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --text: #e8e8e8; --soft: #c4c4c4; --faint: #a3a3a3;
  --line: #3a3d42; --axis: #8b8b8b; --link: #8ab4f8; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; overflow-wrap: anywhere; } h3 { font-size: 1rem; margin-top: 1.6rem; }
a { color: var(--link); overflow-wrap: anywhere; }
p, figcaption, caption { color: var(--soft); overflow-wrap: break-word; } figure { margin: 1rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem; }
dt { color: var(--faint); font-size: .85rem; } dd { margin: 0; font-size: 1.35rem; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } .axis { stroke: var(--axis); }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
th { color: var(--faint); font-weight: 600; }
.text { text-align: left; overflow-wrap: anywhere; font-family: monospace; min-width: 9rem; }
.words { text-align: left; min-width: 9rem; overflow-wrap: anywhere; }
th:first-child { text-align: left; } .none { color: var(--faint); font-style: italic; }
td.none:first-child { text-align: left; }
.facts { display: table; } .facts div { display: table-row; }
.facts dt, .facts dd { display: table-cell; font-size: 1rem; }
.facts dt { padding-right: 1.5rem; white-space: nowrap; } .facts dd { overflow-wrap: anywhere; }
div { overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a cell says in place of a value."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """A cell of plain language, where others have names and ids."""

    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads to another place of the page."""

    text: str
    target: str


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
    return document(title, facts, asdict(analysis.totals), f"{_plots(analysis)}{_tables(analysis)}")


def document(title: str, facts: Mapping[str, str], totals: Mapping[str, int | None], body: str) -> str:
    """Return a page in one piece: its style is in it, and it loads nothing.

    Args:
        title: as text.
        facts: what the page is about, as text by name.
        totals: the figures at its head; those that are None are left out.
        body: in HTML.
    """
    named = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{escape(title)}</h1><dl class="facts">{named}</dl>{figures(totals)}{body}</body></html>\n'
    )


def figures(totals: Mapping[str, int | None]) -> str:
    """Return figures beside each other, in HTML; those that are None are left out."""
    shown = ((_label(name), value) for name, value in totals.items() if value is not None)
    return f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{value:,}</dd></div>' for name, value in shown)}</dl>"


def _plots(analysis: AnalyzeResult) -> str:
    if not analysis.ranges:
        return "<p>The log has no messages, so there is nothing to plot.</p>"
    return f"<p>{clock_text(analysis)}</p>{''.join(map(plot, charts(analysis)))}"


def plot(chart: Chart, level: int = 2) -> str:
    """Return a plot with its title, in HTML.

    Args:
        chart: what it shows.
        level: of the title, as a heading.
    """
    return f"<h{level}>{escape(chart.title)}</h{level}><figure>{svg(chart)}</figure>"


def clock_text(analysis: AnalyzeResult) -> str:
    """Return what a clock is, and how many a bar stands for, of an analysis with messages."""
    ranges = analysis.ranges
    width, last = (part.last_clock - part.first_clock + 1 for part in (ranges[0], ranges[-1]))
    text = (
        "A message's clock is the number of messages in the longest chain that ends with it, itself included: a reply"
        " to the first message has 2. It does not say when the message was written."
    )
    if width > 1:
        text += f" Each bar or step is {width:,} clocks"
        text += "." if last == width else f"; the last, narrower one is {last:,}, and has less for that reason alone."
    return text


def charts(analysis: AnalyzeResult) -> list[Chart]:
    """Return the plots of an analysis with messages."""
    ranges = analysis.ranges
    edges = [ranges[0].first_clock, *(part.last_clock + 1 for part in ranges)]

    def over_clocks(title: str, y: str, *names: tuple[str, str]) -> Chart:
        series = tuple(Series(label, [getattr(part, name) for part in ranges]) for name, label in names)
        return Chart(title, "clock: messages in the longest chain up to here", y, series, edges=edges)

    width = ranges[0].last_clock - ranges[0].first_clock + 1
    each = "each clock" if width == 1 else f"{width:,} clocks"
    widths = [(f"{width.least:,}", f"{width.most:,}") for width in analysis.widths]
    labels = [most if least == most else f"{least}–{most}" for least, most in widths]
    clocks = [width.clocks for width in analysis.widths]
    return [
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


def _tables(analysis: AnalyzeResult) -> str:
    parts = [authors_table(analysis), forks_table(analysis)]
    if analysis.hot_keys is not None:
        rows = ((_key(row.key), row.messages, row.bytes) for row in analysis.hot_keys)
        text = f"What the messages are about: the {TOP} keys with the most messages."
        if any(row.key is None for row in analysis.hot_keys):
            text += f" For those under “{_NO_KEY}” the expression gives null."
        parts.append(section("Hot keys", text, ("key", "messages", "bytes"), rows))
    parts.append(encodings_table(analysis))
    parts.append(section("Clocks", "What the plots show.", ClockRange.__slots__, map(_values, analysis.ranges)))
    return "".join(parts)


def authors_table(analysis: AnalyzeResult, level: int = 2) -> str:
    """Return the tables of authors and of suspects, in HTML.

    Args:
        analysis: of a log.
        level: of the titles, as headings.
    """
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
    return section(
        "Authors",
        f"Those with the most messages, {TOP} at most. “× median” compares with the author in the middle: 10 is ten"
        " times as many messages, or bytes, as that author has. The score says how unusual this is in this log: 0"
        " is that author; at least half of the authors are between −0.67 and 0.67; a score above"
        f" {LIMIT} is rare, and makes a suspect. There is no score (–) where all authors have equally many.",
        columns,
        map(_values, analysis.authors),
        level=level,
    ) + section(
        "Suspects",
        f"Authors with far more messages or bytes than the others: a score above {LIMIT}. They may well be the ones"
        f" who do the work: look before you judge. {TOP} at most. The score is the modified z-score (Iglewicz and"
        " Hoaglin, 1993) of the logarithm.",
        columns,
        map(_values, analysis.suspects),
        level=level,
    )


def forks_table(analysis: AnalyzeResult, level: int = 2) -> str:
    """Return the table of authors that forked, in HTML; nothing where they were not looked for.

    Args:
        analysis: of a log.
        level: of the titles, as headings.
    """
    if analysis.forks is None:
        return ""
    return section(
        "Forks",
        "Authors of whom two messages are concurrent, as where two machines write with one key, or a backup was"
        " restored and goes on. The messages are those that do not follow the author's one before; the first"
        f" two that are concurrent are named. {TOP} at most, those with the most such messages.",
        ("author", "messages", "first_pair"),
        ((fork.author, fork.messages, ", ".join(fork.first)) for fork in analysis.forks),
        level=level,
    )


def encodings_table(analysis: AnalyzeResult, level: int = 2) -> str:
    """Return the table of messages with alternative encodings, in HTML.

    Args:
        analysis: of a log.
        level: of the titles, as headings.
    """
    return section(
        "Alternative encodings",
        "Messages that somebody encoded in a way that is not canonical, each encoding under an id of its own. The"
        " first that arrived counts; the other figures leave the others out. The messages with the most encodings,"
        f" {TOP} at most.",
        ("content_id", "first_encoding", "others", "encodings", "bytes"),
        (
            (row.content_id, row.first, ", ".join(row.others), row.encodings, row.bytes)
            for row in analysis.alternative_encodings
        ),
        level=level,
    )


def _key(key: str | None) -> str | Remark:
    """Return a hot key as it can be seen: one that is empty, has spaces at its ends or control characters is quoted."""
    if key is None:
        return Remark(_NO_KEY)
    return key if key and key.isprintable() and key == key.strip() else json.dumps(key)


def _label(field: str) -> str:
    return _LABELS.get(field, field.replace("_", " "))


def _values(row: Author | ClockRange) -> tuple[object, ...]:
    return tuple(asdict(row).values())


def section(title: str, text: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, level: int = 2) -> str:
    """Return a table with a title and what it shows, in HTML.

    Args:
        title: as text.
        text: likewise.
        columns: names of fields.
        rows: their values.
        level: of the title, as a heading.
    """
    cells = [list(map(_cell, row)) for row in rows]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    # A column of text stands to the left, and its head above it.
    is_text = [
        any('class="text"' in cell or 'class="words"' in cell for cell in column) for column in zip(*cells, strict=True)
    ]
    head = "".join(
        f"<th{' class=words' if left else ''}>{escape(_label(name))}</th>"
        for name, left in zip(columns, is_text or [False] * len(columns), strict=True)
    )
    table = f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>" if body else "<p>None.</p>"
    return f"<h{level}>{escape(title)}</h{level}><p>{escape(text)}</p>{table}"


def _cell(value: object) -> str:
    match value:
        case None:
            return '<td class="none">–</td>'
        case Remark():
            return f'<td class="none">{escape(value.text)}</td>'
        case Words():
            return f'<td class="words">{escape(value.text)}</td>'
        case Link():
            return f'<td class="text"><a href="#{escape(value.target)}">{escape(_shortened(value.text))}</a></td>'
        case float():
            return f"<td>{value:,.2f}</td>"
        case int():
            return f"<td>{value:,}</td>"
    return f'<td class="text">{escape(_shortened(str(value)))}</td>'


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
