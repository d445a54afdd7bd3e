"""Checks of arguments, so that an error comes from the call and not from where a value is used."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from gossiplog._core import redacted_url
from gossiplog.errors import StorageError
from gossiplog.log import Log
from gossiplog.log.asynchronous.log import AsyncLog
from gossiplog.log.callbacks import check_runs
from gossiplog.log.log import replica_of
from gossiplog.storage.location import Location
from gossiplog.storage.postgres.url import PostgresURL

# As the core's own parser of URLs sees it.
_HUB_URL = re.compile(r"wss?://", re.IGNORECASE)
_PAGE_URL = re.compile(r"http(s?)://", re.IGNORECASE)
_PEER_ADDRESS = re.compile(r"/(?:ip4|ip6|dns4?|dns6)/")


class SourceKind(Enum):
    """What has a log that another one is brought up to date with."""

    HUB = "a hub"
    PEER = "a peer"
    FILE = "a file"


def kind_of_source(source: str) -> SourceKind:
    """Return what a text names: a hub by its URL, a peer by its multiaddr, and else a file by its location.

    Raises:
        ValueError: it begins with http:// or https://.
    """
    if page := _PAGE_URL.match(source):
        right = f"ws{page[1].lower()}://{source[page.end() :]}"
        raise ValueError(f"a hub's address begins with ws:// or wss://: {redacted_url(right)}")
    if _HUB_URL.match(source):
        return SourceKind.HUB
    return SourceKind.PEER if _PEER_ADDRESS.match(source) else SourceKind.FILE


def check_source(name: str, source: AsyncLog[Any] | Log[Any] | Location) -> Log[Any] | Location:
    """Return where another log is: itself, the one that it shares, or a text or path that names one.

    Args:
        name: of the parameter.
        source: what the caller gave.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(source, AsyncLog):
        return source.blocking
    if not isinstance(source, Log | str | os.PathLike | PostgresURL):
        raise TypeError(f"{name} is {source!r}: expected a log, or the path, URL or multiaddr of one")
    return source


def check_log(log: Log[Any] | AsyncLog[Any], *, writes: bool) -> Log[Any]:
    """Return the log that an argument is, or shares.

    Args:
        log: what the caller gave.
        writes: whether what others send is to be stored in it.

    Raises:
        TypeError: it is no log, such as a path.
        ValueError: the log was opened read-only, and is to be written to.
        StorageError: it is to be written to, and its database takes no writes from this user or this role.
    """
    if isinstance(log, AsyncLog):
        log = log.blocking
    check_type("log", log, Log, "a gossiplog.Log, such as gossiplog.open(path) returns, or a gossiplog.AsyncLog")
    if not writes:
        return log
    if replica_of(log).read_only:
        raise ValueError(
            f"{log!r} was opened read-only, so that it cannot store what others send: open it without read_only."
            " A gossiplog.Hub serves such a log to readers"
        )
    if refusal := replica_of(log).write_refusal:
        raise StorageError(
            f"{replica_of(log).place} cannot store what others send: {refusal}. A hub serves such a log to readers"
        )
    return log


def check_type(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Check the type of an argument.

    Args:
        name: what the caller calls it.
        value: what it gave.
        kind: of the types that are expected.
        expected: the same in words.

    Raises:
        TypeError: it is of another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}: expected {expected}")


def check_settings(**settings: tuple[object, type]) -> None:
    """Check settings that are values of this package; None may be given for the usual ones.

    Args:
        settings: by their names, what the caller gave and the type that is expected.

    Raises:
        TypeError: one is neither.
    """
    for name, (value, kind) in settings.items():
        if value is not None:
            check_type(name, value, kind, f"a gossiplog.{kind.__name__}")


def check_callbacks(**callbacks: Callable[..., object] | None) -> None:
    """Check that callbacks can be called, and run to their end; None may be given for no callback.

    Args:
        callbacks: by their names, `on_` and what they are called with.

    Raises:
        TypeError: one cannot be called so, or is a coroutine or generator function, whose body would not run.
    """
    for name, callback in callbacks.items():
        if callback is not None:
            check_runs(name, callback, name.removeprefix("on_"))


def check_texts(name: str, values: object, example: str, check: Callable[[str], None] | None = None) -> tuple[str, ...]:
    """Return a collection of texts as a tuple; a single text, a collection of its characters, is an error.

    Args:
        name: what the caller calls them.
        values: what it gave.
        example: of one of them.
        check: raises ValueError for a text that is wrong.

    Raises:
        TypeError: a single text, or something that is no collection of texts.
        ValueError: a text is wrong.
    """
    found = None if isinstance(values, (str, bytes)) or not isinstance(values, Iterable) else tuple(values)
    if found is None or not all(isinstance(value, str) for value in found):
        raise TypeError(f"{name} is {values!r}: expected a list of texts, such as [{example!r}]")
    if check is not None:
        for text in found:
            try:
                check(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    return found
