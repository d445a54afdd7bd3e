"""The message cache."""

from __future__ import annotations

from gossiplog.pubsub.gossipsub.message_cache import MessageCache
from gossiplog.pubsub.rpc import Message
from tests.pubsub.gossipsub.node import id_of, message


def cache(length: int = 5, gossip: int = 3, max_bytes: int = 1000, max_repeats: int = 2) -> MessageCache:
    return MessageCache(length, gossip, max_bytes, max_repeats)


def test_a_message_is_found_through_four_shifts_and_not_after_the_fifth() -> None:
    """Seed 001, 8: `put` adds to the current window and the cache."""
    made = cache()
    one = message(1)
    made.put(id_of(one), one)
    for _ in range(4):
        made.shift()
        assert made.get(id_of(one)) == one
    made.shift()
    assert made.get(id_of(one)) is None
    assert len(made) == 0


def test_all_messages_of_a_window_go_with_it() -> None:
    """Seed 001, 8: and no others."""
    made = cache(max_bytes=10_000)
    old, new = (
        [message(number, topic) for number in numbers for topic in "ab"] for numbers in (range(50), range(50, 99))
    )
    for one in old:
        made.put((one.topics, id_of(one)), one)
    made.shift()
    for one in new:
        made.put((one.topics, id_of(one)), one)
    for _ in range(4):
        made.shift()
    assert [made.get((one.topics, id_of(one))) for one in old] == [None] * 100
    assert [made.get((one.topics, id_of(one))) for one in new] == new
    assert len(made) == len(new)


def test_a_message_that_comes_again_is_counted_once() -> None:
    made = cache(max_bytes=18)
    one, other = message(1, data=bytes(4)), message(2, data=bytes(4))
    for _ in range(9):
        made.put(id_of(one), one)
    assert made.gossip_ids("topic") == [id_of(one)]
    for _ in range(5):
        made.shift()
        made.put(id_of(one), one)
    # Dropped at the fifth shift, and put again since: both find room.
    made.put(id_of(other), other)
    assert len(made) == 2


def test_ids_are_gossiped_in_three_windows_the_current_one_included() -> None:
    """Seed 001, 9: not in a fourth, and of one topic only."""
    made = cache()
    one, other = message(1), message(2, topic="other")
    made.put(id_of(one), one)
    made.put(id_of(other), other)
    for _ in range(3):
        assert made.gossip_ids("topic") == [id_of(one)]
        assert made.gossip_ids("other") == [id_of(other)]
        made.shift()
    assert made.gossip_ids("topic") == []
    assert made.gossip_ids("neither") == []


def test_all_ids_of_the_windows_are_gossiped() -> None:
    """Seed 001, 9: those of the newest window first."""
    made = cache(max_bytes=10_000)
    many = [message(number) for number in range(90)]
    for start in (0, 30, 60):
        made.shift()
        for one in many[start : start + 30]:
            made.put(id_of(one), one)
    assert made.gossip_ids("topic") == [id_of(one) for start in (60, 30, 0) for one in many[start : start + 30]]


def test_the_newest_are_advertised_first() -> None:
    made = cache()
    numbered = [message(number) for number in range(3)]
    for one in numbered:
        made.put(id_of(one), one)
        made.shift()
    made.put(b"current", message(9))
    assert made.gossip_ids("topic") == [b"current", id_of(numbered[2]), id_of(numbered[1])]


def test_a_message_of_several_topics_is_advertised_in_each_and_kept_once() -> None:
    """Seed 001, 46."""
    made = cache(max_bytes=14)
    one = Message(("a", "bcd", "a"), bytes(4), b"author", bytes(8))
    made.put(id_of(one), one)
    made.put(id_of(one), one)
    assert [made.gossip_ids(topic) for topic in ("a", "bcd", "b")] == [[id_of(one)], [id_of(one)], []]
    # All characters of its topics are counted, as they are kept: nine bytes, beside which five find room.
    other = message(1, topic="a", data=bytes(4))
    made.put(id_of(other), other)
    assert len(made) == 2
    made.put(b"more", Message(("a",), b""))
    assert made.get(id_of(one)) is None
    assert made.gossip_ids("bcd") == []
    for _ in range(5):
        made.shift()
    assert len(made) == 0


def test_a_peer_gets_a_message_a_few_times() -> None:
    made = cache()
    one = message(1)
    made.put(id_of(one), one)
    assert [made.give(id_of(one), "peer") for _ in range(3)] == [one, one, None]
    assert made.give(id_of(one), "other") == one
    assert made.give(b"unknown", "peer") is None


def test_the_oldest_messages_go_where_there_are_too_many_bytes() -> None:
    made = cache(max_bytes=18)
    numbered = [message(number, data=bytes(4)) for number in range(3)]
    for one in numbered:
        made.put(id_of(one), one)
    assert [made.get(id_of(one)) for one in numbered] == [None, numbered[1], numbered[2]]
    assert made.gossip_ids("topic") == [id_of(numbered[1]), id_of(numbered[2])]
    for _ in range(5):
        made.shift()
    assert len(made) == 0
    # The topic's five characters count, too.
    made.put(b"next", message(9, data=bytes(13)))
    assert made.get(b"next") is not None
    made.put(b"last", message(10, data=bytes(14)))
    assert len(made) == 0
