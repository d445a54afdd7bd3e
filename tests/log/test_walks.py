"""Walks of the causal graph, and what of it is read for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import gossiplog
from gossiplog import SignedMessage
from gossiplog.log import past, walks
from tests.log.histories import SIGNERS, History, NewLog, fill, grown, histories, index_lags, signed
from tests.strategies import TOPIC


@pytest.mark.slow
def test_walks_are_as_the_model_says(new_log: NewLog, examples: Callable[[int], Any], largest: int) -> None:
    @examples(30)
    @given(histories(largest), index_lags())
    def walked(history: History, lag: int) -> None:
        with new_log() as log:
            fill(log, history, lag)
            ids = sorted(history.past)
            for id, ancestors in history.past.items():
                assert [message.id for message in log.ancestors(id)] == sorted(ancestors, reverse=True)
                descendants = [one for one in ids if id in history.past[one]]
                assert [message.id for message in log.descendants(id)] == descendants
            for signer in SIGNERS:
                mine = [message for message in log if message.author == signer.did]
                assert [*log.messages(author=signer.did)] == mine
                assert [*log.messages(author=signer.did, reverse=True, limit=2)] == mine[:-3:-1]
                assert [*log.messages(author=signer.did, after=ids[0])] == [one for one in mine if one.id != ids[0]]

    walked()


@pytest.mark.slow
@pytest.mark.parametrize("chains", [1, 3, 20])
def test_long_walks(new_log: NewLog, monkeypatch: pytest.MonkeyPatch, chains: int) -> None:
    monkeypatch.setattr(walks, "_PAGE", 16)
    monkeypatch.setattr(past, "_WINDOW", 16)
    monkeypatch.setattr(past, "_PAGE", 8)
    monkeypatch.setattr(past, "_LEAVES", 32)
    log = new_log()
    made = grown(log, chains, 400 // chains)
    all_ids = [message.id for message in log]
    assert [message.id for message in log.ancestors(all_ids[-1])] == all_ids[-2::-1]
    for ids in made[:2]:
        assert [message.id for message in log.descendants(ids[0])] == [*ids[1:], all_ids[-1]]
        seen = log.at(ids[-1])
        assert [message.id for message in seen] == ids
        assert [message.id for message in seen.descendants(ids[0])] == ids[1:]
    assert log.at(len(log) - 1).heads == tuple(sorted(ids[-1] for ids in made))
    assert log.at(chains).heads == tuple(sorted(ids[0] for ids in made))
    assert log.at(log.heads).heads == log.heads
    assert log.at([ids[-1] for ids in made]).heads == tuple(sorted(ids[-1] for ids in made))
    assert log.at([id for ids in made for id in ids[-2:]]).heads == tuple(sorted(ids[-1] for ids in made))


def test_long_messages_beside_each_other(new_log: NewLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with more than a page of them was called damaged: the first that was asked for was not in the page."""
    monkeypatch.setattr(walks, "PAGE_BYTES", 4000)
    read: list[int] = []
    read_messages = walks.read_messages

    def counted(*arguments: Any) -> dict[bytes, SignedMessage]:
        found = read_messages(*arguments)
        read.append(len(found))
        return found

    first = signed([], "first")
    beside = [signed([first.id], [number, "x" * 700], number % 3) for number in range(30)]
    last = signed([message.id for message in beside], "last")
    log = new_log()
    log.insert_many([first, *beside, last])
    ids = [message.id for message in log]
    monkeypatch.setattr(walks, "read_messages", counted)
    assert [message.id for message in log.ancestors(last.id)] == ids[-2::-1]
    # Some pages are read to find how many are one.
    assert sum(read) < 3 * len(ids)
    assert [message.id for message in log.descendants(first.id)] == ids[1:]
    assert [message.id for message in log.at(last.id).messages(reverse=True)] == ids[::-1]


def test_walks_read_little_more_than_they_hand_out(new_log: NewLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    messages = [log.append(number) for number in range(200)]
    read: list[int] = []
    with log._storage.reader() as reader:
        kind = type(reader)
    values, page, arrivals, links = kind.values, kind.page, kind.arrivals, kind.links

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            found = function(*arguments, **named)
            read.append(len(found))
            return found

        return count

    for name, function in {"values": values, "page": page, "arrivals": arrivals, "links": links}.items():
        monkeypatch.setattr(kind, name, counting(function))
    walk = log.ancestors(messages[-1].id)
    read.clear()
    assert next(walk) == messages[-2]
    assert sum(read) == 1
    assert [next(walk) for _ in range(9)] == messages[-3:-12:-1]
    assert sum(read) <= 40
    newest = log.at(messages[-1].id).messages(reverse=True)
    read.clear()
    assert next(newest) == messages[-1]
    assert sum(read) <= 4
    read.clear()
    assert messages[50].id in log.at(messages[-1].id)
    assert sum(read) <= 30


@pytest.mark.slow
def test_several_processes_write_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=SIGNERS[0]) as one, gossiplog.open(path, TOPIC, signer=SIGNERS[1]) as other:
        first = one.append("first")
        walk = one.descendants(first.id)
        numbered: Sequence[Any] = [other.append(number) for number in range(300)]
        assert [*walk] == []
        walk = one.descendants(first.id)
        assert next(walk) == numbered[0]
        more = [other.append(number) for number in range(300)]
        assert [*walk] == numbered[1:]
        assert [*one.descendants(first.id)] == [*numbered, *more]
        assert [*one.ancestors(more[-1].id)] == [*more[-2::-1], *numbered[::-1], first]
        assert one.at(301).heads == (numbered[-1].id,)
        assert len(one.at(more[-1].id)) == 601
