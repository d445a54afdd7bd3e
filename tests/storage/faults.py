"""Faults of a disk as SQLite reports them: statements that fail a number of times, and then work again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from gossiplog.storage.sqlite import storage as sqlite_storage


class Faults:
    """Makes statements fail whose text holds some words.

    Attributes:
        left: how many times it will fail still.
        failed: the statements that failed.
    """

    def __init__(self) -> None:
        self.left = 0
        self.failed: list[str] = []
        self._words = ""
        self._code = 0

    @contextmanager
    def failing(self, code: int, words: str = "", times: int = 1) -> Iterator[None]:
        """Fail for the time of a block.

        Args:
            code: SQLite's result code (https://sqlite.org/rescode.html).
            words: in the text of the statements that fail.
            times: how many of them fail.
        """
        self._code, self._words, self.left = code, words, times
        try:
            yield
        finally:
            self.left = 0

    def check(self, sql: str) -> None:
        """Raise what the driver raises, if this statement is to fail."""
        if self.left and self._words in sql:
            self.left -= 1
            self.failed.append(sql)
            kind = sqlite3.OperationalError if self._code & 0xFF == sqlite3.SQLITE_IOERR else sqlite3.DatabaseError
            error = kind("injected")
            error.sqlite_errorcode, error.sqlite_errorname = self._code, "injected"
            raise error


class _Connection(sqlite3.Connection):
    def __init__(self, faults: Faults, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._faults = faults

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._faults.check(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        self._faults.check(sql)
        return super().executemany(sql, parameters)


def inject(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Return the faults of all connections that are made from now on."""
    faults = Faults()
    connect = sqlite3.connect

    def faulty(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, factory=partial(_Connection, faults), **options)

    monkeypatch.setattr(sqlite_storage.sqlite3, "connect", faulty)
    return faults
