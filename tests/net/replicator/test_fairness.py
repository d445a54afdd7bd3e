"""Shares of a driver's time: who waits, for how long, and what waits for whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.net.replicator.fairness import (
    BURST_SECONDS,
    CPU_FACTOR,
    MESH,
    MOST_MESSAGES,
    MOST_SECONDS,
    READ_SHARE,
    READ_TURN_MESSAGES,
    RECENT_SECONDS,
    SHARE,
    TURN_BYTES,
    TURN_MESSAGES,
    TURN_SECONDS,
    FairQueue,
    Shares,
    cost,
    parts,
)
from gossiplog.protocol.broadcast.events import Delivery
from tests.strategies import repeatable

Turn = Mapping[str, Sequence[Delivery]]


def shares(*writers: str) -> Shares:
    """Shares of some that have all written a moment ago."""
    found = Shares()
    for writer in writers:
        found.charge(writer, 0.0, 0.0)
    return found


def queue(found: Shares, **waiting: int | Sequence[int]) -> FairQueue:
    """A queue with messages of writers: so many of a byte each, or of so many bytes."""
    made = FairQueue(found)
    for writer, sizes in waiting.items():
        for number, size in enumerate([1] * sizes if isinstance(sizes, int) else sizes):
            made.add(writer, Delivery(1, number.to_bytes(20), bytes(size)))
    return made


def counts(turn: Turn) -> dict[str, int]:
    return {writer: len(part) for writer, part in turn.items()}


def numbers(turn: Turn, writer: str) -> list[int]:
    return [int.from_bytes(delivery.key) for delivery in turn[writer]]


def test_a_turn_has_a_part_of_each_writer() -> None:
    waiting = queue(shares("a", "b", "c"), a=1000, b=2, c=2 * TURN_MESSAGES - 2)
    turn = waiting.take(0, long=False)
    assert counts(turn) == {"a": TURN_MESSAGES, "b": 2, "c": TURN_MESSAGES}
    assert numbers(turn, "a") == list(range(TURN_MESSAGES))
    waiting.finish(turn, 0, 0)
    turn = waiting.take(0, long=False)
    assert numbers(turn, "c") == list(range(TURN_MESSAGES, 2 * TURN_MESSAGES - 2))
    assert numbers(turn, "a")[0] == TURN_MESSAGES


def test_the_writer_whose_turn_was_longest_ago_comes_first() -> None:
    names = [f"w{number}" for number in range(MOST_MESSAGES // TURN_MESSAGES + 1)]
    waiting = queue(shares(*names), **dict.fromkeys(names, TURN_MESSAGES))
    turn = waiting.take(0, long=False)
    assert list(turn) == names[:-1]
    for name in names[:-1]:
        waiting.add(name, Delivery(1, bytes(20), b""))
    waiting.finish(turn, 0, 0)
    assert next(iter(waiting.take(0, long=False))) == names[-1]


def test_a_writer_takes_part_in_one_turn_at_a_time() -> None:
    waiting = queue(shares("a", "b"), a=2 * TURN_MESSAGES - 2)
    turn = waiting.take(0, long=False)
    assert not waiting.take(0, long=False)
    assert waiting.next_due(0, long=False) == math.inf
    waiting.finish(turn, 0, 0)
    assert counts(waiting.take(0, long=False)) == {"a": TURN_MESSAGES - 2}


def test_long_messages_have_turns_of_their_own_one_writer_at_a_time() -> None:
    waiting = queue(shares("a", "b", "c"), a=[1, TURN_BYTES + 1, 1], b=[2**22], c=[TURN_BYTES])
    short, long = waiting.take(0, long=False), waiting.take(0, long=True)
    assert counts(short) == {"a": 1, "c": 1}
    assert counts(long) == {"b": 1}
    # The order of a writer's messages is kept.
    assert not waiting.take(0, long=True)
    waiting.finish(short, 0, 0)
    assert not waiting.take(0, long=False)
    long = waiting.take(0, long=True)
    assert numbers(long, "a") == [1]
    waiting.finish(long, 0, 0)
    assert numbers(waiting.take(0, long=False), "a") == [2]


def test_a_part_is_larger_among_readers_until_another_writes() -> None:
    """So an upload comes in few transactions, and a message of another writer waits for little of it."""
    found = Shares()
    waiting = FairQueue(found, lambda: True)
    for _ in range(100):
        waiting.add("a", Delivery(1, bytes(20), b"x"))
    turn = waiting.take(0, long=False)
    assert counts(turn) == {"a": READ_TURN_MESSAGES}
    waiting.finish(turn, 0, 0)
    waiting.add("b", Delivery(1, bytes(20), b"x"))
    waiting.finish(waiting.take(1, long=False), 0, 1)
    assert counts(waiting.take(2, long=False)) == {"a": TURN_MESSAGES}


@repeatable(100)
@given(st.integers(1, MOST_MESSAGES // TURN_MESSAGES), st.integers(1, TURN_MESSAGES))
def test_what_a_turn_costs_besides_its_messages_is_shared_by_its_writers(writers: int, messages: int) -> None:
    names = [f"w{number}" for number in range(writers)]
    found = shares(*names, "another")
    waiting = queue(found, **dict.fromkeys(names, messages))
    waiting.finish(waiting.take(0, long=False), 0, 0)
    owed = sum(found._left(name, 0) * SHARE for name in names)
    assert owed == pytest.approx(TURN_SECONDS + writers * (cost([b"x"] * messages) - TURN_SECONDS))


def test_the_work_of_a_turn_is_its_writers_by_what_they_had_in_it() -> None:
    found = shares("a", "b")
    waiting = queue(found, a=100, b=1)
    waiting.finish(waiting.take(0, long=False), 0.0, 0, (TURN_MESSAGES + 1) * 0.01)
    assert found.due("a", 0) == pytest.approx((CPU_FACTOR * TURN_MESSAGES * 0.01 - BURST_SECONDS) / SHARE, abs=1e-4)
    assert found.due("b", 0) == 0


@pytest.mark.slow
def test_four_bulk_writers_among_readers_have_two_thousand_messages_a_second() -> None:
    """Each transaction takes 0.3 ms of processor time, and each message in it 0.05 ms: a chain's."""
    names = "abcd"
    waiting = FairQueue(shares(*names), lambda: True)
    now, taken = 0.0, 0
    while now < 10:
        for name in names:
            while waiting.has_room(name, now):
                waiting.add(name, Delivery(1, bytes(20), bytes(200)))
        if turn := waiting.take(now, long=False):
            count = sum(counts(turn).values())
            work = 0.0003 + 0.00005 * count
            taken += count
            now += 2 * work
            waiting.finish(turn, 2 * work, now, work)
        else:
            now = waiting.next_due(now, long=False) + 1e-9
    assert taken > 10 * 2000


def test_the_bytes_of_a_part_are_limited() -> None:
    waiting = queue(shares("a", "b"), a=[TURN_BYTES // 2] * 3)
    turn = waiting.take(0, long=False)
    assert counts(turn) == {"a": 2}


@pytest.mark.parametrize("writer", ["a", MESH])
def test_who_is_alone_and_a_mesh_are_not_limited(writer: str) -> None:
    found = shares(writer) if writer != MESH else shares(MESH, "b")
    waiting = queue(found, **{writer: [*[1] * 500, 2**22, *[1] * 2000]})
    turn = waiting.take(0, long=False)
    assert counts(turn) == {writer: MOST_MESSAGES}
    assert not waiting.has_room(writer, 0)
    assert not waiting.take(0, long=True)
    waiting.finish(turn, 100, 0)
    assert counts(waiting.take(0, long=False)) == {writer: MOST_MESSAGES}


def test_a_queue_has_room_for_some_turns() -> None:
    found = shares("a", "b")
    waiting = queue(found, a=4 * TURN_MESSAGES - 1)
    assert waiting.has_room("a", 0)
    waiting.add("a", Delivery(1, bytes(20), b""))
    assert not waiting.has_room("a", 0)
    assert waiting.has_room("b", 0)
    assert not queue(found, a=[4 * TURN_BYTES + 1]).has_room("a", 0)


def test_a_writer_that_owes_waits_until_it_has_paid() -> None:
    found = shares("a", "b")
    waiting = queue(found, a=1000, b=1)
    turn = waiting.take(0, long=False)
    waiting.finish(turn, 2.0, 2.0)
    due = waiting.next_due(2.0, long=False)
    # b had one message, and owes its part.
    assert due == pytest.approx(2.0 + (MOST_SECONDS - BURST_SECONDS) / SHARE)
    assert found.due("b", 2.0) == 2.0
    assert not waiting.take(due - 0.01, long=False)
    assert counts(waiting.take(due + 0.01, long=False)) == {"a": TURN_MESSAGES}


def test_a_writer_gets_its_share_of_the_time() -> None:
    found = shares("a", "b")
    waiting = queue(found, a=10_000)
    now = worked = 0.0
    while now < 10:
        turn = waiting.take(now, long=False)
        if turn:
            now += 0.02
            worked += 0.02
            waiting.finish(turn, 0.02, now)
        else:
            now = waiting.next_due(now, long=False) + 1e-9
    assert worked == pytest.approx(SHARE * 10 + BURST_SECONDS, abs=0.05)


def test_single_messages_cost_their_part_of_a_turn() -> None:
    """On a busy machine each takes long; the writer of fifty a second is not made to wait for that."""
    found = shares("a", "b")
    now = 0.0
    for _ in range(1000):
        waiting = queue(found, a=1)
        now += 0.02
        waiting.finish(waiting.take(now, long=False), 0.02, now)
        assert found.due("a", now) == now


def test_a_writer_is_limited_while_others_write() -> None:
    found = shares("a")
    found.charge("a", 1.0, 0.0)
    assert not found.is_limited("a", 0.0)
    assert found.due("a", 0.0) == 0.0
    found.charge("b", 0.001, 1.0)
    assert found.is_limited("a", 1.0)
    assert found.due("a", 1.0) > 1.0
    found.charge("a", 1.0, 2.0)
    assert found.is_limited("a", 1.0 + RECENT_SECONDS - 0.01)
    assert not found.is_limited("a", 1.0 + RECENT_SECONDS)
    # Nobody has to be connected for that.
    assert found.is_limited("b", 3.0)
    assert found.is_limited("c", 3.0)


def served(waiting: FairQueue, shares: Shares, size: int, *, seconds: float, is_late: bool) -> int:
    """The messages that are taken in ten seconds from a writer that sends without a pause, of so many bytes.

    Args:
        waiting: its queue.
        shares: of the writers.
        size: of a message.
        seconds: that a turn takes.
        is_late: whether the next message comes only when the one before was taken.
    """
    now, taken = 0.0, 0
    while now < 10:
        while (not is_late or not waiting.next_due(now, long=size > TURN_BYTES) < math.inf) and waiting.has_room(
            "a", now
        ):
            waiting.add("a", Delivery(1, bytes(20), bytes(size)))
        turn = waiting.take(now, long=size > TURN_BYTES)
        if turn:
            taken += len(turn["a"])
            now += seconds
            waiting.finish(turn, seconds, now)
        else:
            now = waiting.next_due(now, long=size > TURN_BYTES) + 1e-9
    return taken


@pytest.mark.parametrize("size", [100, TURN_BYTES + 1])
@pytest.mark.parametrize("is_late", [False, True])
def test_messages_cost_something_however_fast_they_are_stored(size: int, is_late: bool) -> None:
    """Those that come one by one cost a turn each; all of them cost their readers what they have."""
    found = shares("a", "b")
    taken = served(FairQueue(found), found, size, seconds=1e-4, is_late=is_late)
    single = is_late or size > TURN_BYTES
    part = [bytes(size)] * (1 if single else TURN_MESSAGES)
    assert taken == pytest.approx((SHARE * 10 + BURST_SECONDS) / cost(part) * len(part), rel=0.05)


def test_a_writer_among_readers_has_a_part_of_the_time() -> None:
    """What they have not read yet is in front of the first message of another writer."""
    found = Shares()
    waiting = FairQueue(found, lambda: True)
    taken = served(waiting, found, 100, seconds=1e-4, is_late=False)
    part = [bytes(100)] * READ_TURN_MESSAGES
    assert taken == pytest.approx((READ_SHARE * 10 + BURST_SECONDS) / cost(part) * len(part), rel=0.05)
    # A sync takes what the writer has beyond that.
    found.charge("a", MOST_SECONDS, 10.0, READ_SHARE)
    assert found.due("a", 10.0) == 10.0
    assert found.due("a", 10.0, READ_SHARE) > 10.0
    # Then another begins to write, and its share is that of one of several.
    found.charge("b", 0.001, 10.0)
    assert found.due("a", 10.0) > 10.0


def test_a_mesh_is_not_limited_among_readers() -> None:
    found = Shares()
    waiting = FairQueue(found, lambda: True)
    for _ in range(MOST_MESSAGES):
        waiting.add(MESH, Delivery(1, bytes(20), b"x"))
    for _ in range(3):
        turn = waiting.take(0, long=False)
        assert counts(turn) == {MESH: MOST_MESSAGES}
        waiting.finish(turn, 100, 0)
        for _ in range(MOST_MESSAGES):
            waiting.add(MESH, Delivery(1, bytes(20), b"x"))


def test_fifty_messages_a_second_with_many_parents_do_not_wait() -> None:
    found = shares("a", "b")
    now = 0.0
    for _ in range(1000):
        waiting = queue(found, a=[6_000])
        assert waiting.next_due(now, long=False) == now
        waiting.finish(waiting.take(now, long=False), 0.005, now)
        now += 0.02


def test_debts_are_bounded() -> None:
    found = shares("a", "b")
    for number in range(5000):
        found.charge(str(number), 1.0, 0)
    assert len(found._debts) == 4096


def test_parts_of_a_turn() -> None:
    assert parts([b"x"] * (TURN_MESSAGES // 2)) == 0.5
    assert parts([bytes(2 * TURN_BYTES)]) == 2.0


def test_what_storing_costs_counts_for_others_too() -> None:
    part = [bytes(100)] * TURN_MESSAGES
    assert cost(part, 0.0001) == cost(part)
    assert cost(part, 1.0) == pytest.approx(CPU_FACTOR, abs=0.001)
