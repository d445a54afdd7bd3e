"""`gossiplog.core`: both cores accept, refuse and sign the same messages."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.errors import InvalidMessage
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.id import message_key
from gossiplog.reference.message import parse
from tests import strategies, vectors
from tests.cores import MESSAGE_VALUES, MESSAGES, VERDICT_VALUES, VERDICTS, judged, outcome
from tests.fuzzing import judging, messages
from tests.fuzzing.messages import Payload
from tests.strategies import TOPIC, Shape, damaged, repeatable, shapes, signed


@pytest.mark.slow
@repeatable(500)
@given(value=damaged(VERDICT_VALUES))
def test_damaged_verdicts_are_judged_alike(rust: ModuleType, value: bytes) -> None:
    assert judged(rust, value, VERDICTS["topic"]) == judged(reference, value, VERDICTS["topic"])


@repeatable(300)
@given(value=damaged(MESSAGE_VALUES))
def test_damaged_messages_are_judged_alike(rust: ModuleType, value: bytes) -> None:
    assert judged(rust, value, MESSAGES["topic"]) == judged(reference, value, MESSAGES["topic"])


@pytest.mark.slow
@repeatable(120)
@given(payload=strategies.wild_cbor, codec=st.sampled_from(["dag-cbor", "dag-json"]))
def test_unusual_payloads_are_judged_alike(rust: ModuleType, payload: bytes, codec: str) -> None:
    """The value is signed over its normalised payload, so that it is accepted wherever its payload can be."""
    _, plain = reference.sign(TOPIC, 1, [], None, b"\x01" * 32, codec)
    kind, value = outcome(lambda: reference.cbor_decode(payload))
    if kind == "returned":
        encoded = outcome(lambda: reference.sign(TOPIC, 1, [], value, b"\x01" * 32, codec))
        if encoded[0] == "returned":
            plain = encoded[1][1].removesuffix(reference.cbor_encode(value)) + payload
    assert judged(rust, plain, TOPIC) == judged(reference, plain, TOPIC)


PASSING = vectors.load("passing")


@pytest.mark.parametrize("row", PASSING["rows"], ids=lambda row: f"{row['name']}, {row['codec']}")
def test_messages_with_prototypes_are_judged_as_canvas_js_does(core: ModuleType, row: dict[str, Any]) -> None:
    payload = Payload(bytes.fromhex(row["payload"]), row["codec"])
    content = None if row["signed"] is None else bytes.fromhex(row["signed"])
    value = messages.signed(payload, content)
    read, _ = judging.parse_payload(payload)
    if content is None or judging.is_another(payload, content, read):
        with pytest.raises(InvalidMessage):
            core.verify(value, PASSING["topic"])
        return
    message = core.verify(value, PASSING["topic"])
    assert not message.canonical or core.cbor_encode(message.payload) == payload.data


# A map that canvas-js stores as a link, and in it one that it could not store.
IN_A_LINK = bytes.fromhex(
    "a36b636f6e7374727563746f72a2695f5f70726f746f5f5fa1656279746573fa427e0000612ffa427e000065627974657340612f40"
)


@pytest.mark.slow
@repeatable(300)
@given(data=strategies.prototype_maps, codec=st.sampled_from(["dag-cbor", "dag-json"]))
@example(data=IN_A_LINK, codec="dag-json")
def test_what_prototypes_make_of_messages_is_alike(rust: ModuleType, data: bytes, codec: str) -> None:
    assert judging.verify_alike([Payload(data, codec)]) == []


@pytest.mark.parametrize("length", [-1, -2, ".5"])
def test_nobody_makes_a_message_of_somebodys_signature(core: ModuleType, length: object) -> None:
    """canvas-js signs what its encoder's position makes of such a length, and that may be what somebody else wrote."""
    entries = [("length", write_cbor(length)), ("__proto__", b"\x40")]
    payload = b"\x82\xa2" + b"".join(write_cbor(key) + value for key, value in entries) + b"\x01"
    value = messages.stored(Payload(payload, "dag-cbor"))
    moved = encode_in_chunks(messages.fields_of(parse(value, messages.TOPIC)))
    with pytest.raises(InvalidMessage, match="another message"):
        core.verify(messages.signed(Payload(payload, "dag-cbor"), moved), messages.TOPIC)


def with_parents(parents: bytes, clock: bytes, signature: bytes) -> bytes:
    """A message whose parents are written as given, signed by one key."""
    key = reference.SigningKey(b"\x01" * 32)
    record = write_cbor(["dag-cbor", key.did, signature])
    return b"\x85" + record + write_cbor(TOPIC) + clock + parents + b"\xf6"


@pytest.mark.parametrize("name", ["length", "byteLength"])
@pytest.mark.parametrize("length", [b"\x14", b"\x13", b"\xf9\x4d\x00", b"\x62" + b"20", b"\xf6"])
def test_a_map_passes_for_a_parent_where_both_its_lengths_are_20(core: ModuleType, name: str, length: bytes) -> None:
    parent = message_key(1, b"some value")
    other = "byteLength" if name == "length" else "length"
    entries = [(name, length), (other, b"\x14"), ("__proto__", b"\x54" + parent)]
    passing = b"\x81\xa3" + b"".join(write_cbor(key) + value for key, value in entries)
    content = {"topic": TOPIC, "clock": 2, "parents": [reference.encode_id(parent)], "payload": None}
    signature = reference.SigningKey(b"\x01" * 32).sign_bytes(write_cbor(content))
    value = with_parents(passing, b"\x02", signature)
    if length in (b"\x14", b"\xf9\x4d\x00"):
        assert core.verify(value, TOPIC).parents == (reference.encode_id(parent),)
    else:
        with pytest.raises(InvalidMessage):
            core.verify(value, TOPIC)


def test_a_map_never_passes_for_a_signature(core: ModuleType) -> None:
    key = reference.SigningKey(b"\x01" * 32)
    _, value = key.sign(TOPIC, 1, [], None)
    signature = core.verify(value, TOPIC).signature
    entries = [("length", b"\x18\x40"), ("byteLength", b"\x18\x40"), ("__proto__", write_cbor(signature))]
    passing = b"\xa3" + b"".join(write_cbor(name) + item for name, item in entries)
    with pytest.raises(InvalidMessage, match="passes for bytes"):
        core.verify(value.replace(write_cbor(signature), passing), TOPIC)


def test_what_maps_pass_for_together_is_bounded(core: ModuleType) -> None:
    def passing(length: int) -> bytes:
        return b"\xa2" + write_cbor("length") + write_cbor(length) + write_cbor("__proto__") + b"\x40"

    half = 2**21
    for lengths, is_read in [((half, half), True), ((half, half + 1), False), ((2 * half + 1, 0), False)]:
        value = messages.stored(Payload(b"\x82" + b"".join(map(passing, lengths)), "dag-json"))
        if is_read:
            assert [len(item) for item in core.read_message(value, messages.TOPIC).payload] == list(lengths)
        else:
            with pytest.raises(InvalidMessage):
                core.read_message(value, messages.TOPIC)
    # What is dropped is never made, however much there is of it.
    dropped = b"\x99\x03\xe8" + passing(2 * half) * 1000
    outer = b"\xa3" + write_cbor("a") + dropped + write_cbor("length") + b"\x01" + write_cbor("__proto__") + b"\x41x"
    assert core.read_message(messages.stored(Payload(outer, "dag-json")), messages.TOPIC).payload == b"x"


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_what_maps_pass_for_is_bounded_where_they_are_stored_but_not_signed(core: ModuleType, codec: str) -> None:
    def passing(length: int) -> bytes:
        return b"\xa2" + write_cbor("length") + write_cbor(length) + write_cbor("__proto__") + b"\x40"

    null, link = write_cbor("__proto__") + b"\xf6", write_cbor("__proto__") + b"\xd8\x2a\x44\x00\x12\x01a"
    empty = write_cbor("/") + b"\x40" + write_cbor("bytes") + b"\x40"
    half = 2**21

    def is_read(payload: bytes) -> bool:
        try:
            core.read_message(messages.stored(Payload(payload, codec)), messages.TOPIC)
        except InvalidMessage:
            return False
        return True

    for lengths, fits in [((half, half), True), ((half, half + 1), False)]:
        entries = write_cbor("a") + passing(lengths[0]) + write_cbor("b") + b"\x81" + passing(lengths[1])
        # The copy is written as the link, but the entries are stored.
        assert is_read(b"\xa4" + null + entries + link) == fits
        assert is_read(b"\x81\xa4" + null + entries + link) == fits
        # So is the prototype of the copy.
        assert is_read(b"\xa2" + null + write_cbor("__proto__") + b"\xa2" + entries) == fits
        # This is stored as a link, too, and nothing that is in it.
        assert is_read(b"\xa4" + entries + empty)
        assert is_read(b"\xa5" + null + entries + empty)


@pytest.mark.slow
@repeatable(60)
@given(
    data=st.data(),
    shape=shapes(16),
    codec=st.sampled_from(["dag-cbor", "dag-json", "json"]),
    topic=st.sampled_from([TOPIC, "a#b", "a:b", "a:b#c", "", "#", "é", "a#b#c", "a\n"]),
)
def test_messages_are_signed_alike(rust: ModuleType, data: st.DataObject, shape: Shape, codec: str, topic: str) -> None:
    ids = [parse(value, TOPIC).message.id for value in signed(shape)]
    parents = data.draw(st.lists(st.sampled_from([*ids, "0" * 31, "g" * 32, "V" * 32, "v" * 32]), max_size=3))
    clock = data.draw(st.integers(0, 8))
    seed = data.draw(st.sampled_from([b"\x01" * 32, b"\x01" * 31]))
    results = [
        outcome(lambda core=core: core.sign(topic, clock, parents, {"n": 1}, seed, codec)) for core in (rust, reference)
    ]
    # Which of several faults is named first is each core's own.
    assert results[0][0] == results[1][0]
    if results[0][0] == "returned":
        assert results[0] == results[1]


def test_a_reader_says_what_the_payload_is_and_changes_nothing_else(core: ModuleType) -> None:
    _, value = core.sign(TOPIC, 1, [], {"text": "milk"}, b"\x01" * 32)
    message = core.verify(value, TOPIC)
    read = message.with_reader(lambda read: (read.id, read.raw_payload["text"]))
    assert read.payload == (message.id, "milk")
    assert read.raw_payload == message.payload == message.raw_payload == {"text": "milk"}
    assert (read, hash(read), read.value) == (message, hash(message), message.value)
    # It may belong to a class that cannot be pickled.
    assert pickle.loads(pickle.dumps(read)).payload == {"text": "milk"}


def test_what_a_reader_raises_comes_through(core: ModuleType) -> None:
    _, value = core.sign(TOPIC, 1, [], 1, b"\x01" * 32)
    message = core.verify(value, TOPIC).with_reader(lambda read: read.raw_payload["text"])
    with pytest.raises(TypeError, match="subscriptable"):
        _ = message.payload


def test_messages_are_annotated_with_the_type_of_their_payloads(core: ModuleType) -> None:
    alias = core.SignedMessage[int]
    assert (alias.__origin__, alias.__args__) == (core.SignedMessage, (int,))
