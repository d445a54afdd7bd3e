"""Messages as the log's callers meet them: the one message type, ids and keys, topics, and the caps on own messages."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from gossiplog import core
from gossiplog.core import KEY_LENGTH, SignedMessage, decode_id, encode_id
from gossiplog.errors import DecodeError, EncodeError, TopicWarning

ID_LENGTH = 32
"""Characters of an id: its key in base 32."""
MAX_PARENTS = 256
"""Parents of an own message, at most."""
MANY_HEADS = 256
"""Heads up to which `append` names all."""
PARENTS_OF_MANY_HEADS = 32
"""Parents of an appended message where there are more heads. Strangers can make them many, and each message that names
256 costs every peer some milliseconds. Joined by several messages they cost as much, but none of these waits for it."""
MAX_VALUE_LENGTH = 4 * 2**20 - 1024
"""Bytes in the stored value of an own message: with a protocol's envelope it fits in a frame of 4 MiB."""

# Wire format, "Message, signature, stored value": what 0.13.14 accepts, and what its repository's head does.
_TOPIC_OF_THE_RELEASE = re.compile(r"[a-zA-Z0-9.\-]+(#[a-zA-Z0-9]+)?")
_TOPIC_OF_THE_HEAD = re.compile(r"[a-zA-Z0-9:.\-]+")


def check_topic(topic: str) -> None:
    """Check a topic against the rules of the wire format, "Message, signature, stored value".

    Raises:
        EncodeError: no version of canvas-js accepts the topic.
        TypeError: the topic is no text.

    Warns:
        TopicWarning: only its repository's head accepts the topic, not version 0.13.14.
    """
    if not isinstance(topic, str):
        raise TypeError(f"expected the topic as text, not {type(topic).__name__}")
    if _TOPIC_OF_THE_RELEASE.fullmatch(topic):
        return
    if not _TOPIC_OF_THE_HEAD.fullmatch(topic):
        raise EncodeError(
            f"{topic!r} is no topic: expected letters, digits, '.', '-' and ':', or no ':' and one '#' before a last"
            " part of letters and digits"
        )
    warnings.warn(
        f"peers of version 0.13.14 refuse the topic {topic!r}: use letters, digits, '.' and '-' to talk to them",
        TopicWarning,
        stacklevel=3,
    )


def ids_of(keys: Iterable[bytes]) -> tuple[str, ...]:
    """Return the ids of 20-byte keys, in their order."""
    return tuple(map(encode_id, keys))


def key_of(id: str) -> bytes:
    """Return the 20-byte key of an id.

    Raises:
        DecodeError: text that is no id.
        TypeError: no text, such as the message itself.
    """
    if not isinstance(id, str):
        raise TypeError(f"expected the id of a message, as message.id, not {type(id).__name__}")
    return decode_id(id)


def key_asked_for(id: object) -> bytes | None:
    """Return the key of what `in` is asked for, a message or its id; None for anything else, which no log has."""
    if isinstance(id, SignedMessage):
        return id.key
    try:
        return decode_id(id) if isinstance(id, str) else None
    except DecodeError:
        return None


def stored_value(message: SignedMessage | bytes) -> bytes:
    """Return what the log keeps of a message, and what travels.

    Raises:
        TypeError: neither a message nor bytes.
    """
    if isinstance(message, SignedMessage):
        return message.value
    if isinstance(message, bytes):
        return message
    raise TypeError(f"expected a SignedMessage or the bytes of a stored value, not {type(message).__name__}")


def plain_json(value: object) -> bytes:
    """Return a value as dag-json that is read as the same value.

    dag-json has bytes and links as maps of the key `/`: a map may look like one of them, and then its text is read as
    another value, or not at all.

    Raises:
        EncodeError: it has no such form.
    """
    encoded = core.json_encode(value)
    if b'"/"' in encoded:
        reserved = "dag-json has bytes and links as maps of the key '/'"
        try:
            read = core.json_decode(encoded)
        except DecodeError as error:
            raise EncodeError(f"{error}; {reserved}") from error
        # As bytes, since to compare the values may recurse too deep.
        if core.cbor_encode(read) != core.cbor_encode(value):
            raise EncodeError(f"its dag-json is read as another value; {reserved}")
    return encoded


__all__ = [
    "ID_LENGTH",
    "KEY_LENGTH",
    "MANY_HEADS",
    "MAX_PARENTS",
    "MAX_VALUE_LENGTH",
    "PARENTS_OF_MANY_HEADS",
    "SignedMessage",
    "check_topic",
    "ids_of",
    "key_of",
    "plain_json",
    "stored_value",
]
