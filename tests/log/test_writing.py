from __future__ import annotations

import itertools
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gossiplog
from gossiplog import (
    CorruptLog,
    EncodeError,
    Log,
    MissingParents,
    RefusedMessage,
    SignedMessage,
    Signer,
    StorageError,
    core,
)
from gossiplog.log import applying, writing
from gossiplog.log.log import replica_of
from gossiplog.log.state import INDEX_LAG, MOST_UNINDEXED_BYTES, MOST_UNINDEXED_PARENTS
from gossiplog.message import MAX_PARENTS, MAX_VALUE_LENGTH, PARENTS_OF_MANY_HEADS
from gossiplog.storage import MemoryStorage
from gossiplog.storage.base import Transaction
from gossiplog.storage.sqlite.tables import SQLiteReader
from gossiplog.storage.sqlite.transactions import SQLiteTransaction
from tests.places import Place

TOPIC = "org.example.test"


def test_append_follows_the_heads(log: Log, signer: Signer) -> None:
    first = log.append({"n": 1})
    assert (first.clock, first.parents, first.author, first.codec) == (1, (), signer.did, "dag-cbor")
    second = log.append("text", codec="dag-json")
    assert (second.clock, second.parents, second.codec, second.payload) == (2, (first.id,), "dag-json", "text")
    assert (log.heads, log.clock) == ((second.id,), 3)


def test_a_signer_must_come_from_somewhere(opened: Callable[..., Log], signer: Signer, other_signer: Signer) -> None:
    log = opened()
    with pytest.raises(ValueError, match="nothing to sign with"):
        log.append(1)
    assert log.append(1, signer=signer).author == signer.did
    log.signer = signer
    assert log.append(1).author == signer.did
    assert log.append(1, signer=other_signer).author == other_signer.did


@pytest.mark.parametrize("payload", [{"text": "one"}, "text", b"bytes"])
def test_append_many_takes_no_single_payload(log: Log, payload: Any) -> None:
    with pytest.raises(TypeError, match=f"not one {type(payload).__name__}: give append one payload"):
        log.append_many(payload)
    assert len(log) == 0


def test_append_many_is_a_chain(log: Log) -> None:
    messages = log.append_many(n for n in range(20))
    assert [message.payload for message in messages] == list(range(20))
    for before, after in pairwise(messages):
        assert after.parents == (before.id,)
    assert log.append_many([]) == []
    assert list(log) == messages


def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages after each commit from now on."""
    counts: list[int] = []
    publish = writing.Writer._publish

    def counted(writer: writing.Writer, written: Any) -> None:
        if written.plan.order:
            counts.append(written.position.count)
        publish(writer, written)

    monkeypatch.setattr(writing.Writer, "_publish", counted)
    return counts


def test_append_many_in_several_transactions(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = commits(monkeypatch)
    monkeypatch.setattr(writing, "MOST_SIGNED", 2)
    messages = log.append_many(range(7))
    assert [message.payload for message in messages] == list(range(7))
    assert counts == [2, 4, 6, 7]


def test_long_messages_take_transactions_of_their_own(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = commits(monkeypatch)
    monkeypatch.setattr(writing, "_SIGNED_BYTES", 250)
    log.append_many([bytes(100)] * 7)
    assert counts == [3, 6, 7]


@pytest.mark.parametrize("bad", [float("nan"), "\ufeffx", "\ud800", {"__proto__": 1}, {"/": 1, "bytes": 1}, 2**64])
def test_a_payload_that_peers_would_refuse_is_refused_before_anything_is_stored(log: Log, bad: Any) -> None:
    with pytest.raises(EncodeError):
        log.append_many([1, bad])
    assert len(log) == 0


def test_a_late_payload_that_peers_would_refuse_leaves_nothing_stored(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_SIGNED", 1)
    with pytest.raises(EncodeError, match="are not payload"):
        log.append_many([1, 2, bytes(MAX_VALUE_LENGTH - 100)])
    assert len(log) == 0


def test_an_unknown_codec_is_refused(log: Log) -> None:
    with pytest.raises(EncodeError):
        log.append(1, codec="json")
    assert len(log) == 0


def test_a_message_must_fit_into_a_frame(log: Log) -> None:
    log.append(bytes(MAX_VALUE_LENGTH - 1000))
    for size in (MAX_VALUE_LENGTH - 100, MAX_VALUE_LENGTH, MAX_VALUE_LENGTH + 1):
        with pytest.raises(EncodeError, match="peers read"):
            log.append(bytes(size))
    assert len(log) == 1


def test_more_heads_than_one_message_joins(log: Log, signer: Signer) -> None:
    log.insert_many([signer.sign(TOPIC, 1, [], n)[1] for n in range(MAX_PARENTS + 10)])
    before = log.heads
    message = log.append("joins some")
    assert message.parents == before[-PARENTS_OF_MANY_HEADS:]
    rest = (*before[:-PARENTS_OF_MANY_HEADS], message.id)
    assert log.heads == rest
    assert log.append("joins the rest").parents == rest
    assert len(log.heads) == 1


def test_strangers_heads_make_no_fork_of_an_author(log: Log, signer: Signer, other_signer: Signer) -> None:
    """A flood of heads with later clocks crowded the author's own out of the parents."""
    other = Signer(b"\2" * 32)
    log.insert_many([other.sign(TOPIC, 1, [], n)[1] for n in range(2 * MAX_PARENTS)])
    for author in (signer, other_signer):
        before = log.append("first", signer=author)
        for number in range(3):
            parent = before.parents[-1]
            key, tip = other.sign(TOPIC, before.clock, [parent], [number, "tip"])
            above = [core.encode_id(key)]
            flood = [other.sign(TOPIC, before.clock + 1, above, n)[1] for n in range(2 * PARENTS_OF_MANY_HEADS)]
            log.insert_many([tip, *flood])
            message = log.append(number, signer=author)
            assert before.id in message.parents
            assert len(message.parents) == PARENTS_OF_MANY_HEADS
            assert list(message.parents) == sorted(message.parents)
            before = message
    assert {fork.author for fork in log.verify().forks} == {other.did}


class Application:
    """An application that counts in a table, and refuses payloads that it is told to."""

    def __init__(self, place: Place) -> None:
        self.seen: list[Any] = []
        self.refuse: set[Any] = set()
        self._create = f"CREATE TABLE IF NOT EXISTS seen (n {place.numbered} PRIMARY KEY, payload TEXT UNIQUE)"
        self._insert = place.sql("INSERT INTO seen(payload) VALUES (?)")

    def __call__(self, message: SignedMessage, transaction: Any) -> None:
        self.seen.append(message.payload)
        transaction.execute(self._create)
        transaction.execute(self._insert, (json.dumps(message.payload),))
        if message.payload in self.refuse:
            raise ValueError(f"not {message.payload}")


def stored(place: Place) -> list[Any]:
    return [json.loads(payload) for (payload,) in place.rows("SELECT payload FROM seen ORDER BY n")]


@pytest.fixture
def application(place: Place) -> Application:
    return Application(place)


@pytest.fixture
def applied(place: Place, application: Application, signer: Signer, opened: Callable[..., Log]) -> Log:
    return opened(place.location, apply=application, signer=signer)


def test_apply_commits_with_the_message(applied: Log, application: Application, place: Place, signer: Signer) -> None:
    applied.append(1)
    applied.append_many([2, 3])
    with gossiplog.open(":memory:", TOPIC, signer=signer) as source:
        source.pull(applied)
        source.append_many([4, 5])
        applied.pull(source)
    assert application.seen == stored(place) == [1, 2, 3, 4, 5]


def test_apply_works_without_sql(signer: Signer, opened: Callable[..., Log]) -> None:
    seen: list[Any] = []
    log = opened(gossiplog.MemoryStorage(), signer=signer, apply=lambda message, _: seen.append(message.payload))
    log.append_many([1, 2])
    assert seen == [1, 2]


def test_append_of_what_apply_refuses(applied: Log, application: Application, place: Place) -> None:
    applied.append(1)
    application.refuse = {2}
    with pytest.raises(RefusedMessage, match="ValueError: not 2") as refused:
        applied.append(2)
    assert isinstance(refused.value.__cause__, ValueError)
    assert (len(applied), stored(place)) == (1, [1])
    application.refuse = set()
    applied.append(2)
    assert stored(place) == [1, 2]


def test_a_refusal_takes_the_descendants_with_it(
    applied: Log, application: Application, place: Place, signer: Signer, opened: Callable[..., Log]
) -> None:
    source = opened(signer=signer)
    root = source.append("root")
    messages = source.append_many(["bad", "child", "grandchild"])
    beside = signer.sign(TOPIC, 2, [root.id], "beside")[1]
    application.refuse = {"bad"}
    result = applied.insert_many([root, *messages, beside])
    assert result.inserted == 2
    assert [(index, type(error)) for index, error in result.refused] == [
        (1, RefusedMessage),
        (2, MissingParents),
        (3, MissingParents),
    ]
    assert sorted(application.seen) == ["bad", "beside", "root"]
    assert sorted(stored(place)) == ["beside", "root"]
    application.refuse = set()
    assert applied.insert_many(messages).inserted == 3
    assert sorted(stored(place)) == ["bad", "beside", "child", "grandchild", "root"]
    applied.verify()


def test_apply_with_little_time_goes_on_in_other_transactions(
    applied: Log, application: Application, place: Place, signer: Signer, monkeypatch: pytest.MonkeyPatch, opened: Any
) -> None:
    messages = opened(signer=signer).append_many(range(6))
    monkeypatch.setattr(writing, "WORKING_SECONDS", -1.0)
    application.refuse = {3}
    counts = commits(monkeypatch)
    result = applied.insert_many(messages)
    assert (result.inserted, result.duplicates) == (3, 0)
    assert [index for index, _ in result.refused] == [3, 4, 5]
    assert counts == [1, 2, 3]
    assert stored(place) == [0, 1, 2]


def test_the_keys_of_a_batch_are_not_listed_for_each_of_its_messages(
    applied: Log, signer: Signer, monkeypatch: pytest.MonkeyPatch, opened: Any
) -> None:
    class Counting:
        """A batch that counts the lists of its keys, each of which takes time for all of them."""

        def __init__(self, batch: core.Batch) -> None:
            self.lists = 0
            self._batch = batch

        def __len__(self) -> int:
            return len(self._batch)

        def __getitem__(self, index: int) -> Any:
            return self._batch[index]

        def __getattr__(self, name: str) -> Any:
            self.lists += name == "keys"
            return getattr(self._batch, name)

    values = [message.value for message in opened(signer=signer).append_many(range(40))]
    moments = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    for module in (applying, writing):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(writing, "WORKING_SECONDS", 9.5)
    counts = commits(monkeypatch)
    verified = replica_of(applied).check(replica_of(applied).verify(values))
    batch = Counting(verified.batch)
    assert len(replica_of(applied).insert(replace(verified, batch=batch)).inserted) == 40  # type: ignore[arg-type]
    assert counts == [10, 20, 30, 40]
    assert batch.lists < len(counts)


def test_a_process_with_apply_catches_up_with_one_without(
    place: Place, application: Application, signer: Signer, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "_PAGE", 2)
    plain = opened(place.location, signer=signer)
    plain.append_many([1, 2, 3])
    applied = opened(place.location, signer=signer, apply=application)
    assert application.seen == stored(place) == [1, 2, 3]
    plain.append_many([4, 5])
    assert len(applied) == 5
    assert stored(place) == [1, 2, 3]
    applied.append(6)
    assert application.seen == stored(place) == [1, 2, 3, 4, 5, 6]
    plain.append(7)
    applied.insert_many([signer.sign(TOPIC, 1, [], "stray")[1]])
    assert application.seen == stored(place) == [1, 2, 3, 4, 5, 6, 7, "stray"]
    with gossiplog.open(place.location, apply=application):
        pass
    assert len(application.seen) == 8


def test_an_exception_while_catching_up_raises_from_open(
    place: Place, application: Application, signer: Signer, opened: Callable[..., Log]
) -> None:
    plain = opened(place.location, signer=signer)
    plain.append_many([1, 2, 3])
    application.refuse = {2}
    with pytest.raises(
        RefusedMessage, match=r"not 2; the message is in the log already.* have `apply` return"
    ) as refused:
        gossiplog.open(place.location, apply=application)
    assert isinstance(refused.value.__cause__, ValueError)
    assert refused.value.id == list(plain.messages())[1].id
    assert stored(place) == [1]
    application.refuse = set()
    with gossiplog.open(place.location, apply=application, signer=signer) as applied:
        assert application.seen == [1, 2, 2, 3]
        assert stored(place) == [1, 2, 3]
        application.refuse = {4}
        plain.append(4)
        with pytest.raises(RefusedMessage, match="not 4"):
            applied.append(5)
        with pytest.raises(RefusedMessage, match="not 4"):
            applied.insert_many([signer.sign(TOPIC, 1, [], "stray")[1]])
        assert len(applied) == 4
        application.refuse = set()
        applied.append(5)
    assert stored(place) == [1, 2, 3, 4, 5]


def test_apply_must_not_write_to_the_log(place: Place, signer: Signer, opened: Callable[..., Log]) -> None:
    def greedy(message: SignedMessage, transaction: Any) -> None:
        log.append("more")

    log = opened(place.location, apply=greedy, signer=signer)
    with pytest.raises(StorageError, match="must not append"):
        log.append(1)
    assert len(log) == 0


def test_apply_may_read_the_log(place: Place, signer: Signer, opened: Callable[..., Log]) -> None:
    counts: list[int] = []
    log = opened(place.location, apply=lambda message, transaction: counts.append(len(log)), signer=signer)
    log.append_many([1, 2])
    log.append(3)
    assert counts == [0, 0, 2]


def test_what_is_stored_is_what_peers_verify(log: Log) -> None:
    for message in log.append_many([{"a": [1, 2.5, None, True, b"x"]}, "text"]):
        assert core.verify(message.value, TOPIC) == message


def test_messages_above_a_wide_history_take_several_transactions(
    log: Log, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [signer.sign(TOPIC, 1, [], number) for number in range(50)]
    log.insert_many([value for _, value in roots])
    ids = sorted(core.encode_id(key) for key, _ in roots)
    second, value = signer.sign(TOPIC, 2, ids, "second")
    values = [value]
    values += [signer.sign(TOPIC, 3, [core.encode_id(second), *ids[n:]], n)[1] for n in range(20)]
    monkeypatch.setattr(writing, "_LINKING_WORK", 100)
    counts = commits(monkeypatch)
    assert log.insert_many(values).inserted == 21
    assert len(counts) > 3
    assert log.verify().messages == 71


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ([1, float("nan")], r"\$\[1\]: NaN is no number"),
        ({"a": [{"b": float("inf")}]}, r"\$\.a\[0\]\.b: inf is no number"),
        ({"a": {1: 2}}, r"\$\.a: a map key must be a string, this is of type int"),
        ([[{1, 2}]], r"\$\[0\]\[0\]: a value of type set cannot be encoded; use None, bool"),
        (["\ud800"], r"\$\[0\]: a string with a lone surrogate"),
        ({"a": [2**64]}, r"\$\.a\[0\]: an integer must be from -2\^64 to 2\^64 - 1"),
        ("x" * 2**22, "a payload of 4194309 bytes: peers read messages of up to"),
    ],
    ids=["NaN", "infinity", "key", "set", "surrogate", "integer", "size"],
)
def test_what_cannot_be_encoded_is_named_with_its_place(payload: Any, place: str) -> None:
    with gossiplog.open(":memory:", "notes", signer=Signer(bytes(32))) as log:
        if not place.startswith("a payload"):
            with pytest.raises(EncodeError, match=f"^{place}"):
                log.append(payload)
        with pytest.raises(EncodeError, match=f"^payload 2 of 4, from 0: {place}"):
            log.append_many([1, 2, payload, 4])
        assert len(log) == 0


def test_parents_are_indexed_before_they_are_many(
    monkeypatch: pytest.MonkeyPatch, signer: Signer, other_signer: Signer
) -> None:
    """Of 256 messages with 32 parents each, the index would be written in one transaction, and writers would wait."""
    indexed = 0

    class Storage(MemoryStorage):
        @contextmanager
        def transaction(self) -> Iterator[Transaction]:
            with super().transaction() as transaction:
                index = transaction.index

                def counted(plan: core.WritePlan, level1: Sequence[tuple[bytes, bytes]], count: int) -> None:
                    nonlocal indexed
                    indexed += len(plan.children)
                    index(plan, level1, count)

                monkeypatch.setattr(transaction, "index", counted)
                yield transaction

    with gossiplog.open(Storage(), TOPIC, signer=signer) as log:
        log.insert_many(other_signer.sign(TOPIC, 1, [], n)[1] for n in range(8 * MAX_PARENTS))
        most = 0
        for n in range(3 * MOST_UNINDEXED_PARENTS // PARENTS_OF_MANY_HEADS):
            indexed = 0
            log.append(n)
            most = max(most, indexed)
        assert 0 < most <= MOST_UNINDEXED_PARENTS + PARENTS_OF_MANY_HEADS
        log.verify()


@pytest.mark.parametrize("size", [60_000, 2**20])
def test_what_is_read_again_for_the_index_of_large_messages_is_bounded(
    monkeypatch: pytest.MonkeyPatch, signer: Signer, size: int
) -> None:
    read, most, now = core.read_batch, 0, 0

    def counted(values: Sequence[bytes], topic: str) -> core.Batch:
        nonlocal now
        now += sum(map(len, values))
        return read(values, topic)

    with gossiplog.open(MemoryStorage(), TOPIC, signer=signer) as log:
        monkeypatch.setattr(core, "read_batch", counted)
        for number in range(INDEX_LAG + 2):
            now = 0
            log.append("x" * size if number % (size // 60_000) == 0 else "x")
            most = max(most, now)
        # Once for the state, and once for the rows.
        assert 0 < most < 3 * MOST_UNINDEXED_BYTES


@pytest.mark.parametrize("large", ["x" * MOST_UNINDEXED_BYTES, "x"], ids=["large", "small"])
def test_an_append_that_reads_nothing_finds_that_others_wrote_messages_and_the_index(
    tmp_path: Path, opened: Callable[..., Log], signer: Signer, other_signer: Signer, large: str
) -> None:
    """A large message makes the index due, which then has rows that this log does not know of."""
    own, other = (opened(tmp_path / "log.db", signer=each) for each in (signer, other_signer))
    # The second finds that nobody else writes.
    own.append(1)
    own.append(2)
    other.append_many(range(INDEX_LAG + 1))
    message = own.append(large)
    assert own.heads == (message.id,)
    assert own.verify().messages == INDEX_LAG + 4


def test_the_index_is_written_apart_from_messages(
    monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Log], signer: Signer, other_signer: Signer
) -> None:
    """Who calls `index` in time keeps messages from waiting for it."""
    replica = replica_of(opened(signer=signer))
    transactions: list[set[str]] = []

    def noting(name: str) -> None:
        method = getattr(SQLiteTransaction, name)

        def note(transaction: SQLiteTransaction, *arguments: Any) -> None:
            method(transaction, *arguments)
            transactions[-1].add(name)

        monkeypatch.setattr(SQLiteTransaction, name, note)

    noting("write")
    noting("index")
    values = [other_signer.sign(TOPIC, 1, [], number)[1] for number in range(3 * INDEX_LAG)]
    written = 0
    for start in range(0, len(values), 8):
        transactions.append(set())
        replica.insert(replica.verify(values[start : start + 8]))
        if replica.is_index_behind:
            transactions.append(set())
            replica.index()
            assert not replica.is_index_behind
            written += 1
    assert written == len(values) // (INDEX_LAG // 2 + 8)
    assert {"write", "index"} not in transactions


@pytest.mark.parametrize("later", [0, 1, 2 * INDEX_LAG])
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside another"])
def test_messages_that_were_read_for_the_index_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    opened: Callable[..., Log],
    signer: Signer,
    other_signer: Signer,
    later: int,
    is_alone: bool,
) -> None:
    """Messages that arrived later are read. The index covers all, also where another process wrote a part of it."""
    log, other = (opened(tmp_path / "log.db", signer=each) for each in (signer, other_signer))
    values = [other_signer.sign(TOPIC, 1, [], number)[1] for number in range(100 + later)]
    log.insert_many(values[:100])
    log.append("after them")
    unindexed = replica_of(log).read_unindexed()
    log.insert_many(values[100:])
    if not is_alone:
        replica_of(other).index()
    read: list[int] = []
    read_batch = core.read_batch

    def counted(values: Sequence[bytes], topic: str) -> core.Batch:
        read.append(len(values))
        return read_batch(values, topic)

    with monkeypatch.context() as patch:
        patch.setattr(core, "read_batch", counted)
        replica_of(log).index(unindexed)
    position = replica_of(log).position()
    assert position.indexed == position.count == len(values) + 1
    # Once for the state, and once for the rows; and the last, which is compared with the count.
    assert sum(read) <= 2 * later + 1
    assert log.verify().messages == position.count


def test_an_append_above_many_roots_reads_the_link_records_of_its_parents_alone(
    monkeypatch: pytest.MonkeyPatch, signer: Signer, other_signer: Signer
) -> None:
    read: list[int] = []

    class Storage(MemoryStorage):
        @contextmanager
        def transaction(self) -> Iterator[Transaction]:
            with super().transaction() as transaction:
                links = transaction.links

                def counted(sequences: Sequence[int]) -> Sequence[bytes]:
                    read.append(len(sequences))
                    return links(sequences)

                monkeypatch.setattr(transaction, "links", counted)
                yield transaction

    roots = [other_signer.sign(TOPIC, 1, [], n)[1] for n in range(8 * MAX_PARENTS)]
    with gossiplog.open(Storage(), TOPIC, signer=signer) as log, gossiplog.open(Storage(), TOPIC) as other:
        log.append_many(range(100))
        other.insert_many([*log.messages()])
        for replica in (log, other):
            replica.insert_many(roots)
        for n in range(6):
            read.clear()
            message = log.append(n)
            assert len(message.parents) == PARENTS_OF_MANY_HEADS
            other.insert(message)
            assert sum(read) <= 2 * MAX_PARENTS
        log.verify()


def indexed_sides(path: Path, signers: Sequence[Signer]) -> list[str]:
    """Make a log of a root, a message of each signer above it, and one above these; return the ids of the sides."""
    with pytest.MonkeyPatch.context() as patch, gossiplog.open(path, TOPIC, signer=signers[0]) as log:
        # Messages that are replayed are held against their leaves.
        patch.setattr(writing, "INDEX_LAG", 0)
        root = log.append("root")
        signed = [by.sign(TOPIC, 2, [root.id], "side", "dag-cbor") for by in signers]
        log.insert_many([value for _, value in signed])
        log.append("join")
        return sorted(core.encode_id(key) for key, _ in signed)


@contextmanager
def rotten_sequence(path: Path, id: str, other: str) -> Iterator[None]:
    """Give the leaf of a message the sequence of another one, for the time of a block."""
    change = "UPDATE gossiplog_leaves SET seq = ? WHERE key = ?"
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT seq FROM gossiplog_leaves WHERE key = ?"
        (right,), (wrong,) = (connection.execute(query, (core.decode_id(each),)).fetchone() for each in (id, other))
        with connection:
            connection.execute(change, (wrong, core.decode_id(id)))
        yield
        with connection:
            connection.execute(change, (right, core.decode_id(id)))


@pytest.mark.parametrize("page", [0, 10**6])
def test_a_parent_whose_sequence_rotted_is_not_built_upon(
    tmp_path: Path, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Before, the message was linked to another one with the parent's clock."""
    monkeypatch.setattr(writing, "PAGE_BYTES", page)
    path = tmp_path / "log.db"
    sides = indexed_sides(path, [signer, other_signer])
    key, late = signer.sign(TOPIC, 3, sides, "late", "dag-cbor")
    for side, other in (sides, sides[::-1]):
        with rotten_sequence(path, side, other), gossiplog.open(path) as log:
            with pytest.raises(CorruptLog, match=side):
                log.insert_many([late])
            assert len(log) == 4
    with gossiplog.open(path) as log:
        assert log.insert_many([late]).inserted == 1
        assert all(log.is_ancestor(side, core.encode_id(key)) for side in sides)
        assert log.verify().messages == 5


def test_an_index_names_no_parent_whose_sequence_rotted(
    tmp_path: Path, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the index made the message a child of another one."""
    path = tmp_path / "log.db"
    side, other = indexed_sides(path, [signer, other_signer])
    key, late = signer.sign(TOPIC, 3, [side], "late", "dag-cbor")
    with gossiplog.open(path) as log:
        # The index does not cover it yet.
        log.insert_many([late])
    monkeypatch.setattr(writing, "INDEX_LAG", 0)
    with rotten_sequence(path, side, other), gossiplog.open(path, signer=signer) as log:
        with pytest.raises(CorruptLog, match=side):
            log.append("last")
        assert core.encode_id(key) not in log.children(other)
    with gossiplog.open(path, signer=signer) as log:
        log.append("last")
        assert core.encode_id(key) in log.children(side)
        log.verify()


def test_parents_that_are_no_heads_are_read_once(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of an insertion above them: a value for each that this process has not seen yet."""
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=signer) as log:
        ids = [message.id for message in log.append_many(range(10))]
    read: list[int] = []
    original = SQLiteReader.values

    def values(self: SQLiteReader, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
        read.append(len(keys))
        return original(self, keys, count, limit)

    monkeypatch.setattr(SQLiteReader, "values", values)
    with gossiplog.open(path) as log:
        for number in range(3):
            key, value = signer.sign(TOPIC, 4, [ids[2]], number, "dag-cbor")
            log.insert_many([value])
            log.insert_many([signer.sign(TOPIC, 5, [core.encode_id(key)], side, "dag-cbor")[1] for side in "ab"])
            log.insert_many([signer.sign(TOPIC, 5, [core.encode_id(key)], "c", "dag-cbor")[1]])
    assert read == [1]


@pytest.mark.integration
def test_what_two_authors_append_at_once_on_a_flood_of_roots_keeps_its_link_sets(
    signer: Signer, other_signer: Signer
) -> None:
    """A search through all that the other one has written ends before it has looked at 140 messages with 32 parents."""
    stranger = Signer(bytes(32))
    roots = [stranger.sign(TOPIC, 1, [], n)[1] for n in range(140 * PARENTS_OF_MANY_HEADS)]
    storage = MemoryStorage()
    with gossiplog.open(storage, TOPIC) as log, gossiplog.open(MemoryStorage(), TOPIC) as other:
        for replica in (log, other):
            replica.insert_many(roots)
        for n in range(140):
            mine, theirs = log.append(n, signer=signer), other.append(n, signer=other_signer)
            assert {*mine.parents} & {*theirs.parents}
            other.insert(mine)
            log.insert(theirs)
        with storage.reader() as reader:
            (record,) = reader.links([len(log)])
        _, link_sets = core.link_record(len(log), record)
        assert len(link_sets[0]) == len(theirs.parents)
        log.verify()


def test_a_few_messages_are_inserted_at_once_in_memory(opened: Callable[..., Log], signer: Signer) -> None:
    values = [signer.sign(TOPIC, 1, [], number)[1] for number in range(17)]
    for location, many, inserted in ((MemoryStorage(), 16, 16), (MemoryStorage(), 17, None), (":memory:", 1, None)):
        log = opened(location)
        outcome = replica_of(log).insert_at_once(replica_of(log).verify(values[:many]))
        assert (None if outcome is None else len(outcome.inserted)) == inserted
        assert len(log) == (inserted or 0)
        assert log.insert_many(values).inserted == 17 - (inserted or 0)


def test_what_takes_long_is_not_inserted_at_once(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(MemoryStorage())
    roots = [signer.sign(TOPIC, 1, [], number) for number in range(50)]
    log.insert_many([value for _, value in roots])
    ids = sorted(core.encode_id(key) for key, _ in roots)
    second, value = signer.sign(TOPIC, 2, ids, "second")
    batch = [value, *(signer.sign(TOPIC, 3, [core.encode_id(second), *ids[n:]], n)[1] for n in range(12))]
    monkeypatch.setattr(writing, "_LITTLE_LINKING_WORK", 100)
    assert replica_of(log).insert_at_once(replica_of(log).verify(batch)) is None
    assert len(log) == 50
    monkeypatch.undo()
    outcome = replica_of(log).insert_at_once(replica_of(log).verify(batch))
    assert outcome is not None
    assert sorted(outcome.inserted) == [*range(13)]
    assert log.verify().messages == 63


@pytest.mark.parametrize("reason", ["lock", "check", "sync", "index"])
def test_what_may_have_to_wait_is_not_inserted_at_once(
    opened: Callable[..., Log], signer: Signer, other_signer: Signer, reason: str
) -> None:
    storage = MemoryStorage()
    log = opened(storage, payload=(lambda payload: None) if reason == "check" else None)
    if reason == "index":
        log.insert_many(other_signer.sign(TOPIC, 1, [], number)[1] for number in range(INDEX_LAG // 2 + 1))
    batch = replica_of(log).verify([signer.sign(TOPIC, 1, [], "a root")[1]])
    if reason == "sync":
        batch = replace(batch, is_synced=True)
    before = len(log)
    if reason == "lock":
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with storage.reader():
                held.set()
                release.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(60)
        assert replica_of(log).insert_at_once(batch) is None
        assert replica_of(log).state_at_once() is None
        release.set()
        thread.join()
    else:
        assert replica_of(log).insert_at_once(batch) is None
    assert len(log) == before
    if reason == "check":
        assert replica_of(log).insert_at_once(replica_of(log).check(batch)) is not None


def test_the_state_after_a_few_messages_is_read_at_once_in_memory(opened: Callable[..., Log], signer: Signer) -> None:
    log, other = opened(MemoryStorage(), signer=signer), opened(":memory:", signer=signer)
    log.append_many(range(17))
    assert replica_of(log).state_at_once() is None
    assert replica_of(log).state() == replica_of(log).state_at_once()
    log.append("one more")
    found = replica_of(log).state_at_once()
    assert found is not None
    assert (found.count, found.tree.root) == (18, replica_of(log).root())
    other.append("a message")
    assert replica_of(other).state_at_once() is None
