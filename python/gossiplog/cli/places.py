"""Logs as arguments of commands: files, and schemas in Postgres, whose passwords are shown to nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gossiplog.errors import StorageError
from gossiplog.reprs import shell_path
from gossiplog.storage.location import is_url
from gossiplog.storage.postgres.url import SHAPE, PostgresURL, check_nearly, is_postgres_url

# One of Postgres, or any with a password, as of a scheme that is misspelt.
_URL = re.compile(r"postgres(?:ql)?:/|(?!file:)[a-z][a-z0-9+.\-]*:/+[^/]*:[^/]*@", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log is, as an argument names it. Its text is without a password.

    Attributes:
        location: a file, or a schema in Postgres.
    """

    location: Path | PostgresURL

    @classmethod
    def parse(cls, text: str) -> LogPlace:
        """Read an argument.

        Raises:
            StorageError: it is a URL of Postgres that cannot be read, or nearly one; or another URL.
        """
        if is_postgres_url(text):
            return cls(PostgresURL.parse(text))
        check_nearly(text)
        if is_url(text):
            raise StorageError(
                f"a log is no {text.partition(':')[0]}:// URL: expected the path of a file, or {SHAPE}; gossiplog sync"
                " also takes a hub's ws:// URL to copy from"
            )
        return cls(Path(text))

    @property
    def argument(self) -> str:
        """The place in a command for a shell."""
        return shell_path(str(self))

    def file(self, why: str) -> Path:
        """Return the file.

        Args:
            why: what the command does that takes a file, and what to do in its place for a log in Postgres.

        Raises:
            StorageError: it is in Postgres.
        """
        if isinstance(self.location, PostgresURL):
            raise StorageError(f"{self} is in Postgres: {why}")
        return self.location

    def __str__(self) -> str:
        return str(self.location)


def without_secrets(text: str, arguments: Iterable[str]) -> str:
    """Return a text without the passwords that a command line holds, as where an error repeats its arguments."""
    for url, read in _urls(arguments):
        if read is None or read.has_secret:
            shown = f"{url.partition(':')[0]}://…" if read is None else str(read)
            for form in (url, str(Path(url))):
                text = text.replace(form, shown)
    return text


def warning_of(arguments: Iterable[str]) -> str:
    """Return a warning for a command line that holds a password of Postgres; "" for others."""
    if not any(read is not None and read.has_secret for _, read in _urls(arguments)):
        return ""
    return (
        "all users of this machine can read the password in this command line while it runs: leave it out of the URL,"
        " and set PGPASSWORD or write it into ~/.pgpass"
    )


def _urls(arguments: Iterable[str]) -> Iterator[tuple[str, PostgresURL | None]]:
    """Yield the URLs in a command line that may hold passwords, as they were given, and what is read of those.

    That is nothing where they are not of Postgres, or cannot be read.
    """
    for argument in arguments:
        if found := _URL.search(argument):
            url = argument[found.start() :]
            try:
                yield url, PostgresURL.parse(url)
            except StorageError:
                yield url, None
