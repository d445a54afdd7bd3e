"""Stored values around payloads, and what a signature over some bytes says."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from gossiplog import _core, reference
from gossiplog.errors import EncodeError, InvalidMessage
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.id import message_key
from gossiplog.reference.json import resolve_lookalikes
from gossiplog.reference.message import Parsed, parse
from gossiplog.reference.multiformats import base58_encode
from gossiplog.reference.values import normalise_float
from tests.fuzzing.encodings import Encodings, head, text

# The standard library reads nested text by recursion.
sys.setrecursionlimit(max(10_000, sys.getrecursionlimit()))

TOPIC = "fuzz"
CODECS = ("dag-cbor", "dag-json")
SIGNER = _core.SigningKey(b"\x07" * 32)
_NO_SIGNATURE = bytes(64)
_MARK = "\ufeff".encode()
_DID = SIGNER.did.encode()
#: The multicodec of Ed25519 keys in more bytes than it needs.
_LONGER_DID = base58_encode(b"\xed\x81\x00" + SIGNER.public_key).encode()
#: Keys that messages with a clock of 1 could have.
_PARENTS = [bytes([1]) + bytes([number]) * 19 for number in (1, 2)]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a stored value has around its payload and its signature, as encoded items.

    Attributes:
        codec_mark: bytes before the name of the codec.
        is_ours: whether both cores refuse it alone: canvas-js takes a map of what are no bytes for another parent.
    """

    author: bytes = text(_DID)
    topic: bytes = text(TOPIC.encode())
    clock: bytes = b"\x01"
    parents: bytes = b"\x80"
    codec_mark: bytes = b""
    is_ours: bool = False


PLAIN = Envelope()


class Payload(NamedTuple):
    """An encoded payload, the codec of the signature, and what is around it."""

    data: bytes
    codec: str
    envelope: Envelope = PLAIN


class Content(NamedTuple):
    """What a message says: all that an encoding of it must be read as."""

    author: str
    clock: int
    parents: tuple[str, ...]
    payload: bytes
    content_id: str


def draw_payload(source: Encodings, *, parents: bool) -> Payload:
    """Draw a payload, for one of eight in an envelope as nobody writes it, which may have parents that no log has."""
    envelope = _draw_envelope(source, parents=parents) if source.random.random() < 0.125 else PLAIN
    return Payload(source.payload(), source.choose(CODECS), envelope)


def _draw_envelope(source: Encodings, *, parents: bool) -> Envelope:
    mark = source.choose((b"", b"", _MARK))
    count = source.choose((0, 0, 1, 1, 2)) if parents else 0
    drawn = [_draw_parent(source, source.choose(_PARENTS)) for _ in range(count)]
    keys = [item for item, _ in drawn]
    clock = source.choose(_clocks(2 if keys else 1))
    author = source.choose((_DID, b"did:key:z" + _LONGER_DID))
    return Envelope(
        author=text(source.choose((b"", b"", _MARK)) + author),
        topic=text(mark + TOPIC.encode()),
        clock=clock,
        parents=head(4, len(keys)) + b"".join(keys),
        codec_mark=source.choose((b"", b"", _MARK)),
        is_ours=any(is_ours for _, is_ours in drawn),
    )


@cache
def _clocks(clock: int) -> tuple[bytes, ...]:
    half = {1: b"\xf9\x3c\x00", 2: b"\xf9\x40\x00"}[clock]
    return head(0, clock), head(0, clock), half, head(0, clock, width=2), head(0, clock + 1), b"\xf5"


def _draw_parent(source: Encodings, key: bytes) -> tuple[bytes, bool]:
    """Return an encoding of a key, and whether it is a map of what are no bytes."""
    item = head(2, len(key)) + key
    if source.random.random() < 0.6:
        return item, False
    entries = [
        (name, source.choose((b"\x14", b"\x14", b"\xf9\x4d\x00", b"\x13"))) for name in (b"byteLength", b"length")
    ]
    value = source.choose((None, None, b"\x07", b"\x19\x01\x2c", b"\xf6"))
    if value is not None:
        entries.append((b"3", value))
    entries.append((b"__proto__", item))
    written = head(5, len(entries)) + b"".join(text(name) + value for name, value in entries)
    return written, value not in (None, b"\x07")


def stored(payload: Payload, signature: bytes = _NO_SIGNATURE) -> bytes:
    """Write a message's stored value."""
    data, codec, envelope = payload
    record = head(4, 3) + text(envelope.codec_mark + codec.encode()) + envelope.author + head(2, 64) + signature
    return head(4, 5) + record + envelope.topic + envelope.clock + envelope.parents + data


def signed(payload: Payload, content: bytes | None) -> bytes:
    """Write a stored value whose signature is over `content`, or without it over what is canonical, if anything is."""
    if content is None:
        try:
            message = _core.read_message(stored(payload), TOPIC)
            _, made = SIGNER.sign(TOPIC, message.clock, message.parents, message.payload, payload.codec)
            return stored(payload, _core.read_message(made, TOPIC).signature)
        except (InvalidMessage, EncodeError):
            # Some links are accepted, and written as what is none.
            return stored(payload)
    return stored(payload, SIGNER.sign_bytes(content))


def read_by_rust(message: Any) -> Content:
    """What the Rust core reads in a message."""
    try:
        payload = _core.cbor_encode(message.payload)
    except EncodeError:
        # Deeper than what is written.
        payload = write_cbor(parse(message.value, TOPIC).payload)
    return Content(message.author, message.clock, message.parents, payload, message.content_id)


def read_by_reference(parsed: Parsed, signature: bytes) -> Content:
    """What the reference core read in a message, before it had this signature."""
    message = parsed.message
    fields = (message.author, message.clock, message.parents, write_cbor(parsed.payload))
    return Content(*fields, _content_id(message.clock, message.parents, fields[-1], message.codec, signature))


def meant_by(content: bytes, parsed: Parsed, signature: bytes) -> Content | None:
    """What a signature over `content` says; None if that is nothing, or in dag-cbor something else than what was read.

    It depends on nothing but what was signed: dag-cbor has one form for each message, and text in dag-json is read
    here. So all that is accepted under one signature says the same, as long as each says this.
    """
    message = parsed.message
    if message.codec == "dag-cbor":
        fields: Mapping[str, Any] = fields_of(parsed)
        if write_cbor(fields) != content:
            return None
    else:
        fields = resolve_lookalikes(json.loads(content, parse_float=lambda text: normalise_float(float(text))))
    clock, parents, payload = fields["clock"], tuple(fields["parents"]), write_cbor(fields["payload"])
    content_id = _content_id(clock, parents, payload, message.codec, signature)
    return Content(SIGNER.did, clock, parents, payload, content_id)


def fields_of(parsed: Parsed) -> dict[str, Any]:
    """What is signed of a message, as the reference core reads it."""
    message = parsed.message
    return {"topic": message.topic, "clock": message.clock, "parents": [*message.parents], "payload": parsed.payload}


def _content_id(clock: int, parents: Sequence[str], payload: bytes, codec: str, signature: bytes) -> str:
    keys = b"".join(head(2, 20) + reference.decode_id(parent) for parent in parents)
    envelope = Envelope(clock=head(0, clock), parents=head(4, len(parents)) + keys)
    return reference.encode_id(message_key(clock, stored(Payload(payload, codec, envelope), signature)))
