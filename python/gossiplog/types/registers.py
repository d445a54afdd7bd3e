"""Values of which the last write counts: that with the largest content id, whose clock comes first.

A write has a larger clock than all writes that its author had seen, so it wins over them; of concurrent ones, which
wins is arbitrary, and the same everywhere. A deletion is a write, too, whose row stays.

Last-writer-wins registers are those of Johnson and Thomas, "The Maintenance of Duplicate Databases", RFC 677, 1975.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gossiplog.message import SignedMessage
from gossiplog.storage.base import ApplyTransaction
from gossiplog.types.objects import (
    Database,
    Object,
    checked_key,
    checked_value,
    execute,
    key_text,
    value_of,
    value_text,
)


class _Writes(Object):
    """The last writes, by key. SQL NULL in place of a value is a deletion."""

    def _tables(self) -> Mapping[str, Sequence[str]]:
        columns = ("key TEXT PRIMARY KEY", "value TEXT", "id TEXT NOT NULL", "author TEXT NOT NULL")
        return {self.table: columns}

    def _write(self, key: str, value: str | None, message: SignedMessage, transaction: ApplyTransaction) -> None:
        execute(
            transaction,
            f"INSERT INTO {self.table} AS known (key, value, id, author) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE"
            " SET value = excluded.value, id = excluded.id, author = excluded.author WHERE excluded.id > known.id",
            *(key, value, message.content_id, message.author),
        )

    def _read(self, database: Database, key: str, default: Any) -> Any:
        row = execute(database, f"SELECT value FROM {self.table} WHERE key = ?", key).fetchone()
        return default if row is None or row[0] is None else value_of(row[0])


class Register(_Writes):
    """One value, of which the last write counts.

    Write to it by `log.append(title.set(...))`: `set` returns a payload, and changes nothing by itself.

    Its table has at most one row, with the columns value (dag-json), id and author of the write.

    Args:
        name: of the table, and in payloads: up to 48 of a-z, 0-9 and _, a letter first.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> title = types.Register("title")
        >>> board = gossiplog.open("board.db", "org.example.board", apply=title.apply, setup=title.setup, signer=alice)
        >>> database = sqlite3.connect("board.db")
        >>> message = board.append(title.set("Errands"))
        >>> title.get(database)
        'Errands'
    """

    def set(self, value: Any) -> dict[str, Any]:
        """Return the payload that sets the value.

        Args:
            value: of the IPLD data model.

        Raises:
            ValueError: a value that has no dag-json form, as NaN.
        """
        return {"object": self.name, "set": checked_value(value)}

    def _apply_operation(
        self, operation: Mapping[str, Any], message: SignedMessage, transaction: ApplyTransaction
    ) -> None:
        if "set" in operation and (value := value_text(operation["set"])) is not None:
            self._write("", value, message, transaction)

    def get(self, database: Database, default: Any = None) -> Any:
        """Return the value, a default where none was set.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            default: what is returned where there is no value.
        """
        return self._read(database, "", default)


class Map(_Writes):
    """Values by key, of each of which the last write counts.

    Write to it by `log.append(done.set(...))`: `set` and `delete` return payloads, and change nothing by themselves.

    Its table has the columns key, value (dag-json; null where it was deleted), id and author of the write.

    Args:
        name: of the table, and in payloads: up to 48 of a-z, 0-9 and _, a letter first.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> done = types.Map("done")
        >>> board = gossiplog.open("board.db", "org.example.board", apply=done.apply, setup=done.setup, signer=alice)
        >>> database = sqlite3.connect("board.db")
        >>> messages = board.append_many([done.set("milk", True), done.set("bread", True), done.delete("milk")])
        >>> done.all(database)
        {'bread': True}
    """

    def set(self, key: str, value: Any) -> dict[str, Any]:
        """Return the payload that sets the value of a key.

        Args:
            key: a text.
            value: of the IPLD data model.

        Raises:
            ValueError: a key that is too long, or holds U+0000; or a value that has no dag-json form, as NaN.
        """
        return {"object": self.name, "key": checked_key(key), "set": checked_value(value)}

    def delete(self, key: str) -> dict[str, Any]:
        """Return the payload that deletes a key.

        Args:
            key: a text.

        Raises:
            ValueError: a key that is too long, or holds U+0000.
        """
        return {"object": self.name, "key": checked_key(key), "delete": True}

    def _apply_operation(
        self, operation: Mapping[str, Any], message: SignedMessage, transaction: ApplyTransaction
    ) -> None:
        key = key_text(operation.get("key"))
        if key is None:
            return
        if "set" in operation:
            if (value := value_text(operation["set"])) is not None:
                self._write(key, value, message, transaction)
        elif operation.get("delete") is True:
            self._write(key, None, message, transaction)

    def get(self, database: Database, key: str, default: Any = None) -> Any:
        """Return the value of a key, a default where there is none.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            key: a text.
            default: what is returned where there is no value.
        """
        return self._read(database, key, default)

    def all(self, database: Database) -> dict[str, Any]:
        """Return all values by their keys, which ascend.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        rows = execute(database, f"SELECT key, value FROM {self.table} WHERE value IS NOT NULL ORDER BY key")
        return {key: value_of(value) for key, value in rows}

    def keys(self, database: Database) -> list[str]:
        """Return the keys that have values, ascending.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        rows = execute(database, f"SELECT key FROM {self.table} WHERE value IS NOT NULL ORDER BY key")
        return [key for (key,) in rows]
