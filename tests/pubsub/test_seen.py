"""The cache of seen ids."""

from __future__ import annotations

from gossiplog.pubsub.seen import Seen


def test_an_id_is_seen_for_its_time_and_no_longer() -> None:
    """Seed 001, 11: the seen cache is timed; a copy does not prolong it."""
    seen = Seen(120.0, 10)
    seen.add(b"id", 5.0)
    seen.expire(124.9)
    assert seen.has(b"id")
    assert seen.unseen([b"id", b"other"]) == [b"other"]
    seen.expire(125.0)
    assert not seen.has(b"id")
    assert seen.unseen([b"id", b"other"]) == [b"id", b"other"]


def test_what_is_seen_again_after_its_time_is_remembered_anew() -> None:
    seen = Seen(10.0, 10)
    seen.add(b"first", 0.0)
    seen.add(b"second", 1.0)
    seen.expire(10.0)
    seen.add(b"first", 10.0)
    seen.expire(15.0)
    assert seen.has(b"first")
    assert len(seen) == 1


def test_it_forgets_what_is_too_old() -> None:
    """Seed 001, 11: all of it at once."""
    seen = Seen(10.0, 10)
    for number in range(5):
        seen.add(number, float(number))
    seen.expire(12.0)
    assert len(seen) == 2


def test_the_oldest_go_where_there_are_too_many() -> None:
    """Seed 001, 11: the seen cache is bounded."""
    seen = Seen(120.0, 3)
    for number in range(5):
        seen.add(number, 0.0)
    assert [seen.has(number) for number in range(5)] == [False, False, True, True, True]
