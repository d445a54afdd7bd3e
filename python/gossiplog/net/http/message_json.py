"""Messages as the HTTP API exchanges them: the map `{id, signature, message}` of the wire format, "HTTP API".

The map carries the decoded message, not its stored value, so POST stores the canonical encoding: an alternative
encoding that GET returned comes back under its `content_id`. A map `{"/": ...}` that has the text of a link or of bytes
in dag-json reads as these. Push and sync carry stored values unchanged.

The core writes the map from the stored bytes, and reads it into such bytes, while other threads run: Python objects of
what a stranger sent would take many times its memory, and the interpreter's lock for seconds.
"""

from __future__ import annotations

from gossiplog import core
from gossiplog.message import SignedMessage

_CODECS = {
    "application/json": "dag-json",
    "application/vnd.ipld.dag-json": "dag-json",
    "application/cbor": "dag-cbor",
    "application/vnd.ipld.dag-cbor": "dag-cbor",
}
CONTENT_TYPES = tuple(_CODECS)
"""The media types of messages that are read: the first and the third are canvas-js's."""
_PIECE_BYTES = 2**20


def to_json(message: SignedMessage) -> bytes:
    """Return the dag-json of a message.

    Raises:
        EncodeError: a payload without a dag-json form, which a message that is signed in dag-cbor may have.
    """
    text = core.MessageJson([message.value], message.topic, is_list=False)
    return b"".join(iter(lambda: text.read(_PIECE_BYTES), b""))


def from_body(data: bytes, content_type: str) -> bytes:
    """Return the canonical stored value of a message that was posted; its signature is not verified yet.

    Like canvas-js, it passes over what else the maps hold, such as the id that GET answers with.

    Args:
        data: the body, as it came.
        content_type: one of CONTENT_TYPES.

    Raises:
        DecodeError: a body that is no message.
    """
    return core.read_message_map(data, _CODECS[content_type])
