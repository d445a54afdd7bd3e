"""Nodes of the prolly tree, and the rules that bind them. Source: wire format, "Prolly tree"; okra, version 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from gossiplog.errors import TreeError
from gossiplog.reference.blake3 import blake3
from gossiplog.reference.limits import HASH_LENGTH

#: Q, the mean number of children.
FAN_OUT: Final = 32


@final
@dataclass(frozen=True, slots=True)
class Node:
    """A node of the tree: (level, key, hash). The anchor of a level has the key None.

    Raises:
        TreeError: (by the constructor) a hash that is not 16 bytes long.
    """

    level: int
    key: bytes | None
    hash: bytes

    def __post_init__(self) -> None:
        if len(self.hash) != HASH_LENGTH:
            raise TreeError(f"a node's hash of {len(self.hash)} bytes: expected {HASH_LENGTH}")


#: The node before all leaves.
ANCHOR: Final = Node(0, None, blake3(b"")[:HASH_LENGTH])


def leaf_hash(key: bytes, value: bytes) -> bytes:
    """Return the 16-byte hash of an entry."""
    return blake3(len(key).to_bytes(4) + key + len(value).to_bytes(4) + value)[:HASH_LENGTH]


def is_boundary(hash: bytes) -> bool:
    """Return whether a node with this hash begins a parent of its own."""
    return int.from_bytes(hash[:4]) < 2**32 // FAN_OUT


@lru_cache(maxsize=65536)
def hash_hashes(hashes: bytes) -> bytes:
    """Return the hash of the parent of nodes with these hashes, joined.

    It is remembered: an insert changes few parents.
    """
    return blake3(hashes)[:HASH_LENGTH]


def parent_hash(children: Iterable[Node]) -> bytes:
    """Return the hash of the parent of these nodes."""
    return hash_hashes(b"".join(child.hash for child in children))


def parents_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the parents of a run of nodes of one level that starts with an anchor or a boundary."""
    span: list[Node] = []
    for node in nodes:
        if span and is_boundary(node.hash):
            yield Node(span[0].level + 1, span[0].key, parent_hash(span))
            span = []
        span.append(node)
    if span:
        yield Node(span[0].level + 1, span[0].key, parent_hash(span))


def check_children(parent: Node, end: bytes | None, children: Iterable[Node]) -> None:
    """Check an untrusted answer to GetChildren against the rules of the tree.

    Args:
        parent: the node that was asked for, of level 1 or above.
        end: the key at which the parent's range ends (exclusive), or None at the end of the tree.
        children: the answer.

    Raises:
        TreeError: an empty answer; a child whose level is not the parent's less one, whose key is not in the range or
            not above the one before; a first child that has not the parent's key, or is neither an anchor nor a
            boundary; another that is a boundary; hashes that do not hash to the parent's.
    """
    check = ChildrenCheck(parent, end)
    check.add(children)
    check.finish()


@final
class ChildrenCheck:
    """`check_children` for an answer that comes in parts; of these it keeps the hashes.

    Args:
        parent: the node that was asked for, of level 1 or above.
        end: the key at which the parent's range ends (exclusive), or None at the end of the tree.

    Raises:
        TreeError: a parent of level 0.
    """

    def __init__(self, parent: Node, end: bytes | None) -> None:
        if parent.level < 1:
            raise TreeError("a node of level 0 has no children")
        self._parent = parent
        self._end = end
        self._last = b""
        self._hashes = bytearray()
        self._where = f"children of the node {_name(parent)}"

    def add(self, children: Iterable[Node]) -> None:
        """Take the next children; raise TreeError as `check_children`, but for what only the whole answer can show."""
        for child in children:
            if child.level != self._parent.level - 1:
                raise TreeError(f"{self._where}: {_name(child)} is not one level below")
            if self.count == 0:
                self._check_first(child)
            else:
                self._check_following(child)
            self._last = child.key or b""
            self._hashes += child.hash

    @property
    def count(self) -> int:
        """How many children there were."""
        return len(self._hashes) // HASH_LENGTH

    @property
    def is_complete(self) -> bool:
        """Whether they are all: they hash to the parent's hash."""
        return self.count > 0 and hash_hashes(bytes(self._hashes)) == self._parent.hash

    def finish(self) -> None:
        """End the answer; raise TreeError where it is empty or not complete."""
        if self.count == 0:
            raise TreeError(f"{self._where}: none")
        if not self.is_complete:
            raise TreeError(f"{self._where}: their hashes do not hash to the parent's")

    def _check_first(self, child: Node) -> None:
        if child.key != self._parent.key:
            raise TreeError(f"{self._where}: the first is {_name(child)}")
        if child.key is not None and not is_boundary(child.hash):
            raise TreeError(f"{self._where}: the first, {_name(child)}, is no boundary")
        if child.level == 0 and child.key is None and child.hash != ANCHOR.hash:
            raise TreeError(f"{self._where}: the anchor has another hash than the anchor of every tree")

    def _check_following(self, child: Node) -> None:
        if child.key is None or child.key <= self._last or (self._end is not None and child.key >= self._end):
            raise TreeError(f"{self._where}: {_name(child)} is out of range or order")
        if is_boundary(child.hash):
            raise TreeError(f"{self._where}: {_name(child)} is a boundary inside the span")


def _name(node: Node) -> str:
    return f"({node.level}, {'anchor' if node.key is None else node.key.hex()[:80]})"
