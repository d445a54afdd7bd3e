"""Which messages that come by gossip are accepted before they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

from gossiplog.errors import DecodeError
from gossiplog.reference.batch import Batch, verify_batch
from gossiplog.reference.id import decode_clock, decode_id, message_key
from gossiplog.reference.limits import KEY_LENGTH
from gossiplog.reference.message import SignedMessage

_Decision: TypeAlias = Literal["accept", "known", "defer"]

_GENERATION = 2**18
"""Keys in a generation of those that are known, of which there are two."""
_MOST_BYTES = 16 * 2**20
"""Bytes of messages that are accepted and not stored yet."""
_MOST_TAKEN = 1024
_MAX_STORE_DELAY = 1.0
"""Seconds for which a message may be accepted and not stored, after which no others are accepted."""


@final
class GossipValidator:
    """Decide which messages of gossip on a topic are accepted before they are stored."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()
        # Keys that are accepted and not stored, the oldest first, with the bytes of each and the time.
        self._accepted: dict[bytes, tuple[int, float]] = {}
        self._taken: list[tuple[int, bytes]] = []
        self._is_closed = False

    def validate(self, messages: Sequence[tuple[int, bytes]], now: float) -> list[_Decision]:
        """Decide about the data of publications, each with a number for who passed it on."""
        if not 0 <= now < float("inf"):
            raise ValueError(f"now is {now}: it must be a number of seconds")
        decisions: list[_Decision] = ["defer"] * len(messages)
        found: list[tuple[int, bytes, bytes]] = []
        for index, (_, data) in enumerate(messages):
            insert = _read_insert(data)
            if insert is None or not _is_key_of(*insert):
                continue
            key, value = insert
            if self._knows(key):
                decisions[index] = "known"
            else:
                found.append((index, key, value))
        batch = verify_batch([value for _, _, value in found], self._topic)
        duplicates = set(batch.duplicates)
        fresh = [
            (message.key, position, message)
            for position, message in enumerate(batch)
            if isinstance(message, SignedMessage) and position not in duplicates
        ]
        for key, position, message in sorted(fresh, key=lambda item: item[0]):
            index, claimed, value = found[position]
            if (
                claimed == key
                and all(map(self._holds, map(decode_id, message.parents)))
                and self._accept(key, len(value), now)
            ):
                decisions[index] = "accept"
                self._taken.append((messages[index][0], value))
        return decisions

    def take(self) -> tuple[Batch, list[int]] | None:
        """Take the messages that were accepted, parents first, with the numbers of those who passed them on."""
        taken, self._taken = self._taken[:_MOST_TAKEN], self._taken[_MOST_TAKEN:]
        if not taken:
            return None
        return verify_batch([value for _, value in taken], self._topic), [source for source, _ in taken]

    def close(self) -> None:
        """Accept nothing from now on."""
        self._is_closed = True

    def stored(self, keys: Sequence[bytes]) -> None:
        """Note messages that are stored."""
        for key in keys:
            if len(key) != KEY_LENGTH:
                raise DecodeError(f"a key has {KEY_LENGTH} bytes, this has {len(key)}", None)
        for key in keys:
            self._accepted.pop(key, None)
            self._add(key)

    def stored_batch(self, batch: Batch, indices: Sequence[int]) -> None:
        """Note messages of a batch that are stored."""
        keys = batch.keys
        self.stored([keys[index] for index in indices])

    def finish(self, batch: Batch) -> None:
        """Note that no more of a batch is going to be stored; forget what may follow the rest of it."""
        if any(key in self._accepted for key in batch.keys):
            self._accepted.clear()

    def _add(self, key: bytes) -> None:
        if len(self._young) >= _GENERATION:
            self._old, self._young = self._young, set()
        self._young.add(key)

    def _knows(self, key: bytes) -> bool:
        if key in self._old:
            self._old.discard(key)
            self._add(key)
        return key in self._young

    def _holds(self, key: bytes) -> bool:
        return key in self._accepted or self._knows(key)

    def _accept(self, key: bytes, size: int, now: float) -> bool:
        waiting = self._accepted.values()
        is_late = self._is_closed or any(now - accepted > _MAX_STORE_DELAY for _, accepted in waiting)
        if is_late or key in self._accepted or sum(size for size, _ in waiting) + size > _MOST_BYTES:
            return False
        self._accepted[key] = size, now
        return True


def _is_key_of(key: bytes, value: bytes) -> bool:
    try:
        clock, _ = decode_clock(key)
    except DecodeError:
        return False
    return message_key(clock, value) == key


def _read_insert(data: bytes) -> tuple[bytes, bytes] | None:
    """Return the key and the value of a publication in the form that encoders write; None for any other.

    The form is an Event with an Insert (wire format, "Gossip").
    """
    match _field(data, 0x0A):
        case (insert, b""):
            match _field(insert, 0x0A):
                case (key, rest) if len(key) == KEY_LENGTH:
                    match _field(rest, 0x12):
                        case (value, b""):
                            return key, value
    return None


def _field(data: bytes, tag: int) -> tuple[bytes, bytes] | None:
    """Return the bytes of the field that data begins with, and what follows it."""
    if not data or data[0] != tag:
        return None
    length = 0
    for position, byte in enumerate(data[1:5]):
        length |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            if byte == 0 and position:
                return None
            end = position + 2 + length
            return (data[position + 2 : end], data[end:]) if end <= len(data) else None
    return None
