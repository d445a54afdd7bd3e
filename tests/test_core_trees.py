"""`gossiplog.core`: both cores make the same trees, and judge the same answers about them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.errors import TreeError
from tests.cores import outcome
from tests.strategies import repeatable


def shown(tree: Any) -> list[tuple[Any, ...]]:
    return [(node.level, node.key, node.hash) for level in range(tree.root.level + 1) for node in tree.nodes(level)]


# Keys and values are few, so that batches repeat entries; leaves are many enough for three levels.
_numbers = st.integers(0, 3000)


def entries(numbers: Sequence[int]) -> list[tuple[bytes, bytes]]:
    return [(hashlib.sha256(number.to_bytes(4)).digest()[: number % 19 + 2], b"value") for number in numbers]


@cache
def some_tree() -> Any:
    """A tree of several levels, which tests only read."""
    return reference.Tree().insert(entries(range(300)))


@repeatable(30)
@given(
    batches=st.lists(
        st.one_of(st.lists(_numbers, max_size=6), _numbers.map(lambda n: list(range(n, n + 400)))), max_size=5
    )
)
@pytest.mark.integration
def test_trees_are_a_function_of_their_entries(rust: ModuleType, batches: list[list[int]]) -> None:
    trees = [rust.Tree(), reference.Tree()]
    steps = [trees[1]]
    for batch in batches:
        trees = [tree.insert(entries(batch)) for tree in trees]
        steps.append(trees[1])
    everything = dict(entries([number for batch in batches for number in batch]))
    rebuilt = reference.Tree().insert(everything.items())
    assert len(trees[0]) == len(trees[1]) == len(rebuilt) == len(everything)
    assert shown(trees[0]) == shown(trees[1]) == shown(rebuilt)
    for level in range(1, rebuilt.root.level + 1):
        assert trees[0].last(level).key == trees[1].last(level).key == rebuilt.nodes(level)[-1].key
        for node in rebuilt.nodes(level):
            assert trees[0].next_key(level, node.key) == trees[1].next_key(level, node.key)
            below = [(child.key, child.hash) for child in trees[1].children(level, node.key)]
            assert [(child.key, child.hash) for child in trees[0].children(level, node.key)] == below
            for core, tree in zip((rust, reference), trees, strict=True):
                core.check_children(
                    tree.node(level, node.key), tree.next_key(level, node.key), tree.children(level, node.key)
                )
    for earlier in steps:
        missing = {node.key for node in rebuilt.nodes(0)} - {node.key for node in earlier.nodes(0)}
        assert list(earlier.diff(rebuilt)) == sorted(key for key in missing if key is not None)
        assert list(rebuilt.diff(earlier)) == []
    assert list(rust.Tree().diff(trees[0])) == sorted(everything)


@repeatable(25)
@given(first=st.lists(_numbers, max_size=300, unique=True), more=st.lists(_numbers, max_size=60, unique=True))
def test_trees_over_stored_rows(rust: ModuleType, first: list[int], more: list[int]) -> None:
    stored = dict(entries(first))
    added = {key: value for key, value in entries(more) if key not in stored}
    results = []
    for core in (rust, reference):
        old = core.Tree().insert(stored.items())
        rows = {key: core.leaf_hash(key, value) for key, value in stored.items()}
        level1 = [(node.key or b"", node.hash) for node in old.nodes(1)] if len(old) else []
        tree = core.Tree.open(level1, len(stored))
        new = [(key, core.leaf_hash(key, value), 0) for key, value in sorted(added.items())]

        def load(start: bytes, end: bytes | None, rows: dict[bytes, bytes] = rows) -> list[tuple[bytes, bytes]]:
            return sorted(row for row in rows.items() if row[0] >= start and (end is None or row[0] < end))

        grown, changed = tree.insert_leaves(new, load)
        rows.update((key, hash) for key, hash, _ in new)
        expected = old.insert(added.items())
        assert (len(grown), grown.root) == (len(expected), expected.root)
        written = dict(level1) | dict(grown.level1([key for key, _, _ in new]))
        opened = core.Tree.open(sorted(written.items()), len(grown))
        assert (len(opened), opened.root) == (len(expected), expected.root)
        assert opened.nodes(0, load) == expected.nodes(0)
        assert list(old.diff(grown, None, load)) == sorted(added)
        results.append((changed, grown.root.hash, grown.root.level))
    assert results[0] == results[1]


@repeatable(200)
@given(data=st.data())
@pytest.mark.integration
def test_answers_that_break_the_rules_of_the_tree_are_refused_alike(rust: ModuleType, data: st.DataObject) -> None:
    tree = some_tree()
    level = data.draw(st.integers(1, tree.root.level))
    parent = data.draw(st.sampled_from(tree.nodes(level)))
    end = tree.next_key(level, parent.key)
    children = tree.children(level, parent.key)
    at = data.draw(st.integers(0, len(children) - 1))
    child = children[at]
    match data.draw(
        st.sampled_from(["none", "level", "key", "hash", "drop", "swap", "twice", "parent", "end", "anchor"])
    ):
        case "level":
            children[at] = reference.Node(child.level + 1, child.key, child.hash)
        case "key":
            children[at] = reference.Node(child.level, data.draw(st.binary(max_size=4)), child.hash)
        case "hash":
            children[at] = reference.Node(child.level, child.key, data.draw(st.binary(min_size=16, max_size=16)))
        case "drop":
            del children[at]
        case "swap":
            children.reverse()
        case "twice":
            children.insert(at, child)
        case "parent":
            parent = data.draw(st.sampled_from(tree.nodes(level)))
        case "end":
            end = child.key
        case "anchor":
            children[at] = reference.Node(child.level, None, child.hash)
    results = []
    for core in (rust, reference):
        nodes = [core.Node(node.level, node.key, node.hash) for node in (parent, *children)]
        results.append(outcome(lambda core=core, nodes=nodes: core.check_children(nodes[0], end, nodes[1:])))

        def check_in_parts(core: Any = core, nodes: Any = nodes) -> None:
            check = core.ChildrenCheck(nodes[0], end)
            for start in range(1, len(nodes), 3):
                check.add(core.Nodes(nodes[start : start + 3]))
            check.finish()
            assert check.is_complete
            assert check.count == len(nodes) - 1

        results.append(outcome(check_in_parts))
    assert len({repr(result) for result in results}) == 1


_keys = st.one_of(st.none(), st.binary(min_size=20, max_size=20), st.binary(max_size=150))
_rows = st.lists(st.tuples(st.integers(0, 70), _keys, st.binary(min_size=16, max_size=16)), max_size=5)


def plain(nodes: Any) -> list[tuple[Any, ...]] | None:
    return None if nodes is None else [(node.level, node.key, node.hash) for node in nodes]


@repeatable(200)
@given(rows=_rows, data=st.data())
def test_answers_are_written_and_read_alike(
    rust: ModuleType, rows: list[tuple[int, bytes | None, bytes]], data: st.DataObject
) -> None:
    ours, theirs = (core.Nodes(core.Node(*row) for row in rows) for core in (rust, reference))
    answer: bytes = ours.encode()
    assert answer == theirs.encode()
    usual = all(level <= 63 and (key is None or len(key) == 20) for level, key, _ in rows)
    assert plain(rust.Nodes.decode(answer)) == (rows if usual else None)
    changed = bytearray(answer)
    for at in data.draw(st.lists(st.integers(0, max(len(answer) - 1, 0)), max_size=2)):
        changed[at : at + 1] = data.draw(st.binary(max_size=2))
    read = rust.Nodes.decode(bytes(changed))
    assert plain(read) == plain(reference.Nodes.decode(bytes(changed)))
    assert read is None or read.encode() == changed


@repeatable(100)
@given(
    theirs=st.lists(_numbers, max_size=20, unique=True),
    ours=st.lists(_numbers, max_size=20, unique=True),
    lie=st.booleans(),
)
def test_leaves_that_are_lacking(rust: ModuleType, theirs: list[int], ours: list[int], lie: bool) -> None:
    stored = sorted((key, reference.leaf_hash(key, value)) for key, value in entries(ours))
    told = sorted((key, reference.leaf_hash(key, value)) for key, value in entries(theirs))
    if lie:
        told = [(key, bytes(16)) for key, _ in told]
    results = []
    for core in (rust, reference):
        leaves = core.Nodes([core.Node(0, None, bytes(16)), *(core.Node(0, *leaf) for leaf in told)])
        assert leaves.keys == [key for key, _ in told]
        assert len(leaves) == len(told) + 1
        results.append(outcome(lambda leaves=leaves: leaves.lacking(stored)))
    wanted = sorted({key for key, _ in told} - {key for key, _ in stored})
    assert results[0] == results[1]
    assert results[0] == (("raised", TreeError) if lie and set(theirs) & set(ours) else ("returned", wanted))


@repeatable(30)
@given(shared=st.lists(_numbers, max_size=300, unique=True), more=st.lists(_numbers, max_size=60, unique=True))
def test_nodes_that_differ(rust: ModuleType, shared: list[int], more: list[int]) -> None:
    for core in (rust, reference):
        tree = core.Tree().insert(entries(shared))
        other = tree.insert(entries(more))
        for level in range(2, other.root.level + 1):
            for node in other.nodes(level):
                span, end = other.span(level, node.key), other.next_key(level, node.key)
                assert list(span) == other.children(level, node.key)
                core.check_children(node, end, span)
                assert tree.differing(span, end) == [
                    (child, other.next_key(level - 1, child.key))
                    for child in span
                    if tree.node(level - 1, child.key) != child
                ]
