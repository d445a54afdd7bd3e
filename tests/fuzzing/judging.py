"""Encodings judged by both cores, and by canvas-js beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gossiplog import _core, reference
from gossiplog.errors import DecodeError, EncodeError, InvalidMessage
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.cbor import read_cbor
from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.json import resolve_lookalikes
from gossiplog.reference.message import Parsed, parse
from gossiplog.reference.prototype import JavaScriptError
from gossiplog.reference.values import normalise
from tests.fuzzing.messages import (
    PLAIN,
    TOPIC,
    Payload,
    fields_of,
    meant_by,
    read_by_reference,
    read_by_rust,
    signed,
    stored,
)

#: What canvas-js is not asked, because it might never answer.
_UNTRIED = "untried"
#: Of so many messages one is read whole by the reference core; the others are the same around the payload.
_WHOLE = 16
#: Of so many signatures the reference core verifies one, of the others it writes what they must be over.
_VERIFIED = 32

#: For each stored value the bytes that its signature must hold over, or None and why it is refused.
Judged: TypeAlias = Sequence[tuple[bytes | None, str]]
#: Starts to judge, and returns what waits for the end of it.
Judge: TypeAlias = Callable[[Sequence[bytes]], Callable[[], Judged]]
#: Inserts stored values into a log; returns the positions of those that are refused, and why.
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
        data, codec, envelope = self.payload
        around = "" if envelope == PLAIN else f" in {envelope}"
        verdicts = "".join(f"\n  {name}: {verdict}" for name, verdict in self.verdicts.items())
        return f"payload {data.hex()} signed in {codec}{around}{verdicts}"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A message with a signature, and whether it must be accepted.

    Attributes:
        content: what the signature is over; None if nothing should be accepted.
        parsed: as the reference core reads it.
    """

    payload: Payload
    content: bytes | None
    is_valid: bool
    parsed: Parsed | None


Compare: TypeAlias = Callable[[Sequence[Payload]], list[Difference]]


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


def _parsed_by_rust(value: bytes) -> tuple[object, ...]:
    try:
        message = _core.read_message(value, TOPIC)
    except InvalidMessage as error:
        return "refused", error.id
    try:
        payload = _core.cbor_encode(message.payload).hex()
    except EncodeError:
        payload = ""
    facts = (message.id, message.content_id, message.author, message.clock, message.parents, message.codec)
    return message.canonical, payload, *facts


def _parsed_by_reference(value: bytes) -> tuple[object, ...]:
    try:
        parsed = parse(value, TOPIC)
    except InvalidMessage as error:
        return "refused", error.id
    message = parsed.message
    try:
        payload = write_cbor(normalise(parsed.payload)).hex()
    except EncodeError:
        payload = ""
    facts = (message.id, message.content_id, message.author, message.clock, message.parents, message.codec)
    return message.canonical, payload, *facts


def _payload_by_reference(payload: Payload) -> tuple[object, ...]:
    """What the reference core reads of a payload alone, as deep inside as in a message."""
    try:
        read = read_cbor(b"\x81" + payload.data, payload.codec)
    except DecodeError:
        return ("refused",)
    if read.unstorable is not None:
        return ("refused",)
    [value] = read.plain()
    if payload.codec == "dag-json":
        value = resolve_lookalikes(value)
    made = write_cbor(value)
    try:
        normalise(value)
    except EncodeError:
        return made == payload.data, ""
    return made == payload.data, made.hex()


def parse_alike(payloads: Sequence[Payload]) -> list[Difference]:
    """Compare what the cores read in messages with these payloads, and in some payloads alone."""
    found = []
    for index, payload in enumerate(payloads):
        value = stored(payload)
        rust = _parsed_by_rust(value)
        if index % _WHOLE and payload.envelope is PLAIN:
            few = rust[:1] if rust[0] == "refused" else rust[:2]
            found += _differ(payload, rust=few, reference=_payload_by_reference(payload))
            continue
        found += _differ(payload, rust=rust, reference=_parsed_by_reference(value))
        found += _differ(payload, rust=_decoded(_core, payload.data), reference=_decoded(reference, payload.data))
    return found


def parse_payload(payload: Payload) -> tuple[Parsed | None, bytes | None]:
    """How the reference core reads a message, and what its signature must be over; None each where it refuses."""
    try:
        parsed = parse(stored(payload), TOPIC)
    except InvalidMessage:
        return None, None
    try:
        return parsed, parsed.signed_bytes()
    except (EncodeError, JavaScriptError):
        return parsed, None


def is_another(payload: Payload, content: bytes | None, parsed: Parsed | None) -> bool:
    """Whether canvas-js signs the bytes of another message than the one that it reads: what both cores must refuse.

    Otherwise anybody could make messages of their own of somebody's signature.
    """
    if content is None or payload.codec != "dag-cbor" or parsed is None:
        return False
    return write_cbor(fields_of(parsed)) != content


def _encoded_by_chunks(parsed: Parsed) -> bytes | None:
    try:
        return encode_in_chunks(fields_of(parsed))
    except JavaScriptError:
        return None


def _judge_candidates(candidates: Sequence[_Candidate]) -> list[list[Difference]]:
    """Verify messages: for each what differs between the cores, or from what its signature says."""
    values = [signed(candidate.payload, candidate.content) for candidate in candidates]
    verdicts = list(_core.verify_batch(values, TOPIC))
    return [
        _judge_candidate(candidate, value, verdict, index)
        for index, (candidate, value, verdict) in enumerate(zip(candidates, values, verdicts, strict=True))
    ]


def _judge_candidate(candidate: _Candidate, value: bytes, verdict: Any, index: int) -> list[Difference]:
    payload, content = candidate.payload, candidate.content
    accepted = {"expected": candidate.is_valid, "rust": not isinstance(verdict, InvalidMessage)}
    if index % 8 == 0:
        accepted["rust_alone"] = _is_accepted(_core, value)
    if index % _VERIFIED == 0:
        accepted["reference"] = _is_accepted(reference, value)
    if found := _differ(payload, **accepted):
        return found
    if isinstance(verdict, InvalidMessage) or content is None or candidate.parsed is None:
        return []
    signature = verdict.signature
    meant = meant_by(content, candidate.parsed, signature)
    rust, ours = read_by_rust(verdict), read_by_reference(candidate.parsed, signature)
    return _differ(payload, meant=meant, rust=rust, reference=ours)


def _is_accepted(core: Any, value: bytes) -> bool:
    try:
        core.verify(value, TOPIC)
    except InvalidMessage:
        return False
    return True


def verify_alike(payloads: Sequence[Payload]) -> list[Difference]:
    """Compare the cores' verdicts on messages: signed over what the reference core says, and over what an encoder of
    canvas-js signs that writes past a map."""
    candidates = []
    for payload in payloads:
        parsed, content = parse_payload(payload)
        candidates.append(_Candidate(payload, content, content is not None, parsed))
        if parsed is not None and parsed.passes and payload.codec == "dag-cbor":
            moved = _encoded_by_chunks(parsed)
            if moved is not None and moved != content:
                candidates.append(_Candidate(payload, moved, False, parsed))
    return [difference for found in _judge_candidates(candidates) for difference in found]


def decode_alike(judge: Judge) -> Callable[[Sequence[Payload]], Callable[[], list[Difference]]]:
    """Compare what canvas-js would verify messages over with what the cores do: starts it, and returns what ends it."""

    def start(payloads: Sequence[Payload]) -> Callable[[], list[Difference]]:
        wait = judge(list(map(stored, payloads)))
        parsed = [parse_payload(payload) for payload in payloads]

        def end() -> list[Difference]:
            found, candidates = [], []
            for payload, (read, ours), (content, reason) in zip(payloads, parsed, wait(), strict=True):
                if reason == _UNTRIED:
                    continue
                is_refused = payload.envelope.is_ours or is_another(payload, content, read)
                expected = None if is_refused else content
                if ours != expected:
                    shown = {"canvas_js": expected, "reference": ours}
                    verdicts = {name: data and data.hex() for name, data in shown.items()}
                    found.append(Difference(payload, {**verdicts, "reason": reason}))
                else:
                    candidates.append(_Candidate(payload, content, expected is not None, read))
            return found + [difference for each in _judge_candidates(candidates) for difference in each]

        return end

    return start


def insert_alike(judge: Judge, insert: Insert) -> Callable[[Sequence[Payload]], Callable[[], list[Difference]]]:
    """Compare the cores' verdicts on messages, signed over what canvas-js says, with what it inserts into a log."""

    def start(payloads: Sequence[Payload]) -> Callable[[], list[Difference]]:
        wait = judge(list(map(stored, payloads)))
        parsed = [parse_payload(payload) for payload in payloads]

        def end() -> list[Difference]:
            candidates, tried = [], []
            for payload, (read, ours), (content, reason) in zip(payloads, parsed, wait(), strict=True):
                if reason == _UNTRIED or "passes for too much" in reason:
                    continue
                another = is_another(payload, content, read)
                candidates.append(_Candidate(payload, content, ours is not None and ours == content, read))
                tried.append(not another)
            values = [signed(candidate.payload, candidate.content) for candidate in candidates]
            asked = [index for index, is_tried in enumerate(tried) if is_tried]
            refused = {asked[index]: reason for index, reason in insert([values[index] for index in asked])}
            found = []
            for index, (candidate, differences) in enumerate(
                zip(candidates, _judge_candidates(candidates), strict=True)
            ):
                found += differences
                inserted = index not in refused
                if tried[index] and inserted != candidate.is_valid:
                    verdicts = {"canvas_js": inserted, "cores": candidate.is_valid, "reason": refused.get(index)}
                    found.append(Difference(candidate.payload, verdicts))
            return found

        return end

    return start
