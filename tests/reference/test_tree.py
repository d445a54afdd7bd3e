from types import ModuleType

import pytest

from gossiplog.errors import TreeError


def test_the_empty_tree(core: ModuleType) -> None:
    tree = core.Tree()
    assert (len(tree), tree.root.level, tree.root.key) == (0, 0, None)
    assert tree.nodes(0) == [tree.root]
    assert tree.node(1, None) is None
    assert list(tree.diff(core.Tree())) == []
    opened = core.Tree.open([], 0)
    assert opened.root == tree.root
    grown, rows = opened.insert_leaves([(b"k", bytes(16), 1)], lambda start, end: [])
    assert [key for key, _ in rows] == [b"", b"k"]
    assert len(grown) == 1


def test_entries_that_no_tree_holds(core: ModuleType) -> None:
    tree = core.Tree().insert([(b"k", b"v")])
    for entries in ([(b"", b"v")], [(b"k", b"w")], [(b"a", b"v"), (b"a", b"w")]):
        with pytest.raises(TreeError):
            tree.insert(entries)
    assert tree.insert([(b"k", b"v"), (b"k", b"v")]).root == tree.root


def test_nodes_that_are_not_there(core: ModuleType) -> None:
    tree = core.Tree().insert([(b"k", b"v")])
    assert tree.node(0, b"k").key == b"k"
    assert tree.node(0, b"x") is None
    assert tree.node(1, b"x") is None
    with pytest.raises(KeyError):
        tree.children(1, b"x")
    with pytest.raises(KeyError):
        tree.children(2, None)
    with pytest.raises(ValueError, match="level 0"):
        tree.children(0, None)
    with pytest.raises(ValueError, match="level 2"):
        tree.last(2)
    assert tree.next_key(0, None) is tree.next_key(9, None) is None


def test_rows_that_are_no_level_1(core: ModuleType) -> None:
    anchor, other = (b"", bytes(16)), (b"k", bytes(16))
    for rows, count in [([other], 1), ([anchor], 0), ([], 1), ([anchor, anchor], 2), ([anchor, other, other], 3)]:
        with pytest.raises(TreeError):
            core.Tree.open(rows, count)


def test_a_loader_of_another_tree_is_found_out(core: ModuleType) -> None:
    whole = core.Tree().insert([(bytes([n]), b"") for n in range(1, 10)])
    tree = core.Tree.open([(node.key or b"", node.hash) for node in whole.nodes(1)], 9)
    with pytest.raises(TreeError, match="leaves"):
        tree.insert([(b"new", b"")], lambda start, end: [])
    with pytest.raises(TreeError, match="leaves"):
        tree.node(0, b"\x01", lambda start, end: [(b"\x01", bytes(16))])
