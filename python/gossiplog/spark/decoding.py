"""Stored values as columns of Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gossiplog import core
from gossiplog.errors import InvalidMessage
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
        ("error", pa.string()),
    ]
)


def decode(values: pa.BinaryArray, topic: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns of stored values; null where a value is no message of the topic. No signature is checked.

    Args:
        values: of messages, in any order.
        topic: of their log.
        columns: which ones.
    """
    batch = core.read_batch(values.to_pylist(), topic)
    return pa.RecordBatch.from_pylist(list(map(_row, batch)), _SCHEMA).select(list(columns))


def verify(values: pa.BinaryArray, topic: str) -> pa.RecordBatch:
    """The keys of stored values, and what is wrong with them, as columns `key` and `error`."""
    batch = core.verify_batch([b"" if value is None else value for value in values.to_pylist()], topic)
    return pa.RecordBatch.from_pylist(list(map(_row, batch)), _SCHEMA).select(["key", "error"])


def _row(message: SignedMessage | InvalidMessage) -> dict[str, object]:
    if not isinstance(message, SignedMessage):
        return {"error": str(message)}
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
