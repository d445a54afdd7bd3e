"""Which messages that come by gossip are accepted before they are stored.

Times are whole nanoseconds, as the other core has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
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
_LATEST = 1e12
"""Seconds, beyond which a time is none."""
_SECOND = 10**9
_MAX_STORE_DELAY = _SECOND
"""How long a message may be accepted and not stored, after which all others wait."""
_LONGEST_WAIT = _SECOND // 2
"""How long a message waits for its parents, or for the log."""
_ASK_DELAY = _SECOND // 100
"""How long a message lacks parents until the log is asked for them."""
_ROUND = _SECOND // 100
"""What is due within so long is done together."""
_MOST_WAITING = 1024
_MOST_WAITING_BYTES = 4 * 2**20
_MOST_ASKED = 1024
"""Parents that are asked for at once. For a message that lacks more, none are."""


@dataclass(slots=True)
class _Candidate:
    """A publication whose value is a well-formed message of the topic; its signature is not verified yet."""

    ticket: int
    source: int
    size: int
    key: bytes
    value: bytes
    parsed: Parsed
    since: int
    missing: set[bytes] = field(default_factory=set)
    is_asked: bool = False

    @property
    def age(self) -> tuple[int, bytes]:
        """What orders those that wait, the oldest first."""
        return self.since, self.key

    @property
    def parents(self) -> Iterable[bytes]:
        return map(decode_id, self.parsed.message.parents)


@final
class GossipValidator:
    """Decide which messages of gossip on a topic are accepted before they are stored."""

    def __init__(self, topic: str) -> None:
        topic.encode()
        self._topic = topic
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()
        # Keys that are accepted and not stored, the oldest first, with the bytes of each and the time.
        self._accepted: dict[bytes, tuple[int, int]] = {}
        self._taken: list[tuple[int, bytes]] = []
        # By key; and those that were stored since the last call of `validate`.
        self._waiting: dict[bytes, _Candidate] = {}
        self._stored: list[_Candidate] = []
        self._now = 0
        self._is_closed = False
        # Whether something that waits can be decided now.
        self._is_due = False

    def due(self, now: float) -> float | None:
        """Return how many seconds from now `validate` is due where nothing else comes; None while nothing waits."""
        time = max(_nanoseconds(now), self._now)
        if self._is_due:
            return 0.0
        dues = [waiting.since + _LONGEST_WAIT for waiting in self._waiting.values()]
        dues += [
            waiting.since + _ASK_DELAY
            for waiting in self._waiting.values()
            if waiting.missing and not waiting.is_asked and waiting.since + _ASK_DELAY > self._now
        ]
        if not dues:
            return None
        due = -(-min(dues) // _ROUND) * _ROUND
        return max(0, due - time) / _SECOND

    def take_missing(self) -> list[bytes]:
        """Take the keys of parents that messages have waited for, ascending, each once for a message."""
        found: set[bytes] = set()
        for waiting in sorted(self._waiting.values(), key=lambda waiting: waiting.age):
            if self._now - waiting.since < _ASK_DELAY or not waiting.missing or waiting.is_asked:
                continue
            missing = waiting.missing - self._waiting.keys()
            if len(missing) <= _MOST_ASKED:
                if len(found) + len(missing) > _MOST_ASKED:
                    break
                found |= missing
            waiting.is_asked = True
        return sorted(found)

    def validate(self, messages: Sequence[tuple[int, int, bytes]], now: float) -> list[tuple[int, _Decision]]:
        """Decide about publications, each with a ticket and a number for who passed it on, and about earlier ones."""
        time = _nanoseconds(now)
        for ticket, source, data in messages:
            _check_number(ticket)
            _check_number(source)
            if not isinstance(data, (bytes, bytearray)):
                raise TypeError(f"a publication is bytes, not {type(data).__name__}")
        self._now = max(self._now, time)
        decisions: list[tuple[int, _Decision]] = []
        found: list[_Candidate] = []
        for ticket, source, data in messages:
            insert = _read_insert(bytes(data))
            if insert is None or not _is_key_of(*insert):
                decisions.append((ticket, "defer"))
            elif self._knows(insert[0]):
                decisions.append((ticket, "known"))
            else:
                candidate = self._candidate(ticket, source, len(data), *insert)
                # The clock in the key of a publication is a claim.
                if candidate is not None and candidate.parsed.message.key == candidate.key:
                    found.append(candidate)
                else:
                    decisions.append((ticket, "defer"))
        for candidate in self._with_parents(found, decisions):
            accepts = (
                _is_signed(candidate.parsed)
                and all(map(self._holds, candidate.parents))
                and self._accept(candidate.key, len(candidate.value))
            )
            if accepts:
                self._taken.append((candidate.source, candidate.value))
            decisions.append((candidate.ticket, "accept" if accepts else "defer"))
        return sorted(decisions)

    def _candidate(self, ticket: int, source: int, size: int, key: bytes, value: bytes) -> _Candidate | None:
        try:
            parsed = parse(value, self._topic)
        except InvalidMessage:
            return None
        return _Candidate(ticket, source, size, key, value, parsed, self._now)

    def _with_parents(
        self, found: Sequence[_Candidate], decisions: list[tuple[int, _Decision]]
    ) -> Sequence[_Candidate]:
        """Return those of new and waiting messages whose parents are held, or are among the others, by key, each once.

        There are none while the log falls behind.
        """
        self._is_due = False
        decisions += [(stored.ticket, "known") for stored in self._stored]
        self._stored = []
        if self._is_closed:
            decisions += [(candidate.ticket, "defer") for candidate in (*self._waiting.values(), *found)]
            self._waiting = {}
            return ()
        is_behind = self._is_behind()
        queue = {} if is_behind else {each.key: each for each in self._waiting.values() if not each.missing}
        for key, waiting in list(self._waiting.items()):
            if key in queue:
                del self._waiting[key]
            elif self._now - waiting.since >= _LONGEST_WAIT:
                decisions.append((self._waiting.pop(key).ticket, "defer"))
        for candidate in found:
            if candidate.key in self._waiting or candidate.key in queue:
                decisions.append((candidate.ticket, "defer"))
            else:
                queue[candidate.key] = candidate
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
                for child in self._without_parent(candidate.key):
                    queue[child.key] = self._waiting.pop(child.key)
            else:
                candidate.missing = missing
                decisions += [(refused.ticket, "defer") for refused in self._wait(candidate)]
        return kept

    def _wait(self, candidate: _Candidate) -> Sequence[_Candidate]:
        """Have a candidate wait; return those that do not, or no more: itself, or those that made room for it."""
        if self._now - candidate.since >= _LONGEST_WAIT:
            return (candidate,)
        refused: list[_Candidate] = []
        if self._lacks_room(candidate):
            counts, sizes = self._shares()
            sources = len({*counts, candidate.source})
            is_one_too_many = counts[candidate.source] + 1 > _MOST_WAITING // sources
            if is_one_too_many or sizes[candidate.source] + candidate.size > _MOST_WAITING_BYTES // sources:
                return (candidate,)
            # Others have more than their shares.
            while self._lacks_room(candidate):
                shares = self._shares()[0 if len(self._waiting) >= _MOST_WAITING else 1]
                largest = max(shares, key=lambda source: (shares[source], source))
                theirs = (each for each in self._waiting.values() if each.source == largest)
                youngest = max(theirs, key=lambda each: each.age)
                refused.append(self._waiting.pop(youngest.key))
        self._waiting[candidate.key] = candidate
        return refused

    def _lacks_room(self, candidate: _Candidate) -> bool:
        size = sum(each.size for each in self._waiting.values()) + candidate.size
        return len(self._waiting) >= _MOST_WAITING or size > _MOST_WAITING_BYTES

    def _shares(self) -> tuple[Counter[int], Counter[int]]:
        """Return how many messages wait of each source, and how many bytes of them."""
        counts, sizes = Counter[int](), Counter[int]()
        for waiting in self._waiting.values():
            counts[waiting.source] += 1
            sizes[waiting.source] += waiting.size
        return counts, sizes

    def _without_parent(self, key: bytes) -> list[_Candidate]:
        """Have nobody wait for a parent any more; return those that wait for no other."""
        found = []
        for waiting in self._waiting.values():
            if key in waiting.missing:
                waiting.missing.discard(key)
                if not waiting.missing:
                    found.append(waiting)
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
        self._become_due()

    def stored(self, keys: Sequence[bytes]) -> None:
        """Note messages that are stored."""
        for key in keys:
            if len(key) != KEY_LENGTH:
                raise DecodeError(f"a key has {KEY_LENGTH} bytes, this has {len(key)}", None)
        for key in keys:
            self._accepted.pop(key, None)
            self._add(key)
            if key in self._waiting:
                self._stored.append(self._waiting.pop(key))
            self._without_parent(key)
        self._become_due()

    def stored_batch(self, batch: Batch, indices: Sequence[int]) -> None:
        """Note messages of a batch that are stored."""
        for index in indices:
            _check_number(index)
        for index in indices:
            if index >= len(batch):
                raise IndexError(f"the batch has {len(batch)} messages, none at {index}")
        self.stored(_keys_at(batch, indices))

    def finish(self, batch: Batch) -> None:
        """Note that no more of a batch is going to be stored; forget what may follow the rest of it."""
        if any(key in self._accepted for key in _keys_at(batch, range(len(batch)))):
            self._accepted.clear()
        self._become_due()

    def _become_due(self) -> None:
        """Note whether something that waits can be decided now."""
        has_ready = any(not waiting.missing for waiting in self._waiting.values())
        is_closing = self._is_closed and bool(self._waiting)
        self._is_due |= bool(self._stored) or is_closing or (has_ready and not self._is_behind())

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

    def _is_behind(self) -> bool:
        waiting = self._accepted.values()
        is_late = any(self._now - accepted > _MAX_STORE_DELAY for _, accepted in waiting)
        return is_late or sum(size for size, _ in waiting) >= _MOST_BYTES

    def _accept(self, key: bytes, size: int) -> bool:
        has_room = sum(size for size, _ in self._accepted.values()) + size <= _MOST_BYTES
        if not has_room or key in self._accepted:
            return False
        self._accepted[key] = size, self._now
        return True


def _nanoseconds(now: float) -> int:
    if not 0 <= now < _LATEST:
        raise ValueError(f"now is {now}: it must be seconds, from 0 to {_LATEST:g}")
    return round(Fraction(now) * _SECOND)


def _check_number(number: int) -> None:
    if not 0 <= number < 2**64:
        raise OverflowError(f"a number from 0 to 2^64 - 1 is expected, not {number}")


def _keys_at(batch: Batch, indices: Iterable[int]) -> Sequence[bytes]:
    """Return the keys of the messages at some indices, without those that are invalid."""
    keys, invalid = batch.keys, {index for index, _ in batch.invalid}
    return [keys[index] for index in indices if index not in invalid]


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
