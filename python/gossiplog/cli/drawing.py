"""`gossiplog graph`: the latest messages of a log as a graph, in colours by author; also for `gossiplog demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Annotated, Any

import typer
from rich.style import Style
from rich.text import Text

from gossiplog import core
from gossiplog.cli.authors import COLOURS, Author, is_by
from gossiplog.cli.graph import Row, Vertex, draw
from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import Json, Output, note, printable
from gossiplog.errors import EncodeError
from gossiplog.log import Log
from gossiplog.message import SignedMessage

_SHOWN = 50
_MOST_SHOWN = 1_000
# Messages that are looked at for those of one author: their links are in memory meanwhile.
_MOST_READ = 200_000


def graph(
    path: LogPath,
    author: Author = None,
    limit: Annotated[
        int, typer.Option(min=0, max=_MOST_SHOWN, help="Draw so many messages at most, the latest.")
    ] = _SHOWN,
    json: Json = False,
) -> None:
    """Draw the latest messages of a log as a graph: which follows which, the latest first.

    With --author the lines lead to the nearest earlier messages of that author.
    """
    output = Output(json)
    with open_log(path) as log:
        messages, vertices = _latest(log, limit) if author is None else _latest_of(log, author, limit)
    rows = draw(vertices)
    if not output.json:
        with output.paged():
            for line in _lines(rows, messages, payload_line):
                output.show(line)
        return
    for row in rows:
        message = None if row.vertex is None else messages[row.vertex.id]
        if message is not None:
            fields = {"id": message.id, "clock": message.clock, "author": message.author}
            output.record({"graph": row.text} | fields | {"parents": list(message.parents)} | payload_fields(message))
        else:
            output.record({"graph": row.text})


def drawing(log: Log, limit: int, summary: Callable[[SignedMessage], str]) -> Text:
    """Draw the latest messages of a log as a graph.

    Args:
        log: to draw.
        limit: messages in the drawing.
        summary: what to write of a message beside its id.
    """
    messages, vertices = _latest(log, limit)
    return Text("\n").join(_lines(draw(vertices), messages, summary))


def payload_line(message: SignedMessage) -> str:
    """Write the payload of a message as dag-json, for a terminal; where it has no such form, the reason."""
    try:
        return printable(core.json_encode(message.payload).decode("utf-8"))
    except EncodeError as error:
        return f"(cannot be shown: {error})"


def payload_fields(message: SignedMessage) -> dict[str, Any]:
    """Return the fields of a payload in a record: it, or the reason why it has no dag-json form."""
    try:
        core.json_encode(message.payload)
    except EncodeError as error:
        return {"payload": None, "unprintable": str(error)}
    return {"payload": message.payload}


def _latest(log: Log, limit: int) -> tuple[dict[str, SignedMessage], list[Vertex]]:
    messages = {message.id: message for message in log.messages(reverse=True, limit=limit)}
    return messages, [Vertex(message.id, message.parents) for message in messages.values()]


def _latest_of(log: Log, author: str, limit: int) -> tuple[dict[str, SignedMessage], list[Vertex]]:
    """Find the latest messages of an author; the parents of each are the nearest earlier ones among them."""
    links: list[tuple[str, tuple[str, ...]]] = []
    messages: dict[str, SignedMessage] = {}
    for message in islice(log.messages(reverse=True), _MOST_READ):
        if len(messages) == limit:
            break
        links.append((message.id, message.parents))
        if is_by(message, author):
            messages[message.id] = message
    else:
        if len(links) == _MOST_READ < len(log):
            note(f"only the latest {_MOST_READ:,} messages were looked at")
    return messages, _nearest(links, messages)


def _nearest(links: Sequence[tuple[str, tuple[str, ...]]], chosen: Iterable[str]) -> list[Vertex]:
    """Join some messages of a graph: each with those that it follows without another of them in between.

    Args:
        links: the messages of the graph with their parents, each before its parents.
        chosen: the ids of some of them, in the same order.
    """
    bits = {id: 1 << place for place, id in enumerate(chosen)}
    names = list(bits)
    # Of each message: the chosen ones that are nearest to it, and of each chosen one all before it, as sets of bits.
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
