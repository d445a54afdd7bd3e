"""Authors that forked: two of an author's messages are concurrent, so that neither is an ancestor of the other.

A key that two machines use at a time makes such messages, and so does a restored backup that goes on. Each is valid.

Messages arrive after their parents. So an author's messages are one chain exactly if each follows the one that arrived
before it. To find that out, most messages take no search: the author's last message is a parent, or the message
descends from one that was the only head when it arrived, and so from all before that.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gossiplog import core
from gossiplog.log.results import Fork

Links: TypeAlias = Callable[[Sequence[int]], Sequence[bytes]]

# Messages whose parents are in memory, and of these, how many are gone through for one answer. The link records of the
# log answer from there on.
_WINDOW = 2**16
_MOST_STEPS = 1000


@dataclass(slots=True)
class _Found:
    """What was found of an author: how often, and the first pair of keys."""

    count: int
    first: tuple[bytes, bytes]


class Forks:
    """Finds authors that forked, over messages in the order in which they arrived."""

    def __init__(self) -> None:
        # By author, the last message's sequence and key.
        self._last: dict[str, tuple[int, bytes]] = {}
        self._found: dict[str, _Found] = {}
        # By sequence: a message from which this one descends, or itself, and with that from all before that.
        self._floor = array("q", [0])
        self._parents: dict[int, Sequence[int]] = {}
        self._heads: set[int] = set()
        # Of messages with several encodings: all sequences, by the content key and the first; the first by the others.
        self._encodings: dict[bytes, list[int]] = {}
        self._same: dict[int, list[int]] = {}
        self._first: dict[int, int] = {}

    @property
    def found(self) -> tuple[Fork, ...]:
        """The authors, by their did:keys, ascending."""
        return tuple(
            Fork(author, found.count, (core.encode_id(found.first[0]), core.encode_id(found.first[1])))
            for author, found in sorted(self._found.items())
        )

    def add_encoding(self, sequence: int, content: bytes, canonical: int | None) -> None:
        """Take an alternative encoding, before the message of this sequence is added.

        Args:
            sequence: of the encoding.
            content: the key of the canonical encoding.
            canonical: the sequence of that, None where it is not in the log.
        """
        known = [] if canonical is None or canonical > sequence else [canonical]
        encodings = self._encodings.setdefault(content, known)
        encodings.append(sequence)
        self._same[encodings[0]] = encodings
        if encodings[0] != sequence:
            self._first[sequence] = encodings[0]

    def add(self, sequence: int, key: bytes, author: str, parents: Sequence[int], links: Links) -> None:
        """Take the next message.

        Args:
            sequence: one more than that of the message before.
            key: of the message.
            author: its did:key.
            parents: their sequences.
            links: reads link records of the log.
        """
        if sequence != len(self._floor):
            # One before it is damaged: nothing can be said of what follows.
            return
        if self._encodings and key in self._encodings:
            encodings = self._encodings[key]
            if sequence not in encodings:
                encodings.append(sequence)
                self._first[sequence] = encodings[0]
        if self._first:
            parents = [self._first.get(parent, parent) for parent in parents]
        self._heads.difference_update(parents)
        if sequence in self._first:
            # Another encoding of a message that is there.
            self._floor.append(0)
            return
        self._heads.add(sequence)
        floor = sequence if len(self._heads) == 1 else max((self._floor[parent] for parent in parents), default=0)
        self._floor.append(floor)
        self._parents[sequence] = parents
        self._parents.pop(sequence - _WINDOW, None)
        last = self._last.get(author)
        self._last[author] = (sequence, key)
        if last is None or last[0] <= floor or last[0] in parents or self._follows(sequence, last[0], links):
            return
        found = self._found.get(author)
        if found is None:
            self._found[author] = _Found(1, (last[1], key))
        else:
            found.count += 1

    def _follows(self, sequence: int, ancestor: int, links: Links) -> bool:
        """Return whether a message descends from an earlier one, in any encoding of that."""
        waiting = [sequence]
        seen: set[int] = set()
        while waiting:
            parents = self._parents.get(waiting.pop())
            if parents is None or len(seen) > _MOST_STEPS:
                # All encodings have the same parents: only that of the ancestor itself makes a difference.
                encodings = self._same.get(ancestor, [ancestor])
                return any(core.is_ancestor(each, sequence, links) for each in encodings)
            for parent in parents:
                if parent == ancestor or self._floor[parent] >= ancestor:
                    return True
                if parent > ancestor and parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)
        return False
