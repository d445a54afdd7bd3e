"""The packets, as values, and the cache of message ids."""

from __future__ import annotations

import pytest

from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc, Seen, Subscription, merge

MESSAGE = Message(("topic",), b"data")
SUBSCRIPTION = Subscription("topic", True)


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (Rpc((MESSAGE,)), True),
        (Rpc(), False),
        (Rpc((MESSAGE, MESSAGE)), False),
        (Rpc((MESSAGE,), subscriptions=(SUBSCRIPTION,)), False),
        (Rpc((MESSAGE,), control=Control()), False),
        (Rpc((MESSAGE,), extension=("other",)), False),
    ],
)
def test_a_packet_may_be_a_message_and_nothing_else(packet: Rpc, expected: bool) -> None:
    assert packet.is_message is expected


def test_a_text_leaves_out_what_is_empty_and_the_most_of_long_bytes() -> None:
    packet = Rpc((Message(("topic",), bytes(17), b"\xff" * 16),), control=Control(graft=("topic",)))
    message = f"Message(topics=('topic',), data={'00' * 16}…, author={'ff' * 16})"
    assert repr(packet) == f"Rpc(messages=({message},), control=Control(graft=('topic',)))"
    assert repr(Rpc()) == "Rpc()"


def test_several_packets_become_one_with_everything_in_order() -> None:
    packets = [
        Rpc((MESSAGE,), control=Control(graft=("first",))),
        Rpc(subscriptions=(SUBSCRIPTION,), extension=("one",)),
        Rpc(
            (Message(("topic",), b"second"),),
            control=Control(ihave=(IHave("topic", (b"id",)),), iwant=(b"other",), graft=("second",), prune=("third",)),
            extension=("two",),
        ),
    ]
    assert merge(packets) == Rpc(
        (MESSAGE, Message(("topic",), b"second")),
        (SUBSCRIPTION,),
        Control((IHave("topic", (b"id",)),), (b"other",), ("first", "second"), ("third",)),
        ("one", "two"),
    )
    assert merge(packets[:1]) is packets[0]
    assert merge([Rpc((MESSAGE,)), Rpc(subscriptions=(SUBSCRIPTION,))]).control is None


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
