"""What a micro-batch takes of many logs, and how tasks share it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.spark.source import shares as module
from gossiplog.spark.source.offsets import Reached
from gossiplog.spark.source.shares import OPENING, StreamPartition, Stretch, partitions, shares
from tests.strategies import repeatable

NAMES = [f"/data/{number}.db" for number in range(12)]
PENDING = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60), min_size=1)


def stretch(log: str, after: int, last: int) -> Stretch:
    return Stretch(log, log, after, last, Reached(last))


def test_unused_shares_go_to_the_others() -> None:
    assert shares({"a": 100, "b": 2, "c": 100}, 30, "") == ({"a": 14, "b": 2, "c": 14}, "")


def test_turns_where_there_is_room_for_two() -> None:
    turn, found = "", []
    for _ in range(4):
        taken, turn = shares(dict.fromkeys("abc", 100), 2, turn)
        found.append("".join(sorted(taken)))
    assert found == ["ab", "ac", "bc", "ab"]


@repeatable(100)
@given(pending=PENDING, room=st.integers(1, 200), turn=st.sampled_from(["", *NAMES]), most=st.integers(1, 15))
def test_all_of_the_room_is_taken_and_no_more(pending: dict[str, int], room: int, turn: str, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_LOGS", most)
        taken, _ = shares(pending, room, turn)
    assert sum(taken.values()) == min(room, sum(pending.values()))
    assert all(0 < number <= pending[log] for log, number in taken.items())
    # Whoever gets less than another has no more.
    assert all(number == pending[log] or number >= max(taken.values()) - 1 for log, number in taken.items())


@repeatable(60)
@given(
    logs=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60), min_size=1),
    room=st.integers(1, 30),
    most=st.integers(1, 15),
    arriving=st.lists(PENDING, max_size=30),
)
def test_each_log_gets_its_turn_whatever_arrives(
    logs: dict[str, int], room: int, most: int, arriving: list[dict[str, int]]
) -> None:
    """As a query does: an offset after the other, each message once, and no log waits longer than for a round."""
    pending, turn = dict(logs), ""
    waited = dict.fromkeys(NAMES, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_LOGS", most)
        while arriving or any(pending.values()):
            taken, turn = shares(pending, room, turn)
            for log in [log for log, number in pending.items() if number]:
                waited[log] = 0 if log in taken else waited[log] + 1
                pending[log] -= taken.get(log, 0)
            assert min(pending.values()) >= 0
            # Of its own messages and those of the logs before it, in each of the others' turns.
            assert max(waited.values()) < -(-len(NAMES) // min(room, most))
            if arriving:
                for log, number in arriving.pop().items():
                    pending[log] = pending.get(log, 0) + number


@repeatable(100)
@given(
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
    after=st.integers(0, 1000),
    wanted=st.integers(1, 40),
)
def test_partitions_have_each_message_once(lengths: list[int], after: int, wanted: int) -> None:
    stretches = [stretch(str(log), after, after + length) for log, length in enumerate(lengths)]
    parts = partitions(stretches, wanted)
    assert len(parts) <= wanted
    found = [each for part in parts for each in part.stretches]
    assert all(len(each) > 0 for each in found)
    for log, whole in enumerate(stretches):
        cut = [each for each in found if each.name == str(log)]
        assert (cut[0].after, cut[-1].last) == (whole.after, whole.last)
        assert {each.end for each in cut} == {whole.end}
        assert all(before.last == behind.after for before, behind in pairwise(cut))
    assert [int(each.name) for each in found] == sorted(int(each.name) for each in found)
    # None has more than its part and what it opens.
    most = -(-sum(OPENING + length for length in lengths) // wanted)
    assert all(sum(map(len, part.stretches)) <= most + 1 for part in parts)


def test_one_log_is_cut_into_equal_parts() -> None:
    assert [len(part.stretches[0]) for part in partitions([stretch("a", 5, 25)], 4)] == [5, 5, 5, 5]


def test_small_logs_share_a_task() -> None:
    stretches = [stretch(str(log), 0, 1) for log in range(100)]
    parts = partitions(stretches, 3)
    assert [len(part.stretches) for part in parts] == [33, 33, 34]
    assert isinstance(parts[0], StreamPartition)
