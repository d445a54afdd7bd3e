from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import _core, reference
from gossiplog.errors import DecodeError, EncodeError, InvalidMessage
from tests.strategies import TOPIC, build, repeatable, signed
from tests.strategies import values as neutral_values

SEED = b"\1" * 32

CHAIN = ((), (0,), (1,))


def test_verdicts_are_a_sequence(core: ModuleType) -> None:
    values = [*signed(CHAIN), b"broken"]
    batch = core.verify_batch(values, TOPIC)
    assert len(batch) == 4
    assert [message.payload for message in batch[:3]] == [0, 1, 2]
    assert isinstance(batch[-1], InvalidMessage)
    assert batch.keys[3] == b""
    assert [index for index, _ in batch.invalid] == [3]


def test_known_messages_are_duplicates_whatever_their_signature_costs(core: ModuleType) -> None:
    values = list(signed(CHAIN))
    first = core.verify(values[0], TOPIC).key
    asked: list[bytes] = []

    def known(keys: list[bytes]) -> list[bytes]:
        asked.extend(keys)
        return [first]

    batch = core.verify_batch(values, TOPIC, known)
    assert sorted(asked) == asked == sorted(batch.keys)
    assert (batch.duplicates, batch.fresh, batch.parents()) == ([0], 2, [first])


def test_a_repeated_invalid_message_stays_invalid(core: ModuleType) -> None:
    value = bytearray(signed(CHAIN)[0])
    value[100] ^= 1
    batch = core.verify_batch([bytes(value)] * 2, TOPIC)
    assert (batch.fresh, batch.duplicates, [index for index, _ in batch.invalid]) == (0, [], [0, 1])


def test_what_descends_from_a_refused_message_is_an_orphan(core: ModuleType) -> None:
    batch = core.verify_batch(signed(CHAIN), TOPIC)
    plan = batch.plan(1, {}, lambda _: [], refused=[1])
    assert plan.order == [0]
    assert plan.orphans == [(2, [batch.keys[1]])]
    assert plan.heads_added == [(batch.keys[0], 1)]


def test_linking_takes_no_more_work_than_it_may(core: ModuleType) -> None:
    batch = core.verify_batch(signed(((),) * 40), TOPIC)
    plan = batch.plan(1, {}, lambda _: [])
    links = {sequence: record for sequence, _, record in plan.messages}
    sequences = {key: sequence for key, _, sequence in plan.leaves}
    roots = [core.encode_id(key) for key in sequences]
    # Each has a set of parents of its own, of two clocks.
    second, value = core.sign(TOPIC, 2, roots, "second", SEED)
    values = [value]
    values += [core.sign(TOPIC, 3, [core.encode_id(second), *roots[n:]], n, SEED)[1] for n in range(20)]
    batch = core.verify_batch(values, TOPIC)

    def load(asked: Sequence[int]) -> list[bytes]:
        return [links[sequence] for sequence in asked]

    whole = batch.plan(41, sequences, load)
    assert (len(whole.order), whole.late) == (21, [])
    some = batch.plan(41, sequences, load, work=200)
    assert 1 < len(some.order) < 21
    assert some.order + some.late == whole.order
    assert some.messages == whole.messages[: len(some.order)]
    assert len(batch.plan(41, sequences, load, work=0).order) >= 1


@pytest.mark.slow
@repeatable(40)
@given(
    payloads=st.lists(neutral_values, max_size=4),
    codec=st.sampled_from(["dag-cbor", "dag-json"]),
    heads=st.integers(0, 3),
)
def test_a_chain_is_signed_as_message_by_message(payloads: list[Any], codec: str, heads: int) -> None:
    parents = [reference.encode_clock(clock) + bytes(19) for clock in range(1, heads + 1)]
    batches = []
    for core in (_core, reference):
        own = [build(core, payload) for payload in payloads]
        key = core.SigningKey(SEED)
        batch = core.sign_chain(key, TOPIC, parents, own, codec)
        expected, following = [], [core.encode_id(parent) for parent in parents]
        for clock, payload in enumerate(own, heads + 1):
            last, value = key.sign(TOPIC, clock, following, payload, codec)
            expected.append(value)
            following = [core.encode_id(last)]
        assert [message.value for message in batch] == expected
        verified = core.verify_batch(expected, TOPIC)
        assert (list(batch), batch.keys, batch.fresh) == (list(verified), verified.keys, len(payloads))
        assert (batch.invalid, batch.duplicates, batch.parents()) == ([], [], parents if payloads else [])
        assert [message.canonical for message in batch] == [True] * len(payloads)
        batches.append(expected)
    assert batches[0] == batches[1]


def test_a_chain_ends_with_the_payload_that_reaches_its_size(core: ModuleType) -> None:
    key, payloads = core.SigningKey(SEED), [bytes(98)] * 5  # 100 bytes each, encoded
    signed = [len(core.sign_chain(key, TOPIC, [], payloads, size=size)) for size in (0, 1, 100, 101, 400, 401, 10**6)]
    assert signed == [1, 1, 1, 2, 4, 5, 5]
    assert len(core.sign_chain(key, TOPIC, [], [], size=0)) == 0


def test_a_chain_that_cannot_be_signed(core: ModuleType) -> None:
    key = core.SigningKey(SEED)
    with pytest.raises(EncodeError):
        core.sign_chain(key, TOPIC, [], [1, object()])
    with pytest.raises(EncodeError):
        core.sign_chain(key, "a topic", [], [1])
    with pytest.raises(EncodeError):
        core.sign_chain(key, TOPIC, [], [1], codec="json")
    for parent in (b"", bytes(19), b"\xff" * 20):
        with pytest.raises(DecodeError):
            core.sign_chain(key, TOPIC, [parent], [1])
