"""`gossiplog graph`: its layout, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.cli import graph
from gossiplog.cli.graph import Vertex, _nearest, draw
from tests.cli.support import Program


def drawn(*vertices: tuple[str, str]) -> list[str]:
    rows = draw([Vertex(id, tuple(parents)) for id, parents in vertices])
    return [f"{row.text} {row.vertex.id}" if row.vertex else row.text for row in rows]


def test_a_chain() -> None:
    assert drawn(("c", "b"), ("b", "a"), ("a", "")) == ["● c", "● b", "● a"]


def test_nothing() -> None:
    assert drawn() == []


def test_branches_that_part_and_meet() -> None:
    assert drawn(("e", "dc"), ("d", "b"), ("c", "b"), ("b", "a"), ("a", "")) == [
        "● e",
        "├─╮",
        "● │ d",
        "│ ● c",
        "├─╯",
        "● b",
        "● a",
    ]


def test_three_heads_and_an_octopus() -> None:
    assert drawn(("h", "c"), ("g", "c"), ("f", "edc"), ("e", "c"), ("d", "c"), ("c", "")) == [
        "● h",
        "│ ● g",
        "├─╯",
        "│ ● f",
        "├─┼─╮",
        "│ ● │ e",
        "├─╯ │",
        "│   ● d",
        "├───╯",
        "● c",
    ]


def test_many_parents_at_once() -> None:
    assert drawn(("i", "e"), ("h", "d"), ("g", "edcba"), ("f", "ea"), ("e", ""))[3:] == [
        "├─┼─┼─┬─╮",
        "│ │ │ │ │ ● f",
        "├─│─│─│─┼─╯",
        "● │ │ │ │ e",
    ]


def test_parents_that_are_not_drawn_leave_their_lines() -> None:
    assert drawn(("c", "xy"), ("b", "y")) == ["● c", "├─╮", "│ │ ● b", "│ ├─╯"]


ADA, BEN = Signer(b"\1" * 32), Signer(b"\2" * 32)


@pytest.fixture
def parted(home: Path) -> Path:
    """A log in which two authors were apart, and met."""
    path = home / "parted.db"
    with gossiplog.open(path, "notes") as log, gossiplog.open(":memory:", "notes") as other:
        log.append("first", signer=ADA)
        other.pull(log)
        log.append("by Ada", signer=ADA)
        other.append("by Ben", signer=BEN)
        log.pull(other)
        log.append({"text": "last"}, signer=ADA)
    return path


def test_a_graph(program: Program, parted: Path) -> None:
    records = program("graph", parted).records
    assert records[0].keys() == {"graph", "id", "clock", "author", "parents", "payload"}
    # In the columns of its parents, whose order is that of their ids.
    lines = [record["graph"] for record in records]
    assert lines in (["●", "├─╮", "● │", "│ ●", "├─╯", "●"], ["●", "├─╮", "│ ●", "● │", "╰─┤", "  ●"])
    shown = [record["payload"] for record in records if "id" in record]
    assert (shown[0], sorted(shown[1:3]), shown[3]) == ({"text": "last"}, ["by Ada", "by Ben"], "first")
    assert [record["payload"] for record in program("graph", parted, "--limit", "1").records if "id" in record] == [
        {"text": "last"}
    ]
    assert program("graph", parted, "--limit", "0").out == ""


def test_the_lines_of_an_author_lead_to_messages_of_that_author(program: Program, parted: Path) -> None:
    records = program("graph", parted, "--author", ADA.did[-6:]).records
    assert [(record["graph"], record["payload"]) for record in records] == [
        ("●", {"text": "last"}),
        ("●", "by Ada"),
        ("●", "first"),
    ]


def test_a_terminal_gets_a_drawing(program: Program, parted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program("graph", parted).out
    assert "├─╮" in shown
    assert '{"text":"last"}' in shown


def test_what_is_looked_at_for_an_author_is_bounded(
    program: Program, parted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_MOST_SEARCHED", 3)
    result = program("graph", parted, "--author", ADA.did)
    assert result.err == "gossiplog: only the latest 3 messages were searched\n"
    assert len(result.records) == 2


def test_chosen_messages_are_joined_over_others() -> None:
    """z follows x and y; x follows c by way of b, and y follows c itself."""
    links = [("z", ("x", "y")), ("y", ("c",)), ("x", ("b", "c")), ("b", ("c",)), ("c", ("a",)), ("a", ())]
    assert _nearest(links, ["z", "x", "c"]) == [Vertex("z", ["x"]), Vertex("x", ["c"]), Vertex("c", [])]
    assert _nearest(links, ["z", "y", "x", "a"]) == [
        Vertex("z", ["y", "x"]),
        Vertex("y", ["a"]),
        Vertex("x", ["a"]),
        Vertex("a", []),
    ]
