"""One signature, one effect: of several encodings of a signed message, the one that arrived first counts.

A relay can make any number of encodings of somebody's message, each a valid message with an id of its own, and every
peer stores them all, because the trees would differ otherwise. They have one content, which is known by the key of the
canonical encoding: `SignedMessage.content_id`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gossiplog.core import SignedMessage, WritePlan, decode_id
from gossiplog.storage.base import Position, Reader


def plan_content_keys(plan: WritePlan) -> dict[int, bytes]:
    """Return the content keys of a plan's messages by their sequences."""
    return {sequence: key for key, _, sequence in plan.leaves} | dict(plan.alternatives)


def known_content_keys(reader: Reader, position: Position, plan: WritePlan) -> set[bytes] | None:
    """Return the content keys of a plan's unwritten messages that the log already stores in some encoding.

    Returns:
        None where no message can be there in several encodings, which costs nothing to find out.
    """
    if not plan.alternatives and not position.alternative:
        return None
    # A canonical message of the plan is new, so that it can be there as an alternative encoding alone.
    canonical = reader.sequences([content for _, content in plan.alternatives])
    return {*canonical, *reader.alternatives([*plan_content_keys(plan).values()])}


def plan_duplicates(plan: WritePlan, known: Collection[bytes] | None) -> Collection[int]:
    """Return the sequences of a plan's messages of which another encoding comes before.

    Args:
        plan: of messages that are not written yet.
        known: as `known_content_keys` returned it.
    """
    if known is None:
        return ()
    seen, duplicates = set(known), set()
    for sequence, content in plan_content_keys(plan).items():
        if content in seen:
            duplicates.add(sequence)
        seen.add(content)
    return duplicates


def stored_duplicates(reader: Reader, contents: Mapping[int, bytes]) -> Collection[int]:
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


def message_content_keys(messages: Iterable[tuple[int, SignedMessage]]) -> dict[int, bytes]:
    """Return the content keys of messages by their sequences."""
    return {sequence: decode_id(message.content_id) for sequence, message in messages}
