from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import _core, reference
from gossiplog.errors import DecodeError, TreeError
from tests.strategies import damaged, repeatable

Leaves = list[tuple[bytes, bytes]]


def entries(seed: int, count: int, one_in: int = 32) -> Leaves:
    """Leaves that ascend; one in so many is a boundary, so that few entries make many levels."""

    def leaf(index: int) -> tuple[bytes, bytes]:
        digest = hashlib.sha256(seed.to_bytes(4) + index.to_bytes(4)).digest()
        begins = b"\0\0" if digest[31] % one_in == 0 else b"\xff\xff"
        return digest[:20], begins + digest[:14]

    return sorted(leaf(index) for index in range(count))


def built(core: ModuleType, leaves: Leaves) -> Any:
    """The root of the tree itself."""
    return core.Tree().insert_leaves([(key, hash, 0) for key, hash in leaves])[0].root


def split(core: ModuleType, leaves: Leaves, cuts: Sequence[int]) -> list[Any]:
    places = [0, *sorted(cut % (len(leaves) + 1) for cut in cuts), len(leaves)]
    return [core.Fragment(leaves[start:end]) for start, end in pairwise(places)]


def joined(core: ModuleType, fragments: Sequence[Any]) -> Any:
    return reduce(lambda left, right: left.join(right), fragments, core.Fragment())


@repeatable(60)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 250),
    one_in=st.sampled_from([1, 2, 4, 32, 255]),
    cuts=st.lists(st.integers(0, 250), max_size=12),
)
def test_any_split_has_the_root_of_the_tree(seed: int, count: int, one_in: int, cuts: list[int]) -> None:
    leaves = entries(seed, count, one_in)
    for core in (reference, _core):
        fragments = split(core, leaves, cuts)
        whole = joined(core, fragments)
        assert whole.root == built(core, leaves)
        assert whole == core.Fragment(leaves)
        assert (whole.count, whole.first, whole.last) == (
            count,
            *((leaves[0][0], leaves[-1][0]) if leaves else (None, None)),
        )
        # From the right it is the same: joining is associative.
        assert reduce(lambda right, left: left.join(right), reversed(fragments), core.Fragment()) == whole


@repeatable(60)
@given(
    seed=st.integers(0, 1000),
    one_in=st.sampled_from([1, 2, 32]),
    cuts=st.lists(st.integers(0, 150), min_size=1, max_size=4),
)
def test_bytes_are_the_same_in_both_cores_and_come_back(seed: int, one_in: int, cuts: list[int]) -> None:
    leaves = entries(seed, 150, one_in)
    for own, other in zip(split(_core, leaves, cuts), split(reference, leaves, cuts), strict=True):
        assert own.to_bytes() == other.to_bytes()
        assert _core.Fragment.from_bytes(own.to_bytes()) == own
        assert reference.Fragment.from_bytes(own.to_bytes()) == other


@pytest.mark.parametrize("one_in", [1, 2, 32])
def test_every_cut_of_a_run(core: ModuleType, one_in: int) -> None:
    """One of the cuts is right before a boundary, one right after, and some stitch a node that is itself a boundary."""
    leaves = entries(7, 120, one_in)
    root = built(core, leaves)
    for cut in range(len(leaves) + 1):
        assert joined(core, split(core, leaves, [cut])).root == root


def test_entries_one_by_one(core: ModuleType) -> None:
    leaves = entries(8, 100, 3)
    assert joined(core, split(core, leaves, range(len(leaves) + 1))).root == built(core, leaves)


def test_without_entries(core: ModuleType) -> None:
    empty = core.Fragment()
    assert empty.root == core.Tree().root
    assert (empty.count, empty.first, empty.last) == (0, None, None)
    assert core.Fragment.from_bytes(empty.to_bytes()) == empty == empty.join(empty)


def test_a_million_entries_would_take_a_few_kilobytes() -> None:
    fragment = _core.Fragment(entries(9, 20_000)[5_000:15_000])
    assert len(fragment.to_bytes()) < 16_000


def test_entries_that_do_not_ascend(core: ModuleType) -> None:
    hash = bytes(16)
    for leaves in ([(b"b", hash), (b"a", hash)], [(b"a", hash)] * 2, [(b"", hash)], [(b"a", bytes(15))]):
        with pytest.raises(TreeError):
            core.Fragment(leaves)


def test_fragments_that_overlap(core: ModuleType) -> None:
    low, high = core.Fragment([(b"a", bytes(16)), (b"c", bytes(16))]), core.Fragment([(b"c", bytes(16))])
    for left, right in ((low, high), (high, low), (low, low)):
        with pytest.raises(TreeError, match=r"overlap.*63"):
            left.join(right)
    assert low.join(core.Fragment([(b"d", bytes(16))])).count == 3


def key(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


BOUNDARY, OTHER = bytes(16), b"\xff" * 16
NONE, ONE, TWO = (0).to_bytes(4), (1).to_bytes(4), (2).to_bytes(4)
HEAD = b"\1" + (3).to_bytes(8) + key(b"a") + key(b"c")


def test_bytes_by_hand(core: ModuleType) -> None:
    data = HEAD + b"\1" + ONE + key(b"a") + OTHER + TWO + key(b"b") + BOUNDARY + OTHER
    read = core.Fragment.from_bytes(data)
    assert read == core.Fragment([(b"a", OTHER), (b"b", BOUNDARY), (b"c", OTHER)])
    assert read.to_bytes() == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends"),
        (b"\2" + bytes(8), "version"),
        (b"\1" + bytes(7), "ends"),
        (b"\1" + bytes(9), "after its end"),
        (HEAD + b"\0", "levels"),
        (HEAD + b"\x41", "levels"),
        (b"\1" + (1).to_bytes(8) + key(b"") * 2, "empty"),
        (HEAD + b"\1" + NONE + NONE, "empty"),
        (HEAD + b"\1" + b"\xff" * 4, "the data"),
        (HEAD + b"\1" + NONE + b"\xff" * 4 + key(b"a"), "the data"),
        (HEAD + b"\1" + TWO + key(b"a") + OTHER + key(b"a") + OTHER + NONE, "ascend"),
        (HEAD + b"\1" + ONE + key(b"a") + BOUNDARY + TWO + key(b"b") + BOUNDARY + OTHER, "boundary"),
        (HEAD + b"\1" + ONE + key(b"a") + OTHER + TWO + key(b"b") + OTHER + OTHER, "boundary"),
        (HEAD + b"\1" + ONE + key(b"a") + OTHER + TWO + key(b"b") + BOUNDARY + BOUNDARY, "boundary"),
        (HEAD + b"\1" + ONE + key(b"b") + OTHER + TWO + key(b"bb") + BOUNDARY + OTHER, "first key"),
        (HEAD + b"\1" + ONE + key(b"a") + OTHER + TWO + key(b"d") + BOUNDARY + OTHER, "last key"),
        (HEAD + b"\1" + ONE + key(b"a") + OTHER + ONE + key(b"b") + BOUNDARY, "last key"),
        (HEAD + b"\1" + ONE + key(b"a") + OTHER + ONE + key(b"c") + BOUNDARY, "number of entries"),
        (HEAD + b"\2" + ONE + key(b"c") + OTHER + NONE + ONE + key(b"a") + OTHER + NONE, "stands above"),
        (HEAD + b"\2" + ONE + key(b"a") + OTHER + NONE + ONE + key(b"b") + OTHER + NONE, "stands above"),
        (
            HEAD + b"\2" + ONE + key(b"b") + OTHER + ONE + key(b"c") + BOUNDARY + ONE + key(b"a") + OTHER + NONE,
            "between",
        ),
        (HEAD + b"\2" + NONE + ONE + key(b"c") + BOUNDARY + ONE + key(b"c") + OTHER + NONE, "between"),
        (HEAD + b"\2" + NONE + ONE + key(b"c") + BOUNDARY + ONE + key(b"b") + OTHER + NONE, "first key"),
    ],
)
def test_bytes_that_are_no_fragment(core: ModuleType, data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        core.Fragment.from_bytes(data)


FRAGMENTS = [
    fragment.to_bytes() for one_in in (1, 3, 32) for fragment in split(reference, entries(11, 90, one_in), [20, 40])
]


@pytest.mark.slow
@repeatable(1500)
@given(data=st.one_of(damaged(FRAGMENTS), st.binary(max_size=40), st.binary(max_size=80).map(lambda tail: HEAD + tail)))
def test_any_bytes_are_a_fragment_for_both_cores_or_for_none(data: bytes) -> None:
    results = []
    for core in (_core, reference):
        try:
            fragment = core.Fragment.from_bytes(data)
        except DecodeError:
            results.append(None)
            continue
        # What was read is what was written, and has a root.
        assert fragment.to_bytes() == data
        results.append((fragment.root.level, fragment.root.hash))
    assert results[0] == results[1]
