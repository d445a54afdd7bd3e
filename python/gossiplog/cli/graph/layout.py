"""The layout of `gossiplog graph`: messages and their parents as a graph in text, as `git log --graph` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vertex:
    """What is drawn of a message.

    Attributes:
        id: its id.
        parents: the ids of its parents; those that are not drawn themselves leave a line that goes on below.
    """

    id: str
    parents: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the drawing.

    Attributes:
        text: the lines and the dot.
        vertex: whose dot is in it; None where the line only connects.
    """

    text: str
    vertex: Vertex | None


def draw(vertices: Sequence[Vertex]) -> list[Row]:
    """Return the drawing of messages that are given each before its parents.

    Every column of the drawing waits for one message: the next of its branch.
    """
    columns: list[str | None] = []
    rows: list[Row] = []
    for vertex in vertices:
        if vertex.id not in columns:
            _take(columns, vertex.id)
        place = columns.index(vertex.id)
        rows.append(Row(_line(columns, {place: "●"}), vertex))
        columns[place] = None
        # A branch goes on in its own column, where that is the first to lead to its parent.
        parents = list(vertex.parents)
        ahead = next((parent for parent in parents if parent not in columns), None)
        if ahead is not None:
            parents.remove(ahead)
            columns[place] = ahead
        if parents:
            rows.append(Row(_connect(columns, place, parents), None))
        while columns and columns[-1] is None:
            columns.pop()
    return rows


def _take(columns: list[str | None], id: str, after: int = -1) -> int:
    """Give the message the first free column after the given one, and return which that is."""
    place = next((place for place in range(after + 1, len(columns)) if columns[place] is None), len(columns))
    columns[place : place + 1] = [id]
    return place


def _connect(columns: list[str | None], start: int, parents: Sequence[str]) -> str:
    """Return a line from a column to those that wait for the parents; to new ones where none does."""
    joined = {columns.index(parent) for parent in parents if parent in columns}
    opened = {_take(columns, parent, start) for parent in parents if parent not in columns}
    ends = joined | opened
    first, last = min(start, *ends), max(start, *ends)
    marks = {place: "│" if columns[place] is not None else "─" for place in range(first, last + 1)}
    marks |= dict.fromkeys(joined, "┼") | dict.fromkeys(opened, "┬")
    marks[first] = "├" if first in joined else "╭"
    marks[last] = "┤" if last in joined else "╮"
    # What leads away from the start: to the left, to the right, and down, where the branch goes on.
    leads = (first < start, start < last, columns[start] is not None)
    marks[start] = _STARTS[leads]
    return _line(columns, marks)


_STARTS = {
    (False, True, False): "╰",
    (False, True, True): "├",
    (True, False, False): "╯",
    (True, False, True): "┤",
    (True, True, False): "┴",
    (True, True, True): "┼",
}


def _line(columns: Sequence[str | None], marks: dict[int, str]) -> str:
    first, last = min(marks), max(marks)
    cells = []
    for place in range(max(len(columns), last + 1)):
        waiting = "│" if place < len(columns) and columns[place] is not None else " "
        cells.append(marks.get(place, waiting))
        cells.append("─" if first <= place < last else " ")
    return "".join(cells).rstrip()
