"""Counters: what each author has added and taken away.

`apply` runs once for each message, whichever encodings of it come, so that sums are enough. They are kept by author, as
in the PN-Counter of Shapiro, Preguiça, Baquero and Zawirski, "A comprehensive study of Convergent and Commutative
Replicated Data Types", 2011, which shows who counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gossiplog.message import SignedMessage
from gossiplog.storage.base import ApplyTransaction
from gossiplog.types.objects import Database, Object, checked_key, execute, key_text

MAX_STEP = 2**31
"""The most that one message adds or takes away: it takes 2^32 of them to overflow 64 bits."""


class Counter(Object):
    """A number for each key, to which anybody adds.

    Write to it by `log.append(votes.add())`: `add` returns a payload, and changes nothing by itself.

    Its table has the columns key, author, added and removed.

    Args:
        name: of the table, and in payloads: up to 48 of a-z, 0-9 and _, a letter first.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> votes = types.Counter("votes")
        >>> board = gossiplog.open("board.db", "org.example.board", apply=votes.apply, setup=votes.setup, signer=alice)
        >>> database = sqlite3.connect("board.db")
        >>> messages = board.append_many([votes.add(2, key="eggs"), votes.add(-1, key="eggs")])
        >>> votes.get(database, key="eggs")
        1
    """

    def _tables(self) -> Mapping[str, Sequence[str]]:
        columns = ("key TEXT", "author TEXT", "added BIGINT NOT NULL", "removed BIGINT NOT NULL")
        return {self.table: (*columns, "PRIMARY KEY (key, author)")}

    def add(self, amount: int = 1, *, key: str = "") -> dict[str, Any]:
        """Return the payload that adds to a number; below 0, it takes away.

        Args:
            amount: from -2^31 to 2^31.
            key: which of the object's values; "" is one of them.

        Raises:
            ValueError: more than 2^31 in either direction, or a key that is too long or holds U+0000.
            TypeError: an amount that is no integer.
        """
        if type(amount) is not int:
            raise TypeError(f"an amount is {amount!r}: expected an integer")
        if abs(amount) > MAX_STEP:
            raise ValueError(f"an amount of {amount}: expected {MAX_STEP} at most, or several messages")
        return {"object": self.name, "key": checked_key(key), "add": amount}

    def _apply_operation(
        self, operation: Mapping[str, Any], message: SignedMessage, transaction: ApplyTransaction
    ) -> None:
        key, amount = key_text(operation.get("key")), operation.get("add")
        # True is an integer of Python's, and none of dag-cbor.
        if key is None or type(amount) is not int or abs(amount) > MAX_STEP:
            return
        execute(
            transaction,
            f"INSERT INTO {self.table} AS known (key, author, added, removed) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (key, author) DO UPDATE"
            " SET added = known.added + excluded.added, removed = known.removed + excluded.removed",
            *(key, message.author, max(amount, 0), max(-amount, 0)),
        )

    def get(self, database: Database, *, key: str = "") -> int:
        """Return a number, 0 where nobody has added to it.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            key: which of the object's values; "" is one of them.
        """
        return sum(self.by_author(database, key=key).values())

    def by_author(self, database: Database, *, key: str = "") -> dict[str, int]:
        """Return what each author has added to a number, less what the author took away.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            key: which of the object's values; "" is one of them.
        """
        rows = execute(database, f"SELECT author, added - removed FROM {self.table} WHERE key = ? ORDER BY author", key)
        return dict(rows)

    def all(self, database: Database) -> dict[str, int]:
        """Return all numbers by their keys, which ascend.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        rows = execute(database, f"SELECT key, SUM(added - removed) FROM {self.table} GROUP BY key ORDER BY key")
        # Postgres sums to a decimal number.
        return {key: int(value) for key, value in rows}

    def keys(self, database: Database) -> list[str]:
        """Return the keys of all numbers, ascending.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        return [key for (key,) in execute(database, f"SELECT DISTINCT key FROM {self.table} ORDER BY key")]
