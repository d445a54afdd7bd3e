"""Associative fragments: a tree's root from sorted runs of entries that are read apart.

Which parent a node falls under is decided by the last boundary before it. So inside a run everything between two
boundaries closes locally, on all levels. What depends on the neighbours is, on each level, the nodes before the first
boundary, whose parent begins further left, and the parent after the last one, which may have more children to the
right. That is all that a fragment holds.

Joining concatenates, level by level from below. The right one's open start goes into the left one's open end; if the
right one has a boundary, it closes that end, which makes a node of the level above, perhaps itself a boundary there.
The root comes from joining onto the anchor, which begins a parent on every level.

Source: the rules of the tree ("Prolly tree" in the wire format), read as a monoid, in the manner of parallel prefix
sums (G. E. Blelloch, "Prefix Sums and Their Applications", 1990). The layout of the bytes is documented in
`Fragment.to_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final, TypeAlias, final

from gossiplog.errors import DecodeError, TreeError
from gossiplog.reference.limits import HASH_LENGTH
from gossiplog.reference.node import ANCHOR, Node, hash_hashes, is_boundary

# A node's key, b"" for the anchor, and its hash.
_Entry: TypeAlias = tuple[bytes, bytes]

_VERSION: Final = 1
#: A level more costs an attacker, who makes up entries for it, 32 times the work, so nobody comes near.
_MAX_LEVELS: Final = 64
_MAX_COUNT: Final = 2**64 - 1


@dataclass(slots=True)
class _Level:
    """The open ends of a level.

    Attributes:
        prefix: the nodes before the first that begins a parent.
        opener: the key of the last parent, which is still open; None where the level has no boundary.
        children: the hashes of that parent's children.
    """

    prefix: list[_Entry] = field(default_factory=list)
    opener: bytes | None = None
    children: list[bytes] = field(default_factory=list)

    def keys(self) -> list[bytes]:
        return [*(key for key, _ in self.prefix), *([] if self.opener is None else [self.opener])]

    def parent(self, opener: bytes) -> _Entry:
        """Return the parent that is open, as it would close now."""
        return opener, hash_hashes(b"".join(self.children))

    def replace(self, opener: bytes, children: Sequence[bytes]) -> _Entry | None:
        """Open another parent, and return the one that this closes, if there was one."""
        closed = None if self.opener is None else self.parent(self.opener)
        self.opener, self.children = opener, list(children)
        return closed

    def __len__(self) -> int:
        return len(self.prefix) + len(self.children)


def _push(levels: list[_Level], level: int, node: _Entry | None) -> None:
    """Add a node at the right end of a level, and what that closes on the levels above."""
    while node is not None:
        if level == len(levels):
            levels.append(_Level())
        key, hash = node
        if key and not is_boundary(hash):
            if levels[level].opener is None:
                levels[level].prefix.append(node)
            else:
                levels[level].children.append(hash)
            return
        node = levels[level].replace(key, [hash])
        level += 1


def _append(left: list[_Level], right: Sequence[_Level]) -> None:
    """Add all levels of another run at the right end."""
    for level, ends in enumerate(right):
        for node in ends.prefix:
            _push(left, level, node)
        if ends.opener is not None:
            if level == len(left):
                left.append(_Level())
            _push(left, level + 1, left[level].replace(ends.opener, ends.children))


@final
class Fragment:
    """What a run of neighbouring entries contributes to a tree: immutable.

    Args:
        leaves: entries (key, leaf hash) whose keys ascend.

    Raises:
        TreeError: an empty key, one that is not above the one before it, or a hash that is not 16 bytes long.
    """

    __slots__ = ("_count", "_first", "_last", "_levels")

    def __init__(self, leaves: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._levels: list[_Level] = []
        self._count = 0
        self._first: bytes | None = None
        self._last: bytes | None = None
        for key, hash in leaves:
            if len(hash) != HASH_LENGTH:
                raise TreeError(f"entry {key.hex()}: a hash of {len(hash)} bytes, expected {HASH_LENGTH}")
            if not key:
                raise TreeError("an entry with an empty key")
            if self._last is not None and key <= self._last:
                raise TreeError(f"the key {key.hex()} is not above the one before it, {self._last.hex()}")
            _push(self._levels, 0, (key, hash))
            self._count += 1
            self._first = key if self._first is None else self._first
            self._last = key

    @property
    def count(self) -> int:
        """The number of entries."""
        return self._count

    @property
    def first(self) -> bytes | None:
        """The lowest key; None without entries."""
        return self._first

    @property
    def last(self) -> bytes | None:
        """The highest key; None without entries."""
        return self._last

    def join(self, right: Fragment) -> Fragment:
        """Return the fragment of the entries of both.

        Raises:
            TreeError: not all entries of `right` are above this one's.
        """
        if right._first is None:
            return self
        if self._last is None:
            return right
        if right._first <= self._last:
            raise TreeError(
                f"the fragments overlap: the left one ends at {self._last.hex()}, the right one begins at"
                f" {right._first.hex()}"
            )
        if self._count + right._count > _MAX_COUNT:
            raise TreeError("the fragments have more than 2^64-1 entries together")
        joined = Fragment()
        _append(joined._levels, self._levels)
        _append(joined._levels, right._levels)
        joined._count = self._count + right._count
        joined._first, joined._last = self._first, right._last
        return joined

    @property
    def root(self) -> Node:
        """The root of the tree that has these entries and no others."""
        levels: list[_Level] = []
        _push(levels, 0, (b"", ANCHOR.hash))
        _append(levels, self._levels)
        level = 0
        # The anchor alone is the root. It opened a parent on every level that was reached.
        while (top := levels[level]).opener or len(top.children) > 1:
            _push(levels, level + 1, top.parent(top.opener or b""))
            level += 1
        return Node(level, None, top.children[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fragment) and self.to_bytes() == other.to_bytes()

    def to_bytes(self) -> bytes:
        """Return the bytes in which a fragment travels between processes.

        Numbers are big-endian. A key is its length (4 bytes) and its bytes. A fragment is: the version, 1 (1 byte); the
        number of entries (8); if that is not 0, the first and the last key, the number of levels (1), and for each
        level from 0: the number of nodes before the first boundary (4), of each the key and the hash (16); the number
        of hashes of the open parent (4), and if there are any, its key and the hashes.
        """
        out = bytearray([_VERSION]) + self._count.to_bytes(8)
        if self._first is None or self._last is None:
            return bytes(out)
        out += _string(self._first) + _string(self._last) + bytes([len(self._levels)])
        for level in self._levels:
            out += len(level.prefix).to_bytes(4) + b"".join(_string(key) + hash for key, hash in level.prefix)
            out += len(level.children).to_bytes(4)
            if level.opener is not None:
                out += _string(level.opener) + b"".join(level.children)
        return bytes(out)

    @staticmethod
    def from_bytes(data: bytes) -> Fragment:
        """Read what `to_bytes` wrote.

        That the hashes are right cannot be seen from it: the sender is trusted with that.

        Raises:
            DecodeError: anything that no fragment is written as.
        """
        reader = _Reader(data)
        if (version := reader.number(1)) != _VERSION:
            raise DecodeError(f"tree fragment: version {version}, expected {_VERSION}", 0)
        fragment = Fragment()
        fragment._count = reader.number(8)
        if fragment._count:
            fragment._first, fragment._last = reader.key(), reader.key()
            start = reader.offset
            if not 1 <= (levels := reader.number(1)) <= _MAX_LEVELS:
                raise DecodeError(f"tree fragment: {levels} levels, expected 1 to {_MAX_LEVELS}", start)
            fragment._levels = [reader.level() for _ in range(levels)]
            for problem in fragment._contradictions(fragment._first, fragment._last):
                raise DecodeError(f"tree fragment: {problem}", start)
        if reader.offset < len(data):
            raise DecodeError("tree fragment: bytes after its end", reader.offset)
        return fragment

    def _contradictions(self, first: bytes, last: bytes) -> Iterator[str]:
        """Yield why no run of entries leads to this."""
        levels = self._levels
        for level in levels:
            keys = level.keys()
            if not keys:
                yield "a level is empty"
            if any(left >= right for left, right in pairwise(keys)):
                yield "the keys of a level do not ascend"
            if any(is_boundary(hash) for _, hash in level.prefix):
                yield "a boundary stands before the first of its level"
            if [is_boundary(hash) for hash in level.children].count(True) != (level.opener is not None) or (
                level.opener is not None and not is_boundary(level.children[0])
            ):
                yield "an open parent has not just its first child as a boundary"
        # The nodes of a level are those that closed below: from the first boundary there, before the open parent.
        floor = b""
        for below, above in pairwise(levels):
            floor = below.prefix[-1][0] if below.prefix else floor
            if below.opener is None:
                yield "a level stands above one without a boundary"
            elif not floor < above.keys()[0] <= above.keys()[-1] < below.opener:
                yield "the keys of a level are not between the ends of the level below"
        # A level without a prefix begins with the first node of the level above.
        if next(chain((level.prefix[0][0] for level in levels if level.prefix), levels[-1].keys())) != first:
            yield "its first key is not that of its first node"
        highest = levels[0].keys()[-1]
        if last <= highest if len(levels[0].children) > 1 else last != highest:
            yield "its last key is not that of its last entry"
        # Every node that is seen stands for entries of its own; on level 0 it is one, and nothing was closed below it.
        seen = sum(map(len, levels))
        if self._count < seen or (len(levels) == 1 and self._count > seen):
            yield "its number of entries is not that of its nodes"


def _string(key: bytes) -> bytes:
    return len(key).to_bytes(4) + key


@dataclass(slots=True)
class _Reader:
    """Reads bytes from outside, which may end anywhere."""

    data: bytes
    offset: int = 0

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.offset:
            raise DecodeError("tree fragment: the data ends within it", len(self.data))
        self.offset += length
        return self.data[self.offset - length : self.offset]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def key(self) -> bytes:
        start = self.offset
        key = self.take(self.number(4))
        if not key:
            raise DecodeError("tree fragment: an empty key", start)
        return key

    def hash(self) -> bytes:
        return self.take(HASH_LENGTH)

    def level(self) -> _Level:
        # Every iteration takes bytes, so a length that is too large ends with the data.
        prefix = [(self.key(), self.hash()) for _ in range(self.number(4))]
        if not (children := self.number(4)):
            return _Level(prefix)
        return _Level(prefix, self.key(), [self.hash() for _ in range(children)])
