"""Messages in and out of a log: `gossiplog append`, `read`, `show`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, cast

import typer
from rich.style import Style
from rich.text import Text

from gossiplog import core
from gossiplog.cli.keys import Key, load_signer
from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import Json, Output, fields_table, printable, progress
from gossiplog.errors import DecodeError, EncodeError, GossipLogError
from gossiplog.log import Log
from gossiplog.message import SignedMessage

_CHUNK = 1 << 20
_LONGEST_LINE = 16 << 20  # bytes; a message has to fit into a protocol frame, so nothing near it can be appended
_LARGEST = 2**63 - 1  # what a count of messages can be, here and in SQLite
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class BadPayload(GossipLogError):
    """A payload on the command line or standard input that is not dag-json."""


def append(
    path: LogPath,
    payloads: Annotated[
        list[str], typer.Argument(metavar="PAYLOAD...", help="dag-json, a message each; - reads JSON Lines from stdin.")
    ],
    key: Key = None,
    json: Json = False,
) -> None:
    """Append messages: each follows all that the log holds."""
    output = Output(json)
    signer = load_signer(key)
    with open_log(path) as log, progress("Appending") as advance:
        for batch in _batches(payloads):
            for message in log.append_many(batch, signer=signer):
                if output.json:
                    output.record({"id": message.id, "clock": message.clock, "parents": list(message.parents)})
                else:
                    output.show(message.id)
            sys.stdout.flush()
            advance(len(batch))


def _batches(arguments: Iterable[str]) -> Iterator[list[Any]]:
    """The payloads that the arguments name, in the portions in which they are to be appended."""
    parsed: list[Any] = []
    for number, argument in enumerate(arguments, 1):
        if argument == "-":
            if parsed:
                yield parsed
                parsed = []
            yield from _read_lines()
        else:
            parsed.append(_parse(argument.encode("utf-8", "surrogateescape"), f"payload {number}"))
    if parsed:
        yield parsed


def _read_lines() -> Iterator[list[Any]]:
    """The payloads on standard input, in portions of what is there: a slow writer is followed line by line."""
    stream = cast(io.BufferedReader, sys.stdin.buffer)
    rest, number = b"", 0
    while chunk := stream.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise BadPayload(f"line {number + len(lines) + 1} of standard input is longer than {_LONGEST_LINE:,} bytes")
        yield from _parse_lines(lines, number)
        number += len(lines)
    yield from _parse_lines([rest], number)


def _parse_lines(lines: Iterable[bytes], before: int) -> Iterator[list[Any]]:
    parsed = []
    for number, line in enumerate(lines, before + 1):
        if not line.strip():
            continue
        try:
            parsed.append(_parse(line.strip(), f"line {number} of standard input"))
        except BadPayload:
            if parsed:
                yield parsed
            raise
    if parsed:
        yield parsed


def _parse(text: bytes, place: str) -> Any:
    try:
        return core.json_decode(text)
    except DecodeError as error:
        raise BadPayload(f"{place} is not dag-json: {error} (text needs its quotes: '\"text\"')") from error


def _id(value: str | None) -> str | None:
    """Refuses an option's value that is no id."""
    if value is not None:
        try:
            core.decode_id(value)
        except DecodeError as error:
            raise typer.BadParameter(f"{value!r} is no id: {error}") from error
    return value


def read(
    path: LogPath,
    after: Annotated[str | None, typer.Option(metavar="ID", callback=_id, help="Only ids above this one.")] = None,
    before: Annotated[str | None, typer.Option(metavar="ID", callback=_id, help="Only ids below this one.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the largest id down.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, max=_LARGEST, help="At most so many messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="In order of arrival, and those to come.")] = False,
    json: Json = False,
) -> None:
    """Read messages, in the order of their ids: causes before effects."""
    if follow and (reverse or before is not None):
        raise typer.BadParameter("--follow cannot be combined with --reverse or --before")
    output = Output(json)
    with open_log(path) as log:
        if follow:
            _print(islice(_arrivals(log, after), limit), output, flush=True)
        else:
            _print(log.messages(after=after, before=before, reverse=reverse, limit=limit), output)


def _arrivals(log: Log, after: str | None) -> Iterator[SignedMessage]:
    start = b"" if after is None else core.decode_id(after)
    for messages in log.subscribe(after=0):
        yield from (message for message in messages if message.key > start)


def _print(messages: Iterable[SignedMessage], output: Output, flush: bool = False) -> None:
    for message in messages:
        if output.json:
            fields = {
                "id": message.id,
                "clock": message.clock,
                "parents": list(message.parents),
                "author": message.author,
            }
            if not message.canonical:
                fields["content_id"] = message.content_id
            _record(output, message, fields)
        else:
            output.show(_line(message, output.console.width))
        if flush:
            sys.stdout.flush()


def _record(output: Output, message: SignedMessage, fields: dict[str, Any]) -> None:
    """A line of JSON with the payload; with the reason instead where peers accepted what is not to be written again."""
    try:
        output.record(fields | {"payload": message.payload})
    except EncodeError as error:
        output.record(fields | {"payload": None, "unprintable": str(error)})


def _payload_text(message: SignedMessage) -> str:
    try:
        return printable(core.json_encode(message.payload).decode("utf-8"))
    except EncodeError as error:
        return f"(cannot be shown: {error})"


def _line(message: SignedMessage, width: int) -> Text:
    colour = _COLOURS[sum(message.author.encode()) % len(_COLOURS)]
    line = Text()
    line.append(message.id, Style(bold=True))
    line.append(f" {message.clock:>6} ", Style(dim=True))
    line.append(f"…{message.author[-6:]} ", Style(color=colour))
    line.append(_payload_text(message)[:width])
    return line


def show(
    path: LogPath,
    id: Annotated[str, typer.Argument(metavar="ID", callback=_id, help="The message's id.")],
    json: Json = False,
) -> None:
    """Show one message: all there is to know of it."""
    output = Output(json)
    with open_log(path) as log:
        message = log.get(id)
        children = list(log.children(id))
    if output.json:
        fields = {
            "id": message.id,
            "clock": message.clock,
            "author": message.author,
            "parents": list(message.parents),
            "children": children,
            "codec": message.codec,
            "signature": message.signature,
            "bytes": len(message.value),
            "canonical": message.canonical,
            "content_id": message.content_id,
        }
        _record(output, message, fields)
        return
    table = fields_table()
    table.add_row("id", message.id)
    if not message.canonical:
        table.add_row("encoding of", message.content_id)
    table.add_row("clock", f"{message.clock:,}")
    table.add_row("author", message.author)
    table.add_row("parents", "\n".join(message.parents))
    table.add_row("children", "\n".join(children))
    table.add_row("signature", f"{message.signature.hex()} over {message.codec}")
    table.add_row("bytes", f"{len(message.value):,}" + ("" if message.canonical else ", not canonical"))
    table.add_row("payload", Text(_payload_text(message)))
    output.show(table)
