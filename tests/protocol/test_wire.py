"""`gossiplog.protocol.wire`: bytes by hand from the field numbers of the wire format, "Frames", and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.core import Node, Nodes
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire
from tests.protocol.pipe import frames
from tests.strategies import repeatable

KEY = bytes(range(20))
HASH = bytes(range(16))
NODE = b"\x08\x01" + b"\x12\x14" + KEY + b"\x1a\x10" + HASH
ANCHOR = b"\x1a\x10" + HASH

REQUESTS = [
    (wire.GetRoot(), b"\x02\x0a\x00"),
    (wire.GetNode(0, None), b"\x02\x12\x00"),
    (wire.GetNode(2, KEY), b"\x1a\x12\x18\x08\x02\x12\x14" + KEY),
    (wire.GetChildren(3, None), b"\x04\x1a\x02\x08\x03"),
    (wire.GetChildren(1, KEY), b"\x1a\x1a\x18\x08\x01\x12\x14" + KEY),
    (wire.GetChildren(1, None, b""), b"\x06\x1a\x04\x08\x01\x1a\x00"),
    (wire.GetChildren(1, None, KEY), b"\x1a\x1a\x18\x08\x01\x1a\x14" + KEY),
    (wire.GetValues([]), b"\x02\x22\x00"),
    (wire.GetValues([KEY, KEY]), b"\x2e\x22\x2c" + 2 * (b"\x0a\x14" + KEY)),
]
ANSWERS = [
    (wire.Root(Node(0, None, HASH)), b"\x16\x0a\x14\x0a\x12" + ANCHOR),
    (wire.Found(None), b"\x02\x12\x00"),
    (wire.Found(Node(1, KEY, HASH)), b"\x2e\x12\x2c\x0a\x2a" + NODE),
    (wire.Children(Nodes([])), b"\x02\x1a\x00"),
    (
        wire.Children(Nodes([Node(0, None, HASH), Node(1, KEY, HASH)])),
        b"\x42\x1a\x40\x0a\x12" + ANCHOR + b"\x0a\x2a" + NODE,
    ),
    (wire.Values([]), b"\x02\x22\x00"),
    (wire.Values([b"", b"ab"]), b"\x08\x22\x06\x0a\x00\x0a\x02ab"),
    (wire.Abort(0), b"\x02\x2a\x00"),
    (wire.Abort(300), b"\x05\x2a\x03\x08\xac\x02"),
]
PUSHES = [
    (wire.Insert(KEY, b"abc"), b"\x1d\x0a\x1b\x0a\x14" + KEY + b"\x12\x03abc"),
    (wire.Update([]), b"\x02\x12\x00"),
    (wire.Update([KEY]), b"\x18\x12\x16\x0a\x14" + KEY),
]


@pytest.mark.parametrize(("request_", "frame"), REQUESTS)
def test_requests(request_: wire.Request, frame: bytes) -> None:
    assert wire.encode_request(request_) == frame
    assert wire.decode_request(frame[1:]) == request_


@pytest.mark.parametrize(("answer", "frame"), ANSWERS)
def test_answers(answer: wire.Answer, frame: bytes) -> None:
    assert wire.encode_answer(answer) == frame
    assert wire.decode_answer(frame[1:]) == answer


@pytest.mark.parametrize(("push", "frame"), PUSHES)
def test_pushes(push: wire.Push, frame: bytes) -> None:
    assert wire.encode_push(push) == frame
    assert wire.decode_push(frame[1:]) == push


def test_an_empty_key_is_null() -> None:
    assert wire.decode_request(b"\x1a\x04\x08\x03\x12\x00") == wire.GetChildren(3, None)
    assert wire.decode_answer(b"\x0a\x16\x0a\x14\x12\x00" + ANCHOR) == wire.Root(Node(0, None, HASH))


def test_a_frame_of_little_but_unknown_fields_is_refused() -> None:
    with pytest.raises(ProtocolError, match="20000 bytes of unknown fields"):
        wire.decode_request(b"\x0a\x00" + b"\x48\x01" * 10_000)


def test_unknown_fields_beside_a_known_one_are_passed_over() -> None:
    assert wire.decode_request(b"\x0a\x00\x48\x01") == wire.GetRoot()
    assert wire.decode_answer(b"\x2a\x04\x08\x07\x48\x01") == wire.Abort(7)


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (b"", "request: holds nothing; expected one of get_root, get_node"),
        (b"\x48\x01", "request: holds only unknown fields 9"),
        (b"\x0a\x00\xff", "no protobuf request"),
        (b"\x0a\x05", "no protobuf request"),
        (b"\x08\x01", "request: field get_root is of the wrong type"),
        (b"\x0a\x00\x10\x01", "request: field get_node is of the wrong type"),
        (b"\x12\x02\x10\x01", "GetNode: field key is of the wrong type"),
        (b"\x1a\x03\x0a\x01a", "GetChildren: field level is of the wrong type"),
        (b"\x22\x02\x08\x01", "GetValues: field keys is of the wrong type"),
        (b"\x22\x03\x0a\x01k", r"a key of 1 bytes \(6b\); expected 20"),
        (b"\x22\x02\x0a\x00", "a key of 0 bytes"),
        (b"\x12\x03\x12\x01k", "a key of 1 bytes"),
        (b"\x1a\x02\x08\x41", "level is 65; at most 64"),
    ],
)
def test_refused_requests(frame: bytes, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        wire.decode_request(frame)


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (b"", "answer: holds nothing"),
        (b"\x0a\x00", "GetRoot without a root"),
        (b"\x0a\x04\x0a\x02\x08\x41", "level is 65"),
        (b"\x0a\x04\x0a\x02\x08\x01", "hash of 0 bytes"),
        (b"\x1a", "no protobuf answer"),
        (b"\x1a\x80", "no protobuf answer"),
        (b"\x1a\x07\x0a\x05\x12\x03abc", "a key of 3 bytes"),
        (b"\x1a\x16\x0a\x14\x08\x41" + ANCHOR, "level is 65"),
        (b"\x1a\x02\x08\x01", "GetChildren: field children is of the wrong type"),
        (b"\x22\x02\x08\x01", "GetValues: field values is of the wrong type"),
        (b"\x2a\x03\x0a\x01a", "Abort: field cooldown is of the wrong type"),
    ],
)
def test_refused_answers(frame: bytes, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        wire.decode_answer(frame)


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (b"", "event: holds nothing"),
        (b"\x0a\x00", "a key of 0 bytes"),
        (b"\x12\x03\x0a\x01h", "a key of 1 bytes"),
        (b"\x12\x02\x08\x01", "Update: field heads is of the wrong type"),
    ],
)
def test_refused_pushes(frame: bytes, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        wire.decode_push(frame)


@repeatable(200)
@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (wire.decode_request, wire.decode_answer, wire.decode_push):
        with contextlib.suppress(ProtocolError):
            decode(data)


@repeatable(200)
@given(st.lists(st.builds(Node, st.integers(0, 64), st.sampled_from([None, KEY]), st.just(HASH)), max_size=120))
def test_children_are_read_alike_by_both_parsers(nodes: list[Node]) -> None:
    # An unknown field behind them, which only the general parser passes over.
    (answer,) = frames(wire.encode_answer(wire.Children(Nodes(nodes))))
    assert wire.decode_answer(answer) == wire.decode_answer(answer + b"\x48\x01") == wire.Children(Nodes(nodes))


@repeatable(100)
@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_frames_are_cut_alike_however_the_stream_is_chunked(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(
        (bytes([len(payload)]) if len(payload) < 128 else bytes([len(payload) & 127 | 128, len(payload) >> 7]))
        + payload
        for payload in payloads
    )
    reader = wire.FrameReader(300)
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:size])
        stream = stream[size:]
        found += iter(reader.next, None)
    assert found == payloads
    assert reader.next() is None


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"\x80\x00", "written in 2 bytes, which is not minimal"),
        (b"\x81\x80\x00", "written in 3 bytes, which is not minimal"),
        (b"\x80\x80\x80\x80\x80", "takes more than 5 bytes"),
        (b"\x65", "a frame of 101 bytes; at most 100"),
        (b"\xff\xff\xff\xff\x7f", "a frame of 34359738367 bytes"),
    ],
)
def test_refused_lengths(data: bytes, named: str) -> None:
    reader = wire.FrameReader(100)
    reader.feed(data)
    with pytest.raises(ProtocolError, match=named):
        reader.next()


def test_an_unfinished_frame_waits() -> None:
    reader = wire.FrameReader(100)
    for byte in b"\x64" + bytes(99):
        assert reader.next() is None
        reader.feed(bytes([byte]))
    assert reader.next() is None
    reader.feed(b"\x00\x00")
    assert reader.next() == bytes(100)
    assert reader.next() == b""


def test_protocols_name_their_topics() -> None:
    names = [name for topic in ("notes", "a/push", "/canvas/v1/b") for name in wire.Protocols(topic).all]
    assert wire.Protocols.topics([*names, "/ipfs/ping/1.0.0"]) == ["notes", "a/push", "/canvas/v1/b"]
