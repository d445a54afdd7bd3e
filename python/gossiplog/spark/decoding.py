"""Stored values as columns of Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gossiplog import core
from gossiplog.message import SignedMessage

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("id", pa.string()),
        ("clock", pa.int64()),
        ("topic", pa.string()),
        ("author", pa.string()),
        ("codec", pa.string()),
        ("parents", pa.list_(pa.string())),
        ("payload", pa.string()),
        ("canonical", pa.bool_()),
    ]
)


def decode(values: pa.BinaryArray, topic: str) -> pa.RecordBatch:
    """The columns of stored values; null where a value is no message of the topic. No signature is checked.

    Args:
        values: of messages, in any order.
        topic: of their log.
    """
    batch = core.read_batch(values.to_pylist(), topic)
    rows = [_row(message) if isinstance(message, SignedMessage) else {} for message in batch]
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _row(message: SignedMessage) -> dict[str, object]:
    return {
        "key": message.key,
        "id": message.id,
        "clock": message.clock,
        "topic": message.topic,
        "author": message.author,
        "codec": message.codec,
        "parents": message.parents,
        "payload": core.json_encode(message.payload).decode(),
        "canonical": message.canonical,
    }


def encode_ids(keys: Sequence[bytes]) -> list[str | None]:
    """The ids of stored keys; None for one that is no key, as a damaged file may have it."""
    return [core.encode_id(key) if len(key) == core.KEY_LENGTH else None for key in keys]
