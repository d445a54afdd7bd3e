"""Dictionaries of what strangers did, which are bounded: the oldest entry makes way for the latest."""

from __future__ import annotations

from typing import TypeVar

MOST_REMEMBERED = 4096
"""Entries of each, unless the caller says otherwise."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def keep_latest(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int | None = None) -> None:
    """Set an entry and make it the last; beyond `most` entries, or MOST_REMEMBERED, delete the first."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > (MOST_REMEMBERED if most is None else most):
        del kept[next(iter(kept))]
