"""The heads of a log: changes one by one and many at once, against a plain dictionary."""

from __future__ import annotations

import random
import sys
from types import FrameType

import pytest

from gossiplog.log.heads import HeadRows


def head(number: int) -> tuple[bytes, int]:
    return number.to_bytes(20, "big"), number


def test_changes_are_those_of_a_dictionary() -> None:
    generator = random.Random(7)
    for most in (3, 90):
        heads, expected = HeadRows(), dict[bytes, int]()
        for _ in range(60):
            added = sorted(
                head(number) for number in {generator.randrange(2**40) for _ in range(generator.randrange(most))}
            )
            removed = [key for key in expected if generator.random() < 0.2][: generator.randrange(most)]
            removed.append(head(2**50)[0])
            before = list(heads)
            after = heads.after(removed, added)
            assert list(heads) == before
            heads, expected = after, {key: sequence for key, sequence in expected.items() if key not in removed}
            expected.update(added)
            in_order = sorted(expected.items())
            assert list(heads) == in_order
            assert len(heads) == len(expected)
            assert heads == HeadRows(in_order)
            assert heads.last(5) == in_order[-5:]
            for asked in (expected, [*expected][:5], [*expected, *removed], removed):
                assert heads.among(asked) == {key: expected[key] for key in asked if key in expected}


@pytest.mark.parametrize("changes", [1, 65, 150])
def test_changes_copy_a_number_of_heads_that_does_not_grow_with_all(changes: int) -> None:
    generator = random.Random(8)
    copied = {}
    for count in (50_000, 100_000):
        heads = HeadRows(head(2 * number) for number in range(count))
        removed = [head(2 * number)[0] for number in generator.sample(range(count), changes)]
        added = sorted(head(2 * number + 1) for number in generator.sample(range(count), changes))
        after = heads.after(removed, added)
        assert len(after) == count
        shared = {id(run) for run in heads._runs}
        copied[count] = sum(len(run) for run in after._runs if id(run) not in shared)
    assert copied[100_000] < 2 * changes * 256
    assert copied[100_000] < 1.2 * copied[50_000]


def test_finding_heads_calls_no_function_for_each_comparison() -> None:
    """A message may name 256 parents, among as many heads as strangers have made."""
    heads = HeadRows(head(number) for number in range(100_000))
    keys = [head(number)[0] for number in range(99_744, 100_000)]
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        assert heads.among(keys).keys() == {*keys}
        heads.after(keys, [])
    finally:
        sys.setprofile(None)
    assert calls < 4 * len(keys)


def test_equal_heads_have_equal_hashes() -> None:
    heads = HeadRows(head(number) for number in range(1_000))
    changed = HeadRows(head(number) for number in range(0, 1_000, 2)).after(
        (), [head(number) for number in range(1, 1_000, 2)]
    )
    assert changed == heads
    assert hash(changed) == hash(heads)


def test_runs_stay_short() -> None:
    heads = HeadRows()
    for number in range(2_000):
        heads = heads.after((), [head(number)])
    assert list(heads) == [head(number) for number in range(2_000)]
    assert max(len(run) for run in heads._runs) <= 256
    assert heads.last(300) == [head(number) for number in range(1_700, 2_000)]
    for number in range(2_000):
        heads = heads.after([head(number)[0]], ())
    assert not heads
    assert heads == HeadRows()
