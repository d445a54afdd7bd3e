"""How envelopes are written: a choice of this project, since the seed leaves it open.

A packet is one canonical dag-cbor list, [kind, source, sequence, then the message's fields in the order of the seed]:

    0 GETNODES       -                          8 LEAVE          source, ttl
    1 NODES          [peer...], ttl             9 SHUFFLE        peer, [peer...], ttl
    2 GETTOPICS      -                         10 SHUFFLEREPLY   [peer...]
    3 TOPICS         [topic...]                11 GOSSIP         source, hops, number, data
    4 JOIN           peer, ttl                 12 IHAVE          [[source, number, hops]...]
    5 FORWARDJOIN    peer, ttl                 13 PRUNE          -
    6 NEIGHBOR       [peer...]                 14 GRAFT          [[source, number]...]
    7 DISCONNECT     -

Peers are byte strings (a libp2p peer id has 34 to 40), topics text, the rest integers that are not negative. The
transport frames packets: a length prefix, or a stream's message. Bytes are read strictly: one value, in the one form
in which it is written, of exactly these fields, within the limits below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gossiplog.core import cbor_decode, cbor_encode
from gossiplog.errors import DecodeError, EncodeError
from gossiplog.pubsub.episub import messages

PROTOCOL = "/gossiplog/episub/1.0.0"
"""What connections that carry these packets are negotiated as."""

MAX_DATA = 2**20
"""Bytes of a message: as much as gossipsub's implementations carry by default."""

MAX_PACKET = MAX_DATA + 2**10
"""Bytes: a message and its envelope."""

MAX_PEER = 128
"""Bytes of a peer."""

MAX_PEERS = 256
"""Peers in a list: several times P."""

MAX_TOPICS = 256
"""Topics in a list."""

MAX_TOPIC = 256
"""Bytes of a topic, as UTF-8."""

MAX_IDS = 4096
"""Message ids in a list."""

MAX_HOPS = 2**16 - 1
"""Hops, and TTLs."""

MAX_NUMBER = 2**63 - 1
"""Sequence ids."""

_Read: TypeAlias = Callable[[Any], Any]


def encode(envelope: messages.Envelope) -> bytes:
    """Write an envelope.

    Raises:
        EncodeError: it has what `decode` would refuse: a peer that is no byte string, a list that is too long.
    """
    message = envelope.message
    kind = _NUMBERS[type(message)]
    _, fields = _KINDS[kind]
    values = [getattr(message, name) for name, _ in fields]
    if isinstance(message, messages.IHave):
        values = [tuple((*id, hops) for id, hops in message.summary)]
    try:
        for value, (_, read) in zip(values, fields, strict=True):
            read(_listed(value))
        _peer(envelope.source)
        _number(envelope.sequence)
        data: bytes = cbor_encode([kind, envelope.source, envelope.sequence, *values])
        if len(data) > MAX_PACKET:
            raise DecodeError(f"{len(data)} bytes: expected {MAX_PACKET} at most")
    except DecodeError as error:
        raise EncodeError(f"{type(message).__name__}: {error.reason}") from None
    return data


def decode(data: bytes) -> messages.Envelope:
    """Read an envelope.

    Raises:
        DecodeError: the bytes are no packet, or not in the form in which it is written.
    """
    if len(data) > MAX_PACKET:
        raise DecodeError(f"a packet of {len(data)} bytes: expected {MAX_PACKET} at most")
    value = cbor_decode(data)
    _expect(isinstance(value, list) and len(value) >= 3, "a packet that is no list of kind, source and sequence id")
    kind, source, sequence, *values = value
    if not (type(kind) is int and 0 <= kind < len(_KINDS)):
        raise DecodeError(f"the kind is {_shown(kind)}: expected 0 to {len(_KINDS) - 1}")
    make, fields = _KINDS[kind]
    if len(values) != len(fields):
        raise DecodeError(f"{make.__name__} with {len(values)} fields: expected {len(fields)}")
    message = make(*(read(value) for value, (_, read) in zip(values, fields, strict=True)))
    envelope = messages.Envelope(_peer(source), _number(sequence), message)
    # Integers as floats, keys out of order, lengths in more bytes than they need: what others might read otherwise.
    _expect(cbor_encode(value) == data, "a packet that is not canonical dag-cbor")
    return envelope


def topic_fits(topic: str) -> bool:
    """Return whether a packet can name a topic: one of `MAX_TOPIC` bytes at most, without lone surrogates."""
    try:
        return len(topic.encode()) <= MAX_TOPIC
    except UnicodeEncodeError:
        return False


def _expect(holds: bool, reason: str) -> None:
    if not holds:
        raise DecodeError(reason)


def _shown(value: Any) -> str:
    """Return what a stranger's value is: a number, or a type and a length, and none of its bytes."""
    if type(value) is int:
        # dag-cbor's have 64 bits.
        return str(value)
    length = f" of length {len(value)}" if isinstance(value, str | bytes | list | dict) else ""
    return type(value).__name__ + length


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _peer(value: Any) -> bytes:
    if not (type(value) is bytes and 0 < len(value) <= MAX_PEER):
        raise DecodeError(f"a peer is {_shown(value)}: expected 1 to {MAX_PEER} bytes")
    peer: bytes = value
    return peer


def _integer(what: str, least: int, most: int) -> _Read:
    def read(value: Any) -> int:
        if not (type(value) is int and least <= value <= most):
            raise DecodeError(f"{what} is {_shown(value)}: expected {least} to {most}")
        number: int = value
        return number

    return read


def _list(what: str, most: int, read: _Read) -> _Read:
    def read_list(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise DecodeError(f"{what} are {_shown(value)}: expected a list")
        if len(value) > most:
            raise DecodeError(f"{len(value)} {what}: expected {most} at most")
        return tuple(read(item) for item in value)

    return read_list


def _topic(value: Any) -> str:
    if not (type(value) is str and topic_fits(value)):
        raise DecodeError(f"a topic that is no text of up to {MAX_TOPIC} bytes: {_shown(value)}")
    topic: str = value
    return topic


def _data(value: Any) -> bytes:
    if type(value) is not bytes:
        raise DecodeError(f"data is {_shown(value)}: expected bytes")
    # What leaves no room for longer peers and numbers could be read, but not be passed on.
    if len(value) > MAX_DATA:
        raise DecodeError(f"data of {len(value)} bytes: expected {MAX_DATA} at most")
    data: bytes = value
    return data


def _id(value: Any) -> messages.MessageId:
    _expect(type(value) is list and len(value) == 2, "a message id that is no list of source and number")
    return _peer(value[0]), _number(value[1])


def _announcement(value: Any) -> tuple[messages.MessageId, int]:
    _expect(type(value) is list and len(value) == 3, "an announcement that is no list of source, number and hops")
    return _id(value[:2]), _hops(value[2])


_number = _integer("a sequence id", 0, MAX_NUMBER)
_ttl = _integer("a TTL", 0, MAX_HOPS)
_hops = _integer("a number of hops", 1, MAX_HOPS)
_peers = _list("peers", MAX_PEERS, _peer)

_KINDS: tuple[tuple[type, tuple[tuple[str, _Read], ...]], ...] = (
    (messages.GetNodes, ()),
    (messages.Nodes, (("peers", _peers), ("ttl", _ttl))),
    (messages.GetTopics, ()),
    (messages.Topics, (("topics", _list("topics", MAX_TOPICS, _topic)),)),
    (messages.Join, (("peer", _peer), ("ttl", _ttl))),
    (messages.ForwardJoin, (("peer", _peer), ("ttl", _ttl))),
    (messages.Neighbor, (("peers", _peers),)),
    (messages.Disconnect, ()),
    (messages.Leave, (("source", _peer), ("ttl", _ttl))),
    (messages.Shuffle, (("peer", _peer), ("peers", _peers), ("ttl", _ttl))),
    (messages.ShuffleReply, (("peers", _peers),)),
    (messages.Gossip, (("source", _peer), ("hops", _hops), ("number", _number), ("data", _data))),
    (messages.IHave, (("summary", _list("announcements", MAX_IDS, _announcement)),)),
    (messages.Prune, ()),
    (messages.Graft, (("msgs", _list("message ids", MAX_IDS, _id)),)),
)
_NUMBERS = {make: number for number, (make, _) in enumerate(_KINDS)}
