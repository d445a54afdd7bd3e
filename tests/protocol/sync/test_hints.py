"""`gossiplog.protocol.sync.hints`."""

from __future__ import annotations

import random

import pytest

from gossiplog import core
from gossiplog.core import Node, Tree
from gossiplog.protocol.sync.hints import hints


def tree_of(count: int) -> Tree:
    generator = random.Random(1)
    entries = [((core.encode_clock(clock) + generator.randbytes(20))[:20], b"") for clock in range(1, count + 1)]
    return Tree().insert(entries)


def path_to(tree: Tree, key: bytes) -> list[Node]:
    """The nodes, from the root to level 1, in whose ranges a key is."""
    path = [tree.root]
    while path[-1].level > 1:
        children = tree.children(path[-1].level, path[-1].key)
        path.append([child for child in children if child.key is None or child.key <= key][-1])
    return path


@pytest.mark.slow
def test_a_tree_that_grew_at_its_end_differs_where_it_was_guessed() -> None:
    """Sync client, 3: at each level that the shorter tree has."""
    for count in range(1000, 3000, 29):
        short, long = tree_of(count), tree_of(count + 1 + count % 50)
        last = short.last(1).key
        guessed = set(hints(short))
        for node in path_to(long, last or b""):
            assert node.level > short.root.level or (node.level, node.key) in guessed
