from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from gossiplog import CorruptLog, LogClosed, Signer, StorageError, core
from gossiplog.storage.base import PAGE_BYTES, SequencesTaken, Transaction
from gossiplog.storage.postgres.storage import PostgresStorage
from tests.places import Place
from tests.postgres import Server

SIGNER = Signer(bytes(32))


def fill(storage: PostgresStorage, *payloads: object) -> core.WritePlan:
    with storage.transaction() as transaction:
        return write(transaction, *payloads)


def write(transaction: Transaction, *payloads: object) -> core.WritePlan:
    count = transaction.position().count
    values = sorted(SIGNER.sign("topic", 1, [], payload) for payload in payloads)
    plan = core.verify_batch([value for _, value in values], "topic").plan(count + 1, {}, transaction.links)
    tree = core.Tree.open(transaction.level1(), count)
    _, level1 = tree.insert_leaves(plan.leaves, lambda start, end: transaction.leaves(start, end, count))
    transaction.index(plan, level1, count + len(plan.order))
    transaction.write(plan)
    return plan


def test_synchronous_is_checked_and_set(postgres_url: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        PostgresStorage(postgres_url, synchronous="fully")  # type: ignore[arg-type]
    found = []
    for setting in ("off", "normal", "full", "extra"):
        storage = PostgresStorage(postgres_url, synchronous=setting)  # type: ignore[arg-type]
        storage.open("topic", True)
        with storage.transaction() as transaction:
            found += transaction.execute("SHOW synchronous_commit").fetchall()
        storage.close()
    assert found == [("off",), ("off",), ("on",), ("on",)]


def test_a_log_that_is_read_only_is_not_written(in_postgres: PostgresStorage) -> None:
    storage = PostgresStorage(in_postgres.url, read_only=True)
    storage.open(None, True)
    assert storage.read_only
    with pytest.raises(StorageError, match="opened read-only"):
        storage.transaction()
    with storage.reader() as reader:
        assert reader.position().count == 0
    storage.close()


def test_a_role_that_cannot_write_is_known_when_the_log_is_open(
    postgres_server: Server, in_postgres: PostgresStorage
) -> None:
    assert in_postgres.write_refusal == ""
    schema = in_postgres.url.schema
    role = f"role_of_{schema}"
    postgres_server.role(role)

    def refusal(**parameters: str) -> str:
        storage = PostgresStorage(postgres_server.url(schema, user=role, **parameters))
        storage.open(None, False)
        storage.close()
        return storage.write_refusal

    try:
        for grant in ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA"):
            postgres_server.run(f"GRANT {grant} {schema} TO {role}")
        assert refusal().startswith(f"the role {role} lacks the right to INSERT on gossiplog_alternatives, ")
        postgres_server.run(f"GRANT INSERT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        assert refusal() == (
            f"the role {role} lacks the right to UPDATE on gossiplog_meta, gossiplog_tree, and to DELETE on"
            " gossiplog_heads"
        )
        postgres_server.run(f"GRANT UPDATE ON {schema}.gossiplog_meta, {schema}.gossiplog_tree TO {role}")
        postgres_server.run(f"GRANT DELETE ON {schema}.gossiplog_heads TO {role}")
        assert refusal() == ""
        on = "default_transaction_read_only=on"
        assert refusal(options=f"-c {on}").startswith("default_transaction_read_only is on")
    finally:
        postgres_server.drop_role(role)


def test_readers_see_one_state_and_wait_for_no_writer(in_postgres: PostgresStorage) -> None:
    fill(in_postgres, 1)
    with in_postgres.reader() as before:
        assert before.position().count == 1
        with in_postgres.transaction() as transaction:
            write(transaction, 2)
            with in_postgres.reader() as during:
                assert during.position().count == 1
        assert before.position().count == 1
        assert len(before.arrivals(0, 5)) == 1
    with in_postgres.reader() as after:
        assert after.position().count == 2


def test_values_beyond_a_limit_are_not_read(in_postgres: PostgresStorage) -> None:
    plan = fill(in_postgres, *(bytes([number]) * 10_000 for number in range(40)))
    pairs = [(key, value) for (key, _, _), (_, value, _) in zip(plan.leaves, plan.messages, strict=True)]
    keys = [key for key, _ in pairs]
    with in_postgres.reader() as reader:
        assert reader.values(keys, 40, 35_000) == dict(pairs[:4])
        assert reader.values(keys[::-1], 40, 0) == dict(pairs[:1])
        assert reader.values(keys[:3], 40, 10**6) == dict(pairs[:3])


@pytest.mark.slow
def test_a_scan_of_long_values_takes_a_page_at_a_time(in_postgres: PostgresStorage) -> None:
    plan = fill(in_postgres, *(bytes([number]) * (PAGE_BYTES // 3) for number in range(10)))
    with in_postgres.reader() as reader, reader.scan(("value", "seq"), b"", None, 10) as rows:
        assert [*rows] == [(value, sequence) for sequence, value, _ in plan.messages]


def test_others_reads_go_on_while_a_scan_is_read(in_postgres: PostgresStorage) -> None:
    keys = [key for key, _, _ in fill(in_postgres, *range(50)).leaves]
    with in_postgres.reader() as reader, reader.scan(("key",), b"", None, 50) as rows:
        assert next(rows) == (keys[0],)
        assert reader.sequences(keys[:1]) == {keys[0]: 1}
        assert [key for (key,) in rows] == keys[1:]


def test_a_forked_process_is_told_to_open_the_log_again(
    in_postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(StorageError, match="forked"), in_postgres.transaction():
        pass
    with pytest.raises(StorageError, match="forked"), in_postgres.reader():
        pass
    monkeypatch.setattr(os, "getpid", lambda: own)
    with in_postgres.reader() as reader:
        assert reader.position().count == 0


def test_a_fork_that_ends_leaves_the_connections_to_its_parent(in_postgres: PostgresStorage) -> None:
    fill(in_postgres, 1)
    child = os.fork()
    if not child:
        # Nothing of pytest's may run in it.
        try:
            in_postgres.close()
            with pytest.raises(LogClosed), in_postgres.reader():
                pass
            in_postgres.__dict__.clear()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    fill(in_postgres, 2)
    with in_postgres.reader() as reader:
        assert reader.position().count == 2


def test_a_forked_process_closes_without_waiting_for_the_lock(
    in_postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getpid()
    with in_postgres.transaction():
        # As in a child of this moment, where the thread that holds the lock does not exist.
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        closer = threading.Thread(target=in_postgres.close, daemon=True)
        closer.start()
        closer.join(60)
        assert not closer.is_alive()
        monkeypatch.setattr(os, "getpid", lambda: own)


@pytest.mark.parametrize(
    ("change", "read", "said"),
    [
        ("UPDATE gossiplog_meta SET value = '-1' WHERE name = 'applied'", "position", "the cursor of `apply`"),
        ("UPDATE gossiplog_meta SET value = '9' WHERE name = 'indexed'", "position", "the index goes up to '9'"),
        ("UPDATE gossiplog_meta SET value = '1e3' WHERE name = 'generation'", "position", "the generation is '1e3'"),
        ("UPDATE gossiplog_meta SET value = '0' WHERE name = 'apply_version'", "position", "version of `apply` is '0'"),
        ("DELETE FROM gossiplog_meta WHERE name = 'rebuild'", "position", "the rebuild of the .* goes up to None"),
        ("UPDATE gossiplog_messages SET seq = 9223372036854775807 WHERE seq = 3", "position", "has the sequence"),
        ("UPDATE gossiplog_leaves SET seq = 0 WHERE seq = 2", "sequences", "has the sequence 0: expected 1 or more"),
        ("UPDATE gossiplog_leaves SET seq = 9 WHERE seq = 2", "number", "1 leaf has the sequence of no message"),
        ("DELETE FROM gossiplog_messages WHERE seq = 2", "links", "there is no message with the sequence 2"),
        ("DROP TABLE gossiplog_leaves", "sequences", "its tables were dropped or renamed meanwhile"),
        ("ALTER TABLE gossiplog_leaves DROP COLUMN hash", "page", "its tables are not those of a log"),
    ],
)
def test_what_is_damaged_is_said(in_postgres: PostgresStorage, change: str, read: str, said: str) -> None:
    keys = [key for key, _, _ in fill(in_postgres, 1, 2, 3).leaves]
    Place(str(in_postgres.url)).rows(change)
    arguments = {
        "sequences": (keys,),
        "number": (None, None, 3),
        "links": ([1, 2, 3],),
        "page": (None, None, False, 5, 3),
    }
    with pytest.raises(StorageError, match=said) as failure, in_postgres.reader() as reader:
        getattr(reader, read)(*arguments.get(read, ()))
    assert isinstance(failure.value, CorruptLog) or "DROP" in change


def test_strays_are_listed_and_lost_values_are_empty(in_postgres: PostgresStorage) -> None:
    keys = [key for key, _, _ in fill(in_postgres, 1, 2, 3).leaves]
    place = Place(str(in_postgres.url))
    place.rows("DELETE FROM gossiplog_messages WHERE seq = 3")
    place.rows("UPDATE gossiplog_meta SET value = '2' WHERE name = 'indexed'")
    place.rows("INSERT INTO gossiplog_children VALUES (1, 9)")
    place.rows("INSERT INTO gossiplog_alternatives VALUES (-1, '')")
    with in_postgres.reader() as reader:
        assert [table for table, _ in reader.strays(replace(reader.position(), indexed=3))] == [
            "leaves",
            "children",
            "alternatives",
        ]
        with reader.scan(("value",), b"", None, 3) as rows:
            assert [*rows][2] == (b"",)
        assert reader.values(keys, 3)[keys[2]] == b""
        assert reader.page(None, None, True, 1, 3)[0][2] == b""


@pytest.mark.parametrize("is_blind", [False, True])
def test_another_log_in_the_same_tables_is_noticed(in_postgres: PostgresStorage, is_blind: bool) -> None:
    """As a rebase leaves it, which may have as many messages."""
    fill(in_postgres, 1)
    values = [SIGNER.sign("topic", 1, [], 2)[1]]
    Place(str(in_postgres.url)).rows("UPDATE gossiplog_meta SET value = repeat('ab', 16) WHERE name = 'identity'")
    with pytest.raises(StorageError, match="is not there any more"), in_postgres.reader() as reader:
        reader.position()

    def write() -> None:
        with in_postgres.transaction() as transaction:
            if not is_blind:
                transaction.position()
            transaction.write(core.verify_batch(values, "topic").plan(2, {}, lambda _: []))

    with pytest.raises(SequencesTaken if is_blind else StorageError):
        write()
    assert Place(str(in_postgres.url)).rows("SELECT count(*) FROM gossiplog_messages") == [(1,)]


@pytest.mark.slow
def test_damage_in_the_files_is_found(own_postgres: Callable[..., Server]) -> None:
    server = own_postgres()
    storage = PostgresStorage(server.url("damaged"))
    storage.open("topic", True)
    fill(storage, *(bytes(400) + bytes([n]) for n in range(200)))
    assert storage.check() == []
    storage.close()
    ((name,),) = server.run("SELECT pg_relation_filepath('damaged.gossiplog_messages')")
    server.stop()
    with (server.data / name).open("r+b") as file:
        file.seek(8192 + 16)
        file.write(b"\xff" * 64)
    server.start()
    storage.open("topic", False)
    (problem,) = [line for line in storage.check() if "gossiplog_messages" in line]
    assert problem.startswith("Postgres: gossiplog_messages: ")
    with pytest.raises(CorruptLog, match="XX001"), storage.reader() as reader:
        reader.arrivals(0, 1000)
    storage.close()
