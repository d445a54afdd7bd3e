"""Who may have published a message, and how that shows: the signature policies of libp2p's pubsub.

Source: https://github.com/libp2p/specs/blob/master/pubsub/README.md, "Message Signing", and what go-libp2p-pubsub
(sign.go) and rust-libp2p (gossipsub/src/behaviour.rs, `MessageAuthenticity`) do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Protocol, cast

from gossiplog import core
from gossiplog.pubsub import wire
from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.rpc import Message, MessageId
from gossiplog.signer import Signer

SIGNATURE_PREFIX = b"libp2p-pubsub:"
SEQNO_BYTES = 8

# PeerIds of libp2p (https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md): the identity multihash of the
# public key's protobuf, {Type: Ed25519, Data: 32 bytes}.
_KEY_PREFIX = b"\x08\x01\x12\x20"
_PEER_PREFIX = b"\x00\x24" + _KEY_PREFIX
_PEER_BYTES = len(_PEER_PREFIX) + 32


def peer_id_of(public_key: bytes) -> bytes:
    """Return the libp2p peer id of an Ed25519 key.

    Args:
        public_key: 32 bytes.
    """
    return _PEER_PREFIX + public_key


def name_is_id(peer: PeerId) -> bytes:
    """Return a peer's name as an author, where a peer is known by its name, as on networks."""
    return cast(bytes, peer)


def author_and_number(message: Message) -> bytes:
    """Return the id of a message that names its author [go: DefaultMsgIdFn]."""
    return (message.author or b"") + (message.seqno or b"")


class Authorship(Protocol):
    """How messages are made out, and which of others' are genuine."""

    @property
    def author(self) -> bytes | None:
        """The name that own messages bear; None where they bear none."""

    def compose(self, topics: tuple[str, ...], data: bytes) -> Message:
        """Return a new message of our own."""

    def admits(self, message: Message) -> bool:
        """Return whether a message from outside is made out as it has to be."""


def check_ids(authorship: Authorship, id_of: Callable[[Message], MessageId]) -> None:
    """Check that messages can be distinguished.

    Raises:
        ValueError: ids are made of authors and numbers, and messages have neither: all would be one.
    """
    if authorship.author is None and id_of is author_and_number:
        raise ValueError(
            "anonymous messages have no author and no number to make their ids of; pass an id_of that makes them of the"
            " topic and the data, such as a hash of both"
        )


class MessageLimits(Protocol):
    """The limits of messages in a router's configuration."""

    @property
    def max_data(self) -> int:
        """Bytes of a message's data."""

    @property
    def max_recipients(self) -> int:
        """Topics of a message."""

    @property
    def max_topic(self) -> int:
        """Characters of a topic."""


def fits(message: Message, limits: MessageLimits) -> bool:
    """Return whether a received message keeps to the limits."""
    topics = message.topics
    return (
        len(message.data) <= limits.max_data
        and len(topics) <= limits.max_recipients
        and max(map(len, topics), default=0) <= limits.max_topic
    )


def compose_valid(
    authorship: Authorship,
    topics: tuple[str, ...],
    data: bytes,
    limits: MessageLimits,
    is_valid: Callable[[Message], bool],
) -> Message:
    """Return a new message of our own, checked as those of others are.

    Args:
        authorship: of the message.
        topics: that it is published to; each counts once.
        data: of the message.
        limits: of messages.
        is_valid: the application's judgement.

    Raises:
        ValueError: the message is too long, has no topic or too many, or the application calls it invalid itself.
    """
    if len(data) > limits.max_data:
        raise ValueError(f"a message of {len(data)} bytes; at most {limits.max_data} can be published")
    topics = tuple(dict.fromkeys(topics))
    if not topics:
        raise ValueError("a message to no topic; name the topic that it is published to")
    if len(topics) > limits.max_recipients:
        raise ValueError(
            f"a message to {len(topics)} topics; this router's limit is {limits.max_recipients} (max_recipients)."
            " Publish one message to each topic instead"
        )
    for topic in topics:
        if len(topic) > limits.max_topic:
            raise ValueError(f"a topic of {len(topic)} characters; at most {limits.max_topic} can be published to")
    message = authorship.compose(topics, data)
    if not is_valid(message):
        named = ", ".join(map(repr, topics))
        raise ValueError(f"the application itself calls this message in {named} invalid, of {len(data)} bytes")
    return message


class Anonymous:
    """Messages say nothing of who published them [StrictNoSign]. They need ids that are made from their content."""

    author = None

    def compose(self, topics: tuple[str, ...], data: bytes) -> Message:
        return Message(topics, data)

    def admits(self, message: Message) -> bool:
        return message.author is message.seqno is message.signature is message.key is None


class Named:
    """Messages bear an author and a number, and no signature: for simulations, and where all peers are trusted.

    Args:
        author: a name that no other peer has.
        random: for the first number: a router that begins anew must not repeat what others have seen.
    """

    def __init__(self, author: bytes, random: Random) -> None:
        self.author = author
        self._next = _numbers(random)

    def compose(self, topics: tuple[str, ...], data: bytes) -> Message:
        return Message(topics, data, self.author, self._next())

    def admits(self, message: Message) -> bool:
        return message.signature is message.key is None and _is_numbered(message)


class Signed:
    """Messages are signed by their authors [StrictSign], with Ed25519: other keys' messages are not admitted.

    Args:
        signer: of own messages.
        random: for the first number, as above.
    """

    def __init__(self, signer: Signer, random: Random) -> None:
        self.author = peer_id_of(signer.public_key)
        self._signer = signer
        self._next = _numbers(random)

    def compose(self, topics: tuple[str, ...], data: bytes) -> Message:
        message = Message(topics, data, self.author, self._next())
        return replace(message, signature=self._signer.sign_bytes(_signed_bytes(message)))

    def admits(self, message: Message) -> bool:
        author, signature = message.author, message.signature
        if author is None or signature is None or not _is_numbered(message):
            return False
        if len(author) != _PEER_BYTES or not author.startswith(_PEER_PREFIX):
            return False
        public_key = author[len(_PEER_PREFIX) :]
        if message.key and message.key != _KEY_PREFIX + public_key:
            return False
        return core.verify_bytes(public_key, signature, _signed_bytes(message))


def _signed_bytes(message: Message) -> bytes:
    return SIGNATURE_PREFIX + wire.encode_message(replace(message, signature=None, key=None))


def _is_numbered(message: Message) -> bool:
    return message.author is not None and message.seqno is not None and len(message.seqno) == SEQNO_BYTES


def _numbers(random: Random) -> Callable[[], bytes]:
    # Half of the range is left, for as many messages as anybody publishes.
    number = random.getrandbits(8 * SEQNO_BYTES - 1)

    def following() -> bytes:
        nonlocal number
        number += 1
        return number.to_bytes(SEQNO_BYTES, "big")

    return following
