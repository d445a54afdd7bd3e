"""The packets, as values."""

from __future__ import annotations

import pytest

from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc, Subscription, merge

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
