"""`gossiplog.protocol.refusals`."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import core
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.refusals import (
    INTERVAL,
    MAX_FRAME,
    MOST_IN_FRAME,
    MOST_NAMED,
    MOST_REASON,
    RefusalReader,
    RefusalWriter,
    Refused,
)
from tests.strategies import repeatable


def key(number: int) -> bytes:
    return core.encode_clock(1) + hashlib.sha256(b"%d" % number).digest()[:19]


def frame(*refused: tuple[bytes, str], more: int = 0) -> bytes:
    return wire.encode_refusals(wire.Refusals(refused, more))


def read(data: bytes) -> list[Refused]:
    return list(RefusalReader().receive(data))


def written(writer: RefusalWriter, now: float = 0.0) -> bytes:
    """All that is due, as time passes."""
    data = b""
    while writer.due < math.inf:
        now = max(now, writer.due)
        data += writer.next(now)
    return data


def test_nothing_is_written_before_there_is_something_to_name() -> None:
    """Refusals, 1."""
    writer = RefusalWriter()
    assert (writer.due, writer.next(1e9)) == (math.inf, b"")
    writer.refuse(key(1), "too long")
    assert writer.due <= 0.0
    assert read(writer.next(0.0)) == [Refused(((key(1), "too long"),), 0)]
    assert (writer.due, writer.next(1e9)) == (math.inf, b"")


def test_each_is_named_once_in_the_order_of_refusals() -> None:
    """Refusals, 2."""
    writer = RefusalWriter()
    for number in (3, 1, 2, 1):
        writer.refuse(key(number), f"reason {number}")
    assert read(writer.next(0.0)) == [Refused(tuple((key(n), f"reason {n}") for n in (3, 1, 2)), 0)]
    writer.refuse(key(3), "another reason")
    assert writer.due == math.inf
    assert list(writer.named.items()) == [(key(n), f"reason {n}") for n in (3, 1, 2)]


def test_further_messages_are_counted() -> None:
    """Refusals, 2 and 3."""
    writer, total = RefusalWriter(), MOST_NAMED + 10
    for number in range(total):
        writer.refuse(key(number), "no")
        writer.refuse(key(number), "no")
    events = read(written(writer))
    assert [len(event.refused) for event in events] == [MOST_IN_FRAME] * (MOST_NAMED // MOST_IN_FRAME)
    assert [name for event in events for name, _ in event.refused] == [key(number) for number in range(MOST_NAMED)]
    assert events[-1].more == 10
    writer.refuse(key(total), "no")
    assert read(written(writer, 1e6)) == [Refused((), 11)]
    # What is remembered of them is bounded, too.
    for number in range(10 * MOST_NAMED):
        writer.refuse(key(total + 1 + number), "no")
    assert len(writer._unnamed) == MOST_NAMED


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("a" * MOST_REASON, "a" * MOST_REASON),
        ("a" * (MOST_REASON + 1), "a" * (MOST_REASON - 3) + "…"),
        ("ä" * MOST_REASON, "ä" * (MOST_REASON // 2 - 2) + "…"),
        ("😀" * MOST_REASON, "😀" * (MOST_REASON // 4 - 1) + "…"),
        ("a lone \ud800", "a lone ?"),
        ("", ""),
    ],
)
def test_long_reasons_are_cut(reason: str, expected: str) -> None:
    """Refusals, 3."""
    writer = RefusalWriter()
    writer.refuse(key(1), reason)
    assert read(writer.next(0.0)) == [Refused(((key(1), expected),), 0)]


def test_full_frames_of_the_longest_reasons_are_read() -> None:
    """Refusals, 3 and 5."""
    writer = RefusalWriter()
    for number in range(MOST_NAMED):
        writer.refuse(key(number), "x" * 1000)
    data = written(writer)
    assert len(data) > MOST_NAMED * MOST_REASON
    assert sum(len(event.refused) for event in read(data)) == MOST_NAMED


def test_a_frame_waits_for_the_interval() -> None:
    """Refusals, 4."""
    writer = RefusalWriter()
    writer.refuse(key(1), "no")
    assert writer.next(10.0)
    writer.refuse(key(2), "no")
    assert writer.due == 10.0 + INTERVAL
    assert writer.next(10.0 + INTERVAL / 2) == b""
    assert read(writer.next(10.0 + INTERVAL)) == [Refused(((key(2), "no"),), 0)]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (frame(), "names no refused message"),
        (frame((key(1), "a"), (key(1), "b")), "is named twice"),
        (frame((key(1), "a")) + frame((key(1), "a")), "is named twice"),
        (frame(more=3) + frame((key(1), "a"), more=2), "2 further refused messages after 3"),
        (frame(more=3) + frame(more=3), "names no refused message"),
        (frame((key(1), "a" * (MOST_REASON + 1))), "a reason of 257 bytes; at most 256"),
        (frame((key(1), "ä" * (MOST_REASON // 2 + 1))), "a reason of 258 bytes"),
        (frame((b"\xff" * 20, "a")), "has no clock"),
        (frame((b"\x80\x01" + bytes(18), "a")), "has no clock"),
        (frame((b"short", "a")), "a key of 5 bytes"),
        (frame(*((key(1000 + number), "") for number in range(MOST_NAMED))), "more than 256 refused messages"),
        (b"\xff\xff\x01", f"at most {MAX_FRAME}"),
        (b"\x02\x0a\x09", "no protobuf"),
        (b"\x05\x0a\x03\x12\x01\xff", "no protobuf"),
        (b"\x04\x0a\x02\x08\x01", "field key is of the wrong type"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:4].hex(),
)
def test_violations(data: bytes, named: str) -> None:
    """Refusals, 5."""
    good = frame((key(99), "good"), more=0)
    events = RefusalReader().receive(good + data)
    assert next(events) == Refused(((key(99), "good"),), 0)
    with pytest.raises(ProtocolError, match=named):
        list(events)


def test_as_many_as_may_be_named_are_read_and_not_one_more() -> None:
    """Refusals, 5: whatever the frames."""
    reader = RefusalReader()
    for number in range(MOST_NAMED):
        assert list(reader.receive(frame((key(number), "x" * MOST_REASON)))) != []
    with pytest.raises(ProtocolError, match="more than 256"):
        list(reader.receive(frame((key(MOST_NAMED), "x"))))


def test_a_count_that_rises_is_news() -> None:
    """Refusals, 5."""
    assert read(frame(more=1) + frame(more=2**32 - 1)) == [Refused((), 1), Refused((), 2**32 - 1)]


def test_unknown_fields_are_passed_over() -> None:
    data = frame((key(1), "a"))[1:] + b"\x78\x05"
    assert read(bytes([len(data)]) + data) == [Refused(((key(1), "a"),), 0)]


def test_text_is_escaped() -> None:
    """Refusals, 6."""
    ((found, _),) = [(event.refused[0][1], event.more) for event in read(frame((key(1), "a\x1b[2J\n‮b \x9bä😀")))]
    assert found == "a\\x1b[2J\\n\\u202eb \\x9bä😀"
    assert found.isprintable()


@pytest.mark.slow
@given(
    refused=st.lists(st.tuples(st.integers(0, 400), st.text(max_size=300)), max_size=300),
    seed=st.integers(0, 2**32),
)
@repeatable(100)
def test_what_is_written_is_read_however_it_is_chunked(refused: list[tuple[int, str]], seed: int) -> None:
    """Refusals, 2, 3 and 5: a writer breaks no rule, whatever it is told to name."""
    writer, reader, randomly = RefusalWriter(), RefusalReader(), random.Random(seed)
    data, now = b"", 0.0
    for number, reason in refused:
        writer.refuse(key(number), reason)
        if randomly.random() < 0.2:
            now += randomly.random() * 2
            data += writer.next(now)
    data += written(writer, now)
    found: list[Refused] = []
    while data:
        size = randomly.randrange(1, 200)
        found += reader.receive(data[:size])
        data = data[size:]
        assert reader.held <= MAX_FRAME + 5
    distinct = list(dict.fromkeys(key(number) for number, _ in refused))
    assert [name for event in found for name, _ in event.refused] == distinct[:MOST_NAMED]
    assert all(reason.isprintable() for event in found for _, reason in event.refused)
    if len(distinct) > MOST_NAMED:
        assert found[-1].more >= len(distinct) - MOST_NAMED


def mutated(data: bytes, randomly: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(randomly.randrange(1, 4)):
        at = randomly.randrange(len(changed))
        match randomly.randrange(3):
            case 0:
                changed[at] ^= 1 << randomly.randrange(8)
            case 1:
                changed[at:at] = randomly.randbytes(randomly.randrange(1, 5))
            case _:
                del changed[at : at + randomly.randrange(1, 5)]
        if not changed:
            break
    return bytes(changed)


def events_of(data: bytes, sizes: Sequence[int]) -> tuple[list[Refused], bool]:
    reader, found = RefusalReader(), []
    try:
        for size in sizes:
            for event in reader.receive(data[:size]):
                found.append(event)
            data = data[size:]
    except ProtocolError:
        return found, True
    return found, False


@pytest.mark.slow
@given(data=st.binary(max_size=300) | st.integers(0, 2**32), seed=st.integers(0, 2**32))
@repeatable(500)
def test_any_bytes_are_refused_or_obey_the_rules(data: bytes | int, seed: int) -> None:
    """Refusals, 5 and 6: nothing else is raised, and how the bytes are chunked does not matter."""
    randomly = random.Random(seed)
    if isinstance(data, int):
        writer = RefusalWriter()
        for number in range(randomly.randrange(1, 40)):
            writer.refuse(key(number), "reason" * randomly.randrange(4))
        data = mutated(written(writer), random.Random(data))
    found, violated = events_of(data, [len(data)])
    assert events_of(data, [1] * len(data)) == (found, violated)
    named = [name for event in found for name, _ in event.refused]
    assert len(named) == len(set(named)) <= MOST_NAMED
    assert all(reason.isprintable() for event in found for _, reason in event.refused)
    assert [event.more for event in found] == sorted(event.more for event in found)
