"""Encodings judged by both cores, and by canvas-js beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gossiplog import _core, reference
from gossiplog.errors import DecodeError, EncodeError, InvalidMessage
from gossiplog.reference.cbor import write_cbor
from gossiplog.reference.message import parse
from gossiplog.reference.prototype import JavaScriptError
from gossiplog.reference.values import normalise
from tests.fuzzing.encodings import head, text

TOPIC = "fuzz"
CODECS = ("dag-cbor", "dag-json")
SIGNER = _core.SigningKey(b"\x07" * 32)
_NO_SIGNATURE = bytes(64)
#: What canvas-js is not asked, because it might never answer.
_UNTRIED = "untried"

#: An encoded payload, and the codec of the signature.
Payload: TypeAlias = tuple[bytes, str]
#: For each stored value the bytes that its signature must hold over, or None and why it is refused.
Judge: TypeAlias = Callable[[Sequence[bytes]], Sequence[tuple[bytes | None, str]]]
#: Inserts stored values into a new log; returns the positions of those that are refused, and why.
Insert: TypeAlias = Callable[[Sequence[bytes]], Sequence[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A payload that is not judged alike.

    Attributes:
        payload: with the codec of the signature.
        verdicts: by the name of the judge.
    """

    payload: Payload
    verdicts: dict[str, object]

    def __str__(self) -> str:
        data, codec = self.payload
        verdicts = "".join(f"\n  {name}: {verdict}" for name, verdict in self.verdicts.items())
        return f"payload {data.hex()} signed in {codec}{verdicts}"


def stored(payload: Payload, signature: bytes = _NO_SIGNATURE) -> bytes:
    """Write a message's stored value."""
    data, codec = payload
    record = head(4, 3) + text(codec.encode()) + text(SIGNER.did.encode()) + head(2, 64) + signature
    return head(4, 5) + record + text(TOPIC.encode()) + b"\x01\x80" + data


def signed(payload: Payload, content: bytes | None) -> bytes:
    """Write a stored value whose signature is over `content`, or without it over what is canonical, if anything is."""
    if content is None:
        try:
            plain = _core.read_message(stored(payload), TOPIC).payload
            _, made = SIGNER.sign(TOPIC, 1, [], plain, payload[1])
            return stored(payload, _core.read_message(made, TOPIC).signature)
        except (InvalidMessage, EncodeError):
            # Some links are accepted, and written as what is none.
            return stored(payload)
    return stored(payload, SIGNER.sign_bytes(content))


def _differ(payload: Payload, **verdicts: object) -> list[Difference]:
    first = next(iter(verdicts.values()))
    return [] if all(verdict == first for verdict in verdicts.values()) else [Difference(payload, verdicts)]


def _decoded(core: Any, data: bytes) -> object:
    try:
        made: bytes = core.cbor_encode(core.cbor_decode(data))
    except DecodeError:
        return "refused"
    except EncodeError:
        # More is read than is written: deeper lists and maps.
        return "read"
    return made.hex()


def _read_by_rust(value: bytes) -> object:
    try:
        message = _core.read_message(value, TOPIC)
    except InvalidMessage as error:
        return "refused", error.id
    try:
        payload = _core.cbor_encode(message.payload).hex()
    except EncodeError:
        payload = ""
    return message.id, message.clock, message.parents, message.codec, message.canonical, payload


def _read_by_reference(value: bytes) -> object:
    try:
        parsed = parse(value, TOPIC)
    except InvalidMessage as error:
        return "refused", error.id
    message = parsed.message
    try:
        payload = write_cbor(normalise(parsed.payload)).hex()
    except EncodeError:
        payload = ""
    return message.id, message.clock, message.parents, message.codec, message.canonical, payload


def _signed_by_reference(value: bytes) -> bytes | None:
    try:
        return parse(value, TOPIC).signed_bytes()
    except (InvalidMessage, EncodeError, JavaScriptError):
        return None


def is_another(payload: Payload, content: bytes | None) -> bool:
    """Whether canvas-js signs the bytes of another message than the one that it reads: what both cores refuse.

    Otherwise anybody could make messages of their own of somebody's signature.
    """
    if content is None or payload[1] != "dag-cbor":
        return False
    try:
        parsed = parse(stored(payload), TOPIC)
    except InvalidMessage:
        return False
    message = parsed.message
    read = {"topic": message.topic, "clock": message.clock, "parents": [*message.parents], "payload": parsed.payload}
    return write_cbor(read) != content


def _is_accepted(core: Any, value: bytes) -> bool:
    try:
        core.verify(value, TOPIC)
    except InvalidMessage:
        return False
    return True


def parse_alike(payloads: Sequence[Payload]) -> list[Difference]:
    """Compare what the cores read in messages with these payloads, and in one of eight payloads alone."""
    found = []
    for index, payload in enumerate(payloads):
        value = stored(payload)
        found += _differ(payload, rust=_read_by_rust(value), reference=_read_by_reference(value))
        if index % 8 == 0:
            data = payload[0]
            found += _differ(payload, rust=_decoded(_core, data), reference=_decoded(reference, data))
    return found


def verify_alike(payloads: Sequence[Payload]) -> list[Difference]:
    """Compare the cores' verdicts on messages that are signed over what the reference core says."""
    found = []
    for payload in payloads:
        content = _signed_by_reference(stored(payload))
        value = signed(payload, content)
        accepted = [_is_accepted(core, value) for core in (_core, reference)]
        found += _differ(payload, content=content is not None, rust=accepted[0], reference=accepted[1])
    return found


def decode_alike(judge: Judge) -> Callable[[Sequence[Payload]], list[Difference]]:
    """Compare what canvas-js would verify messages over with what the cores do."""

    def compare(payloads: Sequence[Payload]) -> list[Difference]:
        found = []
        for payload, (content, reason) in zip(payloads, judge(list(map(stored, payloads))), strict=True):
            if reason == _UNTRIED or is_another(payload, content):
                continue
            ours = _signed_by_reference(stored(payload))
            accepted = _is_accepted(_core, signed(payload, content))
            # The Rust core shows its bytes by what it accepts a signature over.
            rust = content if accepted else None
            shown = {"canvas_js": content, "reference": ours, "rust": rust}
            if len(set(shown.values())) > 1 or accepted != (content is not None):
                verdicts = {name: None if data is None else data.hex() for name, data in shown.items()}
                found.append(Difference(payload, {**verdicts, "rust": accepted, "reason": reason}))
        return found

    return compare


def insert_alike(judge: Judge, insert: Insert) -> Callable[[Sequence[Payload]], list[Difference]]:
    """Compare the cores' verdicts on messages, signed over what canvas-js says, with what it inserts into a log."""

    def compare(payloads: Sequence[Payload]) -> list[Difference]:
        found = []
        judged = list(zip(payloads, judge(list(map(stored, payloads))), strict=True))
        tried = [
            (payload, content)
            for payload, (content, reason) in judged
            if not (_must_not_insert(reason) or is_another(payload, content))
        ]
        values = [signed(payload, content) for payload, content in tried]
        refused = dict(insert(values))
        for index, ((payload, _), value) in enumerate(zip(tried, values, strict=True)):
            accepted = [_is_accepted(core, value) for core in (_core, reference)]
            verdicts = {"canvas_js": index not in refused, "rust": accepted[0], "reference": accepted[1]}
            if len(set(verdicts.values())) > 1:
                found.append(Difference(payload, {**verdicts, "reason": refused.get(index)}))
        return found

    return compare


def _must_not_insert(reason: str) -> bool:
    return reason == _UNTRIED or "passes for too much" in reason
