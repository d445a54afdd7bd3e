"""How messages are made out and signed, held against what canvas-js's router does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gossiplog.protocol.wire import MAX_FRAME, FrameReader
from gossiplog.pubsub.authorship import (
    SIGNATURE_PREFIX,
    Anonymous,
    Authorship,
    Named,
    Signed,
    author_and_number,
    peer_id_of,
)
from gossiplog.pubsub.rpc import Message
from gossiplog.pubsub.wire import decode, encode_message
from gossiplog.signer import Signer
from tests.vectors import load

VECTORS = load("pubsub")
NAMES = ("author", "seqno", "signature", "key")


def unhex(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def signed(seed: int = 1) -> Signed:
    return Signed(Signer(bytes([seed]) * 32), Random(seed))


@pytest.mark.parametrize("row", VECTORS["signed"], ids=lambda row: row["topic"][:9])
def test_messages_that_canvas_js_signed_are_genuine(row: dict[str, Any]) -> None:
    reader = FrameReader(MAX_FRAME)
    reader.feed(bytes.fromhex(row["frame"]))
    content = reader.next()
    assert content is not None
    (message,) = decode(content).messages
    assert message == Message(
        (row["topic"],),
        bytes.fromhex(row["data"]),
        *(unhex(row[name]) for name in ("peerId", "seqno", "signature", "key")),
    )
    assert signed().admits(message)


@pytest.mark.parametrize("row", VECTORS["signed"], ids=lambda row: row["topic"][:9])
def test_canvas_js_signs_the_same_bytes(row: dict[str, Any]) -> None:
    signer = Signer(bytes.fromhex(row["privateKey"]))
    assert peer_id_of(signer.public_key).hex() == row["peerId"]
    bare = Message((row["topic"],), bytes.fromhex(row["data"]), unhex(row["peerId"]), unhex(row["seqno"]))
    # Ed25519 is deterministic: equal keys and bytes, equal signatures.
    assert signer.sign_bytes(SIGNATURE_PREFIX + encode_message(bare)).hex() == row["signature"]


@pytest.mark.parametrize("row", VECTORS["verdicts"], ids=lambda row: row["name"])
def test_verdicts_are_those_of_canvas_js(row: dict[str, Any]) -> None:
    message = Message((row["topic"],), bytes.fromhex(row["data"]), *(unhex(row[name]) for name in NAMES))
    assert signed().admits(message) == row["signed"]
    assert Anonymous().admits(message) == row["anonymous"]


def test_a_signed_message_says_who_published_it() -> None:
    author = signed(1)
    message = author.compose(("topic",), b"data")
    assert message.author == author.author == peer_id_of(Signer(bytes([1]) * 32).public_key)
    # The peer id of an Ed25519 key contains it.
    assert message.key is None
    assert signed(2).admits(message)


@pytest.mark.parametrize("author", [signed(), Named(b"author", Random(1))])
def test_messages_are_numbered_from_a_random_number_on(author: Authorship) -> None:
    messages = [author.compose(("topic",), b"data") for _ in range(3)]
    numbers = [int.from_bytes(message.seqno or b"", "big") for message in messages]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert {len(message.seqno or b"") for message in messages} == {8}
    assert len({author_and_number(message) for message in messages}) == 3


def test_a_router_that_begins_anew_does_not_repeat_its_numbers() -> None:
    assert len({Named(b"author", Random(seed)).compose(("topic",), b"").seqno for seed in range(9)}) == 9


def test_named_messages_are_not_signed() -> None:
    named = Named(b"me", Random(1))
    message = named.compose(("topic",), b"data")
    assert (message.author, message.signature, message.key) == (b"me", None, None)
    assert named.admits(message)
    assert not named.admits(signed().compose(("topic",), b"data"))
    assert not named.admits(Message(("topic",), b"data"))
    assert not named.admits(Message(("topic",), b"data", b"me", b"short"))
    assert not signed().admits(message)


def test_bare_messages_say_nothing_of_who_published_them() -> None:
    assert Anonymous().compose(("topic",), b"data") == Message(("topic",), b"data")
    assert Anonymous().author is None


def test_a_signature_may_be_neither_short_nor_long() -> None:
    genuine = signed().compose(("topic",), b"data")
    assert genuine.signature is not None
    for signature in (b"", genuine.signature[:-1], genuine.signature + b"\0"):
        assert not signed().admits(Message(("topic",), b"data", genuine.author, genuine.seqno, signature))


def test_a_signature_is_over_all_topics_in_their_order() -> None:
    """Seed 001, 46."""
    genuine = signed().compose(("a", "b"), b"data")
    assert genuine.topics == ("a", "b")
    assert signed().admits(genuine)
    for topics in (("b", "a"), ("a",), ("b",), ("a", "b", "c"), ("a", "b", "b")):
        assert not signed().admits(replace(genuine, topics=topics))
