"""A push stream: each side sends the other its heads, and pushes messages as they come.

The rules, from the wire format, "Push"; what a driver does with the events stands in `broadcast.machine`:

1. Each side first sends an Update with its heads; the dialer opens the stream.
2. Update: `Heads`, which the driver looks up (`unknown_heads`). Where the log lacks some it schedules a sync with the
   sender.
3. Insert: `Deliver`, and the driver verifies the message and inserts it. If parents are missing it schedules a sync.
   Events come in the order of the frames, and those before a violation are handed out.
4. An Insert's key must end in its value's hash: else ProtocolError, before a signature costs anything.
5. A head is 20 bytes that a stranger sent: the clock in it is a claim, and nothing is derived from it. An Update may
   hold as many as fit into a frame, about 190,000; of more, those with the largest clocks are sent. The first
   MOST_HEADS are looked up, each once, and any further ones are taken as a reason to sync.
6. A frame has `wire.MAX_FRAME` bytes at most: a longer message is not pushed, and a longer frame is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from gossiplog.core import KEY_LENGTH, decode_clock, encode_id
from gossiplog.errors import DecodeError, EncodeError, ProtocolError
from gossiplog.protocol import wire
from gossiplog.reprs import frozen

MOST_HEADS = 4096
"""Heads of one Update that are looked up."""

_HEAD_SIZE = KEY_LENGTH + 2
_UPDATE_HEADER_SIZE = 8


@frozen
class Deliver:
    """Verify this value and insert it. Verification may still find that the clock in the key is not the message's."""

    key: bytes
    value: bytes


@frozen
class Heads:
    """The peer has these heads.

    Attributes:
        keys: each once, MOST_HEADS at most.
        unchecked: how many more heads it has, which are not looked up.
    """

    keys: tuple[bytes, ...]
    unchecked: int


Event: TypeAlias = Deliver | Heads


class Push:
    """One side of a push stream."""

    def __init__(self) -> None:
        self._frames = wire.FrameReader(wire.MAX_FRAME)

    @property
    def held(self) -> int:
        """Bytes in memory that came from the peer and are not a whole frame yet."""
        return self._frames.held

    def start(self, heads: Sequence[bytes]) -> bytes:
        """Return the first bytes to write: an Update with the log's heads."""
        return self.update(heads)

    def update(self, heads: Sequence[bytes]) -> bytes:
        """Return an Update. Of more heads than a frame holds, those with the largest clocks are sent."""
        most = (wire.MAX_FRAME - _UPDATE_HEADER_SIZE) // _HEAD_SIZE
        return wire.encode_push(wire.Update(list(heads) if len(heads) <= most else sorted(heads)[-most:]))

    def insert(self, key: bytes, value: bytes) -> bytes:
        """Return an Insert.

        Raises:
            EncodeError: the message does not fit into a frame; peers have to sync to get it.
        """
        frame = wire.encode_push(wire.Insert(key, value))
        if len(frame) > wire.MAX_FRAME:
            raise EncodeError(
                f"message {encode_id(key)} has {len(value)} bytes, too many to push: a frame holds {wire.MAX_FRAME}"
            )
        return frame

    def receive(self, data: bytes) -> Iterator[Event]:
        """Take the next bytes of the stream; they are processed as the events are taken, so take all.

        Raises:
            ProtocolError: the peer broke a rule (see the module, and `wire`).
        """
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            match wire.decode_push(frame):
                case wire.Insert(key, value):
                    check_key(key, value)
                    yield Deliver(key, value)
                case wire.Update(heads):
                    checked = tuple(dict.fromkeys(heads[:MOST_HEADS]))
                    yield Heads(checked, max(0, len(heads) - MOST_HEADS))


def unknown_heads(heads: Heads, known: Collection[bytes]) -> Heads | None:
    """Return those of a peer's heads for which to sync with it; None where the log lacks none.

    Args:
        heads: of the peer.
        known: those of their keys that the log has.
    """
    found = frozenset(known)
    unknown = tuple(key for key in heads.keys if key not in found)
    return Heads(unknown, heads.unchecked) if unknown or heads.unchecked else None


def check_key(key: bytes, value: bytes) -> None:
    """Check that a key is that of a value, as far as its hash shows: the clock in it is a claim.

    Raises:
        ProtocolError: it is not.
    """
    try:
        _, size = decode_clock(key)
    except DecodeError as error:
        raise ProtocolError(f"the key of an Insert, {key.hex()}, does not start with a clock: {error}") from error
    if hashlib.sha256(value).digest()[: KEY_LENGTH - size] != key[size:]:
        raise ProtocolError(f"the value of an Insert is not that of its key, {encode_id(key)}")
