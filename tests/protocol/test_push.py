"""`gossiplog.protocol.push`."""

from __future__ import annotations

import hashlib

import pytest

from gossiplog import core
from gossiplog.errors import EncodeError, ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.push import MOST_HEADS, Deliver, Heads, Push, unknown_heads


def head(number: int) -> bytes:
    return core.encode_clock(1) + hashlib.sha256(b"%d" % number).digest()[:19]


def insert(value: bytes, clock: int = 1) -> tuple[bytes, bytes]:
    return (core.encode_clock(clock) + hashlib.sha256(value).digest())[:20], value


def test_each_side_starts_with_its_heads() -> None:
    """Push, 1 and 2."""
    (heads,) = Push().receive(Push().start([head(1), head(2)]))
    assert heads == Heads((head(1), head(2)), 0)
    assert unknown_heads(heads, []) == heads
    assert unknown_heads(heads, heads.keys) is None
    assert unknown_heads(heads, {head(1): 5}) == Heads((head(2),), 0)


def test_inserts_are_delivered_in_order_byte_by_byte() -> None:
    """Push, 3."""
    sender, receiver = Push(), Push()
    pushed = [insert(b"a" * 500), insert(b"b", 2**52), insert(b"")]
    stream = b"".join(sender.insert(*message) for message in pushed)
    events = [event for index in range(len(stream)) for event in receiver.receive(stream[index : index + 1])]
    assert events == [Deliver(*message) for message in pushed]


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (insert(b"a")[0], b"b", "not that of its key, " + core.encode_id(insert(b"a")[0])),
        (insert(b"a")[0][:-1] + b"\0", b"a", "not that of its key"),
        (insert(b"a")[0][:1] + b"\0" + insert(b"a")[0][2:], b"a", "not that of its key"),
        (b"\xff" * 20, b"a", "does not start with a clock"),
        (b"\x80\x01" + bytes(18), b"a", "does not start with a clock"),
    ],
)
def test_a_value_that_is_not_the_keys(key: bytes, value: bytes, named: str) -> None:
    """Push, 4."""
    with pytest.raises(ProtocolError, match=named):
        list(Push().receive(wire.encode_push(wire.Insert(key, value))))


def test_what_came_before_a_violation_was_delivered() -> None:
    """Push, 3."""
    good = insert(b"good")
    events = Push().receive(Push().insert(*good) + b"\x00")
    assert next(events) == Deliver(*good)
    with pytest.raises(ProtocolError, match="event: holds nothing"):
        next(events)


def test_an_update_of_many_heads_is_looked_up_in_part() -> None:
    """Push, 5."""
    heads = [head(number) for number in range(MOST_HEADS + 10)]
    (event,) = Push().receive(Push().update(heads))
    assert isinstance(event, Heads)
    assert unknown_heads(event, event.keys) == Heads((), 10)
    assert unknown_heads(event, []) == Heads(tuple(heads[:MOST_HEADS]), 10)


def test_repeated_heads_are_looked_up_once() -> None:
    """Push, 5."""
    assert [*Push().receive(Push().update([head(1)] * 3))] == [Heads((head(1),), 0)]


def test_an_update_fits_into_a_frame() -> None:
    """Push, 5."""
    heads = [(core.encode_clock(2**40 + number) + bytes(20))[:20] for number in range(200_000)]
    (event,) = Push().receive(Push().update(heads))
    assert isinstance(event, Heads)
    assert 180_000 < len(event.keys) + event.unchecked < 200_000
    assert event.keys[-1] in set(heads[-190_700:])


def test_the_heads_with_the_largest_clocks_are_sent() -> None:
    """Push, 5: in whatever order they come."""
    heads = [(core.encode_clock(2**40 - number) + bytes(20))[:20] for number in range(200_000)]
    (event,) = Push().receive(Push().update(heads))
    assert isinstance(event, Heads)
    sent = len(event.keys) + event.unchecked
    assert event.keys == tuple(sorted(heads)[-sent:][:MOST_HEADS])


def test_a_message_that_fits_into_a_frame_is_pushed() -> None:
    """Push, 6."""
    message = insert(bytes(wire.MAX_FRAME - 100))
    assert list(Push().receive(Push().insert(*message))) == [Deliver(*message)]


def test_a_message_too_large_to_push() -> None:
    """Push, 6."""
    key, value = insert(bytes(wire.MAX_FRAME))
    with pytest.raises(EncodeError, match=f"message {core.encode_id(key)} has 4194304 bytes"):
        Push().insert(key, value)


def test_an_oversized_frame_is_refused_at_its_length() -> None:
    """Push, 6."""
    with pytest.raises(ProtocolError, match="at most 4194304"):
        list(Push().receive(b"\xff\xff\xff\xff\x0f"))
