"""The page about many logs."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from gossiplog.spark.jobs.fleet_figures import FleetAnalyzeResult, FleetTotals, LogFigures
from gossiplog.spark.jobs.fleet_page import MOST_ROWS, _histogram, fleet_page
from gossiplog.spark.source.problems import Problem
from tests.spark.jobs.test_report import ANALYSIS, NOW, Page

TOTALS = FleetTotals(4, 1, 2, 60, 1, 9000, 3, 1, 1, 0, 3)
RESULT = FleetAnalyzeResult(
    TOTALS,
    (
        LogFigures("gone.db", problem=Problem("missing", "there is no log <gone>.db")),
        LogFigures("hubs/<bad>.db", "org.example.a", messages=30, damaged=1, bytes=4000, authors=1, forked=1, heads=2),
        LogFigures("hubs/good.db", "org.example.b", messages=30, bytes=5000, authors=2, heads=1),
    ),
    {"hubs/<bad>.db": ANALYSIS},
    {},
)


def test_the_page_needs_nothing_else() -> None:
    text = fleet_page(RESULT, "hubs", NOW)
    found = Page(text)
    assert not {name for name, _ in found.tags} & {"script", "link", "img", "iframe", "object"}
    assert re.findall(r"url\(|@import", text) == []
    # Four of the fleet, three of the log that stands out.
    assert [name for name, _ in found.tags].count("svg") == 7


def test_what_stands_out_leads_to_its_section() -> None:
    found = Page(fleet_page(RESULT, "hubs", NOW))
    links = [str(attributes["href"]) for name, attributes in found.tags if name == "a"]
    targets = [attributes["id"] for name, attributes in found.tags if name == "section"]
    # In the table of those that stand out, and in that of all.
    assert links == ["#log-1", "#log-1"]
    assert targets == ["log-1"]
    text = "".join(found.text)
    assert "missing: there is no log <gone>.db" in text
    assert "1 damaged; 1 forked" in text
    assert {"did:key:z6MkFork", "before, beside", "canonical", "logs that cannot be read"} <= set(found.text)
    assert text.index("Logs that stand out") < text.index("Sizes") < text.index("did:key:z6MkFork")


def test_a_command_of_the_page_may_be_copied_into_a_shell() -> None:
    """Whatever the file is called."""
    name = "-a<img src=x>$(touch pwned) 'b'.db"
    row = replace(RESULT.logs[1], log=name)
    text = "".join(Page(fleet_page(replace(RESULT, logs=(row,), details={name: ANALYSIS}), "hubs", NOW)).text)
    (command,) = re.findall(r"gossiplog pipeline analyze .* --output FOLDER", text)
    assert shlex.split(command) == ["gossiplog", "pipeline", "analyze", f"./{name}", "--output", "FOLDER"]


def test_of_very_many_logs_the_first() -> None:
    row = RESULT.logs[1]
    many = replace(RESULT, logs=tuple(replace(row, log=f"{number}.db") for number in range(10_000)), details={})
    text = fleet_page(many, "hubs", NOW)
    assert text.count(f"The first {MOST_ROWS} of 10,000 are shown") == 2
    assert len(text) < 300_000


def test_nothing_to_read() -> None:
    text = "".join(Page(fleet_page(replace(RESULT, logs=RESULT.logs[:1], details={}), "hubs", NOW)).text)
    assert "there is no log" in text
    assert "Sizes" not in text


def test_histograms_double() -> None:
    chart = _histogram("Sizes", "messages", [0, 1, 2, 3, 4, 5, 8, 2000])
    assert chart.labels is not None
    assert list(chart.labels)[:6] == ["0", "1", "2", "3–4", "5–8", "9–16"]
    assert list(chart.series[0].values)[:5] == [1, 1, 1, 2, 2]
    assert sum(chart.series[0].values) == 8
    assert list(chart.labels)[-1] == "1Ki–2Ki"
