"""Logs as they were, and walks of the causal graph, against a model that knows all ancestors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Log, Signer
from gossiplog.errors import CursorOutdated, DecodeError, LogClosed, LogReplaced, LogWentBack, UnknownMessage
from gossiplog.log.view import LogView
from tests.log.histories import SIGNERS, History, NewLog, fill, histories, index_lags, signed


def check(seen: LogView, expected: set[str], history: History) -> None:
    """Compare all that a view says with what it should hold."""
    held = sorted((message for message in history.messages if message.id in expected), key=lambda message: message.id)
    ids = [message.id for message in held]
    named = {parent for message in held for parent in message.parents}
    # First, while nothing has been marked.
    assert [message.id in seen for message in history.messages] == [m.id in expected for m in history.messages]
    assert seen.heads == tuple(id for id in ids if id not in named)
    assert seen.clock == 1 + max((message.clock for message in held), default=0)
    assert [message.id for message in seen.messages(reverse=True)] == ids[::-1]
    assert len(seen) == len(ids)
    assert bool(seen)
    assert [*seen] == held
    assert [message.id in seen for message in history.messages] == [m.id in expected for m in history.messages]
    past = history.past
    for index, message in enumerate(held):
        assert seen.get(message.id) == message
        assert [one.id for one in seen.messages(after=message.id)] == ids[index + 1 :]
        assert [one.id for one in seen.messages(before=message.id)] == ids[:index]
        assert [one.id for one in seen.messages(before=message.id, reverse=True, limit=2)] == ids[:index][:-3:-1]
        assert (seen.count(after=message.id), seen.count(before=message.id)) == (len(ids) - index - 1, index)
        assert [one.id for one in seen.descendants(message.id)] == [id for id in ids if message.id in past[id]]
        assert [one.id for one in seen.ancestors(message.id)] == sorted(past[message.id], reverse=True)
        children = seen.children(message.id)
        assert children == tuple(one.id for one in held if message.id in one.parents)
        for limit in range(len(children) + 1):
            few = seen.children(message.id, limit=limit)
            assert len(few) == limit
            assert {*few} <= {*children}
    for signer in SIGNERS:
        assert [*seen.messages(author=signer.did)] == [one for one in held if one.author == signer.did]
    for message in history.messages:
        if message.id not in expected:
            with pytest.raises(UnknownMessage):
                seen.get(message.id)


@pytest.mark.slow
def test_views_are_as_the_model_says(new_log: NewLog, examples: Callable[[int], Any], largest: int) -> None:
    @examples(40)
    @given(histories(largest), index_lags(), st.data())
    def viewed(history: History, lag: int, data: st.DataObject) -> None:
        ids = [message.id for message in history.messages]
        count = data.draw(st.integers(0, len(ids)), "cursor")
        chosen = data.draw(st.lists(st.sampled_from(ids), max_size=4), "messages")
        with new_log() as log:
            fill(log, history, lag)
            check(log.at(log.heads), {*ids}, history)
            check(log.at(count), {*ids[:count]}, history)
            check(log.at(chosen), {*chosen}.union(*(history.past[id] for id in chosen)), history)
            check(log.at(ids[-1]), {ids[-1], *history.past[ids[-1]]}, history)

    viewed()


def test_a_view_does_not_change_with_the_log(new_log: NewLog, other_signer: Signer) -> None:
    log = new_log()
    first = log.append("first")
    seen, early = log.at(first.id), log.at(1)
    taken = log.descendants(first.id)
    iterated = iter(seen)
    late = [log.append(number, signer=other_signer) for number in range(300)]
    for at in (seen, early):
        assert ([*at], at.heads, len(at), at.clock) == ([first], (first.id,), 1, 2)
        assert late[0].id not in at
        assert [*at.descendants(first.id)] == []
        assert at.children(first.id) == ()
        with pytest.raises(UnknownMessage):
            at.ancestors(late[0].id)
        with pytest.raises(UnknownMessage):
            at.is_ancestor(first.id, late[0].id)
    assert [*iterated] == [first]
    assert [*taken] == []
    assert log.at(late[-1].id).is_ancestor(first.id, late[3].id)
    assert [*log.descendants(first.id)] == late


def test_points_that_are_none(new_log: NewLog) -> None:
    log = new_log()
    message = log.append("here")
    assert [*log.at([])] == [*log.at(0)] == []
    assert (log.at([]).heads, log.at(0).clock) == ((), 1)
    other = signed([], {"not": "there"}).id
    with pytest.raises(UnknownMessage):
        log.at([message.id, other])
    with pytest.raises(UnknownMessage):
        log.ancestors(other)
    with pytest.raises(UnknownMessage):
        log.descendants(other)
    with pytest.raises(DecodeError):
        log.at("short")
    with pytest.raises(LogWentBack):
        log.at(2)
    with pytest.raises(CursorOutdated):
        log.at(1 << 48 | 1)
    with pytest.raises(ValueError, match="a cursor of -1"):
        log.at(-1)
    with pytest.raises(TypeError, match=r"^expected the id of a message, as message\.id, not SignedMessage$"):
        log.at([message])  # type: ignore[list-item]
    for point in (message, True, None):
        text = rf"^expected the id of a message, as message\.id, several ids, or a cursor, not {type(point).__name__}$"
        with pytest.raises(TypeError, match=text):
            log.at(point)  # type: ignore[arg-type]
    for reading in (log, log.at(1)):
        with pytest.raises(ValueError, match="expected a did:key"):
            reading.messages(author="ada")
        with pytest.raises(TypeError, match=r"as message\.author"):
            reading.messages(author=SIGNERS[0])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="a limit of -1"):
            reading.messages(limit=-1)
        assert object() not in reading
        assert message in reading
    assert "the first 1 messages" in repr(log.at(1))


def test_a_view_ends_with_its_log(new_log: NewLog) -> None:
    log = new_log()
    seen = log.at(log.append("here").id)
    log.close()
    with pytest.raises(LogClosed):
        len(seen)
    with pytest.raises(LogClosed):
        list(seen)


def test_payloads_are_of_the_type(opened: Callable[..., Log]) -> None:
    log = opened(payload=UUID, signer=SIGNERS[0])
    first = log.append(UUID(int=1))
    second = log.append(UUID(int=2))
    seen = log.at(second.id)
    for found in (log.ancestors(second.id), log.descendants(first.id), seen, seen.messages(reverse=True), log.at(1)):
        assert all(isinstance(message.payload, UUID) for message in found)
    assert seen.get(first.id).payload == UUID(int=1)


@pytest.mark.slow
def test_a_rebase_in_postgres_ends_what_is_read(
    postgres_url: str, opened: Callable[..., Log], signer: Signer, other_signer: Signer
) -> None:
    """Sequences of a view, and pages that follow others, were read from the log that had taken the place."""
    log, hub = opened(postgres_url, signer=signer), opened(signer=other_signer)
    messages = log.append_many(range(600))
    hub.append_many(["theirs", "too"])
    first, last = messages[0].id, messages[-1].id
    of_cursor, of_message = log.at(3), log.at(messages[5].id)
    begun = [log.messages(), log.messages(after=first), of_cursor.messages(), log.at(600).messages(after=first)]
    for iterator in begun[:2]:
        next(iterator)
    gossiplog.rebase(postgres_url, hub, [first], signer=signer)
    reads: list[Callable[[], object]] = [
        *(lambda iterator=iterator: [*iterator] for iterator in begun),
        *(lambda view=view: [*view] for view in (of_cursor, of_message)),
        lambda: of_cursor.get(last),
        lambda: last in of_cursor,
        lambda: of_message.is_ancestor(first, messages[5].id),
        lambda: of_cursor.count(after=first),
        lambda: [*of_cursor.messages(before=last)],
        lambda: of_cursor.heads,
        lambda: of_cursor.children(first),
        lambda: log.is_ancestor(first, last),
        lambda: log.children(messages[3].id),
        lambda: log.frontier(last, 3),
    ]
    for read in reads:
        with pytest.raises(LogReplaced):
            read()
