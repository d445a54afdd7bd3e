"""One signature, one effect: what applications see of a message of which relays made further encodings."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Signer, core
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog, RefusedMessage, UnknownMessage
from gossiplog.log import Log
from gossiplog.storage import MemoryStorage
from gossiplog.storage.base import ApplyTransaction
from tests.strategies import TOPIC, alternative, longer_author, repeatable

ADA = Signer(bytes(32))
Row: TypeAlias = tuple[str, str, int, tuple[str, ...]]


def history() -> list[list[bytes]]:
    """The encodings of each of four messages, the canonical one first. The later ones name any of the earlier's."""
    made: list[list[bytes]] = []
    for n, above in enumerate([[], [(0, 0)], [(0, 2)], [(1, 1), (2, 3)]]):
        keys = [core.verify(made[message][encoding], TOPIC).id for message, encoding in above]
        clock = 1 + max((core.decode_clock(core.decode_id(id))[0] for id in keys), default=0)
        _, value = ADA.sign(TOPIC, clock, keys, {"n": n})
        made.append([value, alternative(value), alternative(value, 1), longer_author(value)])
    return made


HISTORY = history()
VALUES = [value for encodings in HISTORY for value in encodings]


class Table:
    """What an application makes of the messages."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def apply(self, message: SignedMessage, transaction: ApplyTransaction) -> None:
        parents = tuple(transaction.content_id(parent) for parent in message.parents)
        self.rows.append((message.content_id, message.author, message.payload["n"], parents))


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Log]]:
    storage = MemoryStorage() if request.param == "memory" else tmp_path / "log.db"
    with ExitStack() as logs:
        yield lambda **settings: logs.enter_context(gossiplog.open(storage, TOPIC, **settings))


@st.composite
def deliveries(draw: st.DrawFn) -> Sequence[Sequence[bytes]]:
    """The encodings in any order, cut into calls, some with an encoding twice."""
    order = draw(st.permutations(VALUES))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=6)))
    return [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@pytest.mark.slow
@given(st.lists(deliveries(), min_size=2, max_size=2), st.booleans())
@repeatable(60)
def test_replicas_have_equal_tables_in_whatever_order_encodings_come(
    orders: Sequence[Sequence[Sequence[bytes]]], late: bool
) -> None:
    tables: list[list[Row]] = []
    roots = set()
    for calls in orders:
        storage, table = MemoryStorage(), Table()
        with gossiplog.open(storage, TOPIC, apply=None if late else table.apply) as log:
            for values in calls:
                log.insert_many(values)
            # What lacked its parents comes again, as by a sync.
            while len(log) < len(VALUES):
                log.insert_many(VALUES)
            log.verify()
            roots.add(log.root.hash)
        with gossiplog.open(storage, TOPIC, apply=table.apply) as log:
            assert [row[0] for row in sorted(table.rows)] == sorted({message.content_id for message in log})
        tables.append(sorted(table.rows))
    assert (len(roots), tables[0]) == (1, tables[1])
    assert [row[2] for row in sorted(tables[0], key=lambda row: row[2])] == [0, 1, 2, 3]


def test_the_first_encoding_counts_alone(opened: Callable[..., Log]) -> None:
    table = Table()
    log = opened(apply=table.apply)
    canonical, first, second, third = HISTORY[0]
    assert log.insert_many([second]).inserted == 1
    assert [log.insert(value) for value in (canonical, first, third)] == [True, True, True]
    assert len(table.rows) == 1
    assert [message.canonical for message in log] != [True] * 4
    (id,) = {message.content_id for message in log}
    assert {log.content_id(message.id) for message in log} == {id}
    log.verify()


def test_it_counts_across_processes(tmp_path: Path) -> None:
    one, other = Table(), Table()
    open_log = partial(gossiplog.open, tmp_path / "log.db", TOPIC)
    with open_log(apply=one.apply) as first, open_log(apply=other.apply) as second, open_log() as third:
        for number, value in enumerate(VALUES * 2):
            (first, second, third)[number % 3].insert(value)
        first.append({"n": 4}, signer=ADA)
    assert sorted(row[2] for row in one.rows + other.rows) == [0, 1, 2, 3, 4]


def test_an_encoding_counts_where_apply_refused_those_before(opened: Callable[..., Log]) -> None:
    seen: list[str] = []

    def apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
        seen.append(message.id)
        if len(seen) == 1:
            raise ValueError("not today")

    log = opened(apply=apply)
    result = log.insert_many(HISTORY[0])
    assert (result.inserted, [type(error) for _, error in result.refused]) == (3, [RefusedMessage])
    assert [id in log for id in seen] == [False, True]
    assert log.insert(HISTORY[0][result.refused[0][0]])
    assert len(seen) == 2


def test_content_ids_of_what_is_not_there(opened: Callable[..., Log]) -> None:
    asked: list[str] = []

    def apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
        assert transaction.content_id(message.id) == message.content_id
        with pytest.raises(UnknownMessage):
            transaction.content_id(core.verify(VALUES[4], TOPIC).id)
        asked.append(message.id)

    log = opened(apply=apply)
    log.insert(VALUES[0])
    assert len(asked) == 1
    with pytest.raises(UnknownMessage):
        log.content_id(core.verify(VALUES[4], TOPIC).id)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE gossiplog_alternatives SET content = (SELECT key FROM gossiplog_leaves WHERE seq = 1)",
        "DELETE FROM gossiplog_alternatives",
        "UPDATE gossiplog_messages SET value = (SELECT value FROM gossiplog_messages WHERE seq = 1)",
    ],
)
def test_apply_gets_no_content_id_from_a_damaged_row(tmp_path: Path, signer: Signer, sql: str) -> None:
    """Before, it got that of another message, or the parent's own id."""
    path = tmp_path / "log.db"
    found: list[str] = []

    def apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
        found.extend(transaction.content_id(parent) for parent in message.parents)

    with gossiplog.open(path, TOPIC, signer=signer) as log:
        log.append({"n": 1})
        message = log.append({"n": 2})
        log.insert(alternative(message.value))
    other = core.verify(alternative(message.value), TOPIC)
    _, value = signer.sign(TOPIC, other.clock + 1, [other.id], {"n": 3})
    with gossiplog.open(path, apply=apply) as log:
        found.clear()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(sql)
        try:
            log.insert(value)
        except CorruptLog:
            assert "messages" in sql
        else:
            assert found == [message.id]


def test_an_append_follows_one_encoding_of_a_message(opened: Callable[..., Log]) -> None:
    log = opened()
    honest = [ADA.sign(TOPIC, 1, [], {"n": n})[1] for n in range(3)]
    attacked = ADA.sign(TOPIC, 1, [], {"n": 3})[1]
    log.insert_many([*honest, *(alternative(attacked, junk) for junk in range(600))])
    contents = {log.content_id(id) for id in log.heads}
    message = log.append({"n": 4}, signer=ADA)
    assert sorted(log.content_id(parent) for parent in message.parents) == sorted(contents)
    assert len(log.heads) == 600
    log.insert(attacked)
    assert log.append({"n": 5}, signer=ADA).parents == (message.id,)
    assert (len(log.heads), log.clock) == (601, 4)
    log.verify()


def test_heads_are_told_apart_by_who_opens_the_log_later_and_by_who_looks_on(tmp_path: Path) -> None:
    attacked = ADA.sign(TOPIC, 1, [], {"n": 3})[1]
    with gossiplog.open(tmp_path / "log.db", TOPIC) as log, gossiplog.open(tmp_path / "log.db") as other:
        log.insert_many([alternative(attacked, junk) for junk in range(600)])
        (first,) = other.append({"n": 4}, signer=ADA).parents
        log.insert(attacked)
        assert other.heads == log.heads
    with gossiplog.open(tmp_path / "log.db") as log:
        message = log.append({"n": 5}, signer=ADA)
        assert [log.get(parent).payload for parent in message.parents] == [{"n": 4}]
        assert first not in log.heads


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM gossiplog_alternatives WHERE seq = 2",
        "INSERT INTO gossiplog_alternatives VALUES (1, x'00')",
        "UPDATE gossiplog_alternatives SET content = zeroblob(20) WHERE seq = 3",
    ],
)
def test_the_audit_finds_what_is_stored_wrongly(tmp_path: Path, change: str) -> None:
    with gossiplog.open(tmp_path / "log.db", TOPIC) as log:
        for value in HISTORY[0]:
            log.insert(value)
        with sqlite3.connect(tmp_path / "log.db") as connection:
            connection.execute(change)
        connection.close()
        with pytest.raises(CorruptLog, match="wrongly as an encoding"):
            log.verify()


def test_every_encoding_can_be_read(opened: Callable[..., Log]) -> None:
    log = opened()
    log.insert_many(VALUES)
    assert sorted(message.value for message in log) == sorted(VALUES)
    assert sum(message.canonical for message in log) == len(HISTORY)
    (arrivals,) = [next(log.subscribe(after=0))]
    assert sorted(message.value for message in arrivals) == sorted(VALUES)
    shuffled: list[Any] = [message.id for message in arrivals]
    random.Random(1).shuffle(shuffled)
    assert [log.get(id).id for id in shuffled] == shuffled
