"""`gossiplog.pubsub.unanswered`."""

from __future__ import annotations

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.unanswered import UnansweredMessages


def test_what_waits_is_bounded_by_number_and_bytes() -> None:
    waiting = UnansweredMessages[str](limit=2, max_bytes=10)
    assert waiting.put(1, "one", 6, "a")
    assert not waiting.put(2, "two", 5, "a")
    assert waiting.put(3, "three", 4, "a")
    assert not waiting.put(4, "four", 0, "a")
    assert waiting.take(2) is None
    assert (taken := waiting.take(1)) is not None
    assert taken.item == "one"
    assert waiting.put(4, "four", 6, "a")
    assert not waiting.put(4, "once more", 0, "a")
    waiting.clear()
    assert len(waiting) == 0
    assert waiting.put(5, "five", 10, "a")


def test_who_sent_a_message_is_named_where_it_is_rejected() -> None:
    waiting = UnansweredMessages[str]()
    waiting.put(1, "one", 1, "a")
    for peer in ("b", "a"):
        waiting.add_source(1, peer)
    waiting.add_source(2, "b")
    assert (taken := waiting.take(1)) is not None
    assert taken.rejected_peers(GossipAnswer.REJECT) == ("a", "b")
    assert taken.rejected_peers(GossipAnswer.IGNORE) == taken.rejected_peers(GossipAnswer.ACCEPT) == ()
    assert len(waiting) == 0


def test_what_waited_for_some_heartbeats_is_forgotten() -> None:
    waiting = UnansweredMessages[str](limit=3, max_bytes=30)
    for number in range(3):
        assert waiting.put(number, str(number), 10, "a", since=number)
    waiting.expire(1)
    assert [waiting.take(number) is None for number in range(2)] == [True, True]
    assert waiting.put(3, "three", 20, "a", since=3)
    assert (taken := waiting.take(2)) is not None
    assert (taken.item, taken.since) == ("2", 2)
    waiting.expire(5)
    assert len(waiting) == 0
