"""`gossiplog.core`: both cores on the vectors of canvas-js."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from gossiplog import reference
from gossiplog.errors import EncodeError, GossipLogError, InvalidMessage
from gossiplog.reference import ed25519
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.id import message_key
from tests import vectors
from tests.cores import MESSAGES, SLOW_WITH_REFERENCE, VERDICTS, signed_message
from tests.strategies import TOPIC, alternative, longer_author, signed


def test_both_cores_offer_the_names_of_the_interface(core: ModuleType) -> None:
    names = set(importlib.import_module("gossiplog.core").__all__)
    assert names == set(dir(reference))
    assert all(hasattr(core, name) for name in names)
    for name in ("MAX_CLOCK", "MAX_DEPTH", "MAX_OWN_DEPTH", "KEY_LENGTH", "HASH_LENGTH"):
        assert getattr(core, name) == getattr(reference, name)


@pytest.mark.integration
def test_programs_on_the_core_in_rust_import_little_of_the_other() -> None:
    program = (
        "import sys, gossiplog.log.audit, gossiplog.net.peer, gossiplog.testnet.worker;"
        "print(*sorted(name for name in sys.modules if name.startswith('gossiplog.reference.')))"
    )
    environment = os.environ | {"GOSSIPLOG_CORE": "rust"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == [f"gossiplog.reference.{name}" for name in ("ancestors", "limits", "multiformats")]


# The vectors


def test_everything_public_is_documented(core: ModuleType) -> None:
    functions = [name for name in importlib.import_module("gossiplog.core").__all__ if name.islower()]
    assert len(functions) > 15
    undocumented = [name for name in functions if not getattr(core, name).__doc__]
    assert not undocumented


def test_clocks(core: ModuleType) -> None:
    for row in vectors.load("clocks"):
        data = bytes.fromhex(row["hex"])
        assert core.encode_clock(row["clock"]) == data
        assert core.decode_clock(data + b"\0") == (row["clock"], len(data))


@SLOW_WITH_REFERENCE
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


@SLOW_WITH_REFERENCE
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


@SLOW_WITH_REFERENCE
def test_log(core: ModuleType) -> None:
    log = vectors.load("log")
    batch = core.verify_batch([bytes.fromhex(value) for _, value in log["entries"]], log["topic"])
    assert [core.encode_id(key) for key in batch.keys] == [id for id, _ in log["entries"]]
    plan = batch.plan(1, {}, lambda _: [])
    assert [core.encode_id(key) for key, _ in plan.heads_added] == sorted(log["heads"])
    assert 1 + max(message.clock for message in batch) == log["clock"]
    root = core.Tree().insert_leaves(plan.leaves)[0].root
    assert (root.level, root.hash.hex()) == (log["root"]["level"], log["root"]["hash"])


# Signatures and ids of which canvas-js has a verdict of its own


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


def test_keys_of_values(core: ModuleType) -> None:
    value = signed(((),))[0]
    assert core.verify(value, TOPIC).key == message_key(1, value)


def test_values_that_do_not_belong_to_their_keys_are_found(core: ModuleType) -> None:
    rows = [(bytes.fromhex(row["key"]), bytes.fromhex(row["value"])) for row in MESSAGES["messages"]]
    # More than are looked at by one thread.
    many = 20 if core.__name__ == "gossiplog._core" else 1
    keys, values = [key for key, _ in rows] * many, [value for _, value in rows] * many
    assert core.misplaced(keys, values) == []
    assert core.misplaced([], []) == []
    wrong = {3: b"", 5: keys[5][:-1], 7: keys[7] + b"\0", 11: b"\xff" * 20, 13: keys[14], 17: keys[17][:-1] + b"!"}
    for index, key in wrong.items():
        keys[index] = key
    values[19] += b"\0"
    clock, _ = core.decode_clock(keys[21])
    keys[21] = message_key(clock + 1, values[21])
    assert core.misplaced(keys, values) == [*wrong, 19, 21]
