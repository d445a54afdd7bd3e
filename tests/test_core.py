"""The two cores side by side: the original's vectors on each, and each held against the other on generated input."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.errors import EncodeError, GossipLogError, InvalidMessage, TreeError
from gossiplog.reference import ed25519
from gossiplog.reference.base58 import base58_encode
from gossiplog.reference.cbor import write_cbor
from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.id import message_key
from gossiplog.reference.message import parse
from gossiplog.reference.varint import write_uvarint
from tests import strategies, vectors
from tests.fuzzing import judging, messages
from tests.fuzzing.messages import Payload
from tests.strategies import (
    TOPIC,
    Shape,
    alternative,
    build,
    damaged,
    longer_author,
    neutral,
    repeatable,
    shapes,
    signed,
)

CORES = ("gossiplog._core", "gossiplog.reference")
VERDICTS = vectors.load("verdicts")
MESSAGES = vectors.load("messages")
VERDICT_VALUES = [bytes.fromhex(verdict["value"]) for verdict in VERDICTS["verdicts"] if len(verdict["value"]) < 1000]
MESSAGE_VALUES = [bytes.fromhex(message["value"]) for message in MESSAGES["messages"][:60]]


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


@pytest.fixture(scope="module")
def rust() -> ModuleType:
    return importlib.import_module("gossiplog._core")


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call returns, or the type of what it raises on purpose, which is what two cores must agree on."""
    try:
        return "returned", call()
    except GossipLogError as error:
        return "raised", type(error)


def facts(verdict: Any) -> tuple[Any, ...]:
    """What is public of a message, or of why it is none."""
    if isinstance(verdict, InvalidMessage):
        return "invalid", verdict.id
    return (
        *(verdict.key, verdict.id, verdict.topic, verdict.clock, verdict.parents, verdict.author, verdict.codec),
        *(verdict.signature, verdict.value, verdict.canonical, verdict.content_id),
    )


def judged(core: ModuleType, value: bytes, topic: str) -> tuple[Any, ...]:
    try:
        message = core.verify(value, topic)
    except InvalidMessage as error:
        return facts(error)
    return (*facts(message), neutral(core, message.payload))


def test_both_cores_offer_the_names_of_the_interface(core: ModuleType) -> None:
    names = set(importlib.import_module("gossiplog.core").__all__)
    assert names == set(reference.__all__)
    assert all(hasattr(core, name) for name in names)
    for name in ("MAX_CLOCK", "MAX_DEPTH", "MAX_OWN_DEPTH", "KEY_LENGTH", "HASH_LENGTH"):
        assert getattr(core, name) == getattr(reference, name)


# The original's vectors


def test_everything_public_is_documented(core: ModuleType) -> None:
    functions = [name for name in reference.__all__ if name.islower()]
    assert len(functions) > 15
    undocumented = [name for name in functions if not getattr(core, name).__doc__]
    assert not undocumented


def test_clocks(core: ModuleType) -> None:
    for row in vectors.load("clocks"):
        data = bytes.fromhex(row["hex"])
        assert core.encode_clock(row["clock"]) == data
        assert core.decode_clock(data + b"\0") == (row["clock"], len(data))


def test_messages(core: ModuleType) -> None:
    for row in MESSAGES["messages"]:
        payload = vectors.untag(core, row["payload"])
        private_key, value = bytes.fromhex(row["privateKey"]), bytes.fromhex(row["value"])
        key, made = core.sign(MESSAGES["topic"], row["clock"], row["parents"], payload, private_key, row["codec"])
        assert (key.hex(), made.hex()) == (row["key"], row["value"])
        assert core.SigningKey(private_key).did == row["publicKey"]
        encode = core.cbor_encode if row["codec"] == "dag-cbor" else core.json_encode
        message = {"topic": MESSAGES["topic"], "clock": row["clock"], "parents": row["parents"], "payload": payload}
        assert encode(message).hex() == row["signingBytes"]
        assert core.leaf_hash(key, value).hex() == row["leafHash"]
        read = core.verify(value, MESSAGES["topic"])
        assert (read.id, read.key.hex(), read.author) == (row["id"], row["key"], row["publicKey"])
        assert (read.clock, list(read.parents), read.codec) == (row["clock"], row["parents"], row["codec"])
        assert (read.signature.hex(), read.value, read.canonical) == (row["signature"], value, True)
        assert core.cbor_encode(read.payload) == core.cbor_encode(payload)


@pytest.mark.parametrize("verdict", VERDICTS["verdicts"], ids=lambda verdict: verdict["name"])
def test_verdicts(core: ModuleType, verdict: dict[str, Any]) -> None:
    before = core.verify_batch([bytes.fromhex(value) for value in VERDICTS["before"]], VERDICTS["topic"])
    stored = before.plan(1, {}, lambda _: [])
    sequences = {key: sequence for key, _, sequence in stored.leaves}
    records = {sequence: links for sequence, _, links in stored.messages}
    batch = core.verify_batch([bytes.fromhex(verdict["value"])], VERDICTS["topic"])
    known = {key: sequences[key] for key in batch.parents() if key in sequences}
    plan = batch.plan(len(sequences) + 1, known, lambda wanted: [records[sequence] for sequence in wanted])
    assert bool(plan.order) == verdict["accepted"]
    if verdict["accepted"]:
        assert batch[0].id == verdict["id"]


@pytest.mark.parametrize("row", vectors.load("normalized"), ids=lambda row: row["name"])
def test_normalized(core: ModuleType, row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["input"])
    if row["cbor"] is None:
        with pytest.raises(GossipLogError):
            core.cbor_decode(data)
    else:
        value = core.cbor_decode(data)
        assert core.cbor_encode(value).hex() == row["cbor"]
        assert core.json_encode(value).hex() == row["json"]


@pytest.mark.parametrize("row", vectors.load("trees"), ids=lambda row: f"{row['seed']}-{row['n']}")
def test_trees(core: ModuleType, row: dict[str, Any]) -> None:
    if row["n"] > 10_000 and core is reference:
        row = next(smaller for smaller in vectors.load("trees") if smaller["n"] == 4096)
    keys = [hashlib.sha256(row["seed"].to_bytes(4) + i.to_bytes(4)).digest()[:20] for i in range(row["n"])]
    tree = core.Tree().insert((key, hashlib.sha256(key).digest()) for key in keys)
    assert (tree.root.level, tree.root.hash.hex()) == (row["root"]["level"], row["root"]["hash"])
    levels = [tree.nodes(level) for level in range(tree.root.level + 1)]
    assert [len(level) for level in levels] == row["count"]
    if "nodes" in row:
        nodes = [[node.level, node.key and node.key.hex(), node.hash.hex()] for level in levels for node in level]
        assert nodes == row["nodes"]


def test_log(core: ModuleType) -> None:
    log = vectors.load("log")
    batch = core.verify_batch([bytes.fromhex(value) for _, value in log["entries"]], log["topic"])
    assert [core.encode_id(key) for key in batch.keys] == [id for id, _ in log["entries"]]
    plan = batch.plan(1, {}, lambda _: [])
    assert [core.encode_id(key) for key, _ in plan.heads_added] == sorted(log["heads"])
    assert 1 + max(message.clock for message in batch) == log["clock"]
    root = core.Tree().insert_leaves(plan.leaves)[0].root
    assert (root.level, root.hash.hex()) == (log["root"]["level"], log["root"]["hash"])


# Signatures and ids whose verdicts are the original's own


def forge(commitment: bytes, hashed: bytes) -> bytes:
    """A value whose signature has a commitment of small order, and a challenge over `hashed` in its place."""
    seed = b"\x07" * 32
    key = reference.SigningKey(seed)
    signed_bytes = write_cbor({"topic": TOPIC, "clock": 1, "parents": [], "payload": None})
    scalar = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little") & (1 << 254) - 8 | 1 << 254
    challenge = int.from_bytes(hashlib.sha512(hashed + key.public_key + signed_bytes).digest(), "little")
    signature = commitment + (challenge * scalar % ed25519.L).to_bytes(32, "little")
    return write_cbor([["dag-cbor", key.did, signature], TOPIC, 1, [], None])


def test_the_challenge_hashes_points_as_they_are_encoded_canonically(core: ModuleType) -> None:
    canonical, other = (1).to_bytes(32, "little"), (ed25519.P + 1).to_bytes(32, "little")
    assert core.verify(forge(canonical, canonical), TOPIC).clock == 1
    assert core.verify(forge(other, canonical), TOPIC).clock == 1
    with pytest.raises(InvalidMessage, match="signature"):
        core.verify(forge(other, other), TOPIC)


def test_a_longer_form_of_the_author_makes_a_value_that_is_not_canonical(core: ModuleType) -> None:
    verdict = next(row for row in VERDICTS["verdicts"] if row["name"] == "key varint not minimal")
    assert not core.verify(bytes.fromhex(verdict["value"]), VERDICTS["topic"]).canonical


def test_every_encoding_of_a_message_has_its_content_id(core: ModuleType) -> None:
    id, value = signed_message(core, {"amount": 100})
    for other in (alternative(value), alternative(value, 7), longer_author(value), longer_author(alternative(value))):
        message = core.verify(other, TOPIC)
        assert (message.canonical, message.content_id) == (False, id) != (False, message.id)
        assert (message.author, message.payload) == (core.verify(value, TOPIC).author, {"amount": 100})


def test_lookalikes_are_what_the_signature_says_in_dag_json(core: ModuleType) -> None:
    link = core.CID.parse("bafyreigaknpexyvxt76zgkitavbwx6ejgfheup5oybpm77f3pxzrvwpfdi")
    payload = {"bytes": b"\x7f\x80", "deep": [{"/": link}], "link": link, "text": {"/": "no link"}}
    id, value = signed_message(core, payload, "dag-json")
    (_, *rest) = core.cbor_decode(value)
    lookalike = {
        "bytes": {"/": {"bytes": "f4A"}},
        "deep": [{"/": {"/": str(link)}}],
        "link": {"/": str(link)},
        "text": {"/": "no link"},
    }
    other = value.removesuffix(core.cbor_encode(rest[-1])) + core.cbor_encode(lookalike)
    message = core.verify(other, TOPIC)
    assert (message.canonical, message.content_id) == (False, id) != (False, message.id)
    assert message.payload == core.verify(value, TOPIC).payload == payload


@pytest.mark.parametrize(
    "payload", [{"/": {"bytes": "f4A"}}, [{"a": {"/": "QmNLei78zWmzUdbeRB3CiUfAizWUrbeeZh5K1rhAQKCh51"}}]]
)
def test_lookalikes_are_not_signed_in_dag_json(core: ModuleType, payload: Any) -> None:
    _, value = signed_message(core, payload)
    assert (core.verify(value, TOPIC).canonical, core.verify(value, TOPIC).payload) == (True, payload)
    with pytest.raises(EncodeError, match="sign it as dag-cbor"):
        signed_message(core, payload, "dag-json")


@pytest.mark.parametrize(
    "meant", [{"bytes": "f4A="}, {"bytes": "f4B"}, {"bytes": "f4A", "more": 1}, {"bytes": 1}, "zb", "", None]
)
def test_maps_that_only_begin_like_a_link_or_bytes_stay(core: ModuleType, meant: Any) -> None:
    id, value = signed_message(core, {"/": meant}, "dag-json")
    message = core.verify(value, TOPIC)
    assert (message.canonical, message.content_id, message.payload) == (True, id, {"/": meant})


def signed_message(core: ModuleType, payload: Any, codec: str = "dag-cbor") -> tuple[str, bytes]:
    """The id and the stored value of a first message."""
    key, value = core.sign(TOPIC, 1, [], payload, bytes(32), codec)
    return core.encode_id(key), value


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


def encoded(core: ModuleType, encode: str, value: Any) -> bytes:
    data: bytes = getattr(core, encode)(build(core, value))
    return data


def decoded(core: ModuleType, decode: str, data: bytes) -> Any:
    return neutral(core, getattr(core, decode)(data))


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


@repeatable(600)
@given(
    data=st.one_of(
        damaged(_JSON),
        st.text('[]{}:,"/\\eE+-.0123 ntfb\ufeff\ud800', max_size=12).map(
            lambda text: text.encode("utf-8", "surrogatepass")
        ),
    )
)
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


@repeatable(500)
@given(value=damaged(VERDICT_VALUES))
def test_damaged_verdicts_are_judged_alike(rust: ModuleType, value: bytes) -> None:
    assert judged(rust, value, VERDICTS["topic"]) == judged(reference, value, VERDICTS["topic"])


@repeatable(300)
@given(value=damaged(MESSAGE_VALUES))
def test_damaged_messages_are_judged_alike(rust: ModuleType, value: bytes) -> None:
    assert judged(rust, value, MESSAGES["topic"]) == judged(reference, value, MESSAGES["topic"])


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


@repeatable(1500)
@given(data=strategies.prototype_maps)
@example(data=bytes.fromhex("a4613701695f5f70726f746f5f5f4100613702695f5f70726f746f5f5f80"))
@example(data=bytes.fromhex("a3695f5f70726f746f5f5f4100642d6e616e01695f5f70726f746f5f5ff6"))
def test_what_prototypes_make_of_maps_is_alike(rust: ModuleType, data: bytes) -> None:
    normalized = [outcome(lambda core=core: core.cbor_encode(core.cbor_decode(data))) for core in (rust, reference)]
    assert normalized[0] == normalized[1]


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


class Store:
    """What a log keeps of a history, for one core."""

    def __init__(self, core: ModuleType) -> None:
        self.core = core
        self.sequences: dict[bytes, int] = {}
        self.records: dict[int, bytes] = {}
        self.tree = core.Tree()

    def links(self, sequences: Sequence[int]) -> list[bytes]:
        return [self.records[sequence] for sequence in sequences]

    def insert(self, values: Sequence[bytes], refused: Sequence[int] = ()) -> tuple[Any, ...]:
        batch = self.core.verify_batch(values, TOPIC, lambda keys: {key for key in keys if key in self.sequences})
        parents = {key: self.sequences[key] for key in batch.parents() if key in self.sequences}
        plan = batch.plan(len(self.sequences) + 1, parents, self.links, refused)
        report = (
            *(list(batch.keys), batch.fresh, batch.duplicates, batch.fresh_keys(), batch.parents()),
            *([(index, error.id) for index, error in batch.invalid], [facts(verdict) for verdict in batch]),
            *(
                plan.order,
                plan.messages,
                plan.leaves,
                plan.alternatives,
                plan.children,
                plan.heads_added,
                plan.heads_removed,
                plan.orphans,
            ),
        )
        self.sequences.update((key, sequence) for key, _, sequence in plan.leaves)
        self.records.update((sequence, links) for sequence, _, links in plan.messages)
        self.tree, changed = self.tree.insert_leaves(plan.leaves)
        return (*report, changed, self.tree.root.hash)


@repeatable(60)
@given(data=st.data(), shape=shapes())
def test_batches_are_judged_and_planned_alike(rust: ModuleType, data: st.DataObject, shape: Shape) -> None:
    pool = list(signed(shape))
    bad = [value[:100] + bytes([value[100] ^ 1]) + value[101:] for value in pool[:3]]
    choices = st.sampled_from([*pool, *bad, b"", b"\xa0"])
    stores = [Store(rust), Store(reference)]
    for _ in range(data.draw(st.integers(1, 4))):
        # Few draws have all of a history, so that branches meet in one batch.
        values = data.draw(st.one_of(st.lists(choices, max_size=2 * len(pool)), st.permutations([*pool, *bad])))
        refused = data.draw(st.sets(st.integers(0, len(values)), max_size=2))
        reports = [store.insert(values, refused) for store in stores]
        assert reports[0] == reports[1]


def test_what_came_in_meanwhile_is_dropped(core: ModuleType) -> None:
    values = signed(((), (0,), (1,)))
    batch = core.verify_batch([*values, values[0]], TOPIC)
    assert (batch.fresh, batch.duplicates) == (3, [3])
    first = core.verify(values[0], TOPIC).key
    batch.drop_known([first, b"\0" * 20])
    assert (batch.fresh, batch.duplicates, batch.parents()) == (2, [0, 3], [first])
    assert [plan_orphan for plan_orphan, _ in batch.plan(1, {}, lambda _: []).orphans] == [1, 2]
    plan = batch.plan(8, {first: 7}, lambda _: [b"\x01"])
    assert (plan.order, plan.children, plan.heads_removed) == ([1, 2], [(7, 8), (8, 9)], [first])


def all_ancestors(parents: dict[int, list[int]], start: int) -> set[int]:
    """By brute force."""
    found: set[int] = set()
    pending = [start]
    while pending:
        new = set(parents[pending.pop()]) - found
        found |= new
        pending += new
    return found


def maximal_ancestors(parents: dict[int, list[int]], clocks: dict[int, int], sequence: int, clock: int) -> list[int]:
    """By brute force."""
    below = {ancestor for ancestor in all_ancestors(parents, sequence) if clocks[ancestor] <= clock}
    return sorted(below - {inner for ancestor in below for inner in all_ancestors(parents, ancestor)})


@repeatable(40)
@given(shape=shapes(40))
def test_frontiers(rust: ModuleType, shape: Shape) -> None:
    store = Store(reference)
    store.insert(signed(shape))
    parents: dict[int, list[int]] = {}
    clocks: dict[int, int] = {}
    for value in signed(shape):
        parsed = parse(value, TOPIC)
        own = store.sequences[parsed.message.key]
        parents[own] = [store.sequences[key] for key in parsed.parent_keys]
        clocks[own] = parsed.message.clock
    for sequence, record in store.records.items():
        clock, frontiers = reference.link_record(sequence, record)
        assert clock == clocks[sequence]
        assert rust.link_record(sequence, record) == (clock, frontiers)
        for k, ancestors in enumerate(frontiers):
            assert ancestors == maximal_ancestors(parents, clocks, sequence, clock - 2**k)
        for at in {0, 1, clock // 2, clock - 1, clock, clock + 5}:
            expected = maximal_ancestors(parents, clocks, sequence, at)
            assert reference.frontier(sequence, at, store.links) == expected
            assert rust.frontier(sequence, at, store.links) == expected
        above = all_ancestors(parents, sequence)
        for other in store.records:
            assert reference.is_ancestor(other, sequence, store.links) == (other in above)
            assert rust.is_ancestor(other, sequence, store.links) == (other in above)


@repeatable(300)
@given(
    sequence=st.integers(1, 40),
    record=st.one_of(st.binary(max_size=10), st.lists(st.integers(0, 9), max_size=10).map(bytes)),
)
def test_link_records_are_read_alike(rust: ModuleType, sequence: int, record: bytes) -> None:
    assert outcome(lambda: rust.link_record(sequence, record)) == outcome(
        lambda: reference.link_record(sequence, record)
    )


def shown(tree: Any) -> list[tuple[Any, ...]]:
    return [(node.level, node.key, node.hash) for level in range(tree.root.level + 1) for node in tree.nodes(level)]


# Keys and values are few, so that batches repeat entries; leaves are many enough for three levels.
_numbers = st.integers(0, 3000)


def entries(numbers: Sequence[int]) -> list[tuple[bytes, bytes]]:
    return [(hashlib.sha256(number.to_bytes(4)).digest()[: number % 19 + 2], b"value") for number in numbers]


@repeatable(30)
@given(
    batches=st.lists(
        st.one_of(st.lists(_numbers, max_size=6), _numbers.map(lambda n: list(range(n, n + 400)))), max_size=5
    )
)
def test_trees_are_a_function_of_their_entries(rust: ModuleType, batches: list[list[int]]) -> None:
    trees = [rust.Tree(), reference.Tree()]
    steps = [trees[1]]
    for batch in batches:
        trees = [tree.insert(entries(batch)) for tree in trees]
        steps.append(trees[1])
    everything = dict(entries([number for batch in batches for number in batch]))
    rebuilt = reference.Tree().insert(everything.items())
    assert len(trees[0]) == len(trees[1]) == len(rebuilt) == len(everything)
    assert shown(trees[0]) == shown(trees[1]) == shown(rebuilt)
    for level in range(1, rebuilt.root.level + 1):
        assert trees[0].last(level).key == trees[1].last(level).key == rebuilt.nodes(level)[-1].key
        for node in rebuilt.nodes(level):
            assert trees[0].next_key(level, node.key) == trees[1].next_key(level, node.key)
            below = [(child.key, child.hash) for child in trees[1].children(level, node.key)]
            assert [(child.key, child.hash) for child in trees[0].children(level, node.key)] == below
            for core, tree in zip((rust, reference), trees, strict=True):
                core.check_children(
                    tree.node(level, node.key), tree.next_key(level, node.key), tree.children(level, node.key)
                )
    for earlier in steps:
        missing = {node.key for node in rebuilt.nodes(0)} - {node.key for node in earlier.nodes(0)}
        assert list(earlier.diff(rebuilt)) == sorted(key for key in missing if key is not None)
        assert list(rebuilt.diff(earlier)) == []
    assert list(rust.Tree().diff(trees[0])) == sorted(everything)


@repeatable(25)
@given(first=st.lists(_numbers, max_size=300, unique=True), more=st.lists(_numbers, max_size=60, unique=True))
def test_trees_over_stored_rows(rust: ModuleType, first: list[int], more: list[int]) -> None:
    stored = dict(entries(first))
    added = {key: value for key, value in entries(more) if key not in stored}
    results = []
    for core in (rust, reference):
        old = core.Tree().insert(stored.items())
        rows = {key: core.leaf_hash(key, value) for key, value in stored.items()}
        level1 = [(node.key or b"", node.hash) for node in old.nodes(1)] if len(old) else []
        tree = core.Tree.open(level1, len(stored))
        new = [(key, core.leaf_hash(key, value), 0) for key, value in sorted(added.items())]

        def load(start: bytes, end: bytes | None, rows: dict[bytes, bytes] = rows) -> list[tuple[bytes, bytes]]:
            return sorted(row for row in rows.items() if row[0] >= start and (end is None or row[0] < end))

        grown, changed = tree.insert_leaves(new, load)
        rows.update((key, hash) for key, hash, _ in new)
        expected = old.insert(added.items())
        assert (len(grown), grown.root) == (len(expected), expected.root)
        written = dict(level1) | dict(grown.level1([key for key, _, _ in new]))
        opened = core.Tree.open(sorted(written.items()), len(grown))
        assert (len(opened), opened.root) == (len(expected), expected.root)
        assert opened.nodes(0, load) == expected.nodes(0)
        assert list(old.diff(grown, None, load)) == sorted(added)
        results.append((changed, grown.root.hash, grown.root.level))
    assert results[0] == results[1]


@repeatable(200)
@given(data=st.data())
def test_answers_that_break_the_rules_of_the_tree_are_refused_alike(rust: ModuleType, data: st.DataObject) -> None:
    tree = reference.Tree().insert(entries(range(300)))
    level = data.draw(st.integers(1, tree.root.level))
    parent = data.draw(st.sampled_from(tree.nodes(level)))
    end = tree.next_key(level, parent.key)
    children = tree.children(level, parent.key)
    at = data.draw(st.integers(0, len(children) - 1))
    child = children[at]
    match data.draw(
        st.sampled_from(["none", "level", "key", "hash", "drop", "swap", "twice", "parent", "end", "anchor"])
    ):
        case "level":
            children[at] = reference.Node(child.level + 1, child.key, child.hash)
        case "key":
            children[at] = reference.Node(child.level, data.draw(st.binary(max_size=4)), child.hash)
        case "hash":
            children[at] = reference.Node(child.level, child.key, data.draw(st.binary(min_size=16, max_size=16)))
        case "drop":
            del children[at]
        case "swap":
            children.reverse()
        case "twice":
            children.insert(at, child)
        case "parent":
            parent = data.draw(st.sampled_from(tree.nodes(level)))
        case "end":
            end = child.key
        case "anchor":
            children[at] = reference.Node(child.level, None, child.hash)
    results = []
    for core in (rust, reference):
        nodes = [core.Node(node.level, node.key, node.hash) for node in (parent, *children)]
        results.append(outcome(lambda core=core, nodes=nodes: core.check_children(nodes[0], end, nodes[1:])))

        def check_in_parts(core: Any = core, nodes: Any = nodes) -> None:
            check = core.ChildrenCheck(nodes[0], end)
            for start in range(1, len(nodes), 3):
                check.add(core.Nodes(nodes[start : start + 3]))
            check.finish()
            assert check.is_complete
            assert check.count == len(nodes) - 1

        results.append(outcome(check_in_parts))
    assert len({repr(result) for result in results}) == 1


_keys = st.one_of(st.none(), st.binary(min_size=20, max_size=20), st.binary(max_size=150))
_rows = st.lists(st.tuples(st.integers(0, 70), _keys, st.binary(min_size=16, max_size=16)), max_size=5)


def plain(nodes: Any) -> list[tuple[Any, ...]] | None:
    return None if nodes is None else [(node.level, node.key, node.hash) for node in nodes]


@repeatable(200)
@given(rows=_rows, data=st.data())
def test_answers_are_written_and_read_alike(
    rust: ModuleType, rows: list[tuple[int, bytes | None, bytes]], data: st.DataObject
) -> None:
    ours, twins = (core.Nodes(core.Node(*row) for row in rows) for core in (rust, reference))
    answer: bytes = ours.encode()
    assert answer == twins.encode()
    usual = all(level <= 63 and (key is None or len(key) == 20) for level, key, _ in rows)
    assert plain(rust.Nodes.decode(answer)) == (rows if usual else None)
    changed = bytearray(answer)
    for at in data.draw(st.lists(st.integers(0, max(len(answer) - 1, 0)), max_size=2)):
        changed[at : at + 1] = data.draw(st.binary(max_size=2))
    read = rust.Nodes.decode(bytes(changed))
    assert plain(read) == plain(reference.Nodes.decode(bytes(changed)))
    assert read is None or read.encode() == changed


@repeatable(100)
@given(
    theirs=st.lists(_numbers, max_size=20, unique=True),
    ours=st.lists(_numbers, max_size=20, unique=True),
    lie=st.booleans(),
)
def test_leaves_that_are_lacking(rust: ModuleType, theirs: list[int], ours: list[int], lie: bool) -> None:
    stored = sorted((key, reference.leaf_hash(key, value)) for key, value in entries(ours))
    told = sorted((key, reference.leaf_hash(key, value)) for key, value in entries(theirs))
    if lie:
        told = [(key, bytes(16)) for key, _ in told]
    results = []
    for core in (rust, reference):
        leaves = core.Nodes([core.Node(0, None, bytes(16)), *(core.Node(0, *leaf) for leaf in told)])
        assert leaves.keys == [key for key, _ in told]
        assert len(leaves) == len(told) + 1
        results.append(outcome(lambda leaves=leaves: leaves.lacking(stored)))
    wanted = sorted({key for key, _ in told} - {key for key, _ in stored})
    assert results[0] == results[1]
    assert results[0] == (("raised", TreeError) if lie and set(theirs) & set(ours) else ("returned", wanted))


@repeatable(30)
@given(shared=st.lists(_numbers, max_size=300, unique=True), more=st.lists(_numbers, max_size=60, unique=True))
def test_nodes_that_differ(rust: ModuleType, shared: list[int], more: list[int]) -> None:
    for core in (rust, reference):
        tree = core.Tree().insert(entries(shared))
        other = tree.insert(entries(more))
        for level in range(2, other.root.level + 1):
            for node in other.nodes(level):
                span, end = other.span(level, node.key), other.next_key(level, node.key)
                assert list(span) == other.children(level, node.key)
                core.check_children(node, end, span)
                assert tree.differing(span, end) == [
                    (child, other.next_key(level - 1, child.key))
                    for child in span
                    if tree.node(level - 1, child.key) != child
                ]


def test_keys_of_values(core: ModuleType) -> None:
    value = signed(((),))[0]
    assert core.verify(value, TOPIC).key == message_key(1, value)
