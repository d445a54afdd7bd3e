"""`gossiplog.core`: both cores plan the same writes, and find the same ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.reference.message import parse
from tests.cores import facts, outcome
from tests.strategies import TOPIC, Shape, repeatable, shapes, signed


class Store:
    """What a log keeps of a history, for one core."""

    def __init__(self, core: ModuleType) -> None:
        self.core = core
        self.sequences: dict[bytes, int] = {}
        self.records: dict[int, bytes] = {}
        self.tree = core.Tree()

    def links(self, sequences: Sequence[int]) -> list[bytes]:
        return [self.records[sequence] for sequence in sequences]

    def insert(self, values: Sequence[bytes], refused: Sequence[int] = ()) -> tuple[Any, ...]:
        batch = self.core.verify_batch(values, TOPIC, lambda keys: {key for key in keys if key in self.sequences})
        parents = {key: self.sequences[key] for key in batch.parents() if key in self.sequences}
        plan = batch.plan(len(self.sequences) + 1, parents, self.links, refused)
        report = (
            *(list(batch.keys), batch.fresh, batch.duplicates, batch.fresh_keys(), batch.parents()),
            *([(index, error.id) for index, error in batch.invalid], [facts(verdict) for verdict in batch]),
            *(
                plan.order,
                plan.messages,
                plan.leaves,
                plan.alternatives,
                plan.children,
                plan.heads_added,
                plan.heads_removed,
                plan.orphans,
            ),
        )
        self.sequences.update((key, sequence) for key, _, sequence in plan.leaves)
        self.records.update((sequence, links) for sequence, _, links in plan.messages)
        self.tree, changed = self.tree.insert_leaves(plan.leaves)
        return (*report, changed, self.tree.root.hash)


@repeatable(60)
@given(data=st.data(), shape=shapes())
@pytest.mark.integration
def test_batches_are_judged_and_planned_alike(rust: ModuleType, data: st.DataObject, shape: Shape) -> None:
    pool = list(signed(shape))
    bad = [value[:100] + bytes([value[100] ^ 1]) + value[101:] for value in pool[:3]]
    choices = st.sampled_from([*pool, *bad, b"", b"\xa0"])
    stores = [Store(rust), Store(reference)]
    for _ in range(data.draw(st.integers(1, 4))):
        # Few draws have all of a history, so that branches meet in one batch.
        values = data.draw(st.one_of(st.lists(choices, max_size=2 * len(pool)), st.permutations([*pool, *bad])))
        refused = data.draw(st.sets(st.integers(0, len(values)), max_size=2))
        reports = [store.insert(values, refused) for store in stores]
        assert reports[0] == reports[1]


def test_what_came_in_meanwhile_is_dropped(core: ModuleType) -> None:
    values = signed(((), (0,), (1,)))
    batch = core.verify_batch([*values, values[0]], TOPIC)
    assert (batch.fresh, batch.duplicates) == (3, [3])
    first = core.verify(values[0], TOPIC).key
    batch.drop_known([first, b"\0" * 20])
    assert (batch.fresh, batch.duplicates, batch.parents()) == (2, [0, 3], [first])
    assert [plan_orphan for plan_orphan, _ in batch.plan(1, {}, lambda _: []).orphans] == [1, 2]
    plan = batch.plan(8, {first: 7}, lambda _: [b"\x01"])
    assert (plan.order, plan.children, plan.heads_removed) == ([1, 2], [(7, 8), (8, 9)], [first])


def all_ancestors(parents: dict[int, list[int]], start: int) -> set[int]:
    """By brute force."""
    found: set[int] = set()
    pending = [start]
    while pending:
        new = set(parents[pending.pop()]) - found
        found |= new
        pending += new
    return found


def maximal_ancestors(above: dict[int, set[int]], clocks: dict[int, int], sequence: int, clock: int) -> list[int]:
    """By brute force, from all ancestors of each."""
    below = {ancestor for ancestor in above[sequence] if clocks[ancestor] <= clock}
    return sorted(below.difference(*(above[ancestor] for ancestor in below)))


@repeatable(40)
@given(shape=shapes(40))
@pytest.mark.integration
def test_frontiers(rust: ModuleType, shape: Shape) -> None:
    # Both cores plan alike, and the reference implementation verifies more slowly.
    store = Store(rust)
    store.insert(signed(shape))
    parents: dict[int, list[int]] = {}
    clocks: dict[int, int] = {}
    for value in signed(shape):
        parsed = parse(value, TOPIC)
        own = store.sequences[parsed.message.key]
        parents[own] = [store.sequences[key] for key in parsed.parent_keys]
        clocks[own] = parsed.message.clock
    above = {sequence: all_ancestors(parents, sequence) for sequence in parents}
    for sequence, record in store.records.items():
        clock, frontiers = reference.link_record(sequence, record)
        assert clock == clocks[sequence]
        assert rust.link_record(sequence, record) == (clock, frontiers)
        for k, ancestors in enumerate(frontiers):
            assert ancestors == maximal_ancestors(above, clocks, sequence, clock - 2**k)
        for at in {0, 1, clock // 2, clock - 1, clock, clock + 5}:
            expected = maximal_ancestors(above, clocks, sequence, at)
            assert reference.frontier(sequence, at, store.links) == expected
            assert rust.frontier(sequence, at, store.links) == expected
        for other in store.records:
            assert reference.is_ancestor(other, sequence, store.links) == (other in above[sequence])
            assert rust.is_ancestor(other, sequence, store.links) == (other in above[sequence])


@repeatable(300)
@given(
    sequence=st.integers(1, 40),
    record=st.one_of(st.binary(max_size=10), st.lists(st.integers(0, 9), max_size=10).map(bytes)),
)
def test_link_records_are_read_alike(rust: ModuleType, sequence: int, record: bytes) -> None:
    assert outcome(lambda: rust.link_record(sequence, record)) == outcome(
        lambda: reference.link_record(sequence, record)
    )
