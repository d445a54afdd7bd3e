"""Signed messages: made, verified, read. Source: wire format, "Message, signature, stored value"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Final, final

from gossiplog.errors import DecodeError, EncodeError, InvalidMessage
from gossiplog.reference import ed25519
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.cbor import read_stored
from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.id import decode_clock, decode_id, encode_id, message_key, read_clock
from gossiplog.reference.json import resolve_lookalikes, write_json
from gossiplog.reference.limits import KEY_LENGTH, MAX_CLOCK
from gossiplog.reference.passing import Passing
from gossiplog.reference.prototype import JavaScriptError
from gossiplog.reference.signature import ED25519, SCHEMES, decode_did, write_did
from gossiplog.reference.values import normalise

#: What signs a message may be written in, and how.
_CODECS: Final = {"dag-cbor": write_cbor, "dag-json": write_json}
#: canvas-js's topics, in version 0.13.14 and at its repository's head.
_TOPICS: Final = (
    re.compile(r"[a-zA-Z0-9.\-]+(#[a-zA-Z0-9]+)?", re.ASCII),
    re.compile(r"[a-zA-Z0-9:.\-]+", re.ASCII),
)


@final
@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class SignedMessage:
    """A message as it is stored and sent. Two are equal when their stored values are.

    Attributes:
        key: 20 bytes.
        id: the key, as text.
        topic: the log that it belongs to.
        clock: 1 + the largest clock among the parents.
        parents: ids, in the order in which they were signed.
        author: the signer's did:key URI in its shortest form. A relay can write a longer one: it is not signed.
        codec: in which the message was signed, `dag-cbor` or `dag-json`.
        signature: 64 bytes.
        value: the stored value, byte for byte as it came.
        canonical: whether the value is the encoding that honest peers write. From one that is, anybody can make
            alternative encodings: the same message with the same signature under further ids.
        content_id: the id of the canonical encoding, which all encodings of one signed message have in common.
    """

    key: bytes
    id: str
    topic: str
    clock: int
    parents: tuple[str, ...]
    author: str
    codec: str
    signature: bytes
    value: bytes
    canonical: bool
    content_id: str
    _reader: Callable[[SignedMessage], Any] | None

    def __init__(self) -> None:
        raise TypeError("a SignedMessage comes from `verify`, `read_message` or `verify_batch`")

    @property
    def payload(self) -> Any:
        """Read anew on each access."""
        return self.raw_payload if self._reader is None else self._reader(self)

    @property
    def raw_payload(self) -> Any:
        """Decoded anew on each access."""
        return _payload(self.codec, read_stored(self.value).plain()[4])

    def with_reader(self, reader: Callable[[SignedMessage], Any]) -> SignedMessage:
        """Return the same message, whose `payload` is what a function returns for it."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return _make(**fields | {"_reader": reader})

    def __class_getitem__(cls, key: Any) -> GenericAlias:
        return GenericAlias(cls, key)

    def __reduce__(self) -> tuple[Callable[[bytes, str], SignedMessage], tuple[bytes, str]]:
        return read_message, (self.value, self.topic)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SignedMessage) and self.value == other.value

    def __hash__(self) -> int:
        return hash((SignedMessage, self.value))

    def __repr__(self) -> str:
        return f"<SignedMessage {self.id} by {self.author}>"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A stored value that is sound but for its signature, which nobody has looked at.

    Attributes:
        message: what it says.
        parent_keys: the parents' keys, in the order in which they were signed.
        scheme: the multicodec of the author's key.
        public_key: the author's key.
        payload: normalised; it holds `Passing` bytes where maps pass for them.
        passes: whether any do.
    """

    message: SignedMessage
    parent_keys: tuple[bytes, ...]
    scheme: int
    public_key: bytes
    payload: Any
    passes: bool

    def signed_bytes(self) -> bytes:
        """Return what the signature must hold over.

        Raises:
            EncodeError: a link that has no text.
            JavaScriptError: canvas-js has no bytes for it.
        """
        message = self.message
        return _signed_bytes(
            message.codec, message.topic, message.clock, message.parents, self.payload, passes=self.passes
        )

    def check_signature(self) -> None:
        """Raise InvalidMessage unless the signature holds."""
        message = self.message
        try:
            signed = self.signed_bytes()
        except (EncodeError, JavaScriptError) as error:
            raise InvalidMessage(str(error), message.id) from error
        if not SCHEMES[self.scheme].holds(self.public_key, signed, message.signature):
            raise InvalidMessage(
                f"the {SCHEMES[self.scheme].name} signature over the {message.codec} does not hold", message.id
            )


@final
class SigningKey:
    """An Ed25519 key pair that signs messages.

    Args:
        private_key: the 32-byte seed of RFC 8032.

    Raises:
        EncodeError: a private key of another length.
    """

    __slots__ = ("_did", "_private_key", "_public_key")

    def __init__(self, private_key: bytes) -> None:
        if len(private_key) != ed25519.SEED_LENGTH:
            raise EncodeError(f"a private key of {len(private_key)} bytes: expected {ed25519.SEED_LENGTH}")
        self._private_key = bytes(private_key)
        self._public_key = ed25519.public_key_of(self._private_key)
        self._did = write_did(ED25519, self._public_key)

    @property
    def public_key(self) -> bytes:
        """32 bytes."""
        return self._public_key

    @property
    def did(self) -> str:
        """The did:key URI of the public key."""
        return self._did

    def sign_bytes(self, bytes: bytes) -> bytes:
        """Return the signature, 64 bytes, of bytes of another protocol, which say what they are for."""
        return ed25519.sign_bytes(self._private_key, bytes)

    def sign(
        self, topic: str, clock: int, parents: Sequence[str], payload: Any, codec: str = "dag-cbor"
    ) -> tuple[bytes, bytes]:
        """Sign a message.

        Args:
            topic: of the log.
            clock: 1 + the largest clock among the parents.
            parents: ids, in any order.
            payload: a value of the IPLD data model, as for `cbor_encode`.
            codec: what to sign the message in, `dag-cbor` or `dag-json`.

        Returns:
            The message's key and its stored value.

        Raises:
            EncodeError: a topic, clock, payload or codec that no message can have.
            DecodeError: a parent that is no id.
        """
        parent_keys = sorted({decode_id(parent) for parent in parents})
        if not any(pattern.fullmatch(topic) for pattern in _TOPICS):
            raise EncodeError(
                f"topic {topic!r}: expected letters, digits, `.`, `-` and `:`, or no `:` and one `#` before a last part"
            )
        if codec not in _CODECS:
            raise EncodeError(f"codec {codec!r}: expected one of {', '.join(_CODECS)}")
        try:
            expected = 1 + max((decode_clock(key)[0] for key in parent_keys), default=0)
        except DecodeError as error:
            raise EncodeError(f"a parent that no message has: {error.reason}") from error
        if clock != expected or expected > MAX_CLOCK:
            raise EncodeError(f"clock {clock}: expected {expected}, 1 + the largest clock among the parents")
        own_payload = normalise(payload)
        if _payload(codec, own_payload) != own_payload:
            raise EncodeError(
                'a map {"/": ...} in the payload has the text of a link or of bytes in dag-json, or a link the text of '
                "something else; sign it as dag-cbor"
            )
        signed = _signed_bytes(codec, topic, clock, [encode_id(key) for key in parent_keys], own_payload)
        signature = ed25519.sign_bytes(self._private_key, signed)
        value = write_cbor([[codec, self._did, signature], topic, clock, parent_keys, own_payload])
        return message_key(clock, value), value

    def __repr__(self) -> str:
        return f"<SigningKey of {self._did}>"


def sign(
    topic: str, clock: int, parents: Sequence[str], payload: Any, private_key: bytes, codec: str = "dag-cbor"
) -> tuple[bytes, bytes]:
    """Sign a single message with a private key: see `SigningKey.sign`."""
    return SigningKey(private_key).sign(topic, clock, parents, payload, codec)


def verify_bytes(public_key: bytes, signature: bytes, bytes: bytes) -> bool:
    """Return whether an Ed25519 key signed bytes of another protocol, judged as the signatures of messages are.

    A key or a signature of another length than 32 or 64 bytes never did.
    """
    sound = len(public_key) == ed25519.SEED_LENGTH and len(signature) == ed25519.SIGNATURE_LENGTH
    return sound and ed25519.is_valid(public_key, bytes, signature)


def verify(value: bytes, topic: str) -> SignedMessage:
    """Return the message that a stored value from outside holds.

    Raises:
        InvalidMessage: a value that every peer refuses in a log of this topic, whatever else that log holds.
    """
    parsed = parse(value, topic)
    parsed.check_signature()
    return parsed.message


def read_message(value: bytes, topic: str) -> SignedMessage:
    """Return the message that a stored value holds whose signature was verified when it came in.

    Raises:
        InvalidMessage: anything but the signature is wrong.
    """
    return parse(value, topic).message


def misplaced(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
    """Return the indices of the values that have another key than the one given. Their topic is not looked at.

    Of a value whose clock cannot be read, as an earlier version may have accepted it, the hash alone is compared.

    Args:
        keys: one for each value.
        values: stored values.
    """
    pairs = enumerate(zip(keys, values, strict=False))
    return [index for index, (key, value) in pairs if not _has_key(value, key)]


def _has_key(value: bytes, key: bytes) -> bool:
    try:
        decoded = read_stored(value).value
        _check_structure(decoded)
        clock = decoded[2]
    except (DecodeError, InvalidMessage):
        try:
            clock, _ = decode_clock(key)
        except DecodeError:
            return False
    return message_key(clock, value) == key


def parse(value: bytes, topic: str) -> Parsed:
    """Check everything about a stored value but its signature, the cheap things first.

    Raises:
        InvalidMessage: with the message's id, where the value has as much of a structure as it takes to have one.
    """
    value = bytes(value)
    try:
        read = read_stored(value)
    except DecodeError as error:
        raise InvalidMessage(f"not dag-cbor: {error}") from error
    if read.unstorable is not None:
        raise InvalidMessage(f"a payload that canvas-js cannot store: {read.unstorable}")
    decoded = read.value
    _check_structure(decoded)
    (codec, did, signature), own_topic, clock, parent_keys, payload = decoded
    key = message_key(clock, value)
    id = encode_id(key)
    if own_topic != topic:
        raise InvalidMessage(f"topic {own_topic[:200]!r}: expected {topic!r}", id)
    try:
        expected = 1 + max((read_clock(parent)[0] for parent in parent_keys), default=0)
    except DecodeError as error:
        raise InvalidMessage(f"a parent's key has no clock: {error.reason}", id) from error
    if clock != expected:
        raise InvalidMessage(f"clock {clock}: expected {expected}, 1 + the largest clock among the parents", id)
    if codec not in _CODECS:
        raise InvalidMessage(f"codec {codec[:40]!r}: expected one of {', '.join(_CODECS)}", id)
    try:
        scheme, author_key = decode_did(did)
    except DecodeError as error:
        raise InvalidMessage(error.reason, id) from error
    if len(signature) != SCHEMES[scheme].signature_length:
        raise InvalidMessage(f"a signature of {len(signature)} bytes: expected {SCHEMES[scheme].signature_length}", id)
    payload = _payload(codec, payload)
    author = write_did(scheme, author_key)
    content_key = message_key(clock, write_cbor([[codec, author, signature], own_topic, clock, parent_keys, payload]))
    message = _make(
        key=key,
        id=id,
        topic=own_topic,
        clock=clock,
        parents=tuple(encode_id(parent) for parent in parent_keys),
        author=author,
        codec=codec,
        signature=signature,
        value=value,
        canonical=content_key == key,
        content_id=encode_id(content_key),
    )
    return Parsed(message, tuple(bytes(parent) for parent in parent_keys), scheme, author_key, payload, read.passes)


def _check_structure(decoded: Any) -> None:
    match decoded:
        case [[str(), str(), bytes()], str(), bool(), list(), _]:
            raise InvalidMessage("the clock is no integer")
        case [[str(), str(), bytes() as signature], str(), int() as clock, list() as parents, _]:
            if not 1 <= clock <= MAX_CLOCK:
                raise InvalidMessage(f"clock {clock}: expected 1 to 2^53-1")
            if not all(isinstance(parent, bytes) and len(parent) == KEY_LENGTH for parent in parents):
                raise InvalidMessage(f"a parent that is not a key of {KEY_LENGTH} bytes")
            if isinstance(signature, Passing) or any(isinstance(key, Passing) and not key.is_key for key in parents):
                raise InvalidMessage("a map that passes for bytes, where bytes are needed")
        case _:
            raise InvalidMessage("not a list [[codec, did, signature], topic, clock, parents, payload]")


def _signed_bytes(
    codec: str, topic: str, clock: int, parents: Sequence[str], payload: Any, *, passes: bool = False
) -> bytes:
    message = {"topic": topic, "clock": clock, "parents": list(parents), "payload": payload}
    signed = _CODECS[codec](message)
    if passes and codec == "dag-cbor" and encode_in_chunks(message) != signed:
        # The signature would hold over other bytes than the message is read from: anybody could make a message of their
        # own of somebody's signature.
        raise EncodeError("a map in the payload passes for bytes, and what canvas-js signs of it is another message")
    return signed


def _payload(codec: str, payload: Any) -> Any:
    """Return the payload that a signature in this codec holds for."""
    return resolve_lookalikes(payload) if codec == "dag-json" else payload


def _make(**fields: Any) -> SignedMessage:
    message = SignedMessage.__new__(SignedMessage)
    for name, value in {"_reader": None, **fields}.items():
        object.__setattr__(message, name, value)
    return message
