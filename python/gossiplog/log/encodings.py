"""One signature, one effect: of several encodings of a signed message, the one that arrived first counts.

A relay can make any number of encodings of somebody's message, each a valid message with an id of its own, and every
peer stores them all, because the trees would differ otherwise. They have one content: `SignedMessage.content_id`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gossiplog.core import SignedMessage, decode_id, read_batch
from gossiplog.log.state import Heads
from gossiplog.storage.base import Reader

_FURTHER_ENCODINGS = 16
"""Heads of an own message that add nothing but another encoding of a message: each costs as much as one that does."""


def stored(reader: Reader, contents: Sequence[bytes]) -> set[bytes]:
    """Those of the contents of which the log has an encoding."""
    return {*reader.sequences(contents), *reader.alternatives(contents)}


def repetitions(reader: Reader, rows: Sequence[tuple[int, bytes]], topic: str) -> Collection[int]:
    """Return the sequences of those stored messages of which another encoding arrived before.

    Args:
        reader: of the log.
        rows: sequences and values of messages that are in the log. One that is damaged is none of them.
        topic: of the log.
    """
    contents: dict[int, bytes] = {}
    for (sequence, _), message in zip(rows, read_batch([value for _, value in rows], topic), strict=True):
        if isinstance(message, SignedMessage):
            contents[sequence] = decode_id(message.content_id)
    wanted = [*{*contents.values()}]
    alternatives, canonical = reader.alternatives(wanted), reader.sequences(wanted)
    return {
        sequence
        for sequence, content in contents.items()
        if min(alternatives.get(content, sequence), canonical.get(content, sequence)) < sequence
    }


def parents(heads: Heads, contents: Mapping[bytes, bytes], most: int) -> dict[bytes, int]:
    """Choose the heads that an own message follows: keys and sequences, ascending by key.

    Of several encodings of a message one comes first, so that they do not crowd out what others wrote. A few of the
    others are named as well, and so are heads no longer.

    Args:
        heads: of the log.
        contents: the keys of the canonical encodings, by those of the heads that are alternative ones.
        most: heads.
    """
    if not contents:
        return dict(heads[-most:])
    first: dict[bytes, tuple[bytes, int]] = {}
    further: list[tuple[bytes, int]] = []
    for head in heads:
        content = contents.get(head[0], head[0])
        other = first.setdefault(content, head)
        if other is not head:
            further.append(head)
    chosen = [*first.values()][-most:]
    room = min(_FURTHER_ENCODINGS, most - len(chosen))
    return dict(sorted([*chosen, *further[-room:]] if room else chosen))
