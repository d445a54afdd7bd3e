"""What a sync client asks for before it knows anything of the server's tree."""

from __future__ import annotations

from gossiplog.core import Tree


def hints(tree: Tree) -> list[tuple[int, bytes | None]]:
    """Return where a tree that has grown at its end may differ from this one, top down.

    That is at the last node of each level. Above level 1 a node's hash changes with what is added below it, so the last
    node of a level may start a node of the levels above it now, or no longer may: then the node before it has
    taken its place.
    """
    top = tree.root.level
    last = {level: tree.last(level).key for level in range(1, top + 1)}
    found: list[tuple[int, bytes | None]] = []
    for level in range(top, 0, -1):
        found += [(level, key) for key in dict.fromkeys(last[below] for below in range(level, 0, -1))]
        if 1 < level < top and last[level] == last[level - 1]:
            found.append((level, _before_last(tree, level)))
    return found


def _before_last(tree: Tree, level: int) -> bytes | None:
    """Return the key of the last node but one of a level below the root's. There are two: a root has two children."""
    siblings = tree.children(level + 1, tree.last(level + 1).key)
    if len(siblings) > 1:
        return siblings[-2].key
    return tree.children(level + 1, _before_last(tree, level + 1))[-1].key
