"""Authors on the command line: by which name they are chosen, and in which colour they are shown."""

from __future__ import annotations

from typing import Annotated

import typer

from gossiplog.message import SignedMessage

COLOURS = ("green", "yellow", "magenta", "cyan", "blue", "red")
"""Of authors, on a terminal."""
ENDING = 6
"""Characters at the end of an author's did:key by which a terminal names the author."""

_MARK = "…"


def _checked(value: str | None) -> str | None:
    """Check an author's name, and drop the mark that a terminal shows before an ending of one."""
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
    """Return whether a message is by the author that an option names."""
    return message.author.endswith(author)


def shortened(author: str) -> str:
    """Shorten an author's name, for where there is no room for all of it."""
    return _MARK + author[-ENDING:]


def colour_of(author: str) -> str:
    """Choose an author's colour, where it is not known which other authors there are."""
    return COLOURS[sum(author.encode()) % len(COLOURS)]
