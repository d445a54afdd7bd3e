from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.pq import PipelineStatus

import gossiplog
from gossiplog import CorruptLog, LogClosed, LogReplaced, RefusedMessage, Signer, StorageError, core
from gossiplog.storage.base import SequencesTaken, Transaction
from gossiplog.storage.postgres import connections
from gossiplog.storage.postgres.connections import quoted
from gossiplog.storage.postgres.storage import PostgresStorage
from gossiplog.storage.postgres.tables import COLUMNS
from tests import postgres
from tests.places import Place
from tests.strategies import repeatable

SIGNER = Signer(bytes(32))


def plan_of(transaction: Transaction, count: int, *payloads: object) -> core.WritePlan:
    values = [SIGNER.sign("topic", 1, [], payload)[1] for payload in payloads]
    return core.verify_batch(values, "topic").plan(count + 1, {}, transaction.links)


def add(storage: PostgresStorage, count: int, *payloads: object, is_blind: bool = True) -> None:
    with storage.transaction() as transaction:
        if not is_blind:
            assert transaction.position().count == count
        transaction.write(plan_of(transaction, count, *payloads))


def count(storage: PostgresStorage) -> int:
    with storage.reader(single=True) as reader:
        return reader.position().count


@contextmanager
def counted_trips() -> Iterator[list[str]]:
    """Note each wait for the server: what is queued in a pipeline is sent with its end."""
    trips: list[str] = []
    wait = psycopg.Connection.wait

    def noting(connection: Any, *arguments: Any, **options: Any) -> Any:
        is_queued = connection.pgconn.pipeline_status == PipelineStatus.ON and arguments[0].__name__ != "_exit_gen"
        if not is_queued and arguments[0].__name__ != "_enter_gen":
            trips.append(arguments[0].__name__)
        return wait(connection, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "wait", noting)
        yield trips


def test_round_trips(in_postgres: PostgresStorage) -> None:
    with counted_trips() as trips, in_postgres.transaction():
        pass
    assert len(trips) == 0
    # What was planned without a look at the log: all at once, but for the plan that the server makes before the first.
    add(in_postgres, 0, "first")
    for trips_taken in (2, 1):
        before = count(in_postgres)
        with counted_trips() as trips:
            add(in_postgres, before, f"takes {trips_taken}")
        assert len(trips) == trips_taken
    with counted_trips() as trips, in_postgres.transaction() as transaction:
        transaction.write(plan_of(transaction, transaction.position().count, "fourth", "fifth"))
        transaction.set_applied(5)
    # To begin and read, and to write and commit.
    assert len(trips) == 2
    assert count(in_postgres) == 5


@pytest.mark.slow
def test_savepoints_take_no_round_trips(in_postgres: PostgresStorage) -> None:
    with in_postgres.transaction() as transaction:
        with transaction.savepoint():
            transaction.execute("CREATE TABLE mine (a integer)")
            transaction.execute("INSERT INTO mine VALUES (%s)", (0,))
        # Notes the table, once.
        transaction.set_applied(0)
    with counted_trips() as trips, in_postgres.transaction() as transaction:
        transaction.position()
        for number in range(10):
            with transaction.savepoint():
                if number % 2:
                    transaction.execute("INSERT INTO mine VALUES (%s)", (number,))
        transaction.set_applied(7)
    assert len(trips) == 1 + 5 + 1
    assert Place(str(in_postgres.url)).rows("SELECT a FROM mine ORDER BY a") == [(n,) for n in (0, 1, 3, 5, 7, 9)]


@pytest.mark.slow
def test_a_refused_message_is_undone_alone(in_postgres: PostgresStorage) -> None:
    def run(transaction: Transaction, number: int) -> None:
        with transaction.savepoint():
            transaction.execute("INSERT INTO mine VALUES (%s)", (number,))
            transaction.execute("INSERT INTO mine VALUES (%s)", (-number,))
            if number % 3 == 0:
                raise ZeroDivisionError

    with in_postgres.transaction() as transaction:
        with transaction.savepoint():
            transaction.execute("CREATE TABLE mine (a integer)")
        for number in range(1, 10):
            if number % 3:
                run(transaction, number)
            else:
                with pytest.raises(ZeroDivisionError):
                    run(transaction, number)
        transaction.set_applied(9)
    rows = Place(str(in_postgres.url)).rows("SELECT a FROM mine WHERE a > 0 ORDER BY a")
    assert rows == [(n,) for n in (1, 2, 4, 5, 7, 8)]
    assert Place(str(in_postgres.url)).rows("SELECT count(*) FROM mine") == [(12,)]


@pytest.mark.slow
def test_a_message_that_breaks_a_deferred_constraint_is_refused_alone(postgres_url: str) -> None:
    def setup(transaction: Any) -> None:
        transaction.execute("CREATE TABLE item (id integer PRIMARY KEY)")
        transaction.execute("CREATE TABLE part (item integer REFERENCES item DEFERRABLE INITIALLY DEFERRED)")

    def apply(message: Any, transaction: Any) -> None:
        # In this order: within a message the constraint waits.
        transaction.execute("INSERT INTO part VALUES (%s)", (message.payload,))
        if message.payload != 2:
            transaction.execute("INSERT INTO item VALUES (%s)", (message.payload,))

    with gossiplog.open(postgres_url, "org.example.test", apply=apply, setup=setup) as log:
        result = log.insert_many([SIGNER.sign("org.example.test", 1, [], number)[1] for number in (1, 2, 3)])
        assert (result.inserted, len(result.refused)) == (2, 1)
    assert Place(postgres_url).rows("SELECT item FROM part ORDER BY item") == [(1,), (3,)]


@pytest.mark.slow
def test_a_table_that_somebody_changes_is_no_verdict_on_a_message(postgres_url: str) -> None:
    def apply(message: Any, transaction: Any) -> None:
        transaction.execute("SELECT * FROM looked_at").fetchall()

    place = Place(postgres_url)
    with gossiplog.open(postgres_url, "org.example.test", apply=apply, signer=Signer(bytes(32))) as log:
        place.rows("CREATE TABLE looked_at (a integer)")
        for number in range(8):
            log.append(number)
        place.rows("ALTER TABLE looked_at ADD COLUMN b integer")
        # It may take one more attempt; it is never the message's fault.
        with suppress(StorageError):
            log.append(8)
        log.append(9)


@pytest.mark.slow
def test_a_statement_that_fails_has_no_effect_and_apply_may_go_on(in_postgres: PostgresStorage) -> None:
    with in_postgres.transaction() as transaction:
        with transaction.savepoint():
            with pytest.raises(psycopg.errors.UndefinedTable):
                transaction.execute("SELECT * FROM nowhere")
            transaction.execute("CREATE TABLE mine (a integer UNIQUE)")
            transaction.execute("INSERT INTO mine VALUES (1)")
            for _ in range(2):
                with pytest.raises(psycopg.errors.UniqueViolation):
                    transaction.execute("INSERT INTO mine VALUES (2), (1)")
            transaction.execute("INSERT INTO mine VALUES (3)")
        transaction.set_applied(1)
    assert Place(str(in_postgres.url)).rows("SELECT a FROM mine ORDER BY a") == [(1,), (3,)]


@pytest.mark.slow
def test_failures_in_pipelines_forget_no_statement(in_postgres: PostgresStorage, caplog: Any) -> None:
    """The driver takes for prepared what was to be prepared behind a statement that failed."""
    with caplog.at_level(logging.DEBUG, "psycopg"):
        for number in range(20):
            with pytest.raises(SequencesTaken):
                add(in_postgres, 0 if number else 5, number, -number - 1)
            if not number:
                add(in_postgres, 0, "first")
        for number in range(1, 8):
            add(in_postgres, number, number)
    assert count(in_postgres) == 8
    assert [record for record in caplog.records if "ignored" in record.getMessage()] == []


STEPS = {
    "append": [],
    "append often": [[]] * 7,
    "write": ["INSERT INTO mine VALUES (1)"],
    "write often": [["INSERT INTO mine VALUES (1)"]] * 7,
    "refuse": ["INSERT INTO mine VALUES (1)", "refuse"],
    "refuse at once": ["refuse"],
    "fail": ["INSERT INTO mine VALUES (2)", "SELECT * FROM nowhere", "INSERT INTO mine VALUES (3)"],
    "break a constraint": ["INSERT INTO part VALUES (1)"],
    "drop": ["DROP TABLE IF EXISTS scratch", "CREATE TABLE scratch (a integer)"],
    "alter": ["ALTER TABLE scratch ADD COLUMN IF NOT EXISTS b integer"],
    "forget": ["DEALLOCATE ALL"],
}
OTHERS = ("insert many", "behind another's", "long", "give up", "lost")


@pytest.mark.slow
@repeatable(15)
@given(st.lists(st.sampled_from((*STEPS, *OTHERS)), min_size=4, max_size=16))
@example(["write often", "refuse at once", "append", "drop", "write often", "fail", "append"])
def test_an_append_is_stored_whatever_went_before(names: list[str]) -> None:
    """What the driver, the server and the session hold for planned is one."""

    def setup(transaction: Any) -> None:
        for table in ("mine (a integer)", "scratch (a integer)", "item (id integer PRIMARY KEY)"):
            transaction.execute(f"CREATE TABLE {table}")
        transaction.execute("CREATE TABLE part (item integer REFERENCES item DEFERRABLE INITIALLY DEFERRED)")

    def apply(message: Any, transaction: Any) -> None:
        for statement in message.payload["run"]:
            if statement == "refuse":
                raise ValueError
            if "nowhere" in statement:
                with pytest.raises(psycopg.errors.UndefinedTable):
                    transaction.execute(statement)
            else:
                transaction.execute(statement)

    numbers = itertools.count()

    def payload(*statements: str) -> dict[str, Any]:
        return {"run": list(statements), "number": next(numbers)}

    opened = partial(gossiplog.open, apply=apply)
    stored = 0
    with (
        postgres.schema_of(server := postgres.shared_server()) as schema,
        opened(url := server.url(schema, application_name=schema), "topic", signer=SIGNER, setup=setup) as log,
        opened(url, "topic", signer=Signer(bytes([1] * 32))) as other,
    ):
        for name in names:
            if name in STEPS:
                for run in STEPS[name] if "often" in name else [STEPS[name]]:
                    with suppress(RefusedMessage):
                        log.append(payload(*run))
                        stored += 1
            elif name == "insert many":
                values = [SIGNER.sign("topic", 1, [], payload())[1] for _ in range(20)]
                stored += log.insert_many(values).inserted
            elif name == "behind another's":
                other.append(payload())
                stored += 1
            elif name == "long":
                log.append(payload() | {"text": "x" * 5000})
                stored += 1
            elif name == "give up":
                with suppress(ZeroDivisionError), log._storage.transaction() as transaction:
                    transaction.position()
                    raise ZeroDivisionError
            else:
                server.end_backends(schema)
            log.append(payload())
            stored += 1
        assert len(log) == len(other) == stored
        assert log.root == other.root
        log.verify()


def test_the_application_reads_what_it_wrote_and_the_log(in_postgres: PostgresStorage) -> None:
    add(in_postgres, 0, "one")
    with in_postgres.transaction() as transaction, transaction.savepoint():
        cursor = transaction.execute("SELECT count(*) FROM gossiplog_messages WHERE seq > %s", (0,))
        assert cursor.fetchone() == (1,)
        assert transaction.execute("SELECT 5 % 3").fetchone() == (2,)
        assert transaction.execute("SELECT %(a)s::int %% 3", {"a": 5}).fetchone() == (2,)
    with pytest.raises(psycopg.InterfaceError, match="closed"):
        cursor.fetchone()
    with pytest.raises(StorageError, match="has ended"):
        transaction.execute("SELECT 1")


def test_an_application_that_ends_the_transaction_otherwise_is_noticed(in_postgres: PostgresStorage) -> None:
    def end() -> None:
        with in_postgres.transaction() as transaction:
            transaction.set_applied(1)
            with transaction.savepoint():
                transaction.execute("SELECT 1").connection.rollback()

    with pytest.raises(StorageError, match="ended the transaction"):
        end()
    add(in_postgres, 0, "after it")


def test_a_constraint_that_waits_for_the_commit_is_the_applications(in_postgres: PostgresStorage) -> None:
    place = Place(str(in_postgres.url))
    place.rows("CREATE TABLE one (a integer PRIMARY KEY)")
    place.rows("CREATE TABLE other (a integer REFERENCES one DEFERRABLE INITIALLY DEFERRED)")

    def violate() -> None:
        with in_postgres.transaction() as transaction:
            transaction.write(plan_of(transaction, 0, "it"))
            with transaction.savepoint():
                transaction.execute("INSERT INTO other VALUES (1)")

    with pytest.raises(StorageError, match="application's tables do not take") as failure:
        violate()
    assert not isinstance(failure.value, CorruptLog)
    assert count(in_postgres) == 0


@pytest.mark.slow
def test_another_process_that_writes_is_waited_for(
    in_postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOCK_SECONDS", 0.05)
    other = PostgresStorage(in_postgres.url)
    other.open("topic", False)
    with in_postgres.transaction() as transaction:
        transaction.position()
        # Reading waits for nobody.
        assert count(other) == 0
        with pytest.raises(StorageError, match="did not release its lock in time"):
            add(other, 0, "too early")
    begun, end = threading.Event(), threading.Event()
    monkeypatch.setattr(connections, "LOCK_SECONDS", 30)
    patient = PostgresStorage(in_postgres.url)
    patient.open("topic", False)

    def hold() -> None:
        with in_postgres.transaction() as transaction:
            transaction.position()
            begun.set()
            end.wait()
            transaction.write(plan_of(transaction, 0, "first"))

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    second = threading.Thread(target=add, args=(patient, 1, "second"))
    second.start()
    end.set()
    thread.join()
    second.join()
    assert count(in_postgres) == 2
    other.close()
    patient.close()
    with pytest.raises(LogClosed):
        count(patient)


@pytest.mark.parametrize("number", [2, 600])
def test_a_plan_is_written_as_a_whole_or_not_at_all(in_postgres: PostgresStorage, number: int) -> None:
    """Of few messages by arrays, of many by COPY."""
    add(in_postgres, 0, "first")
    with pytest.raises(SequencesTaken):
        add(in_postgres, 0, *range(number))
    assert count(in_postgres) == 1
    add(in_postgres, 1, *range(number))
    with in_postgres.reader() as reader:
        assert reader.position().count == len(reader.leaves(b"", None, number + 1)) == number + 1


def test_a_placeholder_of_sqlite_is_named(in_postgres: PostgresStorage) -> None:
    with in_postgres.transaction() as transaction, pytest.raises(psycopg.ProgrammingError, match="is %s, and not"):
        transaction.execute("SELECT ?", (1,))


@pytest.mark.parametrize("table", ["gossiplog_messages", "gossiplog_leaves"])
@pytest.mark.parametrize("payloads", [["one"], ["one", "two"]])
def test_a_rule_that_swallows_messages_is_noticed(
    in_postgres: PostgresStorage, table: str, payloads: list[str]
) -> None:
    add(in_postgres, 0, "first")
    add(in_postgres, 1, "second")
    Place(str(in_postgres.url)).rows(f"CREATE RULE mine AS ON INSERT TO {table} DO INSTEAD NOTHING")
    with pytest.raises(StorageError, match="rule on its tables"):
        add(in_postgres, 2, *payloads)
    Place(str(in_postgres.url)).rows(f"DROP RULE mine ON {table}")
    add(in_postgres, 2, *payloads)
    assert count(in_postgres) == 2 + len(payloads)


@pytest.mark.parametrize("table", ["gossiplog_messages", "gossiplog_leaves"])
@pytest.mark.parametrize(("number", "is_blind"), [(1, True), (1, False), (2, True), (600, False)])
def test_a_trigger_that_swallows_messages_is_noticed(
    in_postgres: PostgresStorage, table: str, number: int, is_blind: bool
) -> None:
    add(in_postgres, 0, "first")
    place = Place(str(in_postgres.url))
    place.rows("CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    place.rows(f"CREATE TRIGGER mine BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION mine()")
    with pytest.raises(StorageError, match=r"a trigger on .* tables keeps rows from being stored: drop it"):
        add(in_postgres, 1, *range(number), is_blind=is_blind)
    place.rows(f"DROP TRIGGER mine ON {table}")
    add(in_postgres, 1, *range(number), is_blind=is_blind)
    with in_postgres.reader() as reader:
        assert reader.position().count == len(reader.leaves(b"", None, number + 1)) == number + 1


@pytest.mark.slow
@pytest.mark.parametrize("payloads", [["third"], ["third", "fourth"]])
def test_who_has_a_log_open_notices_that_a_copy_took_its_place(
    in_postgres: PostgresStorage, payloads: list[str]
) -> None:
    """A copy has the same identity and messages, and another schema: its lock and its channel are others."""
    add(in_postgres, 0, "first")
    add(in_postgres, 1, "second")
    place = Place(str(in_postgres.url))
    schema = quoted(in_postgres.url.schema)
    old = quoted(f"{in_postgres.url.schema}_old")
    place.rows(f"ALTER SCHEMA {schema} RENAME TO {old}")
    with closing(PostgresStorage(in_postgres.url)) as copy:
        copy.open("topic", create=True)
        for table in COLUMNS:
            place.rows(f"DELETE FROM {schema}.{table}")
            place.rows(f"INSERT INTO {schema}.{table} SELECT * FROM {old}.{table}")
    place.rows(f"DROP SCHEMA {old} CASCADE")
    with pytest.raises(SequencesTaken):
        add(in_postgres, 2, *payloads)
    with pytest.raises(LogReplaced):
        count(in_postgres)
    with pytest.raises(LogReplaced), in_postgres.transaction() as transaction:
        transaction.position()
