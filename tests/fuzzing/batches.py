"""Batches of messages, planned by both cores: parents that repeat, in any order, that follow one another, and several
encodings of one message."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gossiplog import _core, reference
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.message import parse
from tests.fuzzing.encodings import head, text

TOPIC = "fuzz"
_SIGNERS = [_core.SigningKey(bytes([number]) * 32) for number in range(1, 4)]
#: Payloads, the canonical encoding first.
_PAYLOADS = (
    [b"\xf6", b"\xf7"],
    [b"\x01", b"\xf9\x3c\x00", b"\xfa\x3f\x80\x00\x00"],
    [b"\x61a", b"\x64\xef\xbb\xbfa"],
    [b"\xa2\x61a\x01\x61b\x02", b"\xa2\x61b\x02\x61a\x01", b"\xa3\x69__proto__\x80\x61a\x01\x61b\x02"],
)


class Store:
    """What a log keeps of a history, for one core."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._sequences: dict[bytes, int] = {}
        self._records: dict[int, bytes] = {}
        self._tree = core.Tree()

    def insert(self, values: Sequence[bytes], refused: Sequence[int]) -> tuple[Any, ...]:
        """Insert a batch; return all that the core says of it."""
        batch = self._core.verify_batch(values, TOPIC, lambda keys: {key for key in keys if key in self._sequences})
        parents = {key: self._sequences[key] for key in batch.parents() if key in self._sequences}
        plan = batch.plan(len(self._sequences) + 1, parents, self._links, refused)
        report = (
            *(list(batch.keys), batch.fresh, batch.duplicates, batch.fresh_keys(), batch.parents()),
            *([(index, error.id) for index, error in batch.invalid], [message.id for message in batch]),
            *(plan.order, plan.messages, plan.leaves, plan.children),
            *(plan.heads_added, plan.heads_removed, plan.orphans),
        )
        self._sequences.update((key, sequence) for key, _, sequence in plan.leaves)
        self._records.update((sequence, links) for sequence, _, links in plan.messages)
        self._tree, changed = self._tree.insert_leaves(plan.leaves)
        return (*report, changed, self._tree.root.hash)

    def _links(self, sequences: Sequence[int]) -> list[bytes]:
        return [self._records[sequence] for sequence in sequences]


def history(choose: random.Random, size: int) -> list[bytes]:
    """Make the values of a history, with all encodings of each message."""
    keys: list[bytes] = []
    values: list[bytes] = []
    for _ in range(size):
        parents = [choose.choice(keys[-8:]) for _ in range(choose.choice((0, 1, 1, 2, 3, 5)))] if keys else []
        for value in _encodings(choose, parents):
            values.append(value)
            keys.append(parse(value, TOPIC).message.key)
    return values


def _encodings(choose: random.Random, parents: Sequence[bytes]) -> list[bytes]:
    signer = choose.choice(_SIGNERS)
    clock = 1 + max((reference.decode_clock(parent)[0] for parent in parents), default=0)
    ids = [reference.encode_id(parent) for parent in parents]
    payloads = choose.choice(_PAYLOADS)
    plain = reference.cbor_decode(payloads[0])
    signature = signer.sign_bytes(write_cbor({"topic": TOPIC, "clock": clock, "parents": ids, "payload": plain}))
    record = head(4, 3) + text(b"dag-cbor") + text(signer.did.encode()) + head(2, 64) + signature
    fields = record + text(TOPIC.encode()) + head(0, clock) + head(4, len(parents))
    fields += b"".join(head(2, len(parent)) + parent for parent in parents)
    shown = payloads[: choose.choice((1, 1, len(payloads)))]
    return [head(4, 5) + fields + payload for payload in shown]


def plan_alike(seed: str) -> tuple[int, list[str]]:
    """Judge and plan some batches of one history; return how many values they had, and the differences."""
    choose = random.Random(seed)
    pool = history(choose, choose.randint(1, 10))
    pool += [value[:-70] + bytes([value[-70] ^ 1]) + value[-69:] for value in pool[:1]] + [b"", b"\xa0"]
    stores = Store(_core), Store(reference)
    count = 0
    for number in range(choose.randint(1, 4)):
        values = (
            choose.choices(pool, k=choose.randint(0, 2 * len(pool))) if number else choose.sample(pool, len(pool) // 2)
        )
        refused = [index for index in range(len(values)) if choose.random() < 0.05]
        count += len(values)
        rust, ours = (store.insert(values, refused) for store in stores)
        if rust != ours:
            return count, [f"seed {seed}, batch {number}\n  rust: {rust}\n  reference: {ours}"]
    return count, []
