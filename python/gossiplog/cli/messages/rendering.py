"""How commands show messages: their fields, their payloads, and their authors' names and colours."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gossiplog import core
from gossiplog.cli.output import printable
from gossiplog.errors import EncodeError
from gossiplog.message import SignedMessage, plain_json

COLOURS = ("green", "yellow", "magenta", "cyan", "blue", "red")
"""Of authors, on a terminal."""
ENDING = 6
"""Characters at the end of an author's did:key by which a terminal names the author."""

_MARK = "…"


def _checked(value: str | None) -> str | None:
    """Check an author's name, and remove the mark that a terminal shows before an ending of one."""
    if value is None:
        return None
    name = value.removeprefix(_MARK)
    if len(name) < ENDING:
        raise typer.BadParameter(f"{value!r} is too short: expected a did:key, or the last {ENDING} characters of one")
    return name


Author = Annotated[
    str | None,
    typer.Option(
        metavar="AUTHOR",
        callback=_checked,
        help="Take only messages of this author: a did:key, or the end of one as a terminal shows it.",
    ),
]


def is_by(message: SignedMessage, author: str) -> bool:
    """Return whether a message is by the author that the option names."""
    return message.author.endswith(author)


def shortened(author: str) -> str:
    """Return the end of an author's name, marked as such."""
    return _MARK + author[-ENDING:]


def colour_of(author: str) -> str:
    """Choose an author's colour without knowing the other authors."""
    return COLOURS[sum(author.encode()) % len(COLOURS)]


def message_record(message: SignedMessage) -> dict[str, Any]:
    """Return the fields of a message in JSON Lines; where the payload cannot be read from dag-json, with the reason."""
    fields = {
        "id": message.id,
        "clock": message.clock,
        "parents": list(message.parents),
        "author": message.author,
    }
    if not message.canonical:
        fields["content_id"] = message.content_id
    try:
        plain_json(message.payload)
    except EncodeError as error:
        return fields | {"payload": None, "unprintable": str(error)}
    return fields | {"payload": message.payload}


def payload_line(message: SignedMessage) -> str:
    """Return the payload of a message as dag-json for a terminal; where it has no such form, the reason."""
    try:
        return printable(core.json_encode(message.payload).decode("utf-8"))
    except EncodeError as error:
        return f"(cannot be shown: {error})"
