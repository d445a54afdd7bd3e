from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gossiplog import CorruptLog, Log, LogWentBack, Signer, SQLiteStorage, core
from gossiplog.log import state, writing
from gossiplog.log.log import replica_of
from gossiplog.message import PARENTS_OF_MANY_HEADS
from gossiplog.storage.sqlite.tables import SQLiteReader
from gossiplog.storage.sqlite.transactions import SQLiteTransaction
from tests.log.going_back import bring_back, keep

TOPIC = "org.example.test"


def check(log: Log, values: dict[str, bytes]) -> None:
    """Holds what a log says of itself against what its messages say."""
    messages = {id: core.read_message(value, TOPIC) for id, value in values.items()}
    named = {parent for message in messages.values() for parent in message.parents}
    assert log.heads == tuple(sorted(messages.keys() - named))
    assert log.root == core.Tree().insert([(core.decode_id(id), value) for id, value in values.items()]).root
    assert log.clock == 1 + max((message.clock for message in messages.values()), default=0)
    for id in random.Random(len(messages)).sample(sorted(messages), min(3, len(messages))):
        assert log.children(id) == tuple(sorted(child for child in messages if id in messages[child].parents))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("lag", "few"), [(0, 512), (3, 2), (256, 512), (8, 1)])
def test_states_follow_what_any_process_writes(
    tmp_path: Path,
    seed: int,
    lag: int,
    few: int,
    signer: Signer,
    opened: Callable[..., Log],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "INDEX_LAG", lag)
    monkeypatch.setattr(state, "_FEW_ARRIVALS", few)
    monkeypatch.setattr(state, "_PAGE", 5)
    choice = random.Random(seed)
    path = tmp_path / "log.db"
    # Each has a state of its own, as processes have.
    logs = [opened(path, TOPIC, signer=signer) for _ in range(3)]
    values: dict[str, bytes] = {}
    for step in range(25):
        log = choice.choice(logs)
        match choice.randrange(4):
            case 0:
                made = [log.append((seed, step))]
            case 1:
                made = log.append_many([(seed, step, number) for number in range(choice.randrange(5))])
            case 2:
                parents = choice.sample(sorted(values), min(2, len(values)))
                clock = 1 + max((core.decode_clock(core.decode_id(id))[0] for id in parents), default=0)
                _, value = signer.sign(TOPIC, clock, parents, (seed, step))
                made = [core.verify(value, TOPIC)]
                assert log.insert(value) is (made[0].id not in values)
            case _:
                logs[choice.randrange(3)] = opened(path, signer=signer)
                made = []
        values.update((message.id, message.value) for message in made)
        if choice.randrange(3) == 0:
            check(choice.choice(logs), values)
    for log in logs:
        check(log, values)
    assert logs[0].verify().messages == len(values)
    with closing(sqlite3.connect(path)) as connection:
        ((indexed,),) = connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'indexed'")
    assert len(values) - lag <= indexed <= len(values)


def test_appends_write_the_index_for_many_messages_together(
    tmp_path: Path, signer: Signer, opened: Callable[..., Log]
) -> None:
    path = tmp_path / "log.db"
    log = opened(path, TOPIC, signer=signer)
    indexed = []
    with closing(sqlite3.connect(path)) as connection:
        for number in range(2 * state.INDEX_LAG + 10):
            log.append(number)
            indexed += connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'indexed'").fetchone()
    assert sorted(set(indexed)) == [0, state.INDEX_LAG + 1, 2 * (state.INDEX_LAG + 1)]


@dataclass
class Rows:
    """Rows that readers of SQLite have returned."""

    count: int = 0

    def taken(self) -> int:
        """Return how many since the last call."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    counted = Rows()

    def counting(name: str) -> None:
        read = getattr(SQLiteReader, name)

        def count(*arguments: Any) -> Any:
            found = read(*arguments)
            counted.count += len(found)
            return found

        monkeypatch.setattr(SQLiteReader, name, count)

    for name in ("level1", "leaves", "sequences", "arrivals", "links", "contents", "alternatives", "heads"):
        counting(name)
    return counted


@pytest.fixture(scope="module")
def roots() -> list[bytes]:
    """Messages without parents: their keys, and so their places in the tree, are in no order, and all stay heads."""
    return [Signer(bytes(32)).sign(TOPIC, 1, [], number)[1] for number in range(4_000)]


@pytest.mark.slow
def test_a_root_costs_the_rows_of_its_page_however_many_there_are(
    roots: list[bytes], rows: Rows, opened: Callable[..., Log]
) -> None:
    log = opened(topic=TOPIC)
    for count in (500, 3_500):
        log.insert_many(roots[len(log) : count])
        rows.taken()
        # More than the index may be behind, so that it is written.
        log.insert_many(roots[count : count + 300])
        assert rows.taken() < 300 * 40, count
        for value in roots[count + 300 : count + 400]:
            log.insert(value)
        # The index is not due yet, and nobody has asked for the tree.
        assert rows.taken() == 0
        assert replica_of(log).snapshot().state.count == count + 400
        assert rows.taken() < 100 * 40, count


@pytest.mark.slow
def test_scattered_messages_are_replayed_before_the_lock_is_taken(
    roots: list[bytes], opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of 256 in as many places of the tree reads as many pages: all writers would wait for that."""
    locked = Rows()
    read = SQLiteTransaction.leaves

    def counting(*arguments: Any) -> Any:
        found = read(*arguments)
        locked.count += len(found)
        return found

    monkeypatch.setattr(SQLiteTransaction, "leaves", counting)
    log = opened(topic=TOPIC, signer=signer)
    log.insert_many(roots[:3_500])
    most = 0
    for start in range(3_500, 3_500 + 2 * state.INDEX_LAG, 8):
        locked.taken()
        log.insert_many(roots[start : start + 8])
        most = max(most, locked.taken())
    assert 0 < most < 8 * 40 * 2
    log.insert_many(roots[start + 8 : start + state.INDEX_LAG])
    locked.taken()
    # They stand at the end of the tree.
    log.append_many(range(state.INDEX_LAG))
    assert locked.taken() < 4 * 40


@pytest.mark.slow
def test_what_another_process_wrote_is_read_without_the_whole_index(
    tmp_path: Path, roots: list[bytes], rows: Rows, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "INDEX_LAG", 0)
    monkeypatch.setattr(state, "_FEW_ARRIVALS", 16)
    writer = opened(tmp_path / "log.db", synchronous="off")
    writer.insert_many(roots[:3_000])
    # It has a state of its own, as another process has.
    reader = opened(tmp_path / "log.db")
    for count, most in ((3_100, 100 * 40), (4_000, 2 * 4_000 + 200)):
        writer.insert_many(roots[len(writer) : count])
        rows.taken()
        assert replica_of(reader).snapshot().state.count == count
        assert rows.taken() < most
        assert reader.root == writer.root


@pytest.mark.integration
def test_heads_are_found_among_very_many(signer: Signer, opened: Callable[..., Log]) -> None:
    log = opened(topic=TOPIC, signer=signer)
    siblings = [signer.sign(TOPIC, 1, [], number)[1] for number in range(1000)]
    assert log.insert_many(siblings).inserted == 1000
    for value in siblings[:300]:
        message = core.read_message(value, TOPIC)
        log.insert(signer.sign(TOPIC, 2, [message.id], "above")[1])
        assert message.id not in log.heads
    assert len(log.heads) == 1000
    assert len(log.append("next").parents) == PARENTS_OF_MANY_HEADS


@pytest.fixture
def went_back(tmp_path: Path, signer: Signer, opened: Callable[..., Log]) -> Log:
    """A log of five messages that has lost the last two while it was open."""
    # A commit that waits for the disk is counted in a file beside it.
    log = opened(tmp_path / "log.db", TOPIC, signer=signer, synchronous="normal")
    log.append_many(range(3))
    keep(tmp_path / "log.db")
    log.append_many(range(3, 5))
    bring_back(tmp_path / "log.db")
    return log


@pytest.mark.parametrize(
    "call",
    [
        len,
        lambda log: log.root,
        lambda log: log.heads,
        lambda log: log.clock,
        lambda log: replica_of(log).snapshot(),
        lambda log: log.append("more"),
        lambda log: log.append_many(range(2)),
        lambda log: log.insert(Signer(b"\2" * 32).sign(TOPIC, 1, [], "another's")[1]),
        lambda log: next(log.subscribe(after=5)),
        lambda log: replica_of(log).count(),
        lambda log: replica_of(log).heads(),
        lambda log: replica_of(log).position(),
        lambda log: replica_of(log).index(),
        lambda log: replica_of(log).read_unindexed(),
        lambda log: replica_of(log).page(None, None, reverse=False, limit=1, most_bytes=1),
    ],
)
def test_a_log_that_has_gone_back_is_neither_served_nor_built_upon(
    went_back: Log, tmp_path: Path, opened: Callable[..., Log], call: Callable[[Log], object]
) -> None:
    for _ in range(2):
        with pytest.raises(LogWentBack, match="it has 3 messages, and this program has seen 5") as caught:
            call(went_back)
        assert (caught.value.found, caught.value.known) == (3, 5)
    # Nothing was written, and who opens it anew goes on from there.
    again = opened(tmp_path / "log.db", TOPIC)
    assert [message.payload for message in again] == [0, 1, 2]
    again.verify()


@pytest.mark.parametrize("others", [1, 2, 5])
def test_other_messages_in_the_place_of_those_that_were_seen_are_noticed(
    went_back: Log, tmp_path: Path, opened: Callable[..., Log], other_signer: Signer, others: int
) -> None:
    again = opened(tmp_path / "log.db", TOPIC, signer=other_signer, synchronous="normal")
    for number in range(others):
        again.append(f"another's {number}")
    if others == 2:
        # As many as before: only who knows that the connection was another can tell.
        assert len(went_back) == 5
        went_back._storage.__class__ = Reconnected
    for call in (lambda: went_back.root, lambda: went_back.append("more")):
        with pytest.raises(LogWentBack, match="this program has seen 5"):
            call()
    again.verify()


class Reconnected(SQLiteStorage):
    """A storage that has lost a connection and made it anew, since the log was opened."""

    reconnections = 1


def test_after_a_connection_was_lost_the_same_log_goes_on(
    tmp_path: Path, signer: Signer, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = (opened(tmp_path / "log.db", TOPIC, signer=signer) for _ in range(2))
    log.append_many(range(3))
    monkeypatch.setattr(log._storage, "__class__", Reconnected)
    assert len(log) == 3
    other.append("another's")
    log.append("ours")
    assert log.root == other.root
    log.verify()


def test_a_damaged_leaf_of_a_head_is_not_taken_for_an_earlier_log(
    tmp_path: Path, signer: Signer, opened: Callable[..., Log]
) -> None:
    log, other = (opened(tmp_path / "log.db", TOPIC, signer=signer) for _ in range(2))
    log.append_many(range(3))
    other.append("another's")
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection, connection:
        connection.execute("UPDATE gossiplog_leaves SET seq = 77 WHERE seq = 3")
    with pytest.raises(CorruptLog, match="no leaf has its sequence, 3") as caught:
        log.append("more")
    assert not isinstance(caught.value, LogWentBack)
