"""Which messages that come by gossip are accepted before they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from gossiplog.errors import DecodeError, InvalidMessage
from gossiplog.reference.batch import Batch, verify_batch
from gossiplog.reference.id import decode_clock, decode_id, message_key
from gossiplog.reference.limits import KEY_LENGTH
from gossiplog.reference.message import Parsed, parse

_Decision: TypeAlias = Literal["accept", "known", "defer"]

_GENERATION = 2**18
"""Keys in a generation of those that are known, of which there are two."""
_MOST_BYTES = 16 * 2**20
"""Bytes of messages that are accepted and not stored yet."""
_MOST_TAKEN = 1024
_MAX_STORE_DELAY = 1.0
"""Seconds for which a message may be accepted and not stored, after which all others wait."""
_LONGEST_WAIT = 0.5
"""Seconds for which a message waits for its parents, or for the log."""
_MOST_WAITING = 1024
_MOST_WAITING_BYTES = 4 * 2**20


@dataclass(slots=True)
class _Candidate:
    """A publication whose value is a well-formed message of the topic; its signature is not verified yet."""

    ticket: int
    source: int
    size: int
    key: bytes
    value: bytes
    parsed: Parsed
    since: float
    missing: set[bytes] = field(default_factory=set)

    @property
    def parents(self) -> Iterable[bytes]:
        return map(decode_id, self.parsed.message.parents)


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
        # By key, the oldest first; and those that wait for nothing since the last call of `validate`.
        self._waiting: dict[bytes, _Candidate] = {}
        self._ready: list[_Candidate] = []
        self._is_closed = False

    @property
    def waits(self) -> bool:
        """Whether publications wait for their parents."""
        return bool(self._waiting or self._ready)

    def validate(self, messages: Sequence[tuple[int, int, bytes]], now: float) -> list[tuple[int, _Decision]]:
        """Decide about publications, each with a ticket and a number for who passed it on, and about earlier ones."""
        if not 0 <= now < float("inf"):
            raise ValueError(f"now is {now}: it must be a number of seconds")
        decisions: list[tuple[int, _Decision]] = []
        found: list[_Candidate] = []
        seen: set[bytes] = set()
        for ticket, source, data in messages:
            insert = _read_insert(data)
            if insert is None or not _is_key_of(*insert):
                decisions.append((ticket, "defer"))
            elif self._knows(insert[0]):
                decisions.append((ticket, "known"))
            else:
                candidate = self._candidate(ticket, source, len(data), *insert, now)
                key = candidate.parsed.message.key if candidate is not None else b""
                # The clock in the key of a publication is a claim.
                if candidate is not None and key == candidate.key and key not in seen:
                    found.append(candidate)
                else:
                    decisions.append((ticket, "defer"))
                seen.add(key)
        for candidate in self._with_parents(found, now, decisions):
            accepts = (
                _is_signed(candidate.parsed)
                and all(map(self._holds, candidate.parents))
                and self._accept(candidate.key, len(candidate.value), now)
            )
            if accepts:
                self._taken.append((candidate.source, candidate.value))
            decisions.append((candidate.ticket, "accept" if accepts else "defer"))
        return sorted(decisions)

    def _candidate(
        self, ticket: int, source: int, size: int, key: bytes, value: bytes, now: float
    ) -> _Candidate | None:
        try:
            parsed = parse(value, self._topic)
        except InvalidMessage:
            return None
        return _Candidate(ticket, source, size, key, value, parsed, now)

    def _with_parents(
        self, found: Sequence[_Candidate], now: float, decisions: list[tuple[int, _Decision]]
    ) -> list[_Candidate]:
        """Return those of new and waiting messages whose parents are held, or are among the others, by key.

        There are none while the log falls behind.
        """
        ready, self._ready = self._ready, []
        for waiting in list(self._waiting.values()):
            if self._is_closed or now - waiting.since >= _LONGEST_WAIT:
                decisions.append((self._waiting.pop(waiting.key).ticket, "defer"))
        queue: dict[bytes, _Candidate] = {}

        def add(candidate: _Candidate) -> None:
            if candidate.key in queue:
                decisions.append((queue[candidate.key].ticket, "defer"))
            queue[candidate.key] = candidate

        for candidate in (*(() if self._is_closed else ready), *found):
            add(candidate)
        if self._is_closed:
            decisions += [(candidate.ticket, "defer") for candidate in ready]
        is_behind = self._is_behind(now)
        kept: list[_Candidate] = []
        among: set[bytes] = set()
        while queue:
            candidate = queue.pop(min(queue))
            if self._knows(candidate.key):
                decisions.append((candidate.ticket, "known"))
                continue
            missing = {parent for parent in candidate.parents if parent not in among and not self._holds(parent)}
            if not missing and not is_behind:
                among.add(candidate.key)
                kept.append(candidate)
                for child in self._resolve(candidate.key):
                    add(child)
            elif self._is_closed or not self._wait(candidate, missing, now):
                decisions.append((candidate.ticket, "defer"))
        return kept

    def _wait(self, candidate: _Candidate, missing: set[bytes], now: float) -> bool:
        waiting = (*self._waiting.values(), *self._ready)
        size = sum(each.size for each in waiting) + candidate.size
        is_full = len(waiting) >= _MOST_WAITING or size > _MOST_WAITING_BYTES
        if is_full or now - candidate.since >= _LONGEST_WAIT or candidate.key in self._waiting:
            return False
        candidate.missing = missing
        if missing:
            self._waiting[candidate.key] = candidate
        else:
            self._ready.append(candidate)
        return True

    def _resolve(self, key: bytes) -> list[_Candidate]:
        """Remove and return those that wait for nothing but a message that is held now, and that message itself."""
        found = [self._waiting.pop(key)] if key in self._waiting else []
        for waiting in list(self._waiting.values()):
            if key in waiting.missing:
                waiting.missing.discard(key)
                if not waiting.missing:
                    found.append(self._waiting.pop(waiting.key))
        return found

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
            self._ready += self._resolve(key)

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

    def _is_behind(self, now: float) -> bool:
        waiting = self._accepted.values()
        is_late = any(now - accepted > _MAX_STORE_DELAY for _, accepted in waiting)
        return is_late or sum(size for size, _ in waiting) >= _MOST_BYTES

    def _accept(self, key: bytes, size: int, now: float) -> bool:
        has_room = sum(size for size, _ in self._accepted.values()) + size <= _MOST_BYTES
        if self._is_closed or not has_room or key in self._accepted:
            return False
        self._accepted[key] = size, now
        return True


def _is_signed(parsed: Parsed) -> bool:
    try:
        parsed.check_signature()
    except InvalidMessage:
        return False
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
