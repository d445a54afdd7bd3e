"""Nodes of the prolly tree: the rules that bind them, and their way between two trees.

`Nodes` is an answer to GetChildren, and what of it the other side lacks. Its bytes are the protobuf message
`Response.GetChildren` of the wire format, "Frames": a field 1 for each node, in it the level (field 1, left out when it
is 0), the key (field 2, left out for the anchor) and the hash (field 3).

Source: wire format, "Prolly tree"; okra, version 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from gossiplog.errors import TreeError
from gossiplog.reference.blake3 import blake3
from gossiplog.reference.limits import HASH_LENGTH, KEY_LENGTH
from gossiplog.reference.multiformats import write_uvarint

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


_CHILD: Final = b"\x0a"
_LEVEL: Final = b"\x08"
_KEY: Final = b"\x12"
_HASH: Final = b"\x1a"
#: The largest level that is decoded: a root's is 64 at most, so its children's are not above.
_MAX_LEVEL: Final = 63


@final
@dataclass(frozen=True, slots=True, init=False)
class Nodes:
    """Nodes in a row, as an answer to GetChildren holds them."""

    _nodes: tuple[Node, ...]

    def __init__(self, nodes: Iterable[Node]) -> None:
        object.__setattr__(self, "_nodes", tuple(nodes))

    @staticmethod
    def decode(data: bytes) -> Nodes | None:
        """Return the nodes of an answer in the form that `encode` writes, with keys of the usual length.

        None is for bytes in another form, which may be valid protobuf or not: they are for a general parser.
        """
        nodes = []
        offset = 0
        while offset < len(data):
            child, offset = _field(_CHILD, data, offset)
            node = None if child is None else _decode_child(child)
            if node is None:
                return None
            nodes.append(node)
        return Nodes(nodes)

    def encode(self) -> bytes:
        """Return the bytes of an answer of these nodes."""
        return b"".join(_write_field(_CHILD, _encode_child(node)) for node in self._nodes)

    @property
    def keys(self) -> list[bytes]:
        """Those that the nodes have, in their order: an anchor has none."""
        return [node.key for node in self._nodes if node.key is not None]

    def lacking(self, stored: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Return the keys of those leaves that are not stored.

        Args:
            stored: leaves (key, hash). They ascend, as these nodes must.

        Raises:
            TreeError: a leaf that is stored with another hash.
        """
        own = dict(stored)
        for node in self._nodes:
            if node.key is not None and own.get(node.key, node.hash) != node.hash:
                raise TreeError(f"the leaf {node.key.hex()} has another hash than the one that is stored locally")
        return [key for key in self.keys if key not in own]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)


def _decode_child(data: bytes) -> Node | None:
    level = offset = 0
    if data[:1] == _LEVEL and len(data) > 1 and 1 <= data[1] <= _MAX_LEVEL:
        level, offset = data[1], 2
    key: bytes | None = None
    if data[offset : offset + 1] == _KEY:
        key, offset = _field(_KEY, data, offset)
        if key is None or len(key) != KEY_LENGTH:
            return None
    hash, offset = _field(_HASH, data, offset)
    return Node(level, key, hash) if hash is not None and len(hash) == HASH_LENGTH and offset == len(data) else None


def _encode_child(node: Node) -> bytes:
    level = _LEVEL + write_uvarint(node.level) if node.level else b""
    key = b"" if node.key is None else _write_field(_KEY, node.key)
    return level + key + _write_field(_HASH, node.hash)


def _field(tag: bytes, data: bytes, offset: int) -> tuple[bytes | None, int]:
    """Return what is in the field at an offset, if it has this tag and less than 128 bytes, and where it ends."""
    start = offset + 2
    if len(data) < start or data[offset : offset + 1] != tag or data[offset + 1] > 0x7F:
        return None, len(data)
    end = start + data[offset + 1]
    return (data[start:end], end) if end <= len(data) else (None, len(data))


def _write_field(tag: bytes, data: bytes) -> bytes:
    return tag + write_uvarint(len(data)) + data
