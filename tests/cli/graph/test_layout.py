from __future__ import annotations

from gossiplog.cli.graph.layout import Vertex, draw


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
