from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import gossiplog
from gossiplog import CorruptLog, NotALog, Signer, StorageError, TopicMismatch
from gossiplog.errors import NewerSchema, OlderSchema
from gossiplog.log import Log
from gossiplog.storage.postgres import connections
from gossiplog.storage.postgres.storage import PostgresStorage
from gossiplog.types import Register
from tests import postgres
from tests.places import Place
from tests.postgres import Server

# Names that mean something to Postgres, to the driver, or to statements that are put together.
ODD = ['My "log"', "50%s off", "a; DROP SCHEMA public", "select", "Ünïcode", "a'b", "@", "a.b", "{x}", "%%", "x" * 63]


@pytest.fixture
def place(postgres_url: str) -> Place:
    """A schema in Postgres; nothing is there."""
    return Place(postgres_url)


def opened(location: str, topic: str | None = "topic", create: bool = True, **options: Any) -> PostgresStorage:
    storage = PostgresStorage(location, **options)
    storage.open(topic, create)
    return storage


def reopen(location: str) -> None:
    opened(location, None, False).close()


@pytest.mark.parametrize("name", ODD)
def test_names_that_need_quotes(postgres_server: Server, name: str, opened: Callable[..., Log], signer: Signer) -> None:
    with postgres.schema_of(postgres_server, name):
        log = opened(postgres_server.url(name), "org.example.test", signer=signer)
        log.append_many(range(600))
        log.append("one")
        assert len(opened(postgres_server.url(name), None)) == 601
        assert log.verify().messages == 601
        log.close()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII", "LATIN1"])
def test_encodings_of_databases(own_postgres: Callable[..., Server], encoding: str, signer: Signer) -> None:
    """A message with a text that one does not have was refused by this replica's tables alone."""
    server = own_postgres()
    server.run(
        f"CREATE DATABASE other OWNER gossip ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    url = server.url("notes", database="other")
    title = Register("title")
    if encoding == "LATIN1":
        with pytest.raises(StorageError, match=r"has the encoding LATIN1, .*: make the database with `createdb "):
            gossiplog.open(url, "topic", apply=title.apply, setup=title.setup, signer=signer)
        # One that a former version made there can be copied.
        with pytest.raises(NotALog):
            gossiplog.open(url, "topic", read_only=True)
        return
    with gossiplog.open(url, "topic", apply=title.apply, setup=title.setup, signer=signer) as log:
        log.append(title.set("€😀"))
    with server.connect("gossip", "other") as database:
        database.execute("SET search_path = notes")
        if encoding == "SQL_ASCII":
            with pytest.raises(TypeError, match=r"^the connection's client_encoding is SQL_ASCII.*: expected UTF8$"):
                title.get(database)
            database.execute("SET client_encoding = 'UTF8'")
        assert title.get(database) == "€😀"


def test_a_log_is_found_made_and_held_against_its_topic(postgres_url: str) -> None:
    storage = PostgresStorage(postgres_url)
    with pytest.raises(NotALog, match=r"holds no log in its schema .*: give a topic to make one"):
        storage.open(None, True)
    with pytest.raises(NotALog):
        storage.open("topic", False)
    with pytest.raises(NotALog):
        PostgresStorage(postgres_url, read_only=True).open("topic", True)
    assert storage.open("topic", True) == "topic"
    storage.close()
    with pytest.raises(TopicMismatch, match="'topic', not 'another'"):
        storage.open("another", True)
    assert storage.open(None, False) == "topic"
    assert len(storage.identity) == 16
    storage.close()


def test_many_make_the_same_log_at_once(postgres_url: str) -> None:
    made: list[bytes] = []

    def make() -> None:
        storage = opened(postgres_url)
        made.append(storage.identity)
        storage.close()

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    assert len({*made}) == 1


def test_a_log_stands_beside_an_applications_tables(place: Place) -> None:
    place.rows("CREATE TABLE notes (a integer)")
    opened(place.location).close()
    reopen(place.location)
    assert place.rows("SELECT * FROM notes") == []


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ("DROP TABLE gossiplog_heads", CorruptLog, "gossiplog_heads is missing"),
        ("DROP TABLE gossiplog_meta", NotALog, "but gossiplog_alternatives: names that begin with gossiplog_"),
        ("CREATE TABLE gossiplog_mine (a integer)", CorruptLog, "gossiplog_mine is not one that this package makes"),
        ("ALTER TABLE gossiplog_leaves ADD COLUMN a integer", CorruptLog, "gossiplog_leaves has other columns"),
        ("ALTER TABLE gossiplog_tree ALTER hash DROP NOT NULL", CorruptLog, "gossiplog_tree has other columns"),
        ("ALTER TABLE gossiplog_messages ALTER seq TYPE integer", CorruptLog, "gossiplog_messages has other columns"),
        ("ALTER TABLE gossiplog_heads DROP CONSTRAINT gossiplog_heads_pkey", CorruptLog, "another primary key"),
        ("DROP TRIGGER gossiplog_guard ON gossiplog_tree", CorruptLog, "gossiplog_tree lacks the trigger"),
        (
            "CREATE TRIGGER mine BEFORE INSERT ON gossiplog_heads EXECUTE FUNCTION gossiplog_guard()",
            CorruptLog,
            "has the trigger mine: drop it",
        ),
        ("ALTER TABLE gossiplog_messages ENABLE ROW LEVEL SECURITY", CorruptLog, "row security"),
        ("CREATE RULE mine AS ON INSERT TO gossiplog_tree DO INSTEAD NOTHING", CorruptLog, "rules"),
        (
            "ALTER TABLE gossiplog_heads RENAME TO mine; CREATE VIEW gossiplog_heads AS SELECT * FROM mine",
            CorruptLog,
            "gossiplog_heads in .* is no table",
        ),
        ("UPDATE gossiplog_meta SET value = '5' WHERE name = 'schema'", NewerSchema, "version 5.*upgrade gossiplog"),
        ("UPDATE gossiplog_meta SET value = '3' WHERE name = 'schema'", OlderSchema, "version 3"),
        ("UPDATE gossiplog_meta SET value = 'x' WHERE name = 'schema'", NotALog, "says something else"),
        ("DELETE FROM gossiplog_meta WHERE name = 'topic'", NotALog, "says something else"),
        ("ALTER TABLE gossiplog_meta RENAME value TO other", NotALog, "says something else"),
        ("UPDATE gossiplog_meta SET value = '' WHERE name = 'identity'", CorruptLog, "identity"),
    ],
)
def test_a_schema_that_holds_something_else(place: Place, change: str, error: type[Exception], said: str) -> None:
    opened(place.location).close()
    for each in change.split("; "):
        place.rows(each)
    with pytest.raises(error, match=said):
        reopen(place.location)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE gossiplog_messages DISABLE TRIGGER ALL", "is off: ALTER TABLE gossiplog_messages ENABLE TRIGGER"),
        ("ALTER TABLE gossiplog_heads ENABLE REPLICA TRIGGER gossiplog_guard", "is off"),
        (
            "CREATE OR REPLACE FUNCTION gossiplog_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN null; END'",
            "is another",
        ),
        ("ALTER FUNCTION gossiplog_guard() SECURITY DEFINER", "is another"),
        ("ALTER FUNCTION gossiplog_guard() RESET ALL", "is another"),
        (
            "CREATE OR REPLACE TRIGGER gossiplog_guard BEFORE INSERT ON gossiplog_heads EXECUTE FUNCTION @()",
            "is another",
        ),
        (
            "CREATE OR REPLACE TRIGGER gossiplog_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON gossiplog_heads"
            " WHEN (current_setting('gossiplog.in_apply', true) = 'off') EXECUTE FUNCTION @()",
            "is another",
        ),
    ],
)
def test_a_guard_that_is_off_or_another_is_noticed(place: Place, change: str, said: str) -> None:
    opened(place.location).close()
    if "OR REPLACE TRIGGER" in change:  # which Postgres has from 14 on
        place.rows("DROP TRIGGER gossiplog_guard ON gossiplog_heads")
    place.rows(change.replace("OR REPLACE TRIGGER", "TRIGGER").replace("@", "gossiplog_guard"))
    with pytest.raises(CorruptLog, match=f"gossiplog_guard of the table .* {said}"):
        reopen(place.location)


@pytest.mark.parametrize("table", ["gossiplog_meta", "gossiplog_messages"])
def test_a_table_that_a_crash_would_empty_is_refused(place: Place, table: str) -> None:
    opened(place.location).close()
    place.rows(f"ALTER TABLE {table} SET UNLOGGED")
    with pytest.raises(CorruptLog, match=f"{table} .* is UNLOGGED, and a crash of the server empties it"):
        reopen(place.location)


def test_where_there_is_no_log_the_others_are_named(place: Place, postgres_server: Server) -> None:
    opened(place.location).close()
    with pytest.raises(NotALog, match=r"holds no log in its schema none \(there are logs in \w+"):
        reopen(postgres_server.url("none"))


def test_messages_that_are_all_gone_are_missed(place: Place, signer: Signer) -> None:
    with gossiplog.open(place.location, "topic", signer=signer) as log:
        log.append("lost")
    place.rows("TRUNCATE gossiplog_messages")
    for read_only in (False, True):
        with pytest.raises(CorruptLog, match="messages were lost"):
            gossiplog.open(place.location, read_only=read_only)


def test_no_log_is_made_in_the_schema_of_a_stranger(postgres_server: Server, postgres_url: str) -> None:
    role, schema = "squatter", PostgresStorage(postgres_url).url.schema
    postgres_server.role(role)
    superuser = postgres_url.replace(f"//{postgres.USER}@", "//postgres@")
    try:
        postgres_server.run(f"CREATE SCHEMA {schema} AUTHORIZATION {role}")
        postgres_server.run(f"GRANT ALL ON SCHEMA {schema} TO {postgres.USER}")
        for url in (postgres_url, superuser):
            with pytest.raises(StorageError, match=rf"the schema {schema} belongs to {role}, .*ALTER SCHEMA"):
                opened(url)
        postgres_server.run(f"GRANT {role} TO {postgres.USER}")
        opened(postgres_url).close()
    finally:
        postgres_server.run(f"DROP SCHEMA {schema} CASCADE")
        postgres_server.drop_role(role)


def test_a_constraint_that_somebody_added_is_no_damage(
    place: Place, signer: Signer, opened: Callable[..., Log]
) -> None:
    log = opened(place.location, "org.example.test", signer=signer)
    place.rows("ALTER TABLE gossiplog_messages ADD CONSTRAINT mine CHECK (seq < 2)")
    log.append(1)
    with pytest.raises(StorageError, match=r"somebody has added the constraint or index mine .*: drop it") as failure:
        log.append(2)
    assert not isinstance(failure.value, CorruptLog)
    place.rows("ALTER TABLE gossiplog_messages DROP CONSTRAINT mine")
    log.append(2)


def test_indices_and_settings_of_an_operator_do_no_harm(place: Place) -> None:
    opened(place.location).close()
    place.rows("CREATE INDEX mine ON gossiplog_leaves (seq)")
    place.rows("ALTER TABLE gossiplog_messages SET (autovacuum_vacuum_scale_factor = 0.01)")
    place.rows("ALTER TABLE gossiplog_messages ALTER COLUMN value SET STORAGE EXTENDED")
    reopen(place.location)


def test_objects_of_the_same_names_elsewhere_do_not_matter(
    postgres_server: Server, postgres_url: str, signer: Signer, opened: Callable[..., Log]
) -> None:
    """A role's search path that leads to traps, in which functions and operators of Postgres have other meanings."""
    role = "led_astray"
    postgres_server.role(role)
    with postgres.schema_of(postgres_server) as traps:
        for statement in (
            f"CREATE SCHEMA {traps} AUTHORIZATION {role}",
            f"GRANT CREATE ON DATABASE {postgres.DATABASE} TO {role}",
            *(
                f"CREATE TABLE {traps}.{table} (name text, value text, seq bigint, key bytea)"
                for table in ("gossiplog_meta", "gossiplog_messages", "gossiplog_leaves")
            ),
            f"CREATE FUNCTION {traps}.max(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 99::bigint'",
            f"CREATE FUNCTION {traps}.never(bytea, bytea) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
            f"CREATE FUNCTION {traps}.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
            f"CREATE FUNCTION {traps}.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
            *(
                f"CREATE OPERATOR {traps}.{sign} (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = {traps}.never)"
                for sign in ("=", "<=", ">")
                for kind in ("bytea", "bigint", "text")
            ),
            f"GRANT ALL ON ALL TABLES IN SCHEMA {traps} TO {role}",
            f"ALTER ROLE {role} SET search_path = {traps}, pg_catalog",
            f"ALTER ROLE {role} SET default_transaction_isolation = 'serializable'",
            f"ALTER ROLE {role} SET synchronous_commit = off",
        ):
            postgres_server.run(statement)
        location = postgres_url.replace(f"//{postgres.USER}@", f"//{role}@")
        try:
            log = opened(location, "org.example.test", signer=signer)
            log.append_many(range(300))
            log.append(1)
            message = log.append(2)
            assert len(log) == 302
            assert log.get(message.id) == message
            assert log.verify().messages == 302
            log.close()
        finally:
            postgres_server.run(f"ALTER ROLE {role} RESET ALL")
            postgres_server.drop_role(role)


def test_a_role_without_rights_is_told_which(postgres_server: Server, postgres_url: str) -> None:
    role = "without_rights"
    postgres_server.role(role)
    location = postgres_url.replace(f"//{postgres.USER}@", f"//{role}@")
    schema = PostgresStorage(postgres_url).url.schema
    try:
        with pytest.raises(StorageError, match=rf"the role lacks a right: .*CREATE SCHEMA .* AUTHORIZATION {role}"):
            opened(location)
        postgres_server.run(f"CREATE SCHEMA {schema}", user=postgres.USER)
        with pytest.raises(StorageError, match=rf"GRANT USAGE, CREATE ON SCHEMA .* TO {role}"):
            opened(location)
        storage = opened(postgres_url)
        with pytest.raises(
            StorageError, match=rf"GRANT USAGE ON .* TO {role}; GRANT SELECT ON ALL TABLES .* TO {role}"
        ):
            reopen(location)
        postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        with pytest.raises(StorageError, match="GRANT SELECT"):
            reopen(location)
        postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        reader = opened(location, None, False)
        with reader.reader() as state:
            assert state.position().count == 0
        with pytest.raises(StorageError, match="the role lacks a right"), reader.transaction() as transaction:
            transaction.set_applied(1)
        reader.close()
        postgres_server.run(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
        writer = opened(location, None, False)
        with writer.transaction() as transaction:
            transaction.set_applied(1)
        writer.close()
        storage.close()
    finally:
        postgres_server.drop_role(role)


def test_a_server_that_is_too_old_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OLDEST_SERVER", 990000)
    with pytest.raises(StorageError, match=r"the server is Postgres \d+, and a log needs 99 or newer"):
        opened(postgres_url)


def test_what_a_connection_needs_and_has_not(postgres_server: Server) -> None:
    with pytest.raises(StorageError, match=r"cannot open postgresql://gossip@/nowhere.*does not exist"):
        opened(postgres_server.url(database="nowhere"))
    with pytest.raises(StorageError, match="cannot open"):
        opened(postgres_server.url(host=postgres_server.folder / "nowhere"))
    postgres_server.role("secretive", password="right")
    try:
        for password in ("wr0ng-and-l0ng", ""):
            with pytest.raises(StorageError, match="password") as failure:
                opened(postgres_server.url(user="secretive", password=password))
            shown = [str(failure.value), repr(failure.value), str(failure.value.__cause__)]
            assert "wr0ng" not in "".join(shown)
    finally:
        postgres_server.drop_role("secretive")


def test_a_schema_that_is_dropped_or_replaced_is_noticed(place: Place) -> None:
    storage = opened(place.location)
    storage.check_files()
    schema = storage.url.schema
    place.rows(f"ALTER SCHEMA {schema} RENAME TO {schema}_b")
    try:
        with pytest.raises(StorageError, match="dropped, renamed or replaced"):
            storage.check_files()
        with pytest.raises(StorageError, match="dropped or renamed meanwhile"), storage.reader() as reader:
            reader.position()
        other = opened(place.location)
        with pytest.raises(StorageError, match="dropped, renamed or replaced"):
            storage.check_files()
        other.close()
    finally:
        storage.close()
        place.rows(f"DROP SCHEMA {schema}_b CASCADE")
