"""One signature, one effect: of several encodings of a signed message, the one that arrived first counts.

A relay can make any number of encodings of somebody's message, each a valid message with an id of its own, and every
peer stores them all, because the trees would differ otherwise. They have one content, which is known by the key of the
canonical encoding: `SignedMessage.content_id`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gossiplog.core import Plan, SignedMessage, decode_id, read_batch
from gossiplog.storage.base import Position, Reader


def contents_of(plan: Plan) -> dict[int, bytes]:
    """The contents of a plan's messages, by their sequences."""
    return {sequence: key for key, _, sequence in plan.leaves} | dict(plan.alternatives)


def counted_before(reader: Reader, position: Position, plan: Plan) -> set[bytes] | None:
    """Return the content keys of a plan's unwritten messages that the log already stores in some encoding.

    Returns:
        None where no message can be there in several encodings, which costs nothing to find out.
    """
    if not plan.alternatives and not position.alternative:
        return None
    # A canonical message of the plan is new, so that it can be there as an alternative encoding alone.
    canonical = reader.sequences([content for _, content in plan.alternatives])
    return {*canonical, *reader.alternatives([*contents_of(plan).values()])}


def repeated_in(plan: Plan, counted: Collection[bytes] | None) -> Collection[int]:
    """The sequences of a plan's messages of which another encoding comes before.

    Args:
        plan: of messages that are not written yet.
        counted: as `counted_before` returned it.
    """
    if counted is None:
        return ()
    seen, repeated = set(counted), set()
    for sequence, content in contents_of(plan).items():
        if content in seen:
            repeated.add(sequence)
        seen.add(content)
    return repeated


def repeated(reader: Reader, contents: Mapping[int, bytes]) -> Collection[int]:
    """Return the sequences of stored messages that are later encodings of an earlier one; free where none can be.

    Args:
        reader: of the log.
        contents: of messages, by their sequences.
    """
    if not reader.position().alternative:
        return ()
    wanted = [*{*contents.values()}]
    alternatives, canonical = reader.alternatives(wanted), reader.sequences(wanted)
    return {
        sequence
        for sequence, content in contents.items()
        if min(alternatives.get(content, sequence), canonical.get(content, sequence)) < sequence
    }


def contents(messages: Iterable[tuple[int, SignedMessage]]) -> dict[int, bytes]:
    """The contents of messages, by their sequences."""
    return {sequence: decode_id(message.content_id) for sequence, message in messages}


def contents_of_stored(rows: Sequence[tuple[int, bytes]], topic: str) -> dict[int, bytes]:
    """As `contents`, of stored values. A damaged one has none."""
    batch = read_batch([value for _, value in rows], topic)
    sound = ((sequence, message) for (sequence, _), message in zip(rows, batch, strict=True))
    return contents((sequence, message) for sequence, message in sound if isinstance(message, SignedMessage))
