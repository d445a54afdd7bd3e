"""The prolly tree: immutable, a function of its entries alone. Source: wire format, "Prolly tree"; okra, version 3.

The reference implementation keeps level 1 as one list and builds the levels above anew, where the Rust core shares
structure. Entries are only ever added: a leaf that is a boundary stays one, so a node of level 1 never disappears, and
an insert only replaces some of them and puts others between.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import TypeAlias, final

from gossiplog.errors import TreeError
from gossiplog.reference.limits import HASH_LENGTH
from gossiplog.reference.node import ANCHOR, Node, Nodes, leaf_hash, parent_hash, parents_of

# The leaves (key, 16-byte hash) with start <= key < end, ascending; an end of None is the end of the tree.
Leaves: TypeAlias = Callable[[bytes, bytes | None], Sequence[tuple[bytes, bytes]]]
_Leaf: TypeAlias = tuple[bytes, bytes]


@final
class Tree:
    """A prolly tree: immutable.

    A tree holds its level 1 and what is above it. The leaves are held in memory by a tree made by `Tree()`, and read by
    the loader `leaves` given to the call by one made by `Tree.open`.
    """

    __slots__ = ("_count", "_levels", "_memory")

    # The levels from 1 to the root's, without any when the tree is empty.
    _levels: tuple[tuple[Node, ...], ...]
    _count: int
    # All leaves, ascending, of a tree that has them in memory.
    _memory: tuple[_Leaf, ...] | None

    def __new__(cls) -> Tree:
        """Return the empty tree."""
        return cls._make((), 0, ())

    @classmethod
    def _make(cls, level1: Sequence[Node], count: int, memory: tuple[_Leaf, ...] | None) -> Tree:
        self = super().__new__(cls)
        levels = [tuple(level1)] if level1 else []
        while levels and len(levels[-1]) > 1:
            levels.append(tuple(parents_of(levels[-1])))
        self._levels, self._count, self._memory = tuple(levels), count, memory
        return self

    @staticmethod
    def open(level1: Iterable[tuple[bytes, bytes]], count: int) -> Tree:
        """From stored rows (key, hash), ascending, the anchor's key being b"", and the number of entries.

        Raises:
            TreeError: rows that are not level 1 of a tree with that many entries.
        """
        return Tree._make(_level1(level1, count), count, None)

    def level1(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return the level-1 rows (key, hash), ascending, that the insertion of these keys can have changed.

        For each key, they are the node that holds it, and the one before, which the key may have cut off.
        """
        nodes = self._level(1)
        places = {place for key in keys for place in (self._span_at(key) - 1, self._span_at(key)) if place >= 0}
        return [(nodes[place].key or b"", nodes[place].hash) for place in sorted(places)]

    def insert(self, entries: Iterable[tuple[bytes, bytes]], leaves: Leaves | None = None) -> Tree:
        """With the entries (key, value) as well. An entry that is there already changes nothing.

        Raises:
            TreeError: an empty key, or a key that is there with another value.
        """
        return self._insert([(bytes(key), leaf_hash(key, value)) for key, value in entries], leaves)[0]

    def insert_leaves(
        self, entries: Sequence[tuple[bytes, bytes, int]], leaves: Leaves | None = None
    ) -> tuple[Tree, list[tuple[bytes, bytes]]]:
        """With the rows of `WritePlan.leaves` (their third column is passed over) as well.

        The loader gives the leaves of the tree as it was: in a database, they are read before the new ones are written.

        Returns:
            The new tree, and the level-1 rows that changed or are new, ascending, the anchor's key being b"".

        Raises:
            TreeError: an empty key, a key that is there with another hash, or loaded leaves that are not this tree's.
        """
        tree, changed = self._insert([(bytes(key), bytes(hash)) for key, hash, _ in entries], leaves)
        return tree, [(node.key or b"", node.hash) for node in changed]

    def _insert(self, entries: Iterable[_Leaf], leaves: Leaves | None) -> tuple[Tree, list[Node]]:
        added: dict[bytes, bytes] = {}
        for key, hash in entries:
            _check_leaf(key, hash)
            _check_same(key, added.setdefault(key, hash), hash)
        level1: list[Node] = []
        changed: list[Node] = []
        fresh: list[_Leaf] = []
        done = 0
        for position, group in groupby(sorted(added.items()), key=lambda leaf: self._span_at(leaf[0])):
            new = dict(group)
            old = dict(self._span(position, leaves))
            for key, hash in new.items():
                _check_same(key, old.get(key, hash), hash)
            fresh += [leaf for leaf in new.items() if leaf[0] not in old]
            start = self._level(1)[position].key if self._levels else None
            replaced = list(parents_of(_leaf_nodes(sorted((old | new).items()), start)))
            level1 += [*self._level(1)[done:position], *replaced]
            was = set(self._level(1)[position : position + 1])
            changed += [node for node in replaced if node not in was]
            done = position + 1
        level1 += self._level(1)[done:]
        memory = None if self._memory is None else tuple(sorted((*self._memory, *fresh)))
        return Tree._make(level1, self._count + len(fresh), memory), changed

    @property
    def root(self) -> Node:
        """The one node of the highest level; of an empty tree, the anchor of level 0."""
        return self._levels[-1][0] if self._levels else ANCHOR

    def node(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> Node | None:
        """Return the node at a level, None when it is not there."""
        if level == 0:
            if key is None:
                return ANCHOR
            found = [leaf for leaf in self._span(self._span_at(key), leaves) if leaf[0] == key]
            return Node(0, *found[0]) if found else None
        position = self._position(level, key)
        return None if position is None else self._level(level)[position]

    def children(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> list[Node]:
        """Return the nodes, one level below, that a node covers, ascending.

        Raises:
            KeyError: a node that is not there.
            ValueError: level 0.
        """
        if level < 1:
            raise ValueError(f"level {level}: a node of level 0 has no children")
        if self._position(level, key) is None:
            raise KeyError(f"no node of level {level} has this key")
        end = self.next_key(level, key)
        if level == 1:
            return _leaf_nodes(self._span(self._span_at(key or b""), leaves), key)
        below = self._level(level - 1)
        return list(below[bisect_left(below, key or b"", key=_order) : _end(below, end)])

    def span(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> Nodes:
        """Return the children in one object; raise as `children` does."""
        return Nodes(self.children(level, key, leaves))

    def differing(self, nodes: Nodes, end: bytes | None) -> list[tuple[Node, bytes | None]]:
        """Return those of the nodes that this tree does not have, each with the key where its range ends.

        Args:
            nodes: all or some of one level from 1, without a gap.
            end: where the last one's range ends, None at the end of the tree.
        """
        ends = [*(node.key for node in nodes), end][1:]
        pairs = zip(nodes, ends, strict=True)
        return [(node, stop) for node, stop in pairs if self.node(node.level, node.key) != node]

    def nodes(self, level: int, leaves: Leaves | None = None) -> list[Node]:
        """Return all nodes of a level, ascending; none above the root's."""
        if level:
            return list(self._level(level))
        spans = [self._span(position, leaves) for position in range(len(self._level(1)))]
        return _leaf_nodes(chain.from_iterable(spans), None)

    def next_key(self, level: int, key: bytes | None) -> bytes | None:
        """Return the key of the node after this one on its level (1 and up): where its range ends.

        None for the last one, and for a level that the tree does not have.
        """
        nodes = self._level(level)
        position = bisect_right(nodes, key or b"", key=_order)
        return nodes[position].key if position < len(nodes) else None

    def last(self, level: int) -> Node:
        """Return the last node of a level from 1 to the root's.

        Raises:
            ValueError: another level.
        """
        nodes = self._level(level)
        if not nodes:
            raise ValueError(f"level {level}: expected 1 to {len(self._levels)}")
        return nodes[-1]

    def __len__(self) -> int:
        return self._count

    def diff(self, other: Tree, leaves: Leaves | None = None, other_leaves: Leaves | None = None) -> Iterator[bytes]:
        """Yield the keys that only `other` has, ascending. Costs grow with the difference."""
        pending = [other.root]
        while pending:
            node = pending.pop()
            if node.level == 0 or self.node(node.level, node.key, leaves) == node:
                # A node of level 0 is the root of an empty tree.
                continue
            if node.level > 1:
                pending.extend(reversed(other.children(node.level, node.key)))
                continue
            start, end = node.key or b"", other.next_key(1, node.key)
            own = {key for key, _ in self._load(start, end, leaves)}
            yield from (key for key, _ in other._load(start, end, other_leaves) if key not in own)

    def _level(self, level: int) -> tuple[Node, ...]:
        return self._levels[level - 1] if 1 <= level <= len(self._levels) else ()

    def _position(self, level: int, key: bytes | None) -> int | None:
        nodes = self._level(level)
        position = bisect_left(nodes, key or b"", key=_order)
        return position if position < len(nodes) and nodes[position].key == key else None

    def _span_at(self, key: bytes) -> int:
        """Return the position in level 1 of the node that covers a key; 0 when there is none yet."""
        return max(bisect_right(self._level(1), key, key=_order) - 1, 0)

    def _span(self, position: int, leaves: Leaves | None) -> Sequence[_Leaf]:
        """Return the leaves of the node at a position in level 1, checked against its hash; none in an empty tree."""
        if not self._levels:
            return ()
        node = self._level(1)[position]
        found = self._load(node.key or b"", self.next_key(1, node.key), leaves)
        children = _leaf_nodes(found, node.key)
        # The hash is over the leaves' hashes alone.
        ascending = all(left < right for left, right in pairwise(key for key, _ in found))
        if not children or children[0].key != node.key or parent_hash(children) != node.hash or not ascending:
            where = "the anchor" if node.key is None else node.key.hex()
            raise TreeError(f"the leaves loaded for the node at {where} of level 1 are not those of the tree")
        return found

    def _load(self, start: bytes, end: bytes | None, leaves: Leaves | None) -> Sequence[_Leaf]:
        if leaves is not None:
            return leaves(start, end)
        if self._memory is None:
            raise ValueError("this tree was opened from level 1 alone: give the call a loader of leaves")
        until = len(self._memory) if end is None else bisect_left(self._memory, (end,))
        return self._memory[bisect_left(self._memory, (start,)) : until]


def _order(node: Node) -> bytes:
    return node.key or b""


def _end(nodes: Sequence[Node], end: bytes | None) -> int:
    return len(nodes) if end is None else bisect_left(nodes, end, key=_order)


def _leaf_nodes(leaves: Iterable[_Leaf], start: bytes | None) -> list[Node]:
    """Return leaves as nodes, after the anchor when they begin the tree."""
    return [*([ANCHOR] if start is None else []), *(Node(0, key, hash) for key, hash in leaves)]


def _level1(rows: Iterable[tuple[bytes, bytes]], count: int) -> list[Node]:
    nodes: list[Node] = []
    for key, hash in rows:
        if bool(key) != bool(nodes) or (nodes and key <= (nodes[-1].key or b"")):
            raise TreeError(f"row {key.hex()!r} of level 1: expected the anchor first, then keys that ascend")
        if len(hash) != HASH_LENGTH:
            raise TreeError(f"row {key.hex()!r} of level 1: a hash of {len(hash)} bytes, expected {HASH_LENGTH}")
        nodes.append(Node(1, bytes(key) or None, bytes(hash)))
    # Every node but the anchor's covers one leaf or more.
    if count < max(len(nodes) - 1, bool(nodes)) or (count and not nodes):
        raise TreeError(f"level 1 has {len(nodes)} rows, which cannot cover {count} entries")
    return nodes


def _check_leaf(key: bytes, hash: bytes) -> None:
    if not key:
        raise TreeError("an entry with an empty key")
    if len(hash) != HASH_LENGTH:
        raise TreeError(f"entry {key.hex()}: a hash of {len(hash)} bytes, expected {HASH_LENGTH}")


def _check_same(key: bytes, first: bytes, second: bytes) -> None:
    if first != second:
        raise TreeError(f"entry {key.hex()}: two values, with the hashes {first.hex()} and {second.hex()}")
