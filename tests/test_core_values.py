"""`gossiplog.core`: both cores read and write the same values, links, clocks and signatures of bytes."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.errors import EncodeError, InvalidMessage
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.multiformats import base58_encode, write_uvarint
from tests import strategies, vectors
from tests.cores import SLOW_WITH_REFERENCE, VERDICT_VALUES, decoded, encoded, outcome
from tests.fuzzing import messages
from tests.fuzzing.messages import Payload
from tests.strategies import TOPIC, build, damaged, neutral, repeatable

SIGNED_ELSEWHERE = vectors.load("pubsub")["signed"]


@pytest.mark.parametrize("row", SIGNED_ELSEWHERE, ids=lambda row: row["privateKey"][:4])
def test_bytes_of_other_protocols_are_signed_and_verified(core: ModuleType, row: dict[str, str]) -> None:
    key = core.SigningKey(bytes.fromhex(row["privateKey"]))
    signature = key.sign_bytes(b"what it is for")
    assert key.public_key.hex() == row["publicKey"]
    assert core.verify_bytes(key.public_key, signature, b"what it is for") is True
    assert core.verify_bytes(key.public_key, signature, b"something else") is False
    assert core.verify_bytes(key.public_key, signature[:32] + bytes(32), b"what it is for") is False


@pytest.mark.parametrize("lengths", [(31, 64), (33, 64), (0, 64), (32, 63), (32, 65), (32, 0)])
def test_keys_and_signatures_of_other_lengths_never_hold(core: ModuleType, lengths: tuple[int, int]) -> None:
    assert core.verify_bytes(bytes(lengths[0]), bytes(lengths[1]), b"") is False


# The cores held against each other


@repeatable(20)
@given(seed=st.binary(min_size=32, max_size=32), content=st.binary(max_size=100))
def test_both_sign_bytes_alike(rust: ModuleType, seed: bytes, content: bytes) -> None:
    signature = rust.SigningKey(seed).sign_bytes(content)
    assert signature == reference.SigningKey(seed).sign_bytes(content)
    assert reference.verify_bytes(rust.SigningKey(seed).public_key, signature, content)


@pytest.mark.parametrize(("length", "text"), [(b"\x49", "QD36"), (b"\xf7\x01", "Q8Zf"), (b"\x20", "QmNL")])
def test_a_link_whose_text_begins_with_q_is_signed_in_dag_json(core: ModuleType, length: bytes, text: str) -> None:
    digest = bytes({1: length[0], 2: length[0] & 127 | length[-1] << 7}[len(length)])
    link = core.CID(b"\x12" + length + digest)
    assert str(link).startswith(text)
    assert core.CID.parse(str(link)) == link
    _, value = core.sign(TOPIC, 1, [], [link], bytes(32), "dag-json")
    assert core.verify(value, TOPIC).payload == [link]
    assert value == reference.sign(TOPIC, 1, [], [reference.CID(bytes(link))], bytes(32), "dag-json")[1]


# Version 0, with a digest of one byte; written out; and a multihash of another code, which no link of version 0 has.
@pytest.mark.parametrize("link", [b"\x12\x01a", b"\x00\x70\x12\x00", b"\x00\x70\x13\x01a"])
def test_a_link_that_its_text_does_not_say_is_what_the_text_says(core: ModuleType, link: bytes) -> None:
    """Text in dag-json is what was signed: anybody can put what else has this text in place of the link."""
    item = b"\xd8\x2a" + write_cbor(b"\0" + link)
    text = str(core.CID(link))
    encodings = [Payload(data, "dag-json") for data in (item, write_cbor({"/": text}))]
    content = b'{"clock":1,"parents":[],"payload":{"/":"%b"},"topic":"fuzz"}' % text.encode()
    read = [core.verify(messages.signed(payload, content), messages.TOPIC) for payload in encodings]
    assert [message.payload for message in read] == [{"/": text}] * 2
    assert [message.content_id for message in read] == [read[1].id] * 2
    assert [message.canonical for message in read] == [False, True]
    with pytest.raises(EncodeError, match="sign it as dag-cbor"):
        core.sign(TOPIC, 1, [], [core.CID(link)], bytes(32), "dag-json")


@pytest.mark.slow
@SLOW_WITH_REFERENCE
def test_text_that_is_too_long_for_a_link_is_text(core: ModuleType) -> None:
    text = base58_encode(b"\x12" + write_uvarint(16436) + bytes(16436))
    assert text.startswith("Q")
    payload = Payload(write_cbor({"/": text}), "dag-json")
    assert core.read_message(messages.stored(payload), messages.TOPIC).payload == {"/": text}


def test_a_link_too_long_for_base58_is_refused_by_name(core: ModuleType) -> None:
    link = core.CID(b"\x12\x80\x80\x04" + bytes(2**16))
    with pytest.raises(EncodeError, match="65540 bytes"):
        core.sign(TOPIC, 1, [], link, bytes(32), "dag-json")
    _, value = core.sign(TOPIC, 1, [], link, bytes(32))
    with pytest.raises(InvalidMessage, match="65540 bytes"):
        core.verify(value.replace(b"hdag-cbor", b"hdag-json"), TOPIC)


@pytest.mark.slow
@repeatable(400)
@given(value=strategies.values)
@example(value={"/": {"bytes": None}})
def test_values_are_encoded_alike_and_come_back(rust: ModuleType, value: Any) -> None:
    for encode, decode in (("cbor_encode", "cbor_decode"), ("json_encode", "json_decode")):
        results = [outcome(partial(encoded, core, encode, value)) for core in (rust, reference)]
        assert results[0] == results[1]
        kind, data = results[0]
        if kind == "returned":
            # dag-json has maps that look like bytes or links: both cores read them alike, or refuse them.
            read = [outcome(partial(decoded, core, decode, data)) for core in (rust, reference)]
            assert read[0] == read[1]
            assert (decode, read[0][0]) != ("cbor_decode", "raised")
            assert reference.cbor_encode(reference.cbor_decode(reference.cbor_encode(build(reference, value)))) == (
                reference.cbor_encode(build(reference, value))
            )


@pytest.mark.slow
@repeatable(800)
@given(data=st.one_of(strategies.wild_cbor, st.binary(max_size=24), damaged(VERDICT_VALUES)))
def test_any_bytes_are_decoded_alike(rust: ModuleType, data: bytes) -> None:
    assert outcome(lambda: neutral(rust, rust.cbor_decode(data))) == outcome(
        lambda: neutral(reference, reference.cbor_decode(data))
    )


_JSON = [
    b'{"a":[1,-0,1.0,1e2,0.1,1e21,123456789012345680000.0,18446744073709551615,-18446744073709551616],"b":{"/":"text"}}',
    rb'{"/":{"bytes":"AQI"},"c":"\u00e9\ud83d\ude00\n\/","\u0064":null}',
    b'[{"/":{"bytes":"AQI"}},{"/":"QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKU4vT"},{"/":"bafkqaaa"},true,false,null]',
    b" [ ] ",
    b'{"":{}}',
]


@pytest.mark.slow
@repeatable(600)
@given(
    data=st.one_of(
        damaged(_JSON),
        st.text('[]{}:,"/\\eE+-.0123 ntfb\ufeff\ud800', max_size=12).map(
            lambda text: text.encode("utf-8", "surrogatepass")
        ),
    )
)
# What Python's re took for a string before 3.11.5 (python/cpython#106052).
@example(data=b'["\\ud83d\\u","a"]')
def test_any_text_is_decoded_alike(rust: ModuleType, data: bytes) -> None:
    assert outcome(lambda: neutral(rust, rust.json_decode(data))) == outcome(
        lambda: neutral(reference, reference.json_decode(data))
    )


@repeatable(300)
@given(data=st.binary(max_size=12))
def test_clocks_are_read_alike(rust: ModuleType, data: bytes) -> None:
    assert outcome(lambda: rust.decode_clock(data)) == outcome(lambda: reference.decode_clock(data))


@repeatable(300)
@given(data=st.one_of(st.binary(max_size=24), strategies.links.map(lambda link: link.data)))
def test_links_are_read_alike(rust: ModuleType, data: bytes) -> None:
    def read(core: ModuleType) -> tuple[bytes, str]:
        link = core.CID(data)
        return bytes(link), str(link)

    assert outcome(lambda: read(rust)) == outcome(lambda: read(reference))


@repeatable(300)
@given(
    text=st.one_of(
        st.text("bzQm12Aaf7=", max_size=12), strategies.links.map(lambda link: str(reference.CID(link.data)))
    )
)
def test_the_text_of_links_is_read_alike(rust: ModuleType, text: str) -> None:
    assert outcome(lambda: bytes(rust.CID.parse(text))) == outcome(lambda: bytes(reference.CID.parse(text)))


@repeatable(1500)
@given(data=strategies.prototype_maps)
@example(data=bytes.fromhex("a4613701695f5f70726f746f5f5f4100613702695f5f70726f746f5f5f80"))
@example(data=bytes.fromhex("a3695f5f70726f746f5f5f4100642d6e616e01695f5f70726f746f5f5ff6"))
@pytest.mark.integration
def test_what_prototypes_make_of_maps_is_alike(rust: ModuleType, data: bytes) -> None:
    normalized = [outcome(lambda core=core: core.cbor_encode(core.cbor_decode(data))) for core in (rust, reference)]
    assert normalized[0] == normalized[1]
