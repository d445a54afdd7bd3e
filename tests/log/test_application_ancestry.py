"""What `apply` learns of the causal graph: the same on all replicas, whatever encodings they have and know first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import ApplyTransaction, MemoryStorage, SignedMessage, core
from gossiplog.errors import DecodeError, UnknownMessage
from gossiplog.log import reading
from gossiplog.storage.base import Reader
from tests.log.histories import SIGNERS, History, arrivals, histories, signed
from tests.places import Place
from tests.strategies import TOPIC, repeatable


class Application:
    """Asks about each message and all those that `apply` has been called for."""

    def __init__(self) -> None:
        self.known: list[SignedMessage] = []
        self.answers: set[tuple[str, str]] = set()

    def apply(self, message: SignedMessage, transaction: ApplyTransaction) -> None:
        for other in self.known:
            is_before = transaction.is_ancestor(other.content_id, message.id)
            assert transaction.is_ancestor(other.id, message.content_id) == is_before
            assert not transaction.is_ancestor(message.id, other.id)
            if is_before:
                self.answers.add((other.content_id, message.content_id))
        assert not transaction.is_ancestor(message.id, message.id)
        self.known.append(message)


def expected(history: History) -> set[tuple[str, str]]:
    """The pairs of content ids of which some encoding of the first is an ancestor of the second."""
    contents = {message.id: message.content_id for message in history.messages}
    past = history.past
    return {(contents[one], contents[id]) for id, ancestors in past.items() for one in ancestors}


@pytest.mark.slow
@given(histories(), st.data())
@repeatable(100)
def test_replicas_answer_alike(history: History, data: st.DataObject) -> None:
    pairs = expected(history)
    for _ in range(2):
        order = data.draw(arrivals(history.messages))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=4)))
        application = Application()
        # What was stored before is applied as the log is opened.
        storage = MemoryStorage()
        with gossiplog.open(storage, TOPIC) as log:
            log.insert_many(order[: cuts[0] if cuts else 0])
        with gossiplog.open(storage, TOPIC, apply=application.apply) as log:
            for start, end in pairwise(cuts):
                log.insert_many(order[start:end])
            log.insert_many(order)
        assert application.answers == pairs


def test_own_messages_and_storages(location: Any) -> None:
    application = Application()
    with gossiplog.open(location, TOPIC, apply=application.apply, signer=SIGNERS[0]) as log:
        apart = signed([], {"apart": True}, 1)
        first = log.append({"n": 1})
        log.insert(apart)
        many = log.append_many([{"n": number} for number in range(20)])
        ids = [first.id, *(message.id for message in many)]
        assert application.answers == {(one, ids[later]) for later in range(1, 21) for one in [*ids[:later], apart.id]}


@pytest.mark.parametrize("together", [True, False])
def test_what_a_batch_has_yet_to_apply_is_not_there(place: Place, together: bool) -> None:
    """In a batch those that came later were there, and those that `apply` had refused: replicas stored other ones."""
    # Their clocks are 1, 1, 2, 2 and 3, by which they are applied.
    refused, early = signed([], "refused"), signed([], "early", 1)
    middle = signed([early.id], "middle", 1)
    late = signed([middle.id], "late", 1)
    names = [refused.content_id, late.content_id]
    asks = signed([early.id], names, 2)
    answers: list[object] = []

    def apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
        if message.payload == "refused":
            raise ValueError("it is refused")
        if message.id == asks.id:
            for id in names:
                try:
                    answers.append(transaction.is_ancestor(id, message.id))
                except UnknownMessage as error:
                    answers.append(error.id)
                with pytest.raises(UnknownMessage):
                    transaction.content_id(id)
            assert transaction.is_ancestor(early.id, message.id)

    messages = [refused, early, asks, middle, late]
    with gossiplog.open(place.location, TOPIC, apply=apply) as log:
        for batch in [messages] if together else [[message] for message in messages]:
            log.insert_many(batch)
        assert len(log) == 4
    assert answers == names


def test_messages_that_are_not_there(place: Place) -> None:
    raised: list[type[Exception]] = []

    def apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
        for ids in (("0" * 32, message.id), (message.id, "0" * 32), ("short", message.id)):
            with pytest.raises((UnknownMessage, DecodeError)) as caught:
                transaction.is_ancestor(*ids)
            raised.append(caught.type)

    for _ in range(2):
        with gossiplog.open(place.location, TOPIC, signer=SIGNERS[0]) as log:
            log.append("stored")
        with gossiplog.open(place.location, TOPIC, signer=SIGNERS[0], apply=apply) as log:
            log.append("new")
    assert raised == [UnknownMessage, UnknownMessage, DecodeError] * 4


def test_messages_that_are_asked_about_again_are_not_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's twenty large ones cost each later message a second, as each question read all of them."""
    first = signed([], "first")
    concurrent = [signed([first.id], {"n": number}, number % 3) for number in range(20)]
    with gossiplog.open(place.location, TOPIC) as log:
        log.insert_many([first, *concurrent[:10]])
    read: list[bytes] = []

    read_values = reading.read_values

    def recorded(reader: Reader, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
        read.extend(keys)
        return read_values(reader, keys, count, limit)

    application = Application()
    with gossiplog.open(place.location, TOPIC, apply=application.apply) as log:
        monkeypatch.setattr(reading, "read_values", recorded)
        for message in concurrent[10:]:
            log.insert(message)
    assert application.answers == {(first.id, message.id) for message in concurrent}
    assert len(read) == len({*read})
    assert {*read} <= {message.key for message in (first, *concurrent[:10])}


def test_one_search_answers_for_messages_of_one_clock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first = signed([], "first")
    concurrent = [signed([first.id], {"n": number}) for number in range(20)]
    last = signed([message.id for message in concurrent[:10]], "last")
    clocks: list[int] = []
    search = core.frontier

    def counted(sequence: int, clock: int, links: Any) -> list[int]:
        clocks.append(clock)
        return search(sequence, clock, links)

    monkeypatch.setattr(core, "frontier", counted)
    application = Application()
    with gossiplog.open(place.location, TOPIC, apply=application.apply) as log:
        log.insert_many([first, *concurrent])
        # None but the first can be before those of clock 2, and none of them is asked about.
        assert clocks == [1] * 20
        log.insert(last)
    assert application.answers == {
        *((first.id, message.id) for message in (*concurrent, last)),
        *((message.id, last.id) for message in concurrent[:10]),
    }
    assert sorted(clocks[20:]) == [1, 2]
