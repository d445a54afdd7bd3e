"""Messages in and out of a log: `gossiplog append`, `read`, `show`, `export`."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gossiplog import core
from gossiplog.cli.keys import Key, load_signer
from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.messages.json_lines import first_line, last_line, message_line, read_lines
from gossiplog.cli.messages.rendering import ENDING, Author, colour_of, is_by, message_record, payload_line, shortened
from gossiplog.cli.output import Json, Output, fields_table, printable, progress
from gossiplog.errors import DecodeError, GossipLogError
from gossiplog.log import Log
from gossiplog.message import ID_LENGTH, MAX_VALUE_LENGTH, SignedMessage
from gossiplog.reprs import listed
from gossiplog.storage.base import MAX_INTEGER

if TYPE_CHECKING:
    from rich.text import Text

_MOST_AUTHORS = 10_000  # authors whose full names are not repeated on a terminal
_LOWEST, _HIGHEST = "0", "v"  # of the characters of an id
_CANDIDATES = 10  # ids listed where several begin alike
_STDIN = "standard input"
_NO_NUMBERS = re.compile(rb"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_WORDS = re.compile(rb"[^\s\"'\[\]{}\d-][^\"\[\]{}]*")


class BadPayload(GossipLogError):
    """A payload on the command line or standard input that cannot be appended."""


class AppendStopped(GossipLogError):
    """A payload that cannot be appended, after others that were."""


class UnknownPrefix(GossipLogError):
    """The beginning of no message's id, or of several."""


def append(
    path: LogPath,
    payloads: Annotated[
        list[str],
        typer.Argument(
            metavar="PAYLOAD...", help="The payloads, each in dag-json; - reads them from standard input, one a line."
        ),
    ],
    key: Key = None,
    json: Json = False,
) -> None:
    """Append messages. Each follows all messages that the log holds by then."""
    output = Output(json)
    appended = 0
    with open_log(path) as log, progress("Appending") as advance:
        # After the log: a mistyped path makes no key.
        signer = load_signer(key)
        try:
            for batch in _batches(payloads):
                for message in log.append_many(batch, signer=signer):
                    if output.json:
                        output.record({"id": message.id, "clock": message.clock, "parents": list(message.parents)})
                    else:
                        output.show(message.id)
                output.flush()
                appended += len(batch)
                advance(len(batch))
        except GossipLogError as error:
            if appended:
                raise AppendStopped(f"{error}; {_what_stays(appended)}") from error
            raise


def _what_stays(appended: int) -> str:
    if appended == 1:
        return "the payload before it was appended, and stays in the log"
    return f"the {appended:,} payloads before it were appended, and stay in the log"


def _batches(arguments: Iterable[str]) -> Iterator[list[Any]]:
    """Yield the payloads that the arguments name, in the portions in which they are to be appended."""
    parsed: list[Any] = []
    for number, argument in enumerate(arguments, 1):
        if argument == "-":
            if parsed:
                yield parsed
                parsed = []
            yield from _read_payloads()
        else:
            parsed.append(_parse(argument.encode("utf-8", "surrogateescape"), f"payload {number}"))
    if parsed:
        yield parsed


def _read_payloads() -> Iterator[list[Any]]:
    """Yield the payloads on standard input, in portions of what is there: a slow writer is followed line by line."""
    for lines in read_lines(cast(io.BufferedReader, sys.stdin.buffer), _STDIN):
        parsed = []
        for number, line in lines:
            try:
                parsed.append(_parse(line, f"line {number} of {_STDIN}"))
            except BadPayload:
                if parsed:
                    yield parsed
                raise
        if parsed:
            yield parsed


def _parse(text: bytes, place: str) -> Any:
    try:
        payload = core.json_decode(text)
    except DecodeError as error:
        raise BadPayload(f"{place} is not dag-json: {error}{_advice(text.strip())}") from error
    # Numbers take more bytes in dag-cbor than in text, but not so many times more that short lines are too long.
    size = len(core.cbor_encode(payload)) if len(text) > MAX_VALUE_LENGTH // 4 else 0
    if size > MAX_VALUE_LENGTH:
        raise BadPayload(f"{place} has {size:,} bytes: peers read messages of up to {MAX_VALUE_LENGTH:,}")
    return payload


def _advice(text: bytes) -> str:
    """Return advice about text that is not dag-json, in parentheses; "" if there is none."""
    if _NO_NUMBERS.fullmatch(text):
        return " (dag-json has finite numbers only; null can stand for none)"
    if _WORDS.fullmatch(text):
        return " (text needs its quotes: '\"text\"')"
    return ""


def _id(value: str | None) -> str | None:
    """Refuse an option's value that is no id."""
    if value is not None:
        try:
            core.decode_id(value)
        except DecodeError as error:
            raise typer.BadParameter(f"{value!r} is no id: {error}") from error
    return value


def _prefix(value: str) -> str:
    """Refuse text that no id begins with."""
    if not re.fullmatch(f"[0-9a-v]{{1,{ID_LENGTH}}}", value):
        raise typer.BadParameter(
            f"{printable(value[:40])!r} is no id: expected up to {ID_LENGTH} characters of 0-9 and a-v"
        )
    return value


def read(
    path: LogPath,
    after: Annotated[
        str | None, typer.Option(metavar="ID", callback=_id, help="Take only messages with ids above this one.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="ID", callback=_id, help="Take only messages with ids below this one.")
    ] = None,
    author: Author = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Begin with the largest id.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="The number of messages to show at most.")] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Show messages in the order of their arrival, and wait for those to come."),
    ] = False,
    json: Json = False,
) -> None:
    """Read messages in the order of their ids: causes come before effects.

    On a terminal each message is one line, cut to the width, and each author is named in full once, above the author's
    first message. The output goes through the pager that PAGER names, or less; an empty PAGER turns that off.
    """
    if follow and (reverse or before is not None):
        raise typer.BadParameter("--follow cannot be combined with --reverse or --before")
    limit = None if limit is None else min(limit, MAX_INTEGER)
    output = Output(json)
    with open_log(path, read_only=True, unlocked=not follow) as log:
        if follow:
            _print(islice(_by(author, _arrivals(log, after)), limit), output, flush=True)
            return
        # A limit counts messages of the author, and the log's own counts all.
        most = limit if author is None else None
        messages = log.messages(after=after, before=before, reverse=reverse, limit=most)
        with output.paged():
            _print(islice(_by(author, messages), limit), output)


def _by(author: str | None, messages: Iterable[SignedMessage]) -> Iterator[SignedMessage]:
    return iter(messages) if author is None else (message for message in messages if is_by(message, author))


def _arrivals(log: Log, after: str | None) -> Iterator[SignedMessage]:
    start = b"" if after is None else core.decode_id(after)
    for messages in log.subscribe(after=0):
        yield from (message for message in messages if message.key > start)


def _print(messages: Iterable[SignedMessage], output: Output, flush: bool = False) -> None:
    if not output.json:
        _print_lines(messages, output)
        return
    for message in messages:
        output.record(message_record(message))
        if flush:
            output.flush()


def _print_lines(messages: Iterable[SignedMessage], output: Output) -> None:
    """Show a line for each message, and each author's full name before the first."""
    from rich.style import Style
    from rich.text import Text

    named: dict[str, None] = {}
    for message in messages:
        if not named:
            heading = f"{'id':{ID_LENGTH}} {'clock':>6} {'author':{ENDING + 1}} payload"
            output.show(Text(heading, Style(bold=True, dim=True)))
        if message.author not in named:
            # A Text would be cut to the width, but names are there to be copied.
            output.show(f"{shortened(message.author)} is {message.author}")
            if len(named) == _MOST_AUTHORS:
                del named[next(iter(named))]
            named[message.author] = None
        output.show(_line(message, output.console.width))


def _line(message: SignedMessage, width: int) -> Text:
    from rich.style import Style
    from rich.text import Text

    line = Text()
    line.append(message.id, Style(bold=True))
    line.append(f" {message.clock:>6} ", Style(dim=True))
    line.append(f"{shortened(message.author)} ", Style(color=colour_of(message.author)))
    line.append(payload_line(message)[:width])
    return line


def show(
    path: LogPath,
    id: Annotated[
        str, typer.Argument(metavar="ID", callback=_prefix, help="The id of the message, or the beginning of it.")
    ],
    json: Json = False,
) -> None:
    """Show one message in full."""
    output = Output(json)
    with open_log(path, unlocked=True) as log:
        message = _found(log, id)
        children = list(log.children(message.id))
    if output.json:
        fields = {
            "children": children,
            "codec": message.codec,
            "signature": message.signature,
            "bytes": len(message.value),
            "canonical": message.canonical,
            "content_id": message.content_id,
        }
        output.record(message_record(message) | fields)
        return
    from rich.text import Text

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
    table.add_row("payload", Text(payload_line(message)))
    output.show(table)


def _found(log: Log, prefix: str) -> SignedMessage:
    """Find the message whose id begins with a prefix.

    Raises:
        UnknownMessage: the prefix is a whole id, and there is no such message.
        UnknownPrefix: no id begins with it, or several do.
    """
    if len(prefix) == ID_LENGTH:
        return log.get(prefix)
    lowest, highest = prefix.ljust(ID_LENGTH, _LOWEST), prefix.ljust(ID_LENGTH, _HIGHEST)
    # A range excludes its bounds, which may be ids themselves.
    ends = [end for end in (lowest, highest) if end in log]
    count = len(ends) + log.count(after=lowest, before=highest)
    if count == 0:
        raise UnknownPrefix(f"there is no message whose id begins with {prefix}")
    between = log.messages(after=lowest, before=highest, limit=_CANDIDATES)
    found = [*map(log.get, ends), *between]
    if count == 1:
        return found[0]
    ids = sorted(message.id for message in found)
    raise UnknownPrefix(f"the ids of {count:,} messages begin with {prefix}: {listed(ids, _CANDIDATES, count=count)}")


def export(path: LogPath) -> None:
    """Write all messages of a log to standard output, as JSON Lines.

    Each line has the id, the signature and the message in dag-json. The first one has the topic and the last one the
    number of messages, so that an export that was cut off is noticed. gossiplog import verifies the messages, and makes
    the same log of them.
    """
    on_terminal = sys.stdout.isatty()

    def write(line: bytes) -> None:
        if on_terminal:
            line = printable(line.decode("utf-8")).encode("utf-8")
        sys.stdout.buffer.write(line + b"\n")

    count = 0
    with open_log(path, unlocked=True) as log:
        write(first_line(log.topic))
        for message in log.messages():
            write(message_line(message))
            count += 1
    write(last_line(count))
