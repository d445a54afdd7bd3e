"""Lists whose elements stay where they were put between others, and runs of which hardly ever interleave: Fugue.

Weidner and Kleppmann, "The Art of the Fugue: Minimizing Interleaving in Collaborative Text Editing", 2023
(arXiv:2305.00583), Algorithm 1. Runs that are typed forwards never interleave (Definition 2), and those that are typed
backwards only where siblings to the right were inserted before different elements (figure 7).

The elements are nodes of a tree, each a left or a right child of another, or a right one of the root; the list is their
order from left to right: the left children of a node, the node, its right ones, siblings by id. A deleted one stays as
a node without a value. Both tables only grow, by rows that depend on nothing else, so that any order gives the same; a
node whose parent never comes is not in the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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

MAX_ELEMENTS = 1000
"""The most elements that one message inserts or deletes."""

# The content id of a message, and the number of the element in it.
_REFERENCE = re.compile(r"[0-9a-v]{32}\.(0|[1-9][0-9]{0,2})")
_ROOT = ""


class _Node:
    """An element: its children, by side, and its value as dag-json."""

    __slots__ = ("left", "reference", "right", "value")

    def __init__(self, reference: str, value: str) -> None:
        self.reference = reference
        self.value = value
        self.left: list[_Node] = []
        self.right: list[_Node] = []


class List(Object):
    """A list for each key, whose elements stay where they were put between others.

    Write to it by `log.append(items.insert(...))`: `insert` and `delete` return payloads, and change nothing by
    themselves. Reading a list, or making a payload for one, reads all of its rows, deleted ones too.

    Its tables are that of its name, with the columns key, id and number (of the message, and of the element in it),
    parent, side and value (dag-json), and one whose name ends with _deleted, with the columns key and element.

    Args:
        name: of the table, and in payloads: up to 48 of a-z, 0-9 and _, a letter first.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> items = types.List("items")
        >>> board = gossiplog.open("board.db", "org.example.board", apply=items.apply, setup=items.setup, signer=alice)
        >>> database = sqlite3.connect("board.db")
        >>> message = board.append(items.insert(database, 0, "milk", "bread"))
        >>> message = board.append(items.insert(database, 1, "eggs"))
        >>> items.get(database)
        ['milk', 'eggs', 'bread']
    """

    @property
    def _deleted(self) -> str:
        return f'"{self.name}_deleted"'

    def _tables(self) -> Mapping[str, Sequence[str]]:
        columns = ("key TEXT", "id TEXT", "number INTEGER", "parent TEXT", "side TEXT", "value TEXT")
        return {
            self.table: (*columns, "PRIMARY KEY (key, id, number)"),
            self._deleted: ("key TEXT", "element TEXT", "PRIMARY KEY (key, element)"),
        }

    def insert(self, database: Database, index: int, *values: Any, key: str = "") -> dict[str, Any]:
        """Return the payload that inserts values before the element that has an index now; at the end for its length.

        Args:
            database: where the list is read.
            index: from 0, as `get` has the elements.
            values: of the IPLD data model, up to 1,000.
            key: of the list.

        Raises:
            IndexError: the list is shorter.
            ValueError: no values, or too many; one that has no dag-json form, as NaN; or a key that is too long or
                holds U+0000.
        """
        if not 1 <= len(values) <= MAX_ELEMENTS:
            raise ValueError(f"{len(values)} values: expected 1 to {MAX_ELEMENTS} in one message")
        root, deleted = self._tree(database, checked_key(key))
        order = [*_in_order(root)]
        shown = [place for place, node in enumerate(order) if node.reference not in deleted and node is not root]
        if not 0 <= index <= len(shown):
            raise IndexError(f"an index of {index} in a list of {len(shown)}")
        # Left of what follows the element before, unless nothing is to the right of that yet.
        before = shown[index - 1] if index else order.index(root)
        parent, side = (order[before + 1], "left") if order[before].right else (order[before], "right")
        place = {"parent": parent.reference, "side": side}
        return {"object": self.name, "key": key, "insert": checked_value([*values]), **place}

    def delete(self, database: Database, index: int, count: int = 1, *, key: str = "") -> dict[str, Any]:
        """Return the payload that deletes the elements which have some indices now.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            index: of the first, from 0.
            count: how many.
            key: which of the object's values; "" is one of them.

        Raises:
            IndexError: the list is shorter.
            ValueError: a count below 1 or above 1,000; or a key that is too long or holds U+0000.
        """
        if not 1 <= count <= MAX_ELEMENTS:
            raise ValueError(f"a count of {count}: expected 1 to {MAX_ELEMENTS} in one message")
        references = [node.reference for node in self._shown(database, checked_key(key))]
        if not 0 <= index <= len(references) - count:
            raise IndexError(f"{count} elements from the index {index} in a list of {len(references)}")
        return {"object": self.name, "key": key, "delete": references[index : index + count]}

    def _apply_operation(
        self, operation: Mapping[str, Any], message: SignedMessage, transaction: ApplyTransaction
    ) -> None:
        key = key_text(operation.get("key"))
        if key is None:
            return
        match operation:
            case {"insert": list(values), "parent": str(parent), "side": "left" | "right" as side}:
                texts = [value_text(value) for value in values[: MAX_ELEMENTS + 1]]
                # Nothing is left of the root, which would be before an insertion at the index 0.
                is_place = side == "right" if parent == _ROOT else _REFERENCE.fullmatch(parent)
                if not is_place or len(texts) > MAX_ELEMENTS or None in texts:
                    return
                for number, text in enumerate(texts):
                    row = (key, message.content_id, number, parent, side, text)
                    execute(transaction, f"INSERT INTO {self.table} VALUES (?, ?, ?, ?, ?, ?)", *row)
                    # Each is to the right of the one before.
                    parent, side = f"{message.content_id}.{number}", "right"
            case {"delete": list(references)} if len(references) <= MAX_ELEMENTS:
                if all(isinstance(each, str) and _REFERENCE.fullmatch(each) for each in references):
                    sql = f"INSERT INTO {self._deleted} VALUES (?, ?) ON CONFLICT DO NOTHING"
                    for reference in references:
                        execute(transaction, sql, key, reference)

    def get(self, database: Database, *, key: str = "") -> list[Any]:
        """Return the elements of a list, in their order.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
            key: which of the object's values; "" is one of them.
        """
        return [value_of(node.value) for node in self._shown(database, key)]

    def all(self, database: Database) -> dict[str, list[Any]]:
        """Return all lists that have elements by their keys, which ascend.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        rows = execute(database, f"SELECT DISTINCT key FROM {self.table} ORDER BY key").fetchall()
        lists = {key: self.get(database, key=key) for (key,) in rows}
        return {key: elements for key, elements in lists.items() if elements}

    def keys(self, database: Database) -> list[str]:
        """Return the keys, ascending, of the lists that have elements; it reads all lists.

        Args:
            database: a connection to the log's database, or the transaction of `apply`.
        """
        return [*self.all(database)]

    def _shown(self, database: Database, key: str) -> list[_Node]:
        root, deleted = self._tree(database, key)
        return [node for node in _in_order(root) if node is not root and node.reference not in deleted]

    def _tree(self, database: Database, key: str) -> tuple[_Node, set[str]]:
        """Return the root of a list's tree, and the references of what was deleted."""
        # Siblings are children of different messages, and get their places in the order of their ids.
        sql = f"SELECT id, number, parent, side, value FROM {self.table} WHERE key = ? ORDER BY id, number"
        rows = execute(database, sql, key).fetchall()
        nodes = {_ROOT: _Node(_ROOT, "")}
        for id, number, _, _, value in rows:
            nodes[f"{id}.{number}"] = _Node(f"{id}.{number}", value)
        for id, number, parent, side, _ in rows:
            if (above := nodes.get(parent)) is not None:
                (above.left if side == "left" else above.right).append(nodes[f"{id}.{number}"])
        found = execute(database, f"SELECT element FROM {self._deleted} WHERE key = ?", key)
        return nodes[_ROOT], {element for (element,) in found}


def _in_order(root: _Node) -> Iterator[_Node]:
    """Yield a tree's nodes from left to right; it may be deeper than Python's stack."""
    # With each node, whether its left children have been gone through.
    pending = [(root, False)]
    while pending:
        node, is_next = pending.pop()
        if is_next:
            yield node
            pending += [(child, False) for child in reversed(node.right)]
        else:
            pending.append((node, True))
            pending += [(child, False) for child in reversed(node.left)]
