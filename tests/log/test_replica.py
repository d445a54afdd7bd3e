from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from gossiplog import Log, MemoryStorage, Signer, core
from gossiplog.errors import CorruptLog, DecodeError, LogClosed, UnknownMessage
from gossiplog.log import following, replica
from gossiplog.log.log import replica_of
from gossiplog.log.state import Snapshot
from tests.strategies import alternative


def test_what_a_driver_learns_of_a_log(log: Log) -> None:
    read = replica_of(log)
    assert (read.topic, read.count(), read.heads(), read.root()) == (log.topic, 0, [], core.Tree().root)
    messages = log.append_many(range(5))
    assert (read.count(), read.heads(), read.root()) == (5, [messages[-1].key], log.root)
    assert set(read.known([messages[2].key, bytes(20)])) == {messages[2].key}
    assert read.snapshot().tree.root == log.root
    assert read.arrivals(3, 10) == [(4, messages[3]), (5, messages[4])]


def test_few_keys_are_looked_up_at_once_in_memory_and_heads_anywhere(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory, in_sqlite = opened(MemoryStorage(), signer=signer), opened(":memory:", signer=signer)
    for log in (in_memory, in_sqlite):
        first, last = log.append_many(range(2))
        assert replica_of(log).known_at_once([]) is not None
        assert set(replica_of(log).known_at_once([last.key]) or ()) == {last.key}
        for keys, known in (([first.key, last.key], {first.key, last.key}), ([last.key, bytes(20)], {last.key})):
            found = replica_of(log).known_at_once(keys)
            assert (found is None) is (log is in_sqlite)
            assert found is None or set(found) == known
        assert replica_of(log).known_at_once([number.to_bytes(20, "big") for number in range(257)]) is None
    assert (replica_of(in_memory).count_at_once(), replica_of(in_sqlite).count_at_once()) == (2, None)
    with replica_of(in_memory).reading_at_once() as is_quick, replica_of(in_sqlite).reading_at_once() as is_also_quick:
        assert (is_quick, is_also_quick) == (True, False)
    with monkeypatch.context() as patch:
        patch.setattr(replica, "_FEW_STORED", 1)
        with replica_of(in_memory).reading_at_once() as is_quick:
            assert not is_quick
    # One request names any number of values.
    in_memory.append("x" * 2**20)
    with replica_of(in_memory).reading_at_once() as is_quick:
        assert not is_quick


def test_nothing_is_read_at_once_while_another_thread_writes(opened: Callable[..., Log], signer: Signer) -> None:
    storage = MemoryStorage()
    log = opened(storage, signer=signer)
    first, _ = log.append_many(range(2))
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with storage.transaction():
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    assert replica_of(log).known_at_once([first.key]) is None
    assert replica_of(log).count_at_once() is None
    with replica_of(log).reading_at_once() as is_quick:
        assert not is_quick
    release.set()
    thread.join()


def test_a_node_is_searched_once_for_all_parents_that_a_source_lacks(
    log: Log, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = len(log.append_many(range(100)))
    parents = sorted(core.encode_clock(clock) + number.to_bytes(19, "big") for number in range(200))
    _, orphan = signer.sign(log.topic, clock + 1, [core.encode_id(parent) for parent in parents], "orphan")
    starts: list[bytes] = []
    leaves = Snapshot.leaves

    def counted(
        snapshot: Snapshot, start: bytes, end: bytes | None, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        starts.append(start)
        return leaves(snapshot, start, end, limit)

    monkeypatch.setattr(Snapshot, "leaves", counted)
    outcome = replica_of(log).insert(replace(replica_of(log).verify([orphan]), is_synced=True))
    assert outcome.orphans == [(0, parents)]
    assert len(starts) == len(set(starts)) > 0


def test_pages_are_limited_in_number_and_in_bytes(log: Log) -> None:
    messages = log.append_many(["x" * size for size in (100, 100, 100, 2000, 100)])
    rows = [(message.key, message.value) for message in messages]
    page = partial(replica_of(log).page, reverse=False, limit=9)
    most = 3 * len(rows[0][1])
    assert page(None, None, most_bytes=10_000) == (rows, False)
    assert page(None, None, limit=2, most_bytes=10_000) == (rows[:2], True)
    assert page(None, rows[2][0], limit=2, most_bytes=10_000) == (rows[:2], False)
    assert page(None, None, most_bytes=most) == (rows[:2], True)
    # One is there however long it is, and alone if it is long.
    assert page(rows[2][0], None, most_bytes=100) == (rows[3:4], True)
    assert page(rows[2][0], None, most_bytes=4000) == (rows[3:4], True)
    assert page(None, rows[4][0], reverse=True, most_bytes=4000) == (rows[3:4], True)
    assert page(None, rows[3][0], reverse=True, most_bytes=4000) == (rows[2::-1], False)
    assert page(rows[4][0], None, most_bytes=100) == ([], False)


def test_a_stored_value_by_its_id(log: Log) -> None:
    message = log.append(1)
    assert replica_of(log).value(message.id) == message.value
    with pytest.raises(UnknownMessage):
        replica_of(log).value("0" * 32)
    with pytest.raises(DecodeError):
        replica_of(log).value("short")


def test_a_batch_comes_in_with_its_verdicts(log: Log, signer: Signer) -> None:
    known = log.append("known")
    replica = replica_of(log)
    _, child = signer.sign(log.topic, 2, [known.id], "child")
    _, orphan = signer.sign(log.topic, 2, [core.encode_id(core.encode_clock(1) + bytes(19))], "orphan")
    batch = replica.verify([known.value, child, b"broken", orphan])
    assert batch.count == 1
    outcome = replica.insert(batch)
    assert (outcome.inserted, outcome.duplicates, outcome.sequences) == ([1], 1, [range(2, 3)])
    assert outcome.orphans == [(3, [core.encode_clock(1) + bytes(19)])]
    assert [index for index, _ in outcome.invalid] == [2]
    assert replica.count() == 2


def test_a_listener_is_notified_of_each_commit_and_of_the_end(log: Log) -> None:
    told: list[int | None] = []

    def listen(last: int | None) -> None:
        # Postgres announces commits of others from a moment of its own, and says so.
        if last != following.BY_OTHERS:
            told.append(last)

    log.append("before")
    with replica_of(log).listening(listen):
        log.append("a")
        log.append_many(["b", "c"])
    log.append("after")
    with replica_of(log).listening(listen):
        log.close()
    assert told == [2, 4, None]


def test_what_was_just_committed_is_in_memory_for_those_who_listen(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_RECENT", 3)
    replica = replica_of(log)
    log.append("nobody listens")
    with replica.listening(lambda last: None):
        values = [log.append(number).value for number in range(5)]
        # Messages 2 to 6; the first two of these were pushed out.
        assert [replica.recent(after, 9) for after in (0, 1, 2, 6)] == [[], [], [], []]
        assert replica.recent(3, 9) == list(enumerate(values[2:], 4))
        assert [(sequence, message.value) for sequence, message in replica.arrivals(3, 9)] == replica.recent(3, 9)
        assert replica.recent(3, 1) == [(4, values[2])]
        # More at once than are kept are read from the database.
        log.append_many(range(4))
        assert replica.recent(6, 9) == []


def test_little_is_kept_in_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_RECENT_BYTES", 1000)
    with replica_of(log).listening(lambda last: None):
        log.append("small")
        log.append("x" * 2000)
        last = log.append("small")
    assert replica_of(log).recent(0, 9) == []
    assert replica_of(log).recent(2, 9) == [(3, last.value)]


def test_a_closed_log_says_so(log: Log) -> None:
    replica = replica_of(log)
    log.close()
    for call in (replica.count, replica.heads, replica.snapshot, replica.root):
        with pytest.raises(LogClosed):
            call()


def test_what_another_log_lacks(log: Log, signer: Signer, opened: Callable[..., Log]) -> None:
    messages = log.append_many(range(300))
    other = opened()
    assert [key for page in replica_of(log).lacking(replica_of(other)) for key in page] == [
        each.key for each in messages
    ]
    other.insert_many(messages[:100])
    other.append("its own", signer=signer)
    found = [key for page in replica_of(log).lacking(replica_of(other)) for key in page]
    assert found == [each.key for each in messages[100:]]
    assert list(replica_of(log).messages(found)) == messages[100:]


def test_long_messages_are_read_a_few_at_a_time(log: Log) -> None:
    messages = log.append_many(bytes(2**20 * 3) for _ in range(5))
    assert list(replica_of(log).messages([each.key for each in messages])) == messages


def test_a_message_that_was_lost_is_damage(log: Log) -> None:
    messages = log.append_many(range(3))
    lost = messages[1].key[:-1] + bytes([messages[1].key[-1] ^ 1])
    with pytest.raises(CorruptLog, match=f"message {core.encode_id(lost)} is in the tree, but is not stored"):
        list(replica_of(log).messages([messages[0].key, lost, messages[2].key]))


def test_encodings_by_the_canonical_one(log: Log) -> None:
    canonical, other = log.append({"a": 1}), log.append({"b": 1})
    encoded = core.verify(alternative(other.value), log.topic)
    lone = core.verify(alternative(log.signer.sign(log.topic, 1, [], {"c": 1})[1]), log.topic) if log.signer else None
    assert lone is not None
    log.insert_many([encoded, lone])
    contents = [core.decode_id(each.content_id) for each in (canonical, other, lone)]
    assert replica_of(log).encodings([*contents, bytes(20)]) == {
        contents[0]: canonical.key,
        contents[1]: other.key,
        contents[2]: lone.key,
    }
