"""One body of tests over every storage: what `gossiplog.storage.base` promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gossiplog import (
    CorruptLog,
    LogClosed,
    MemoryStorage,
    NotALog,
    Signer,
    SQLiteStorage,
    Storage,
    StorageError,
    TopicMismatch,
    core,
)
from gossiplog.storage import base
from gossiplog.storage.base import PAGE_BYTES, Position, SequencesTaken, divisions
from gossiplog.storage.postgres.storage import PostgresStorage
from tests.storage.other_process import TOPIC, OtherProcess, plan_of, write

SIGNER = Signer(bytes(32))


# Of the storages whose messages another process writes, as `fill` has it: the locations.
_FILLED_BY_OTHERS: dict[int, tuple[OtherProcess, str]] = {}


@pytest.fixture(scope="module")
def other_process() -> Iterator[OtherProcess]:
    with OtherProcess() as process:
        yield process


@pytest.fixture(params=["memory", "sqlite", "sqlite-memory", "postgres", "sqlite-other", "postgres-other"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """An open log of each kind; into those that end with -other, `fill` has another process write."""
    kind, _, other = request.param.partition("-")
    location = request.getfixturevalue("postgres_url") if kind == "postgres" else str(tmp_path / "log.db")
    made: Storage
    if kind == "memory":
        made = MemoryStorage()
    elif kind == "postgres":
        made = PostgresStorage(location)
    else:
        made = SQLiteStorage(":memory:" if other == "memory" else location)
    made.open(TOPIC, True)
    if other == "other":
        _FILLED_BY_OTHERS[id(made)] = request.getfixturevalue("other_process"), location
    yield made
    _FILLED_BY_OTHERS.pop(id(made), None)
    made.close()


@cache
def roots(*payloads: object) -> list[bytes]:
    """Values of messages without parents, ascending by key."""
    pairs = sorted(SIGNER.sign(TOPIC, 1, [], payload) for payload in payloads)
    return [value for _, value in pairs]


def fill(storage: Storage, values: list[bytes]) -> core.WritePlan:
    if id(storage) not in _FILLED_BY_OTHERS:
        with storage.transaction() as transaction:
            return write(transaction, values)
    with storage.reader() as reader:
        plan, count = plan_of(reader, values), reader.position().count
    process, location = _FILLED_BY_OTHERS[id(storage)]
    assert process.write(location, values) == count + len(plan.order)
    return plan


def child(value: bytes, payload: object) -> bytes:
    message = core.verify(value, TOPIC)
    return SIGNER.sign(TOPIC, message.clock + 1, [message.id], payload)[1]


def test_an_empty_log(storage: Storage) -> None:
    with storage.reader() as reader:
        assert reader.position() == Position(0, 0)
        assert not reader.level1()
        assert not reader.leaves(b"", None, 10)
        assert not reader.page(None, None, False, 10, 10)
        assert not reader.arrivals(0, 10)
        assert not reader.heads()
        assert reader.sequences([bytes(20)]) == {}
        assert reader.values([bytes(20)], 10) == {}
        assert not reader.links([])
    assert storage.check() == []


def test_what_is_written_is_read(storage: Storage) -> None:
    values = roots(*range(100))
    plan = fill(storage, values)
    keys = [key for key, _, _ in plan.leaves]
    with storage.reader() as reader:
        assert reader.position() == Position(count=100, indexed=100)
        assert reader.sequences([bytes(20), *keys]) == dict(zip(keys, range(1, 101), strict=True))
        assert reader.values([*keys[:3], bytes(20)], 2) == dict(zip(keys[:2], values, strict=False))
        assert [(key, hash) for key, hash, _ in plan.leaves[5:9]] == list(reader.leaves(keys[5], keys[9], 100))
        assert len(reader.leaves(b"", None, 100)) == 100
        assert len(reader.leaves(b"", None, 40)) == 40
        assert list(reader.leaves(keys[5], keys[9], 100, 3)) == list(reader.leaves(keys[5], keys[8], 100))
        assert len(reader.leaves(keys[5], keys[9], 100, 9)) == 4
        assert reader.arrivals(97, 2) == [(98, values[97]), (99, values[98])]
        assert list(reader.links([3, 1])) == [plan.messages[2][2], plan.messages[0][2]]
        assert list(reader.heads()) == plan.heads_added == [(key, n) for n, key in enumerate(keys, 1)]
        assert core.Tree.open(reader.level1(), 100).root == core.Tree().insert(zip(keys, values, strict=True)).root


def test_ranges_of_the_tree_and_the_heads(storage: Storage) -> None:
    keys = [key for key, _, _ in fill(storage, roots(*range(400))).leaves]
    with storage.reader() as reader:
        nodes, heads = list(reader.level1()), list(reader.heads())
        assert len(nodes) > 4
        bounds = (b"", nodes[1][0], keys[100], keys[101], nodes[-1][0], keys[-1], b"\xff" * 20)
        for start in bounds:
            for end in (*bounds, None):
                expected = [row for row in nodes if start <= row[0] and (end is None or row[0] < end)]
                assert list(reader.level1(start, end)) == expected
                found = [row for row in heads if start <= row[0] and (end is None or row[0] < end)]
                assert list(reader.heads(start, end)) == found
                assert list(reader.heads(start, end, 3)) == found[:3]


def test_pages(storage: Storage) -> None:
    values = roots(*range(20))
    leaves = fill(storage, values).leaves
    keys = [key for key, _, _ in leaves]
    rows = [(key, hash, value) for (key, hash, _), value in zip(leaves, values, strict=True)]
    with storage.reader() as reader:
        assert list(reader.page(None, None, False, 100, 20)) == rows
        assert list(reader.page(None, None, True, 100, 20)) == rows[::-1]
        assert list(reader.page(keys[3], keys[7], False, 100, 20)) == rows[4:7]
        assert list(reader.page(keys[3], keys[7], True, 2, 20)) == [rows[6], rows[5]]
        assert list(reader.page(keys[7], keys[3], False, 100, 20)) == []
        assert list(reader.page(None, None, False, 100, 5)) == rows[:5]
        assert list(reader.page(b"", b"\xff" * 20, False, 1, 20)) == rows[:1]


def test_scans(storage: Storage) -> None:
    values = roots(*range(20))
    keys = [key for key, _, _ in fill(storage, values).leaves]
    rows = list(zip(range(1, 21), keys, values, strict=True))
    with storage.reader() as reader:
        for start, end, count, expected in (
            (b"", None, 20, rows),
            (keys[3], keys[7], 20, rows[3:7]),
            (keys[3] + b"\0", keys[7], 20, rows[4:7]),
            (b"", None, 5, rows[:5]),
            (keys[7], keys[3], 20, []),
        ):
            with reader.scan(["seq", "key", "value"], start, end, count) as found:
                assert list(found) == expected
            with reader.scan(["key", "seq"], start, end, count) as found:
                assert list(found) == [(key, seq) for seq, key, _ in expected]


@pytest.mark.slow
def test_dividers_make_parts_of_about_equal_size(storage: Storage) -> None:
    keys = [key for key, _, _ in fill(storage, roots(*range(6000))).leaves]
    with storage.reader() as reader:
        nodes = [key for key, _ in reader.level1() if key]
        assert list(reader.split_keys(b"", None, 1)) == []
        for start, end in ((b"", None), (keys[1000], keys[4000])):
            split_keys = list(reader.split_keys(start, end, 4))
            ends = [*split_keys, end]
            sizes = [reader.number(*bounds, 6000) for bounds in zip([start, *split_keys], ends, strict=True)]
            assert len(sizes) == 4
            assert max(sizes) < 2 * min(sizes)
        assert list(reader.split_keys(b"", None, 10_000)) == nodes
        assert list(reader.split_keys(nodes[3], nodes[5], 10)) == [nodes[4]]
        assert list(reader.split_keys(nodes[5], nodes[3], 10)) == []


def test_an_empty_log_has_no_dividers(storage: Storage) -> None:
    with storage.reader() as reader:
        assert list(reader.split_keys(b"", None, 4)) == []
        with reader.scan(["key"], b"", None, 10) as found:
            assert list(found) == []


def test_the_number_between_two_keys(storage: Storage) -> None:
    keys = [key for key, _, _ in fill(storage, roots(*range(20))).leaves]
    with storage.reader() as reader:
        for count in (0, 5, 20, 30):
            for after in (None, b"", keys[3], keys[19], b"\xff" * 20):
                for before in (None, keys[0], keys[3], keys[7], b"\xff" * 20):
                    page = reader.page(after, before, False, 100, count)
                    assert reader.number(after, before, count) == len(page)


@pytest.mark.slow
def test_pages_end_early_where_values_are_large(storage: Storage) -> None:
    values = roots(*(bytes([n]) * (PAGE_BYTES // 2) for n in range(5)))
    fill(storage, values)
    with storage.reader() as reader:
        assert len(reader.page(None, None, False, 100, 5)) in (2, 3)
        assert len(reader.page(None, None, True, 100, 5)) in (2, 3)
        assert len(reader.arrivals(0, 100)) in (2, 3)


@pytest.mark.parametrize(
    ("nodes", "parts", "expected"),
    [(0, 4, []), (100, 1, []), (1, 4, [0]), (3, 4, [0, 1, 2]), (7, 4, [1, 3, 5]), (100, 4, [24, 49, 74])],
)
def test_divisions(nodes: int, parts: int, expected: list[int]) -> None:
    assert divisions(nodes, parts) == expected


def test_children_and_heads(storage: Storage) -> None:
    (root,) = roots(0)
    fill(storage, [root])
    plan = fill(storage, [child(root, n) for n in range(3)])
    with storage.reader() as reader:
        assert list(reader.children([1], 1, 4)) == [(1, 2), (1, 3), (1, 4)]
        assert list(reader.children([1], 3, 3)) == [(1, 3)]
        assert list(reader.children([2, 3], 1, 4)) == []
        assert list(reader.heads()) == plan.heads_added
        assert reader.position() == Position(count=4, indexed=4)


def test_the_index_is_written_apart(storage: Storage) -> None:
    (root,) = roots(0)
    with storage.transaction() as transaction:
        batch = core.verify_batch([root], TOPIC)
        transaction.write(batch.plan(1, {}, transaction.links))
    with storage.reader() as reader:
        assert reader.position() == Position(count=1, indexed=0)
        assert (list(reader.level1()), list(reader.heads())) == ([], [])
        assert len(reader.leaves(b"", None, 1)) == len(reader.arrivals(0, 10)) == 1
    with storage.transaction() as transaction:
        plan = core.read_batch([root], TOPIC).arrived(1, {})
        tree, level1 = core.Tree().insert_leaves(plan.leaves)
        transaction.index(plan, level1, 1)
    with storage.reader() as reader:
        assert reader.position() == Position(count=1, indexed=1)
        assert core.Tree.open(reader.level1(), 1).root == tree.root
        assert list(reader.heads()) == plan.heads_added


def test_a_plan_for_a_log_that_has_grown_is_refused(storage: Storage) -> None:
    (root,) = roots(0)
    plan = core.verify_batch(roots(1), TOPIC).plan(1, {}, lambda _: [])
    fill(storage, [root])
    with pytest.raises(SequencesTaken), storage.transaction() as transaction:
        transaction.write(plan)
    with storage.reader() as reader:
        assert reader.position().count == 1
        assert reader.sequences([key for key, _, _ in plan.leaves]) == {}
    fill(storage, roots(1))


def test_a_plan_for_a_log_that_has_shrunk_is_refused(storage: Storage) -> None:
    fill(storage, roots(1))
    plan = core.verify_batch(roots(2), TOPIC).plan(5, {}, lambda sequences: [])
    with pytest.raises(SequencesTaken), storage.transaction() as transaction:
        transaction.write(plan)
    with storage.reader() as reader:
        assert reader.position().count == 1


def test_more_keys_than_one_statement_takes(storage: Storage) -> None:
    values = roots(*range(1500))
    keys = [key for key, _, _ in fill(storage, values).leaves]
    with storage.reader() as reader:
        assert len(reader.sequences(keys)) == 1500
        assert len(reader.values(keys, 1500)) == 1500
        assert len(reader.values(keys[::2], 1500)) == 750
        assert len(reader.links(list(range(1500, 0, -1)))) == 1500
        assert reader.sequences([b"\xff" * 20] * 100) == {}


def test_links_of_a_message_that_is_not_there(storage: Storage) -> None:
    with storage.reader() as reader, pytest.raises(CorruptLog):
        reader.links([1])


def test_a_transaction_that_raises_writes_nothing(storage: Storage) -> None:
    def fail() -> None:
        with storage.transaction() as transaction:
            write(transaction, roots(1))
            transaction.set_applied(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with storage.reader() as reader:
        assert reader.position() == Position(0, 0)
        assert not reader.heads()
    fill(storage, roots(1))


def test_the_cursor_of_apply(storage: Storage) -> None:
    with storage.transaction() as transaction:
        transaction.set_applied(7)
    fill(storage, roots(1))
    with storage.reader() as reader:
        assert reader.position() == Position(count=1, applied=7, indexed=1)


def test_a_transaction_within_a_transaction_is_refused(storage: Storage) -> None:
    with storage.transaction(), pytest.raises(StorageError, match="must not append"), storage.transaction():
        pass
    fill(storage, roots(1))


def test_size_grows(storage: Storage) -> None:
    before = storage.size()
    fill(storage, roots(bytes(100_000)))
    assert storage.size() > before + 90_000


def test_closing_does_not_wait_for_ever_for_a_transaction(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Event(), threading.Event()

    def hang() -> None:
        with storage.transaction() as transaction:
            write(transaction, roots("kept"))
            begun.set()
            end.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    begun.wait()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(base, "_CLOSING_SECONDS", 0.01)
            with pytest.raises(StorageError, match=r"a transaction of another thread has not ended for 0\.01 s"):
                storage.close()
    finally:
        end.set()
        thread.join()
    with pytest.raises(LogClosed), storage.transaction():
        pass
    # Now it ends.
    storage.close()


def test_after_close_every_call_says_so(storage: Storage) -> None:
    storage.close()
    storage.close()
    with pytest.raises(LogClosed), storage.reader():
        pass
    with pytest.raises(LogClosed), storage.transaction():
        pass
    with pytest.raises(LogClosed):
        storage.size()
    with pytest.raises(LogClosed):
        storage.check()


def test_it_cannot_be_opened_twice_at_once(storage: Storage) -> None:
    with pytest.raises(StorageError, match="open already"):
        storage.open(TOPIC, True)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_closed_log_is_opened_again(kind: str, tmp_path: Path) -> None:
    storage = MemoryStorage() if kind == "memory" else SQLiteStorage(tmp_path / "log.db")
    with pytest.raises(NotALog):
        storage.open(None, True)
    with pytest.raises(NotALog):
        storage.open(TOPIC, False)
    assert storage.open(TOPIC, True) == TOPIC
    fill(storage, roots(1))
    storage.close()
    with pytest.raises(TopicMismatch, match=r"org\.example\.test"):
        storage.open("another", True)
    assert storage.open(None, False) == TOPIC
    with storage.reader() as reader:
        assert reader.position().count == 1
    storage.close()
