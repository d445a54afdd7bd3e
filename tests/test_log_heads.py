"""The heads of a log: changes one by one and many at once, against a plain dictionary."""

from __future__ import annotations

import random

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


def test_a_message_more_copies_few_of_many_heads() -> None:
    heads = HeadRows(head(2 * number) for number in range(20_000))
    after = heads.after([head(20_000)[0]], [head(30_001)])
    assert len(after) == len(heads)
    shared = {id(run) for run in heads._runs} & {id(run) for run in after._runs}
    assert len(shared) >= len(heads._runs) - 2


def test_runs_stay_short() -> None:
    heads = HeadRows()
    for number in range(2_000):
        heads = heads.after((), [head(number)])
    assert list(heads) == [head(number) for number in range(2_000)]
    assert max(len(run) for run in heads._runs) <= 512
    assert heads.last(300) == [head(number) for number in range(1_700, 2_000)]
    for number in range(2_000):
        heads = heads.after([head(number)[0]], ())
    assert not heads
    assert heads == HeadRows()
