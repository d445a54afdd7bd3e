"""Messages as the HTTP API exchanges them: the map `{id, signature, message}` (wire format, "HTTP API")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, final

from gossiplog.errors import DecodeError, EncodeError
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.cbor import cbor_decode
from gossiplog.reference.id import decode_id
from gossiplog.reference.json import is_unreadable, json_decode, write_json
from gossiplog.reference.message import Parsed, parse

_DECODERS = {"dag-json": json_decode, "dag-cbor": cbor_decode}
_KINDS: dict[type, str] = {dict: "a map", list: "a list", str: "a string", bytes: "bytes", int: "an integer"}

_Value = TypeVar("_Value")


@final
class MessageJson:
    """The dag-json of stored messages, in pieces."""

    def __init__(self, values: Sequence[bytes], topic: str, is_list: bool = True) -> None:
        texts: list[bytes] = []
        for value in values:
            try:
                texts.append(_write(parse(value, topic)))
            except EncodeError:
                if not texts:
                    raise
                break
        if not is_list and len(texts) != 1:
            raise EncodeError(f"{len(texts)} messages: expected a single one")
        self.count = len(texts)
        self.held = sum(map(len, values)) + sum(map(len, texts))
        self._rest = b"[" + b",".join(texts) + b"]" if is_list else texts[0]

    def read(self, limit: int) -> bytes:
        """Return the next piece, of about so many bytes; b"" at the end."""
        piece, self._rest = self._rest[: max(limit, 1)], self._rest[max(limit, 1) :]
        return piece


def _write(parsed: Parsed) -> bytes:
    message = parsed.message
    body = {
        **({} if message.canonical else {"content_id": message.content_id}),
        "id": message.id,
        "signature": {"codec": message.codec, "publicKey": message.author, "signature": message.signature},
        "message": {
            "topic": message.topic,
            "clock": message.clock,
            "parents": list(message.parents),
            "payload": parsed.payload,
        },
    }
    reason = f"message {message.id} has no dag-json form"
    if is_unreadable(parsed.payload):
        raise EncodeError(f'{reason}: a map {{"/": {{"bytes": ...}}}} in it holds no base64, and cannot be read')
    try:
        return write_json(body)
    except EncodeError as error:
        raise EncodeError(f"{reason}: {error}") from error


def read_message_map(data: bytes, codec: str) -> bytes:
    """Return the canonical stored value of a message that was sent as the map which `MessageJson` writes.

    The signature is not verified, and the rules of messages are not looked at. What else the maps hold is passed over.

    Args:
        data: the map.
        codec: in which it is, `dag-cbor` or `dag-json`.

    Raises:
        DecodeError: bytes that are no such map.
        EncodeError: another codec.
    """
    if codec not in _DECODERS:
        raise EncodeError(f"codec {codec!r}: expected one of {', '.join(sorted(_DECODERS))}")
    return _from_map(_checked("the body", _DECODERS[codec](data), dict))


def read_message_line(line: bytes) -> bytes:
    """Return the stored value of the message in a line of an export, in dag-json; not verified.

    It is what the line has under `value`, or else what `read_message_map` makes of the line.

    Raises:
        DecodeError: a line that is no such map.
    """
    body = _checked("the body", _DECODERS["dag-json"](line), dict)
    return _field(body, "value", bytes) if "value" in body else _from_map(body)


def _from_map(body: dict[str, Any]) -> bytes:
    signature = _field(body, "signature", dict)
    message = _field(body, "message", dict)
    if "payload" not in message:
        raise DecodeError("'payload' is missing")
    parents = [decode_id(_checked("a parent", parent, str)) for parent in _field(message, "parents", list)]
    return write_cbor(
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
    return _checked(repr(name), body[name], kind)


def _checked(what: str, value: object, kind: type[_Value]) -> _Value:
    # A bool is an int in Python, not in the data model.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DecodeError(f"{what} must be {_KINDS[kind]}, not {type(value).__name__}")
    return value
