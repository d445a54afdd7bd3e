"""Messages in a log's file that no peer takes today, stored as an earlier version stored what it took."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gossiplog import Signer, core
from gossiplog.log.state import _arrived
from gossiplog.storage.sqlite.transactions import Guard, SQLiteTransaction

# What replaces the payload that was signed, null. A map with two entries `__proto__` was taken up to schema 2,
# and canvas-js refuses it.
UNREADABLE = bytes.fromhex("a4613701695f5f70726f746f5f5f4100613702695f5f70726f746f5f5f80")
# It can be read, like every message whose signature an earlier version accepted and this one refuses.
UNSIGNED = b"\x01"


def plant(path: Path, topic: str, payload: bytes = UNREADABLE, *, indexed: bool) -> tuple[int, str]:
    """Store a message without parents as the last of a log that nobody has open; return its sequence and its id."""
    _, signed = Signer(bytes(32)).sign(topic, 1, [], None)
    value = signed[:-1] + payload
    key = (core.encode_clock(1) + hashlib.sha256(value).digest())[: core.KEY_LENGTH]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, connection:
        connection.execute("BEGIN")
        transaction = SQLiteTransaction(connection, Guard())
        count = transaction.last_sequence()
        sequence, hash = count + 1, core.leaf_hash(key, value)
        # All messages without parents have the same.
        ((_, _, link_record),) = core.read_batch([signed], topic).plan(sequence, {}, transaction.links).messages
        rows = SimpleNamespace(
            messages=[(sequence, value, link_record)],
            leaves=[(key, hash, sequence)],
            alternatives=[],
            children=[],
            heads_removed=[],
            heads_added=[(key, sequence)],
        )
        if indexed:
            ((done,),) = connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'indexed'")
            # Those before it that the index does not cover come first.
            for plan, last in ((_arrived(transaction, done, count, topic), count), (cast(Any, rows), sequence)):
                tree = core.Tree.open(transaction.level1(), done)
                _, level1 = tree.insert_leaves(plan.leaves, partial(_leaves, transaction, done))
                transaction.index(plan, level1, last)
                done = last
        transaction.write(cast(Any, rows))
        connection.execute("COMMIT")
    return sequence, core.encode_id(key)


def _leaves(
    transaction: SQLiteTransaction, count: int, start: bytes, end: bytes | None
) -> Sequence[tuple[bytes, bytes]]:
    return transaction.leaves(start, end, count)
