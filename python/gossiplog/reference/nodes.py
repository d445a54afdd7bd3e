"""Nodes on their way between two trees: the bytes of an answer to GetChildren, and what of it the other side lacks.

The bytes are the protobuf message `Response.GetChildren` of the wire format, "Frames": a field 1 for each node, in
it the level (field 1, left out when it is 0), the key (field 2, left out for the anchor) and the hash (field 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, final

from gossiplog.errors import TreeError
from gossiplog.reference.limits import HASH_LENGTH, KEY_LENGTH
from gossiplog.reference.node import Node
from gossiplog.reference.varint import write_uvarint

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
