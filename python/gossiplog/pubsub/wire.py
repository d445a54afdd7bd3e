"""The bytes of the packets of floodsub and gossipsub: protobuf (`rpc.proto`), each behind its length as a varint.

Frames are cut out of a stream by `gossiplog.protocol.wire.FrameReader`. What is read comes from strangers:

- Refused with ProtocolError: bytes that are no protobuf message, more than MAX_ITEMS of anything, a topic that is not
  UTF-8.
- Passed over, as protobuf has it: unknown fields, and what lacks the topic that it is about.

Absent and empty are distinguished in messages alone, and there not for the data, which is written always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, Protocol

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.proto import serialize_length_prefixed

from gossiplog.errors import EncodeError, ProtocolError
from gossiplog.protocol.wire import MAX_FRAME
from gossiplog.pubsub import rpc_pb2
from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc, Subscription

MAX_ITEMS = 50_000
"""Of each kind, ids of each kind, and topics of all messages, in a packet. Honest routers announce 5,000 ids at a time
[go: MaxIHaveLength]."""
_IDS = 1_000  # that stay together where a packet is divided


def encode(packet: Rpc, limit: int = MAX_FRAME) -> list[bytes]:
    """Return the frames of a packet: one, unless that were longer than the limit.

    Args:
        packet: with bytes for all ids; extensions have an encoding of their router's.
        limit: the most bytes that the receiver reads of a frame, its length not counted.

    Raises:
        EncodeError: a message, or a topic, that is too long for any frame; or there is an extension.
    """
    if packet.extension:
        raise EncodeError("a packet with an extension, which has no encoding in gossipsub: encode it in its router")
    whole = _build(packet)
    if whole.ByteSize() <= limit:
        return [_frame(whole)]
    frames = []
    built = rpc_pb2.RPC()
    for part in _parts(packet):
        piece = _build(part)
        if piece.ByteSize() > limit:
            raise EncodeError(f"{piece.ByteSize()} bytes that cannot be divided; a frame holds {limit}")
        # Control messages of a piece come behind a length that may grow by some bytes when they are merged.
        if built.ByteSize() + piece.ByteSize() + _GROWTH > limit and built.ByteSize():
            frames.append(_frame(built))
            built = rpc_pb2.RPC()
        built.MergeFrom(piece)
    frames.append(_frame(built))
    return frames


_GROWTH = 4


def encode_message(message: Message) -> bytes:
    """Return a message without a packet, as it is signed."""
    return _build_message(message).SerializeToString()


def decode(frame: bytes) -> Rpc:
    """Return the packet in a frame.

    Raises:
        ProtocolError: as the module says.
    """
    try:
        built = rpc_pb2.RPC.FromString(frame)
    except ProtobufDecodeError as error:
        raise ProtocolError(f"a frame of {len(frame)} bytes is no protobuf packet") from error
    _refuse_more("messages", built.publish)
    _refuse_more("subscriptions", built.subscriptions)
    recipients = sum(len(message.topicIDs) for message in built.publish)
    if recipients > MAX_ITEMS:
        raise _too_many("topics of messages", recipients)
    return Rpc(
        tuple(_read_message(message) for message in built.publish if message.topicIDs),
        tuple(
            Subscription(_topic(change.topicid), change.subscribe)
            for change in built.subscriptions
            if change.HasField("topicid")
        ),
        _read_control(built.control) if built.HasField("control") else None,
    )


def _read_message(message: rpc_pb2.Message) -> Message:
    def optional(name: str) -> bytes | None:
        return getattr(message, name) if message.HasField(name) else None

    topics = tuple(_topic(topic) for topic in message.topicIDs)
    return Message(topics, message.data, *(optional(name) for name in ("from", "seqno", "signature", "key")))


def _read_control(control: rpc_pb2.ControlMessage) -> Control:
    _refuse_more("IHAVE messages", control.ihave)
    _refuse_more("IWANT messages", control.iwant)
    _refuse_more("GRAFT messages", control.graft)
    _refuse_more("PRUNE messages", control.prune)
    for announced in (control.ihave, control.iwant):
        count = sum(len(message.messageIDs) for message in announced)
        if count > MAX_ITEMS:
            raise _too_many("ids", count)
    return Control(
        tuple(
            IHave(_topic(ihave.topicID), tuple(ihave.messageIDs))
            for ihave in control.ihave
            if ihave.HasField("topicID")
        ),
        tuple(id for iwant in control.iwant for id in iwant.messageIDs),
        _topics(control.graft),
        _topics(control.prune),
    )


class _OfTopic(Protocol):
    topicID: str

    def HasField(self, name: Any) -> bool: ...


def _topics(messages: Sequence[_OfTopic]) -> tuple[str, ...]:
    return tuple(_topic(message.topicID) for message in messages if message.HasField("topicID"))


def _topic(topic: Any) -> str:
    # protobuf gives bytes where a string of proto2 is not UTF-8.
    if not isinstance(topic, str):
        raise ProtocolError("a topic is not UTF-8")
    return topic


def _refuse_more(what: str, items: Sequence[object]) -> None:
    if len(items) > MAX_ITEMS:
        raise _too_many(what, len(items))


def _too_many(what: str, count: int) -> ProtocolError:
    return ProtocolError(f"a packet with {count} {what}; {MAX_ITEMS} at most are accepted")


def _frame(built: rpc_pb2.RPC) -> bytes:
    out = BytesIO()
    serialize_length_prefixed(built, out)
    return out.getvalue()


def _build(packet: Rpc) -> rpc_pb2.RPC:
    control = packet.control
    return rpc_pb2.RPC(
        subscriptions=[
            rpc_pb2.SubOpts(subscribe=change.subscribe, topicid=change.topic) for change in packet.subscriptions
        ],
        publish=[_build_message(message) for message in packet.messages],
        control=None if control is None else _build_control(control),
    )


def _build_message(message: Message) -> rpc_pb2.Message:
    fields: dict[str, Any] = {
        "from": message.author,
        "data": message.data,
        "seqno": message.seqno,
        "topicIDs": message.topics,
        "signature": message.signature,
        "key": message.key,
    }
    return rpc_pb2.Message(**fields)


def _build_control(control: Control) -> rpc_pb2.ControlMessage:
    ids: Any = control.iwant
    return rpc_pb2.ControlMessage(
        ihave=[_build_ihave(ihave) for ihave in control.ihave],
        iwant=[rpc_pb2.ControlIWant(messageIDs=ids)] if ids else [],
        graft=[rpc_pb2.ControlGraft(topicID=topic) for topic in control.graft],
        prune=[rpc_pb2.ControlPrune(topicID=topic) for topic in control.prune],
    )


def _build_ihave(ihave: IHave) -> rpc_pb2.ControlIHave:
    ids: Any = ihave.ids
    return rpc_pb2.ControlIHave(topicID=ihave.topic, messageIDs=ids)


def _parts(packet: Rpc) -> Iterator[Rpc]:
    """Yield what a packet may be divided into, in the order of the fields."""
    for change in packet.subscriptions:
        yield Rpc(subscriptions=(change,))
    for message in packet.messages:
        yield Rpc((message,))
    control = packet.control or Control()
    for ihave in control.ihave:
        for start in range(0, len(ihave.ids), _IDS):
            yield Rpc(control=Control(ihave=(IHave(ihave.topic, ihave.ids[start : start + _IDS]),)))
    for start in range(0, len(control.iwant), _IDS):
        yield Rpc(control=Control(iwant=control.iwant[start : start + _IDS]))
    for topic in control.graft:
        yield Rpc(control=Control(graft=(topic,)))
    for topic in control.prune:
        yield Rpc(control=Control(prune=(topic,)))
