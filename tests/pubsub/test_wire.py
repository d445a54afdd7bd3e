"""The bytes of packets, held against those that canvas-js's router writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import EncodeError, ProtocolError
from gossiplog.protocol.wire import MAX_FRAME, FrameReader
from gossiplog.pubsub import rpc_pb2, wire
from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc, Subscription, merge
from gossiplog.pubsub.wire import decode, encode
from tests.vectors import load

VECTORS = load("pubsub")


def unhex(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def packet_of(row: dict[str, Any]) -> Rpc:
    """A packet of the vectors, which leave out what is empty."""
    messages = tuple(
        Message(
            (message["topic"],),
            bytes.fromhex(message["data"]),
            *(unhex(message.get(name)) for name in ("author", "seqno", "signature", "key")),
        )
        for message in row.get("messages", ())
    )
    ihave = tuple(IHave(topic, tuple(map(bytes.fromhex, ids))) for topic, ids in row.get("ihave", ()))
    iwant = tuple(map(bytes.fromhex, row.get("iwant", ())))
    control = Control(ihave, iwant, tuple(row.get("graft", ())), tuple(row.get("prune", ())))
    subscriptions = tuple(Subscription(topic, subscribe) for topic, subscribe in row.get("subscriptions", ()))
    return Rpc(messages, subscriptions, None if control == Control() else control)


def contents(*frames: bytes) -> list[bytes]:
    """What is in frames."""
    reader = FrameReader(MAX_FRAME)
    found = []
    for frame in frames:
        reader.feed(frame)
        content = reader.next()
        assert content is not None
        assert reader.held == 0
        found.append(content)
    return found


@pytest.mark.parametrize("row", VECTORS["packets"], ids=lambda row: row["name"])
def test_packets_have_the_bytes_of_canvas_js(row: dict[str, Any]) -> None:
    """Seed 001, 39: proto2, behind a varint length, compared with another implementation's."""
    frame = bytes.fromhex(row["frame"])
    packet = packet_of(row["packet"])
    assert encode(packet) == [frame]
    assert [decode(content) for content in contents(frame)] == [packet]


def test_the_topics_of_a_message_are_a_field_that_repeats() -> None:
    """Seed 001, 39 and 46: in their order, and as often as they are there, since signatures cover them."""
    message = Message(("b", "a", "b"), b"x")
    content = b"\x12\x0c" + b"\x12\x01x" + b"\x22\x01b" + b"\x22\x01a" + b"\x22\x01b"
    assert contents(*encode(Rpc((message,)))) == [content]
    assert decode(content) == Rpc((message,))


@pytest.mark.parametrize("row", VECTORS["read"], ids=lambda row: row["name"])
def test_what_is_absent_or_unknown_does_no_harm(row: dict[str, Any]) -> None:
    """Seed 001, 40: absent optional fields, and the fields of later versions."""
    (content,) = contents(bytes.fromhex(row["frame"]))
    packet = decode(content)
    control = packet.control or Control()
    expected = packet_of(row["packet"])
    assert (packet.messages, packet.subscriptions) == (expected.messages, expected.subscriptions)
    assert control == (expected.control or Control())


def test_a_change_that_does_not_say_which_means_leaving() -> None:
    """Seed 001, 40: as protobuf's default has it."""
    built = rpc_pb2.RPC(subscriptions=[rpc_pb2.SubOpts(topicid="a")])
    assert decode(built.SerializeToString()).subscriptions == (Subscription("a", False),)


def packets(texts: st.SearchStrategy[str], blobs: st.SearchStrategy[bytes]) -> st.SearchStrategy[Rpc]:
    several = st.lists(texts, min_size=1, max_size=3).map(tuple)
    messages = st.builds(Message, several, blobs, *([st.none() | blobs] * 4))
    ids = st.lists(blobs, max_size=4).map(tuple)
    topics = st.lists(texts, max_size=4).map(tuple)
    # IHAVE without ids says nothing, and is not kept where packets are divided.
    ihaves = st.builds(IHave, texts, st.lists(blobs, min_size=1, max_size=4).map(tuple))
    controls = st.builds(Control, st.lists(ihaves, max_size=3).map(tuple), ids, topics, topics)
    return st.builds(
        Rpc,
        st.lists(messages, max_size=3).map(tuple),
        st.lists(st.builds(Subscription, texts, st.booleans()), max_size=3).map(tuple),
        st.none() | controls,
    )


@given(packets(st.text(max_size=9), st.binary(max_size=9)))
def test_what_is_written_is_read(packet: Rpc) -> None:
    """Seed 001, 39 and 40: what is absent stays absent."""
    (content,) = contents(*encode(packet))
    assert decode(content) == packet


@given(st.binary(max_size=60))
def test_any_bytes_are_a_packet_or_are_refused(content: bytes) -> None:
    try:
        packet = decode(content)
    except ProtocolError:
        return
    assert [decode(part) for part in contents(*encode(packet))] == [packet]


def test_what_is_no_protobuf_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a frame of 3 bytes is no protobuf packet"):
        decode(b"\x0a\xff\x01")


@pytest.mark.parametrize(
    "part",
    [
        b"\x0a\x04\x12\x02\xff\xfe",  # a subscription
        b"\x12\x04\x22\x02\xff\xfe",  # a message
        b"\x12\x07\x22\x01a\x22\x02\xff\xfe",  # a message of two topics
        b"\x1a\x06\x0a\x04\x0a\x02\xff\xfe",  # IHAVE
        b"\x1a\x06\x1a\x04\x0a\x02\xff\xfe",  # GRAFT
        b"\x1a\x06\x22\x04\x0a\x02\xff\xfe",  # PRUNE
    ],
)
def test_a_topic_that_is_not_utf8_is_refused(part: bytes) -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decode(part)


@pytest.mark.parametrize(
    ("what", "packet"),
    [
        ("messages", Rpc((Message(("a",), b""),) * 11)),
        ("topics of messages", Rpc((Message(("a",) * 5, b""), Message(("a",) * 6, b"")))),
        ("subscriptions", Rpc(subscriptions=(Subscription("a", True),) * 11)),
        ("IHAVE messages", Rpc(control=Control(ihave=(IHave("a", ()),) * 11))),
        ("GRAFT messages", Rpc(control=Control(graft=("a",) * 11))),
        ("PRUNE messages", Rpc(control=Control(prune=("a",) * 11))),
        ("ids", Rpc(control=Control(ihave=(IHave("a", (b"",) * 5), IHave("a", (b"",) * 6))))),
        ("ids", Rpc(control=Control(iwant=(b"",) * 11))),
    ],
)
def test_a_packet_of_very_many_parts_is_refused(what: str, packet: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    (content,) = contents(*encode(packet))
    monkeypatch.setattr(wire, "MAX_ITEMS", 11)
    assert decode(content) == packet
    monkeypatch.setattr(wire, "MAX_ITEMS", 10)
    with pytest.raises(ProtocolError, match=f"a packet with 11 {what}; 10 at most"):
        decode(content)


def test_very_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = rpc_pb2.RPC(control=rpc_pb2.ControlMessage(iwant=[rpc_pb2.ControlIWant()] * 11))
    monkeypatch.setattr(wire, "MAX_ITEMS", 10)
    with pytest.raises(ProtocolError, match="a packet with 11 IWANT messages; 10 at most"):
        decode(many.SerializeToString())


# Packets that are too long for a frame


def test_a_packet_that_is_too_long_is_divided() -> None:
    """Seed 001, 37: into no more frames than it takes."""
    packet = Rpc(
        tuple(Message(("a",), bytes([number]) * 100) for number in range(9)),
        tuple(Subscription(f"topic {number}", True) for number in range(9)),
        Control((IHave("a", (bytes(20),) * 5),), (bytes(20),) * 5, ("b", "c"), ("d", "e")),
    )
    frames = encode(packet, 400)
    found = [decode(content) for content in contents(*frames)]
    assert all(len(content) <= 400 for content in contents(*frames))
    assert len(frames) == 4
    assert sum((part.messages for part in found), ()) == packet.messages
    assert sum((part.subscriptions for part in found), ()) == packet.subscriptions
    controls = [part.control for part in found if part.control is not None]
    assert controls == [packet.control]


def test_a_packet_that_just_fits_is_one_frame() -> None:
    """Seed 001, 37."""
    packet = Rpc(tuple(Message(("a",), bytes(100)) for _ in range(9)), control=Control(graft=("a", "b")))
    (frame,) = encode(packet)
    (content,) = contents(frame)
    assert encode(packet, len(content)) == [frame]
    assert len(encode(packet, len(content) - 1)) == 2


def test_many_ids_are_divided() -> None:
    ids = tuple(number.to_bytes(8, "big") for number in range(5000))
    frames = encode(Rpc(control=Control((IHave("a", ids),), ids)), 25_000)
    found = [decode(content).control for content in contents(*frames)]
    assert len(frames) == 5
    assert sum((ihave.ids for control in found if control is not None for ihave in control.ihave), ()) == ids
    assert sum((control.iwant for control in found if control is not None), ()) == ids


@given(packets(st.text(max_size=3), st.binary(max_size=4)), st.integers(70, 120))
def test_nothing_is_lost_where_a_packet_is_divided(packet: Rpc, limit: int) -> None:
    parts = contents(*encode(packet, limit))
    assert all(len(part) <= limit for part in parts)
    read = [decode(part) for part in parts]
    assert [message for part in read for message in part.messages] == [*packet.messages]
    assert [change for part in read for change in part.subscriptions] == [*packet.subscriptions]
    told = merge(read).control or Control()
    assert told == (packet.control or Control())


def test_what_fits_into_no_frame_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="bytes that cannot be divided; a frame holds 100"):
        encode(Rpc((Message(("a",), bytes(100)),)), 100)


def test_an_extension_has_an_encoding_of_its_own() -> None:
    with pytest.raises(EncodeError, match="a packet with an extension"):
        encode(Rpc(extension=("hello",)))
