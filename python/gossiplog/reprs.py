"""Counts with their nouns, lists cut short, paths in commands, and short, escaped representations of any values."""

from __future__ import annotations

import os
import re
import reprlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class", bound=type)
_Value = TypeVar("_Value")

_MOST_ITEMS = 3
_MOST_COUNTS = 24
_SHORT = reprlib.Repr()
_SHORT.maxtuple = _SHORT.maxlist = _SHORT.maxset = _SHORT.maxfrozenset = _SHORT.maxdict = _MOST_ITEMS
_SHORT.maxlevel = 3
_SHORT.maxstring = 80
_SHORT.maxother = 120
# Of what an exception says: commands that the user is to copy are at its end.
_LONGEST_ERROR = 800
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HAS_COMMANDS = "has commands"


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count with what it counts: "1 message", "2,000 messages".

    Args:
        count: of things.
        singular: what follows 1; the noun, and a verb if need be.
        plural: what follows any other count; "" is the singular with an s.
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def last_counted(count: int, noun: str) -> str:
    """Return how the last of some things are named: "last message", "last 2,000 messages"."""
    return f"last {noun}" if count == 1 else f"last {counted(count, noun)}"


def listed(texts: Sequence[str], most: int, *, separator: str = ", ", count: int | None = None) -> str:
    """Return the first of some texts, and how many others there are: "a, b and 2 more".

    Args:
        texts: to show.
        most: how many of them.
        separator: between two; the count of the others follows it, too, where it is a semicolon or a line end.
        count: of all, where `texts` are the first of them.
    """
    shown = texts[:most]
    hidden = (len(texts) if count is None else count) - len(shown)
    joint = separator if separator in ("; ", "\n") else " "
    return separator.join(shown) + (f"{joint}and {hidden:,} more" if hidden > 0 else "")


def error_text(error: BaseException) -> str:
    """Return what an application's error says: its beginning where that is long, its type where it cannot say it."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - what an error says must not end what it is about
        return f"{type(error).__name__} (its text cannot be had: {type(failure).__name__})"
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"


def escaped(text: str) -> str:
    """Return a text in which every character that does not print is escaped, as in Python's literals."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def without_bidi(text: str) -> str:
    """Return a text in which what would turn around how it is shown is escaped, as in JSON (Unicode, UAX #9, 2)."""
    return _BIDI.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shell_path(path: str | os.PathLike[str]) -> str:
    """Return a path as a command takes it that is pasted into bash or zsh: quoted, on one line, and no option."""
    text = os.fspath(path)
    if text.startswith("-"):
        text = f"./{text}"
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(char if char.isalnum() else _ansi_c(char) for char in text) + "'"


def _ansi_c(char: str) -> str:
    return "".join(rf"\x{byte:02x}" for byte in os.fsencode(char))


def short_repr(kind: _Class) -> _Class:
    """Give a dataclass a `repr` that stays short whatever its fields hold: a list as its beginning and its length.

    Fields that are None, as they are unless they are given, are left out.
    """

    def representation(self: Any) -> str:
        values = ((each, getattr(self, each.name)) for each in fields(self) if each.repr)
        given = ((each, value) for each, value in values if not (value is None and each.default is None))
        shown = (
            f"{each.name}={_listed_whole(value) if _HAS_COMMANDS in each.metadata else _shown(value)}"
            for each, value in given
        )
        return f"{type(self).__qualname__}({', '.join(shown)})"

    kind.__repr__ = representation  # type: ignore[assignment]
    return kind


def texts_with_commands(*, default: tuple[str, ...]) -> Any:
    """Return a field of a dataclass for texts of this package, which `repr` does not cut."""
    return field(default=default, metadata={_HAS_COMMANDS: True})


@dataclass_transform(frozen_default=True, field_specifiers=(field, texts_with_commands))
def frozen(kind: type[_Value]) -> type[_Value]:
    """Make a frozen dataclass with slots and a short `repr`."""
    return short_repr(dataclass(frozen=True, slots=True, repr=False)(kind))


def _listed_whole(texts: Sequence[str]) -> str:
    if len(texts) <= _MOST_ITEMS:
        return repr(tuple(texts))
    return f"({', '.join(map(repr, texts[:_MOST_ITEMS]))}, ...) of {len(texts):,}"


def _shown(value: object) -> str:
    if isinstance(value, BaseException):
        text, half = repr(value), _LONGEST_ERROR // 2
        return text if len(text) <= _LONGEST_ERROR else f"{text[:half]}...{text[-half:]}"
    if isinstance(value, MappingProxyType):
        shown = dict(value)
        if _MOST_ITEMS < len(value) <= _MOST_COUNTS and all(type(each) is int for each in value.values()):
            # Of counts by name most are 0.
            shown = {key: each for key, each in value.items() if each}
        elif len(value) > _MOST_ITEMS:
            return f"{{...}} of {len(value):,}"
        # In its own order, in which reprlib does not show a dict.
        items = [f"{_SHORT.repr(key)}: {_SHORT.repr(each)}" for key, each in shown.items()]
        if len(shown) == len(value):
            return f"{{{', '.join(items)}}}"
        return f"{{{', '.join([*items, '...'])}}} of {len(value):,}"
    text = _SHORT.repr(value)
    if isinstance(value, (tuple, list, set, frozenset, dict)) and len(value) > _MOST_ITEMS:
        text += f" of {len(value):,}"
    return text
