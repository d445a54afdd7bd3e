"""Batches on their way into a log."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from gossiplog import Signer, core
from gossiplog.errors import RefusedMessage
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.protocol.sync import Received
from gossiplog.replication.batches import VerifiedBatch, verify_received
from tests.conftest import TOPIC


def values(signer: Signer, count: int) -> list[tuple[bytes, bytes]]:
    return sorted(signer.sign(TOPIC, 1, [], number) for number in range(count))


def test_a_check_sees_each_valid_new_message_once(signer: Signer) -> None:
    (_, known), (_, new), (_, refused) = values(signer, 3)
    known_keys = core.read_batch([known], TOPIC).keys
    batch = VerifiedBatch(core.verify_batch([known, new, refused, b"broken", new], TOPIC, lambda keys: known_keys), 1)
    seen: list[bytes] = []

    def check(message: core.SignedMessage) -> None:
        seen.append(message.value)
        if message.value == refused:
            raise RefusedMessage("no", message.id)

    checked = batch.check(check)
    assert seen == [new, refused]
    assert checked.refused is not None
    assert checked.refused.keys() == {2}
    assert (checked.batch, checked.count) == (batch.batch, 1)


def test_a_batch_says_whether_it_was_checked(signer: Signer) -> None:
    batch = VerifiedBatch(core.verify_batch([value for _, value in values(signer, 1)], TOPIC), 0)
    assert batch.refused is None
    assert batch.check(None).refused == {}
    with pytest.raises(FrozenInstanceError):
        batch.count = 1  # type: ignore[misc]


def test_what_a_sync_received_ends_before_a_value_of_another_key(signer: Signer) -> None:
    pairs = values(signer, 3)
    keys, found = [key for key, _ in pairs], [value for _, value in pairs]
    whole = verify_received(Received(keys, found, TOPIC), 7)
    assert (len(whole.batch), whole.count, whole.violation, whole.refused) == (3, 7, None, None)
    assert whole.is_synced
    swapped = verify_received(Received(keys, [found[0], found[2], found[1]], TOPIC), 7)
    assert len(swapped.batch) == 1
    assert str(swapped.violation).startswith(f"the value for message {core.encode_id(keys[1])} is ")


def test_an_outcome_names_what_became_of_each_message(log: Log, signer: Signer) -> None:
    (key, first), (_, second) = values(signer, 2)
    parent = core.encode_clock(1) + bytes(19)
    _, orphan = signer.sign(TOPIC, 2, [core.encode_id(parent)], "orphan")
    outcome = replica_of(log).insert(replica_of(log).verify([first, orphan, second, b"broken", first]))
    assert (outcome.inserted, outcome.orphans, outcome.refused) == ([0, 2], [(1, [parent])], {})
    assert (outcome.duplicates, outcome.sequences) == (1, [range(1, 3)])
    assert [index for index, _ in outcome.invalid] == [3]
    assert outcome.keys[0] == outcome.keys[4] == key
    assert len(repr(outcome)) < 1000
