"""`gossiplog graph`: the latest messages of a log as a graph, in colours by author; also for `gossiplog demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import typer
from rich.style import Style
from rich.text import Text

from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.messages.rendering import COLOURS, Author, is_by, message_record, payload_line
from gossiplog.cli.output import Json, Output, note
from gossiplog.log import Log
from gossiplog.message import SignedMessage


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


_SHOWN = 50
_MOST_SHOWN = 1_000
# Messages that are searched for those of one author; their links are in memory meanwhile.
_MOST_SEARCHED = 200_000


def graph(
    path: LogPath,
    author: Author = None,
    limit: Annotated[
        int, typer.Option(min=0, max=_MOST_SHOWN, help="The number of messages to draw at most, the latest.")
    ] = _SHOWN,
    json: Json = False,
) -> None:
    """Draw the latest messages of a log as a graph, the latest first.

    Lines lead from a message to those that it follows; with --author, to the nearest earlier ones of that author.
    """
    output = Output(json)
    with open_log(path, unlocked=True) as log:
        messages, vertices = _latest(log, limit) if author is None else _latest_of(log, author, limit)
    rows = draw(vertices)
    if not output.json:
        with output.paged():
            for line in _lines(rows, messages, payload_line):
                output.show(line)
        return
    for row in rows:
        message = {} if row.vertex is None else message_record(messages[row.vertex.id])
        output.record({"graph": row.text} | message)


def drawing(log: Log, limit: int, summary: Callable[[SignedMessage], str]) -> Text:
    """Draw the latest messages of a log as a graph.

    Args:
        log: to draw.
        limit: messages in the drawing.
        summary: gives the text beside the id of a message.
    """
    messages, vertices = _latest(log, limit)
    return Text("\n").join(_lines(draw(vertices), messages, summary))


def _latest(log: Log, limit: int) -> tuple[dict[str, SignedMessage], list[Vertex]]:
    messages = {message.id: message for message in log.messages(reverse=True, limit=limit)}
    return messages, [Vertex(message.id, message.parents) for message in messages.values()]


def _latest_of(log: Log, author: str, limit: int) -> tuple[dict[str, SignedMessage], list[Vertex]]:
    """Find the latest messages of an author; the parents of each are the nearest earlier ones among them."""
    links: list[tuple[str, tuple[str, ...]]] = []
    messages: dict[str, SignedMessage] = {}
    for message in islice(log.messages(reverse=True), _MOST_SEARCHED):
        if len(messages) == limit:
            break
        links.append((message.id, message.parents))
        if is_by(message, author):
            messages[message.id] = message
    else:
        if len(links) == _MOST_SEARCHED < len(log):
            note(f"only the latest {_MOST_SEARCHED:,} messages were searched")
    return messages, _nearest(links, messages)


def _nearest(links: Sequence[tuple[str, tuple[str, ...]]], chosen: Iterable[str]) -> list[Vertex]:
    """Return the graph of some messages: each follows those of them that it reaches without passing another.

    Args:
        links: the messages of the graph with their parents, each before its parents.
        chosen: the ids of some of them, in the same order.
    """
    bits = {id: 1 << place for place, id in enumerate(chosen)}
    names = list(bits)
    # Sets of bits: for each message the chosen ones that are nearest to it, for each chosen one all before it.
    nearest: dict[str, int] = {}
    before: dict[str, int] = {}
    vertices: list[Vertex] = []
    for id, parents in reversed(links):
        found = 0
        for parent in parents:
            found |= nearest.get(parent, 0)
        near = [names[place] for place in _places(found)]
        covered = 0
        for name in near:
            covered |= before[name]
        found &= ~covered
        if id in bits:
            before[id] = found | covered
            vertices.append(Vertex(id, [names[place] for place in _places(found)]))
            found = bits[id]
        nearest[id] = found
    return vertices[::-1]


def _places(bits: int) -> list[int]:
    places = []
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places


def _lines(
    rows: Sequence[Row], messages: dict[str, SignedMessage], summary: Callable[[SignedMessage], str]
) -> Iterable[Text]:
    width = max((len(row.text) for row in rows), default=0)
    authors = {author: place for place, author in enumerate(dict.fromkeys(each.author for each in messages.values()))}
    for row in rows:
        if row.vertex is None:
            yield Text(row.text, Style(dim=True))
            continue
        message = messages[row.vertex.id]
        colour = Style(color=COLOURS[authors[message.author] % len(COLOURS)])
        yield Text.assemble(
            (row.text.ljust(width + 1), colour), (f" {message.id} ", Style(dim=True)), (summary(message), colour)
        )
