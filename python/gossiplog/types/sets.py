"""Sets in which an add wins over a concurrent removal: a removal takes away the adds that its author had seen.

This is the observed-remove set of Shapiro, Preguiça, Baquero and Zawirski, "A comprehensive study of Convergent and
Commutative Replicated Data Types", 2011, section 3.3.5.
What was seen is in the graph: the ancestors of the message that removes. So a removal names no adds, and nothing stays
of what was removed: an add that comes later is no ancestor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gossiplog import core
from gossiplog.message import SignedMessage
from gossiplog.storage.base import ApplyTransaction
from gossiplog.types.objects import (
    MAX_KEY_BYTES,
    Database,
    Object,
    checked_key,
    checked_value,
    execute,
    key_text,
    value_of,
    value_text,
)


class Set(Object):
    """A set for each key; its elements are values of the IPLD data model, of up to 1,000 bytes as dag-json.

    Write to it by `log.append(tags.add(...))`: `add` and `remove` return payloads, and change nothing by themselves.

    Its table has the columns key, element (dag-json) and id: of each add that counts. Of several, none follows another.

    Args:
        name: of the table, and in payloads: up to 48 of a-z, 0-9 and _, a letter first.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> tags = types.Set("tags")
        >>> board = gossiplog.open("board.db", "org.example.board", apply=tags.apply, setup=tags.setup, signer=alice)
        >>> database = sqlite3.connect("board.db")
        >>> messages = board.append_many([tags.add("home"), tags.add("work"), tags.remove("work")])
        >>> tags.get(database)
        ['home']
    """

    def _tables(self) -> Mapping[str, Sequence[str]]:
        return {self.table: ("key TEXT", "element TEXT", "id TEXT", "PRIMARY KEY (key, element, id)")}

    def add(self, element: Any, *, key: str = "") -> dict[str, Any]:
        """Return the payload that adds an element.

        Args:
            element: of the IPLD data model.
            key: which of the object's values; "" is one of them.

        Raises:
            ValueError: an element or a key that is too long, or has no dag-json form, as NaN.
        """
        return self._payload("add", element, key)

    def remove(self, element: Any, *, key: str = "") -> dict[str, Any]:
        """Return the payload that removes an element: what its author has seen of adds when it is appended.

        Args:
            element: of the IPLD data model.
            key: which of the object's values; "" is one of them.

        Raises:
            ValueError: an element or a key that is too long, or has no dag-json form, as NaN.
        """
        return self._payload("remove", element, key)

    def _payload(self, action: str, element: Any, key: str) -> dict[str, Any]:
        return {"object": self.name, "key": checked_key(key), action: checked_value(element, MAX_KEY_BYTES)}

    def _apply_operation(
        self, operation: Mapping[str, Any], message: SignedMessage, transaction: ApplyTransaction
    ) -> None:
        key = key_text(operation.get("key"))
        actions = [action for action in ("add", "remove") if action in operation]
        if key is None or len(actions) != 1:
            return
        element = value_text(operation[actions[0]], MAX_KEY_BYTES)
        if element is None:
            return
        # Ids begin with the clock, which is lower of what the message follows. One search answers for those of a clock.
        clock = core.encode_id(core.encode_clock(message.clock).ljust(core.KEY_LENGTH, b"\0"))
        sql = f"SELECT id FROM {self.table} WHERE key = ? AND element = ? AND id < ? ORDER BY id"
        rows = execute(transaction, sql, key, element, clock).fetchall()
        for (id,) in rows:
            # An add stands for those that it follows: who has seen it has seen them.
            if transaction.is_ancestor(id, message.id):
                execute(
                    transaction, f"DELETE FROM {self.table} WHERE key = ? AND element = ? AND id = ?", key, element, id
                )
        if actions == ["add"]:
            execute(transaction, f"INSERT INTO {self.table} VALUES (?, ?, ?)", key, element, message.content_id)

    def get(self, database: Database, *, key: str = "") -> list[Any]:
        """Return the elements of a set, in the order of their dag-json.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            key: which of the object's values; "" is one of them.
        """
        rows = execute(database, f"SELECT DISTINCT element FROM {self.table} WHERE key = ? ORDER BY element", key)
        return [value_of(element) for (element,) in rows]

    def all(self, database: Database) -> dict[str, list[Any]]:
        """Return all sets that have elements by their keys, which ascend.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        sets: dict[str, list[Any]] = {}
        for key, element in execute(database, f"SELECT DISTINCT key, element FROM {self.table} ORDER BY key, element"):
            sets.setdefault(key, []).append(value_of(element))
        return sets

    def contains(self, database: Database, element: Any, *, key: str = "") -> bool:
        """Return whether a set has an element.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            element: of the IPLD data model.
            key: which of the object's values; "" is one of them.
        """
        text = value_text(element, MAX_KEY_BYTES)
        sql = f"SELECT 1 FROM {self.table} WHERE key = ? AND element = ? LIMIT 1"
        return text is not None and execute(database, sql, key, text).fetchone() is not None

    def keys(self, database: Database) -> list[str]:
        """Return the keys, ascending, of the sets that have elements.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        return [key for (key,) in execute(database, f"SELECT DISTINCT key FROM {self.table} ORDER BY key")]
