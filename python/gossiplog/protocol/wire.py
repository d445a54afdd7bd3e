"""The bytes of the push, sync and refusals protocols: frames, and the protobuf messages in them.

Source: the wire format, "Frames". A frame is an unsigned LEB128 varint, the length, and as many bytes: one protobuf
message. `wire.proto` holds the messages; nothing outside this module touches the generated classes. Encoders return
whole frames, decoders take what was in one. Children are written by the core, which also reads them in the form that it
writes (`core.Nodes`); in any other they are read as all messages are.

What is read comes from strangers. Refused with ProtocolError, which names the field:

- a frame longer than the limit, whose length is not written minimally or takes more than 5 bytes,
- bytes that are no protobuf message, and a message of none of the kinds that the protocol has,
- a field of the right number and the wrong type,
- a key that is neither absent, nor empty, nor 20 bytes; a hash that is not 16; a level above MAX_LEVEL.

A null key (the anchor's) is written as an absent field and read from an absent or empty one. Unknown fields beside a
known one are passed over, as protobuf has it, so that later versions may add some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from gossiplog.core import HASH_LENGTH, KEY_LENGTH, Node, Nodes
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire_pb2
from gossiplog.reprs import frozen

TOPIC_HEADER = "gossiplog-topic"
"""By which a client names its log's topic when it opens a WebSocket, and a hub its own when it lets the client in."""
SHOWN_TOPIC = 200
"""Characters of a topic in a message or in a line of a log."""
ACCESS_HEADER = "gossiplog-access"
"""By which it says then whether the client may "write", or "read" only, and after "; " one of LOG_FAULTS, where it has
one."""
UNWRITABLE, DAMAGED = "the log cannot be written", "the log is damaged"
LOG_FAULTS = (UNWRITABLE, DAMAGED)
"""Why a hub may not be able to take or give all messages now. What else it says is not shown to anybody."""


_PUSH = re.compile("/canvas/v1/(.+)/push", re.DOTALL)


@frozen
class Protocols:
    """What peers of a topic speak on their streams.

    Attributes:
        topic: of the log.
    """

    topic: str

    @property
    def push(self) -> str:
        """Heads and new messages; the dialer opens one stream."""
        return f"/canvas/v1/{self.topic}/push"

    @property
    def sync(self) -> str:
        """Merkle sync; either side opens streams, and asks on them."""
        return f"/canvas/v1/{self.topic}/sync"

    @property
    def refusals(self) -> str:
        """Which messages the opener refuses, and why; canvas-js does not speak it."""
        return f"/gossiplog/v1/{self.topic}/refusals"

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (self.push, self.sync, self.refusals)

    @staticmethod
    def topics(names: Iterable[str]) -> list[str]:
        """Return the topics of which a peer exchanges messages.

        Args:
            names: of the protocols that it speaks.
        """
        return [found[1] for name in names if (found := _PUSH.fullmatch(name))]


MAX_FRAME = 4 * 2**20
"""Bytes in a frame, its length not counted: what canvas-js reads."""
MAX_ANSWER = 16 * 2**20
"""Bytes in a frame that a sync client reads: an attacker's messages can make a leaf span, legally, exceed MAX_FRAME."""
MAX_LEVEL = 64
"""A root's level; one of 64 takes 2**320 honest entries."""

# The tag of `Response.get_children`.
_CHILDREN = b"\x1a"
_MAX_LENGTH_BYTES = 5
_MAX_UNKNOWN = 4096


@frozen
class GetRoot:
    """Asks for the root of the server's snapshot."""


@frozen
class GetNode:
    """Asks for one node, which need not exist."""

    level: int
    key: bytes | None


@frozen
class GetChildren:
    """Asks for the children of a node that exists, at level 1 or above.

    Attributes:
        level: of the node.
        key: of the node.
        after: the answer may be a part of the children, the first of those after this key, b"" being before all; None
            for all. canvas-js passes over it, and answers with all.
    """

    level: int
    key: bytes | None
    after: bytes | None = None


@frozen
class GetValues:
    """Asks for the stored values of keys that exist."""

    keys: Sequence[bytes]


@frozen
class Root:
    """Answers GetRoot."""

    node: Node


@frozen
class Found:
    """Answers GetNode; None when there is no such node."""

    node: Node | None


@frozen
class Children:
    """Answers GetChildren."""

    nodes: Nodes


@frozen
class Values:
    """Answers GetValues: one value for each key, in their order."""

    values: list[bytes]


@frozen
class Abort:
    """Ends a sync stream, in place of any answer.

    Attributes:
        cooldown: milliseconds to wait before another stream is opened. (canvas-js always writes 0.)
    """

    cooldown: int


@frozen
class Insert:
    """Pushes one message."""

    key: bytes
    value: bytes


@frozen
class Update:
    """Advertises the sender's heads."""

    heads: list[bytes]


@frozen
class Refusals:
    """Names messages that the sender refuses.

    Attributes:
        refused: (key, reason) of each.
        more: how many the sender refuses beside those that it has named on the stream.
    """

    refused: Sequence[tuple[bytes, str]]
    more: int


Request: TypeAlias = GetRoot | GetNode | GetChildren | GetValues
Answer: TypeAlias = Root | Found | Children | Values | Abort
Push: TypeAlias = Insert | Update


class FrameReader:
    """Cuts a stream of bytes into frames, however the stream was chunked.

    It holds the bytes of one frame that is not complete yet, so at most `limit` and 5 bytes between calls.

    Args:
        limit: the most bytes that a frame may hold.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._start = 0
        self._end: int | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._start:
            del self._buffer[: self._start]
            if self._end is not None:
                self._end -= self._start
            self._start = 0
        self._buffer += data

    @property
    def held(self) -> int:
        """The bytes that it holds."""
        return len(self._buffer)

    def next(self) -> bytes | None:
        """Return the next frame; None when it is not complete yet.

        Raises:
            ProtocolError: a length that is too large, not minimal, or longer than 5 bytes.
        """
        if self._end is None:
            self._end = self._read_length()
        if self._end is None or len(self._buffer) < self._end:
            return None
        with memoryview(self._buffer) as view:
            frame = bytes(view[self._start : self._end])
        self._start, self._end = self._end, None
        if self._start == len(self._buffer):
            # The room that a large one took is not kept until the next.
            self._buffer.clear()
            self._start = 0
        return frame

    def _read_length(self) -> int | None:
        # Moves the start behind the length; where the frame ends, or None when the length is not complete.
        buffer, start = self._buffer, self._start
        length = 0
        for count, byte in enumerate(buffer[start : start + _MAX_LENGTH_BYTES], 1):
            length |= (byte & 0x7F) << (7 * (count - 1))
            if byte < 0x80:
                if byte == 0 and count > 1:
                    raise ProtocolError(f"a frame's length is written in {count} bytes, which is not minimal")
                if length > self._limit:
                    raise ProtocolError(f"a frame of {length} bytes; at most {self._limit} are accepted")
                self._start = start + count
                return self._start + length
            if count == _MAX_LENGTH_BYTES:
                raise ProtocolError(f"a frame's length takes more than {_MAX_LENGTH_BYTES} bytes")
        return None


def encode_request(request: Request) -> bytes:
    """Return the frame of a request."""
    message = wire_pb2.Request()
    match request:
        case GetChildren(level, key, after):
            message.get_children.level = level
            if key is not None:
                message.get_children.key = key
            if after is not None:
                message.get_children.after = after
        case GetValues(keys):
            message.get_values.keys.extend(keys)
            message.get_values.SetInParent()
        case GetNode(level, key):
            message.get_node.level = level
            if key is not None:
                message.get_node.key = key
            message.get_node.SetInParent()
        case GetRoot():
            message.get_root.SetInParent()
    return _frame(message)


def encode_answer(answer: Answer) -> bytes:
    """Return the frame of an answer; its size is the caller's care."""
    message = wire_pb2.Response()
    match answer:
        case Children(nodes):
            children = nodes.encode()
            return _framed(_CHILDREN + _varint(len(children)) + children)
        case Values(values):
            message.get_values.values.extend(values)
            message.get_values.SetInParent()
        case Found(found):
            message.get_node.SetInParent()
            if found is not None:
                _write_node(message.get_node.node, found)
        case Root(root):
            _write_node(message.get_root.root, root)
        case Abort(cooldown):
            message.abort.cooldown = cooldown
            message.abort.SetInParent()
    return _frame(message)


def encode_push(push: Push) -> bytes:
    """Return the frame of an event of the push protocol; its size is the caller's care."""
    return _framed(encode_event(push))


def encode_event(push: Push) -> bytes:
    """Return an event of the push protocol without a frame, as gossip carries it."""
    message = wire_pb2.Event()
    match push:
        case Insert(key, value):
            message.insert.key = key
            message.insert.value = value
            message.insert.SetInParent()
        case Update(heads):
            message.update.heads.extend(heads)
            message.update.SetInParent()
    return message.SerializeToString()


def decode_request(frame: bytes) -> Request:
    """Return the request in a frame; raise ProtocolError as the module says."""
    message = _parse(wire_pb2.Request, frame, "request")
    match message.WhichOneof("request"):
        case "get_children":
            children = _checked(message.get_children, "GetChildren")
            after = (_key(children.after) or b"") if children.HasField("after") else None
            return GetChildren(_level(children.level), _key(children.key), after)
        case "get_values":
            keys = list(_checked(message.get_values, "GetValues").keys)
            _refuse_odd_keys(keys)
            return GetValues(keys)
        case "get_node":
            node = _checked(message.get_node, "GetNode")
            return GetNode(_level(node.level), _key(node.key))
        case "get_root":
            return GetRoot()
        case _:
            raise _no_kind(message, "request")


def decode_answer(frame: bytes) -> Answer:
    """Return the answer in a frame; raise ProtocolError as the module says."""
    if frame[:1] == _CHILDREN:
        # Most answers are of this kind, and of the one form that the core reads without an object for each node.
        nodes = _usual_children(frame)
        if nodes is not None:
            return Children(nodes)
    message = _parse(wire_pb2.Response, frame, "answer")
    match message.WhichOneof("response"):
        case "get_children":
            return Children(Nodes(_read_nodes(_checked(message.get_children, "GetChildren").children)))
        case "get_values":
            return Values(list(_checked(message.get_values, "GetValues").values))
        case "get_node":
            found = _checked(message.get_node, "GetNode")
            return Found(_read_nodes([found.node])[0] if found.HasField("node") else None)
        case "get_root":
            root = _checked(message.get_root, "GetRoot")
            if not root.HasField("root"):
                raise ProtocolError("an answer to GetRoot without a root")
            return Root(_read_nodes([root.root])[0])
        case "abort":
            return Abort(_checked(message.abort, "Abort").cooldown)
        case _:
            raise _no_kind(message, "answer")


def decode_push(frame: bytes) -> Push:
    """Return the event of the push protocol in a frame; raise ProtocolError as the module says."""
    message = _parse(wire_pb2.Event, frame, "event")
    match message.WhichOneof("event"):
        case "insert":
            insert = _checked(message.insert, "Insert")
            _refuse_odd_keys([insert.key])
            return Insert(insert.key, insert.value)
        case "update":
            heads = list(_checked(message.update, "Update").heads)
            _refuse_odd_keys(heads)
            return Update(heads)
        case _:
            raise _no_kind(message, "event")


def encode_refusals(refusals: Refusals) -> bytes:
    """Return the frame of a message of the refusals protocol; its size is the caller's care."""
    message = wire_pb2.Refusals(more=refusals.more)
    for key, reason in refusals.refused:
        message.refused.add(key=key, reason=reason)
    return _frame(message)


def decode_refusals(frame: bytes) -> Refusals:
    """Return the message of the refusals protocol in a frame; raise ProtocolError as the module says."""
    message = _checked(_parse(wire_pb2.Refusals, frame, "refusals"), "Refusals")
    found = [(each.key, each.reason) for each in (_checked(each, "Refusal") for each in message.refused)]
    _refuse_odd_keys([key for key, _ in found])
    return Refusals(found, message.more)


_AnyMessage = TypeVar("_AnyMessage", bound=Message)


def _frame(message: Message) -> bytes:
    return _framed(message.SerializeToString())


def _framed(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _parse(kind: type[_AnyMessage], frame: bytes, what: str) -> _AnyMessage:
    try:
        message = kind.FromString(frame)
    except ProtobufDecodeError as error:
        raise ProtocolError(f"a frame of {len(frame)} bytes is no protobuf {what}") from error
    size = message.ByteSize()
    message.DiscardUnknownFields()
    unknown = size - message.ByteSize()
    if not unknown:
        return message
    # A frame of little else would become an object for each of its unknown fields.
    if unknown > _MAX_UNKNOWN:
        raise ProtocolError(f"a {what} with {unknown} bytes of unknown fields; {_MAX_UNKNOWN} at most are passed over")
    return _checked(kind.FromString(frame), what)


def _checked(message: _AnyMessage, what: str) -> _AnyMessage:
    # protobuf files a known field of the wrong type among the unknown ones
    unknown_fields = UnknownFieldSet(message)
    for index in range(len(unknown_fields)):
        unknown = unknown_fields[index]
        field = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
        if field is not None:
            raise ProtocolError(f"{what}: field {field.name} is of the wrong type (wire type {unknown.wire_type})")
    return message


def _usual_children(frame: bytes) -> Nodes | None:
    """Return the children in an answer that holds nothing else, written as `encode_answer` does; None otherwise."""
    for start in range(2, min(2 + _MAX_LENGTH_BYTES, len(frame) + 1)):
        if frame[1:start] == _varint(len(frame) - start):
            return Nodes.decode(frame[start:])
    return None


def _no_kind(message: Message, what: str) -> ProtocolError:
    unknown = UnknownFieldSet(message)
    numbers = sorted({unknown[index].field_number for index in range(len(unknown))})
    held = f"only unknown fields {', '.join(map(str, numbers[:5]))}" if numbers else "nothing"
    return ProtocolError(f"{what}: holds {held}; expected one of {', '.join(message.DESCRIPTOR.fields_by_name)}")


def _read_nodes(messages: Iterable[wire_pb2.Node]) -> list[Node]:
    nodes = []
    for message in messages:
        level, key, hash = message.level, message.key, message.hash
        if level > MAX_LEVEL:
            raise _odd_level(level)
        if len(key) != KEY_LENGTH and key:
            raise _odd_key(key)
        if len(hash) != HASH_LENGTH:
            raise ProtocolError(f"a node's hash of {len(hash)} bytes (or of the wrong type); expected {HASH_LENGTH}")
        nodes.append(Node(level, key or None, hash))
    return nodes


def _write_node(message: wire_pb2.Node, node: Node) -> None:
    message.level = node.level
    message.hash = node.hash
    key = node.key
    if key is not None:
        message.key = key


def _level(level: int) -> int:
    if level > MAX_LEVEL:
        raise _odd_level(level)
    return level


def _key(key: bytes) -> bytes | None:
    if len(key) == KEY_LENGTH:
        return key
    if key:
        raise _odd_key(key)
    return None


def _odd_level(level: int) -> ProtocolError:
    return ProtocolError(f"a node's level is {level}; at most {MAX_LEVEL} is accepted")


def _refuse_odd_keys(keys: list[bytes]) -> None:
    for length in set(map(len, keys)):
        if length != KEY_LENGTH:
            raise _odd_key(next(key for key in keys if len(key) == length))


def _odd_key(key: bytes) -> ProtocolError:
    return ProtocolError(f"a key of {len(key)} bytes ({key[:KEY_LENGTH].hex()}); expected {KEY_LENGTH}")
