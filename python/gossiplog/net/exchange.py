"""Messages as the HTTP API exchanges them: the map `{id, signature, message}` of the wire format, "HTTP API".

The map does not carry a stored value but what it means, so whoever posts one gets the canonical encoding stored. A
message whose value is not canonical (`SignedMessage.canonical`) therefore comes back under another id when what GET
answered is posted: over HTTP its canonical twin travels. Nor does a map whose only key is `/` come back from dag-json,
which has no way to write it: it reads as bytes or as a link. Push and sync carry values as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gossiplog import core
from gossiplog.errors import DecodeError, EncodeError
from gossiplog.message import SignedMessage

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "application/json": core.json_decode,
    "application/vnd.ipld.dag-json": core.json_decode,
    "application/cbor": core.cbor_decode,
    "application/vnd.ipld.dag-cbor": core.cbor_decode,
}
CONTENT_TYPES = tuple(_DECODERS)
"""The media types of messages that are read: the first and the third are the original's."""

_Value = TypeVar("_Value")


def to_json(message: SignedMessage) -> bytes:
    """The dag-json of a message.

    Raises:
        EncodeError: a payload without a dag-json form, which a message that is signed in dag-cbor may have.
    """
    body = {
        "id": message.id,
        "signature": {"codec": message.codec, "publicKey": message.author, "signature": message.signature},
        "message": {
            "topic": message.topic,
            "clock": message.clock,
            "parents": list(message.parents),
            "payload": message.payload,
        },
    }
    try:
        return core.json_encode(body)
    except EncodeError as error:
        raise EncodeError(f"message {message.id} has no dag-json form: {error}") from error


def from_body(data: bytes, content_type: str) -> bytes:
    """The canonical stored value of a message that was posted; its signature is not verified yet.

    Like the original, it passes over what else the maps hold, such as the id that GET answers with.

    Args:
        data: the body, as it came.
        content_type: one of CONTENT_TYPES.

    Raises:
        DecodeError: a body that is no message.
        EncodeError: one that no message can be made of.
    """
    body = _read("the body", _DECODERS[content_type](data), dict)
    signature = _field(body, "signature", dict)
    message = _field(body, "message", dict)
    if "payload" not in message:
        raise DecodeError("'payload' is missing")
    parents = [core.decode_id(_read("a parent", parent, str)) for parent in _field(message, "parents", list)]
    return core.cbor_encode(
        [
            [
                _field(signature, "codec", str),
                _field(signature, "publicKey", str),
                _field(signature, "signature", bytes),
            ],
            _field(message, "topic", str),
            _field(message, "clock", int),
            parents,
            message["payload"],
        ]
    )


def _field(body: dict[str, Any], name: str, kind: type[_Value]) -> _Value:
    if name not in body:
        raise DecodeError(f"{name!r} is missing")
    return _read(repr(name), body[name], kind)


_KINDS: dict[type, str] = {dict: "a map", list: "a list", str: "a string", bytes: "bytes", int: "an integer"}


def _read(what: str, value: object, kind: type[_Value]) -> _Value:
    # A bool is an int in Python, not in the data model.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DecodeError(f"{what} must be {_KINDS[kind]}, not {type(value).__name__}")
    return value
