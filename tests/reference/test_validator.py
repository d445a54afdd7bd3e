"""`gossiplog.reference.validator`: both cores accept the same gossip, and nothing that verification refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gossiplog import _core, reference
from gossiplog.errors import DecodeError, InvalidMessage
from gossiplog.protocol import wire
from tests.cores import MESSAGE_VALUES, VERDICT_VALUES
from tests.strategies import TOPIC

Insert: TypeAlias = tuple[bytes, bytes]


def publication(insert: Insert) -> bytes:
    return wire.encode_event(wire.Insert(*insert))


def chain(parents: Sequence[Insert], count: int, seed: int) -> list[Insert]:
    found = list(parents)
    made: list[Insert] = []
    for number in range(count):
        clock = 1 + max((_core.decode_clock(key)[0] for key, _ in found), default=0)
        ids = [_core.encode_id(key) for key, _ in found]
        made.append(_core.sign(TOPIC, clock, ids, number, bytes([seed] * 32), "dag-cbor"))
        found = made[-1:]
    return made


def orphan(text: str, size: int) -> Insert:
    """A message of some size whose parent nobody has."""
    parent = _core.encode_id(bytes([1]) * 20)
    return _core.sign(TOPIC, 2, [parent], text.ljust(size), bytes(32), "dag-cbor")


def forged(insert: Insert) -> Insert:
    """A message like another, whose signature does not hold."""
    _, value = insert
    at = value.index(TOPIC.encode()) - 10
    value = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    with pytest.raises(InvalidMessage) as raised:
        _core.verify(value, TOPIC)
    assert raised.value.id is not None
    return _core.decode_id(raised.value.id), value


def claimed(insert: Insert, clock: int) -> Insert:
    """A message under a key with another clock."""
    key, value = insert
    start = _core.encode_clock(clock)
    tail = key[_core.decode_clock(key)[1] :]
    return (start + tail)[:20].ljust(20, b"\0"), value


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, or the type of what it raises."""
    try:
        return call()
    except (ValueError, TypeError, OverflowError, IndexError, DecodeError) as error:
        return type(error)


FIRST = chain([], 4, 1)
SECOND = chain([], 3, 2)
BOTH = chain([FIRST[-1], SECOND[-1]], 3, 3)
FALSE = forged(FIRST[1])
AFTER_FALSE = chain([FALSE], 1, 4)
MESSAGES = [*FIRST, *SECOND, *BOTH, FALSE, *AFTER_FALSE, claimed(FIRST[0], 2), claimed(SECOND[1], 300)]
PUBLICATIONS = [
    # Those of messages come first.
    *map(publication, MESSAGES),
    publication(FIRST[0])[:-1],
    publication(FIRST[0]) + b"\0",
    publication(FIRST[0]) + publication(FIRST[1]),
    wire.encode_event(wire.Update([FIRST[0][0]])),
    b"",
    *(publication((FIRST[0][0], value)) for value in VERDICT_VALUES[::16]),
]


class Validators(RuleBasedStateMachine):
    """Both validators, while the log takes what they accept, loses some of it, and gets messages from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.validators: list[Any] = [core.GossipValidator(TOPIC) for core in (_core, reference)]
        self.now = 0.0
        self.tickets = itertools.count(1)
        self.undecided: dict[int, tuple[int, float]] = {}
        self.stored: set[bytes] = set()
        # With the time of each.
        self.accepted: dict[bytes, float] = {}
        self.taken: list[tuple[Any, Any]] = []

    @rule(
        indices=st.lists(st.integers(0, len(PUBLICATIONS) - 1), max_size=12),
        later=st.sampled_from([0, 0, 0.004, 0.01, 0.25, 0.5, 1.5]),
        early=st.sampled_from([0, 0, 0.3]),
    )
    def validate(self, indices: list[int], later: float, early: float) -> None:
        self.now += later
        messages = [(next(self.tickets), index, PUBLICATIONS[index]) for index in indices]
        self.undecided |= {ticket: (index, self.now) for ticket, index, _ in messages}
        # Time that goes back stands still.
        now = self.now if later else max(0.0, self.now - early)
        first, second = (validator.validate(messages, now) for validator in self.validators)
        assert first == second
        waits = [validator.due(self.now) is not None for validator in self.validators]
        decided: dict[str, list[int]] = {"accept": [], "known": [], "defer": []}
        for ticket, decision in first:
            decided[decision].append(self.undecided.pop(ticket)[0])
        assert waits == [bool(self.undecided)] * 2
        assert all(self.now - since < 0.5 for _, since in self.undecided.values())
        assert {MESSAGES[index][0] for index in decided["known"]} <= self.stored
        accepted = [_core.verify(MESSAGES[index][1], TOPIC) for index in decided["accept"]]
        assert [message.key for message in accepted] == [MESSAGES[index][0] for index in decided["accept"]]
        was_behind = any(self.now - since > 1 for since in self.accepted.values())
        assert not (was_behind and accepted)
        self.accepted |= dict.fromkeys((message.key for message in accepted), self.now)
        parents = {_core.decode_id(parent) for message in accepted for parent in message.parents}
        assert parents <= self.stored | self.accepted.keys()
        # What waits lacks something, or the log falls behind.
        held = self.stored | self.accepted.keys()
        for index, _ in self.undecided.values():
            parents = set(map(_core.decode_id, _core.read_message(MESSAGES[index][1], TOPIC).parents))
            assert was_behind or parents - held

    @invariant()
    def is_due_for_the_same(self) -> None:
        for later in (0.0, 0.003, 0.6):
            first, second = (validator.due(self.now + later) for validator in self.validators)
            assert first == second

    @rule()
    def ask(self) -> None:
        first, second = (validator.take_missing() for validator in self.validators)
        assert first == second == sorted(first)
        waiting = {MESSAGES[index][0] for index, _ in self.undecided.values()}
        assert not set(first) & (waiting | self.stored)
        lacking = {
            _core.decode_id(parent)
            for index, since in self.undecided.values()
            for parent in _core.read_message(MESSAGES[index][1], TOPIC).parents
            if self.now - since > 0.009
        }
        assert set(first) <= lacking
        assert [validator.take_missing() for validator in self.validators] == [[], []]

    @rule(
        numbers=st.lists(st.sampled_from([-1, 0, 1, 3, 4, 2**63, 2**64 - 1, 2**64]), max_size=3),
        keys=st.lists(st.binary(min_size=19, max_size=21), max_size=2),
        now=st.sampled_from([-1.0, -0.0, float("nan"), float("inf"), 1e12, 1e300]),
    )
    def get_odd_arguments(self, numbers: list[int], keys: list[bytes], now: float) -> None:
        """Both refuse the same, or do the same."""
        # What is invalid is not stored, whatever is said of it.
        values = [FALSE[1], b"", b"value", FALSE[1]]
        batches = [core.verify_batch(values, TOPIC) for core in (_core, reference)]

        def calls(validator: Any, batch: Any) -> list[Callable[[], object]]:
            return [
                lambda: validator.validate([(number, 0, b"odd") for number in (*numbers, -1)], self.now),
                lambda: validator.validate([(0, number, b"odd") for number in (*numbers, 2**64)], self.now),
                lambda: validator.validate([(0, 0, bytearray(b"odd")), (0, 0, "text")], self.now),
                lambda: validator.due(now),
                lambda: validator.stored(keys),
                lambda: validator.stored_batch(batch, numbers),
                lambda: validator.finish(batch),
            ]

        both = zip(*(calls(*each) for each in zip(self.validators, batches, strict=True)), strict=True)
        for number, (first, second) in enumerate(both):
            assert outcome(first) == outcome(second), number

    @rule()
    def take(self) -> None:
        first, second = (validator.take() for validator in self.validators)
        assert (first is None) == (second is None)
        if first is not None:
            assert (first[0].keys, first[1], first[0].fresh) == (second[0].keys, second[1], second[0].fresh)
            keys = first[0].keys
            for message in first[0]:
                parents = set(map(_core.decode_id, message.parents))
                assert not parents & set(keys[keys.index(message.key) :])
            self.taken.append((first[0], second[0]))

    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        """The log takes a batch, or a part of it."""
        if not self.taken:
            return
        batches = self.taken.pop(0)
        keys = batches[0].keys
        lost = data.draw(st.sets(st.integers(0, len(keys) - 1), max_size=1))
        held = [index for index in range(len(keys)) if index not in lost]
        for validator, batch in zip(self.validators, batches, strict=True):
            validator.stored_batch(batch, held)
            validator.finish(batch)
        self.stored |= {keys[index] for index in held}
        if any(keys[index] not in self.stored for index in lost):
            self.accepted = {}
        self._note_stored()

    @rule(indices=st.lists(st.integers(0, len(MESSAGES) - 4), max_size=3))
    def come_from_elsewhere(self, indices: list[int]) -> None:
        keys = [MESSAGES[index][0] for index in indices if MESSAGES[index] is not FALSE]
        for validator in self.validators:
            validator.stored(keys)
        self.stored |= set(keys)
        self._note_stored()

    def _note_stored(self) -> None:
        self.accepted = {key: since for key, since in self.accepted.items() if key not in self.stored}


@pytest.mark.slow
def test_both_judges_decide_alike() -> None:
    run_state_machine_as_test(Validators, settings=settings(max_examples=20, stateful_step_count=20))


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_no_verdict_vector_is_accepted_that_is_refused(core: ModuleType) -> None:
    values = [*VERDICT_VALUES, *MESSAGE_VALUES]
    for value in values:
        validator = core.GossipValidator(TOPIC)
        try:
            key = _core.verify(value, TOPIC).key
        except InvalidMessage as error:
            key = _core.decode_id(error.id) if error.id is not None else bytes([1]) * 20
            # One whose signature alone does not hold may wait, and is left then.
            found = validator.validate([(1, 7, publication((key, value)))], 0.0) or validator.validate([], 0.5)
            assert found == [(1, "defer")]
        else:
            expected = [] if _core.verify(value, TOPIC).parents else [(1, "accept")]
            assert validator.validate([(1, 7, publication((key, value)))], 0.0) == expected


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_what_is_accepted_again_before_it_is_taken_is_fresh_once(core: ModuleType) -> None:
    validator = core.GossipValidator(TOPIC)
    assert validator.validate([(1, 5, publication(FIRST[0]))], 0.0) == [(1, "accept")]
    lost, _ = validator.take()
    again = [(2, 6, publication(SECOND[0]))]
    assert validator.validate(again, 0.0) == [(2, "accept")]
    validator.finish(lost)
    assert validator.validate(again, 0.0) == [(2, "accept")]
    batch, sources = validator.take()
    assert (batch.keys, batch.fresh, batch.duplicates, sources) == ([SECOND[0][0]] * 2, 1, [1], [6, 6])


@pytest.mark.slow
@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_so_many_wait_and_no_more(core: ModuleType) -> None:
    parents = [_core.encode_id(FIRST[0][0])]
    children = [_core.sign(TOPIC, 2, parents, number, bytes(32), "dag-cbor") for number in range(1026)]
    last = children.pop()
    children.sort()
    validator = core.GossipValidator(TOPIC)
    messages = [(number, 0, publication(child)) for number, child in enumerate(children)]
    assert validator.validate(messages, 0.0) == [(1024, "defer")]
    # One of another source finds room.
    assert validator.validate([(1025, 1, publication(last))], 0.0) == [(1023, "defer")]
    validator.stored([FIRST[0][0]])
    assert validator.due(0.0) == 0.0
    if core is _core:
        # The reference takes seconds for so many signatures.
        assert validator.validate([], 0.0) == [(number, "accept") for number in (*range(1023), 1025)]
    else:
        validator.stored([children[number][0] for number in range(1023)])
        expected = [*((number, "known") for number in range(1023)), (1025, "accept")]
        assert validator.validate([], 0.0) == expected
    assert validator.due(0.0) is None


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_a_message_waits_while_its_source_has_no_more_than_its_share(core: ModuleType) -> None:
    validator = core.GossipValidator(TOPIC)
    honest, floods = itertools.count(), itertools.count(1000)
    for _ in range(4):
        messages = [
            *((next(floods), source, publication(orphan(str(next(floods)), 2**19))) for source in (1, 1, 1, 2, 2, 2)),
            (next(honest), 0, publication(orphan(f"honest {next(floods)}", 2**18))),
        ]
        found = validator.validate(messages, 0.0)
        assert all(ticket >= 1000 and decision == "defer" for ticket, decision in found)
    assert {ticket for ticket, _ in validator.validate([], 0.5)} >= set(range(4))


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_what_lacks_a_parent_is_asked_for_after_a_moment(core: ModuleType) -> None:
    validator = core.GossipValidator(TOPIC)
    assert validator.validate([(1, 5, publication(BOTH[0])), (2, 5, publication(BOTH[1]))], 0.0) == []
    assert (validator.due(0.004), validator.take_missing()) == (0.006, [])
    assert validator.validate([], 0.01) == []
    assert validator.take_missing() == sorted([FIRST[-1][0], SECOND[-1][0]])
    assert (validator.due(0.01), validator.take_missing()) == (0.49, [])
    validator.stored([FIRST[-1][0]])
    assert validator.due(0.01) == 0.49
    validator.stored([SECOND[-1][0]])
    assert validator.due(0.01) == 0.0
    assert validator.validate([], 0.01) == [(1, "accept"), (2, "accept")]


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_a_wrong_claim_does_not_defer_its_neighbour(core: ModuleType) -> None:
    wrong = publication(claimed(FIRST[0], 2))
    validator = core.GossipValidator(TOPIC)
    found = validator.validate([(1, 5, wrong), (2, 6, publication(FIRST[0])), (3, 7, wrong)], 0.0)
    assert found == [(1, "defer"), (2, "accept"), (3, "defer")]


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_one_that_is_closed_accepts_nothing(core: ModuleType) -> None:
    validator = core.GossipValidator(TOPIC)
    validator.stored([FIRST[0][0]])
    assert validator.validate([(1, 5, publication(FIRST[2]))], 0.0) == []
    validator.close()
    assert validator.due(0.0) == 0.0
    messages = [(number, 5, publication(FIRST[number])) for number in (0, 2, 3)]
    assert validator.validate(messages, 0.0) == [(0, "known"), (1, "defer"), (2, "defer"), (3, "defer")]
    assert (validator.due(0.0), validator.take()) == (None, None)


@pytest.mark.parametrize("core", [_core, reference], ids=["rust", "reference"])
def test_invalid_arguments_are_refused(core: ModuleType) -> None:
    validator = core.GossipValidator(TOPIC)
    for now in (-1.0, float("nan"), float("inf"), 1e12):
        with pytest.raises(ValueError, match="now is"):
            validator.validate([], now)
    with pytest.raises(DecodeError, match="a key has 20 bytes, this has 3"):
        validator.stored([b"key"])
    with pytest.raises(IndexError, match="the batch has 1 messages, none at 1"):
        validator.stored_batch(core.verify_batch([FIRST[0][1]], TOPIC), [1])
    with pytest.raises(UnicodeEncodeError):
        core.GossipValidator("\ud800")
    assert validator.take() is None
