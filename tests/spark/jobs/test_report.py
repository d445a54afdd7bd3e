"""An analysis as files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog import core
from gossiplog.errors import OptionError, StorageError
from gossiplog.log.results import Fork
from gossiplog.spark import COLUMNS, AnalyzeResult, LogMetadata, analysed_state, analyze, read, write_report
from gossiplog.spark.jobs.analyze import AlternativeEncodings, Author, ClockRange, HotKey, Totals, Width
from gossiplog.spark.jobs.report import PAGE, TABLES, page, tables

AUTHOR = Author("did:key:z6MkA", 30, 4000, 1, 9, 12.5, 4.25, 1.0, None)
NOW = datetime(2026, 3, 1, 12, 30, 59, tzinfo=UTC)
ROOT = core.Tree().root
STATE = LogMetadata("org.example.chat", 31, ROOT, ())
ANALYSIS = AnalyzeResult(
    totals=Totals(30, 1, 4000, 1, 9, 1, 2, 3, 4, 5, 6, 1, 1, 1),
    ranges=(ClockRange(1, 5, 20, 3000, 1, 5, 2, 3, 4), ClockRange(6, 9, 10, 1000, 1, 3, 2, 0, 2)),
    widths=(Width(1, 1, 4), Width(2, 2, 3), Width(3, 4, 2)),
    authors=(AUTHOR,),
    suspects=(AUTHOR,),
    hot_keys=(HotKey("<script>alert(1)</script>", 20, 3000), HotKey(None, 10, 1000), HotKey("", 5, 500)),
    alternative_encodings=(AlternativeEncodings("canonical", "mine", ("other",), 2, 400),),
    forks=(Fork("did:key:z6MkFork", 3, ("before", "beside")),),
    frames={},
)


class Page(HTMLParser):
    """The tags of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_clocks_are_no_times() -> None:
    found = Page(page(ANALYSIS, "chat.db", NOW, STATE))
    assert found.text.count("clock: messages in the longest chain up to here") == 5
    assert not any("logical" in text for text in found.text)
    assert any("It does not say when the message was written." in text for text in found.text)


def test_the_page_needs_nothing_else() -> None:
    text = page(ANALYSIS, "chat.db", NOW, STATE)
    found = Page(text)
    assert not {name for name, _ in found.tags} & {"script", "link", "img", "iframe", "object"}
    assert not {name for _, attributes in found.tags for name in attributes} & {"src", "href", "onload"}
    assert re.findall(r"url\(|@import", text) == []
    assert [name for name, _ in found.tags].count("svg") == 6


def test_the_page_says_what_was_found() -> None:
    text = Page(page(ANALYSIS, "<chat>.db", NOW)).text
    assert text.count("<chat>.db") == 2
    assert {"<script>alert(1)</script>", "did:key:z6MkA", "4.25", "4,000", "canonical", "mine", "other", "3–4"} <= set(
        text
    )
    assert {"Forks", "did:key:z6MkFork", "before, beside"} <= set(text)
    not_looked_for = replace(ANALYSIS, totals=replace(ANALYSIS.totals, forked=None), forks=None)
    assert "Forks" not in Page(page(not_looked_for, "chat.db", NOW)).text


def test_the_page_names_topic_root_and_date() -> None:
    text = Page(page(ANALYSIS, "chat.db", NOW, STATE)).text
    assert {"2026-03-01 12:30 UTC", "org.example.chat", f"{ROOT.hash.hex()} at level 0, over 31 stored values"} <= set(
        text
    )
    grown = analysed_state(STATE, replace(STATE, count=32))
    assert "not known: the log grew during the analysis" in Page(page(ANALYSIS, "chat.db", NOW, grown)).text
    assert analysed_state(STATE, replace(STATE, heads=None)) == replace(STATE, heads=None)


@pytest.mark.parametrize(
    ("key", "shown"),
    [("item-1", "item-1"), (None, "no key"), ("", '""'), (" a", '" a"'), ("\u200b", '"\\u200b"'), ("\n", '"\\n"')],
)
def test_a_hot_key_can_be_seen(key: str | None, shown: str) -> None:
    text = Page(page(replace(ANALYSIS, hot_keys=(HotKey(key, 7777, 1),)), "chat.db", NOW)).text
    assert text[text.index("7,777") - 1] == shown


def test_scores_are_explained_and_stand_beside_ratios() -> None:
    text = Page(page(ANALYSIS, "chat.db", NOW)).text
    at = text.index("did:key:z6MkA")
    assert text[at : at + 9] == ["did:key:z6MkA", "30", "4,000", "1", "9", "12.50", "4.25", "1.00", "–"]
    assert "messages × median" in text
    assert any("a score above 3.5 is rare" in part for part in text)


def test_the_width_of_the_bars_is_told() -> None:
    text = Page(page(ANALYSIS, "chat.db", NOW)).text
    assert "messages in 5 clocks" in text
    assert any("the last, narrower one is 4" in part for part in text)
    chain = replace(ANALYSIS, ranges=(replace(ANALYSIS.ranges[0], last_clock=1),))
    assert "messages in each clock" in Page(page(chain, "chat.db", NOW)).text


def test_long_texts_are_cut() -> None:
    text = page(replace(ANALYSIS, hot_keys=(HotKey("x" * 10**6, 1, 10**6),)), "chat.db", NOW)
    assert "x" * 300 + "…" in text
    assert len(text) < 10**5


def test_without_messages() -> None:
    nothing = replace(ANALYSIS, totals=Totals(*[0] * 14), ranges=(), widths=(), authors=(), suspects=(), hot_keys=None)
    text = Page(page(nothing, "chat.db", NOW)).text
    assert "The log has no messages, so there is nothing to plot." in text
    assert "Hot keys" not in text


def test_tables_are_json() -> None:
    found = json.loads(json.dumps(tables(ANALYSIS)))
    assert found["totals"]["messages"] == 30
    assert found["ranges"][1]["heads"] == 2
    assert found["hot_keys"][1] == {"key": None, "messages": 10, "bytes": 1000}
    assert found["alternative_encodings"][0]["others"] == ["other"]


def test_a_partial_folder_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "report.partial").mkdir()
    (tmp_path / "report.partial" / "notes").touch()
    with pytest.raises(StorageError, match=r"report\.partial, which is there already"):
        write_report(ANALYSIS, str(tmp_path / "report"), "chat.db")
    assert [path.name for path in tmp_path.rglob("*")] == ["report.partial", "notes"]
    write_report(ANALYSIS, str(tmp_path / "others"), "chat.db")
    assert {path.name for path in (tmp_path / "others").iterdir()} == {PAGE, TABLES}


def test_files(spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path) -> None:
    analysis = analyze(read(spark, str(make_log(messages=20)), columns=",".join(COLUMNS)), "payload")
    folder = tmp_path / "report"
    write_report(analysis, str(folder), "log.db", STATE)
    frames = {"authors", "hot_keys", "alternative_encodings"}
    assert {path.name for path in folder.iterdir()} == {"report.html", "analysis.json", *frames}
    written = json.loads((folder / "analysis.json").read_text())
    assert (written["log"], written["topic"], written["totals"]["messages"]) == ("log.db", "org.example.chat", 20)
    assert written["root"] == {"level": 0, "hash": ROOT.hash.hex()}
    assert datetime.fromisoformat(written["date"]).tzinfo is not None
    assert spark.read.parquet(str(folder / "hot_keys")).count() == 20
    assert [row.messages for row in spark.read.parquet(str(folder / "authors")).collect()] == [20]
    assert spark.read.parquet(str(folder / "alternative_encodings")).count() == 0
    with pytest.raises(OptionError, match="is there already"):
        write_report(analysis, str(folder), "log.db")
