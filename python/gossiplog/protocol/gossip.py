"""What a message is on gossipsub: the data of one publication (wire format, "Gossip").

The data is an Event of the push protocol with an Insert in it, without a length before it. As on a push stream, the key
must end in its value's hash, which is checked before a signature costs anything; an Update has no business there.
"""

from __future__ import annotations

from gossiplog.core import encode_id
from gossiplog.errors import EncodeError, ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.push import check_key

_ENVELOPE = 64 * 1024
"""Bytes of a frame of gossipsub's that are left for what is not the data: the topic, lengths, control messages."""
MAX_DATA = wire.MAX_FRAME - _ENVELOPE
"""Bytes that fit into a frame of gossipsub's, which like those of all protocols holds 4 MiB."""


def encode(key: bytes, value: bytes) -> bytes:
    """Return the data of a message.

    Raises:
        EncodeError: the message is too large for gossip; peers have to sync to get it.
    """
    data = wire.encode_event(wire.Insert(key, value))
    if len(data) > MAX_DATA:
        raise EncodeError(
            f"message {encode_id(key)} has {len(value)} bytes, too many for gossip: a publication holds {MAX_DATA}"
        )
    return data


def decode(data: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value of a message, which is not verified.

    Raises:
        ProtocolError: data that no honest peer publishes.
    """
    if len(data) > wire.MAX_FRAME:
        raise ProtocolError(f"a publication of {len(data)} bytes; at most {wire.MAX_FRAME} are accepted")
    match wire.decode_push(data):
        case wire.Insert(key, value):
            check_key(key, value)
            return key, value
        case wire.Update():
            raise ProtocolError("an Update was published, which belongs on a push stream")
