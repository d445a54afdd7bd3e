"""A log in Postgres that another takes the place of: by a rebase, and by a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import gossiplog
from gossiplog import Log, NotALog, RebaseResult, SignedMessage, Signer, StorageError
from gossiplog.log.log import replica_of
from gossiplog.log.rebasing import rebase_file
from gossiplog.storage.postgres import connections, replacement
from gossiplog.storage.postgres.replacement import SchemaReplacement
from gossiplog.storage.postgres.storage import PostgresStorage
from gossiplog.storage.postgres.url import PostgresURL
from tests.places import Place
from tests.postgres import USER, Server

TOPIC = "org.example.test"
US, THEM = (Signer(bytes([number]) * 32) for number in (1, 2))
# An operator for each two types for which Postgres has none, each with a function that fails. Postgres prefers one for
# exactly the types at hand to its own for others.
PLANTED = """
DO $plant$ DECLARE one regtype; other regtype; sign text;
  kinds regtype[] = ARRAY['int2', 'int4', 'int8', 'oid', 'name', 'text', 'bytea', '"char"', 'regclass', 'int8[]'];
BEGIN
  CREATE FUNCTION @.planted() RETURNS bool LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'planted'; END$$;
  FOREACH one IN ARRAY kinds LOOP FOREACH other IN ARRAY kinds LOOP
    EXECUTE format('CREATE FUNCTION planted(%s, %s) RETURNS bool LANGUAGE sql AS $$SELECT @.planted()$$', one, other);
    FOREACH sign IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '||', '+', '*', '/', '~'] LOOP
      IF NOT EXISTS (SELECT FROM pg_operator WHERE oprname = sign AND oprleft = one AND oprright = other) THEN
        EXECUTE format('CREATE OPERATOR %s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = planted)', sign, one, other);
      END IF;
    END LOOP;
  END LOOP; END LOOP;
END $plant$
"""


@pytest.fixture
def target() -> Iterator[Log]:
    with gossiplog.open(":memory:", TOPIC, signer=THEM) as log:
        yield log


@pytest.fixture
def url(new_postgres_url: Callable[[], str], postgres_server: Server) -> Iterator[str]:
    """A schema whose former contents are dropped as well."""
    url = new_postgres_url()
    yield url
    schema = url.partition("schema=")[2]
    for (name,) in postgres_server.run("SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", f"{schema}\\_%"):
        postgres_server.drop_schema(name)


def note(message: SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("INSERT INTO notes VALUES (%s)", (str(message.payload),))


def setup(transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("DROP TABLE IF EXISTS notes")
    transaction.execute("CREATE TABLE notes (text text)")


def write(url: str, *payloads: Any) -> list[SignedMessage]:
    with gossiplog.open(url, TOPIC, apply=note, setup=setup) as log:
        return log.append_many(payloads, signer=US)


def rebase(url: str, target: Log, *drop: SignedMessage, **options: Any) -> RebaseResult:
    return rebase_file(url, lambda new: new.pull(target), [message.id for message in drop], (US,), **options)


def payloads(url: str) -> list[Any]:
    with gossiplog.open(url, read_only=True) as log:
        log.verify()
        return [message.payload for message in log]


@pytest.mark.slow
def test_a_rebase_puts_a_new_generation_in_the_place_of_the_log(url: str, target: Log, postgres_server: Server) -> None:
    schema = url.partition("schema=")[2]
    target.append("theirs")
    _, bad, _ = write(url, "one", "bad", "two")
    postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC")
    postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO PUBLIC")
    result = rebase(url, target, bad)
    assert (len(result.signed), result.dropped, result.messages, result.generation) == (2, 1, 3, 1)
    former = PostgresURL.parse(url.replace(schema, f"{schema}_generation_0"))
    assert result.former == former.place
    assert result.tables == ("notes",)
    assert payloads(url) == ["theirs", "one", "two"]
    # The former log is whole, with the application's table, and rights on the new one are as before.
    assert payloads(result.former) == ["one", "bad", "two"]
    assert postgres_server.run(f"SELECT text FROM {schema}_generation_0.notes") == [("one",), ("bad",), ("two",)]
    reader = url.replace(f"{USER}@", "replacement_reader@")
    postgres_server.role("replacement_reader")
    try:
        assert payloads(reader) == ["theirs", "one", "two"]
    finally:
        postgres_server.drop_role("replacement_reader")
    with gossiplog.open(url, apply=note, setup=setup) as log:
        assert replica_of(log).position().generation == 1
        assert replica_of(log).position().applied == 3
        log.append("three", signer=US)
    assert postgres_server.run(f"SELECT text FROM {schema}.notes") == [("theirs",), ("one",), ("two",), ("three",)]


@pytest.mark.slow
def test_each_rebase_keeps_what_it_replaces(url: str, target: Log) -> None:
    formers = []
    for number in range(3):
        bad, _ = write(url, "bad", number)
        formers.append(rebase(url, target, bad).former)
        with gossiplog.open(url, read_only=True) as log:
            target.pull(log)
    assert payloads(url) == [0, 1, 2]
    assert [payloads(str(former))[-1] for former in formers] == [0, 1, 2]


@pytest.mark.slow
def test_a_dry_run_and_one_that_fails_change_nothing(url: str, target: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, _ = write(url, "bad", "good")
    assert rebase(url, target, bad, dry_run=True).former is None
    assert payloads(url) == ["bad", "good"]

    def fail(*_: object) -> None:
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(replacement.Session, "commit", fail)
    with pytest.raises(StorageError, match=r"cannot replace .*the connection is lost"):
        rebase(url, target, bad)
    monkeypatch.undo()
    assert payloads(url) == ["bad", "good"]
    assert not rebase(url, target).former
    assert rebase(url, target, bad).former


@pytest.mark.slow
def test_a_connection_that_is_lost_with_the_commit_is_looked_into(
    url: str, target: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, _ = write(url, "bad", "good")
    commit, connect = replacement.Session.commit, replacement.Session

    def deliver(session: connections.Session) -> None:
        commit(session)
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(replacement.Session, "commit", deliver)
    assert rebase(url, target, bad).former
    assert payloads(url) == ["good"]
    good, _ = write(url, "more", "end")

    def go_away(session: connections.Session) -> None:
        def refuse(*_: object, **options: object) -> None:
            raise psycopg.OperationalError("no server")

        monkeypatch.setattr(replacement, "Session", refuse)
        deliver(session)

    monkeypatch.setattr(connect, "commit", go_away)
    with pytest.raises(StorageError, match="the server cannot be asked whether it has replaced the log"):
        rebase(url, target, good)


def test_an_export_leaves_no_settings_on_a_connection(url: str, target: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    write(url, "one")
    found: list[str] = []
    close = connections.Session.close

    def look(session: connections.Session) -> None:
        if session.is_idle:
            found.extend(session.one("SELECT pg_catalog.current_setting('enable_indexscan')"))
        close(session)

    monkeypatch.setattr(replacement.Session, "close", look)
    gossiplog.repair(url)
    assert found
    assert set(found) == {"on"}


def test_a_folder_that_cannot_be_made_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replacement.tempfile, "TemporaryDirectory", fail)
    with (
        pytest.raises(StorageError, match="No space left on device; name another by the variable TMPDIR"),
        SchemaReplacement(PostgresURL.parse(url), "replace"),
    ):
        pass


def test_programs_that_have_the_log_open_notice(url: str, target: Log) -> None:
    bad, _ = write(url, "bad", "good")
    with gossiplog.open(url) as log:
        log.append("ours", signer=US)
        rebase(url, target, bad)
        with pytest.raises(StorageError, match="is not there any more"):
            log.append("more", signer=US)
    assert payloads(url) == ["good", "ours"]


def test_nobody_writes_meanwhile_and_all_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(url, "one")
    monkeypatch.setattr(connections, "LOCK_SECONDS", 0.05)
    with SchemaReplacement(PostgresURL.parse(url), "replace"), gossiplog.open(url) as log:
        assert [message.payload for message in log] == ["one"]
        with pytest.raises(StorageError, match="another process did not release its lock in time"):
            log.append("two", signer=US)
    assert payloads(url) == ["one"]


def test_readers_that_do_not_end_are_what_it_waited_for(url: str, target: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, _ = write(url, "bad", "good")
    monkeypatch.setattr(connections, "LOCK_SECONDS", 0.05)
    with closing(PostgresStorage(url)) as storage:
        storage.open(None, False)
        with storage.reader() as reader:
            assert reader.position().count == 2
            with pytest.raises(StorageError, match=r"programs have read it without a pause.* Nothing has changed"):
                rebase(url, target, bad)
    assert payloads(url) == ["bad", "good"]


def test_there_is_no_log(url: str, target: Log) -> None:
    with pytest.raises(NotALog, match="holds no log"):
        rebase(url, target)


def test_it_takes_the_owner(url: str, target: Log, postgres_server: Server) -> None:
    schema = url.partition("schema=")[2]
    bad, _ = write(url, "bad", "good")
    postgres_server.role("replacement_writer")
    try:
        postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO replacement_writer")
        postgres_server.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO replacement_writer")
        with pytest.raises(StorageError, match="it takes the owner of its schema"):
            rebase(url.replace(f"{USER}@", "replacement_writer@"), target, bad)
    finally:
        postgres_server.drop_role("replacement_writer")
    assert payloads(url) == ["bad", "good"]


def test_names_of_former_schemas_are_cut_and_numbered() -> None:
    names = replacement._names("é" * 31, "_generation_0")
    first, second = next(names), next(names)
    assert first == "é" * 25 + "_generation_0"
    assert second == "é" * 24 + "_generation_0_2"
    assert len(first.encode()) <= len("x" * 63)


# Repairs.


@pytest.fixture
def replica(url: str) -> Iterator[Log]:
    """The messages of a log that is damaged then."""
    write(url, *range(100))
    with gossiplog.open(url) as log:
        replica_of(log).index()
    with gossiplog.open(":memory:", TOPIC) as log:
        log.pull(url)
        yield log


def damage(server: Server, url: str, *statements: str) -> None:
    schema = url.partition("schema=")[2]
    for statement in statements:
        server.run(statement.replace("@", schema), user=USER)


def test_a_sound_log_is_left_as_it_is(url: str, replica: Log) -> None:
    result = gossiplog.repair(url)
    assert (result.damaged, result.former, result.messages) == ((), None, 100)
    with gossiplog.open(url, apply=note, setup=setup) as log:
        assert log.root == replica.root


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE @.gossiplog_messages SET value = '\\x00' WHERE seq = 50",
        "DELETE FROM @.gossiplog_messages WHERE seq = 50",
        "DELETE FROM @.gossiplog_messages WHERE seq > 90",
        "ALTER TABLE @.gossiplog_messages ALTER value DROP NOT NULL; UPDATE @.gossiplog_messages SET value = NULL",
    ],
)
def test_messages_come_from_a_replica(url: str, replica: Log, postgres_server: Server, statement: str) -> None:
    for each in statement.split(";"):
        damage(postgres_server, url, each)
    result = gossiplog.repair(url, replica)
    assert result.damaged
    assert result.fetched > 0
    schema = url.partition("schema=")[2]
    assert result.former == PostgresURL.parse(url.replace(schema, f"{schema}_damaged")).place
    with gossiplog.open(url, apply=note, setup=setup) as log:
        assert log.verify().root == replica.root
        assert not log.is_rebuilding
    assert postgres_server.run(f"SELECT count(*) FROM {schema}.notes") == [(100,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM @.gossiplog_leaves WHERE seq = 50",
        "UPDATE @.gossiplog_leaves SET hash = '\\x00' WHERE seq = 50",
        "DELETE FROM @.gossiplog_tree",
        "UPDATE @.gossiplog_heads SET seq = 3",
        "DROP TABLE @.gossiplog_children",
        "DROP TABLE @.gossiplog_meta",
        "ALTER TABLE @.gossiplog_heads RENAME seq TO other",
        "DELETE FROM @.gossiplog_meta WHERE name = 'topic'",
        "DROP TRIGGER gossiplog_guard ON @.gossiplog_leaves",
        "ALTER TABLE @.gossiplog_messages DROP CONSTRAINT gossiplog_messages_pkey",
    ],
)
def test_what_follows_from_the_messages_is_built_anew(
    url: str, replica: Log, postgres_server: Server, statement: str
) -> None:
    damage(postgres_server, url, statement)
    result = gossiplog.repair(url)
    assert result.damaged
    assert result.fetched == 0
    is_opened_no_more = any(word in statement for word in ("TABLE", "TRIGGER", "topic"))
    assert any("grant the rights" in each for each in result.notes) == is_opened_no_more
    with gossiplog.open(url, apply=note, setup=setup) as log:
        assert log.verify().root == replica.root


@pytest.mark.slow
def test_what_no_replica_has_is_named_and_nothing_changed(url: str, replica: Log, postgres_server: Server) -> None:
    damage(postgres_server, url, "DELETE FROM @.gossiplog_messages WHERE seq = 50")
    with pytest.raises(gossiplog.CorruptLog) as caught:
        gossiplog.repair(url)
    place = PostgresURL.parse(url).place
    assert f"gossiplog repair '{place}' --from SOURCE" in str(caught.value)
    assert "gossiplog-replacement" not in str(caught.value)
    with gossiplog.open(":memory:", "another", signer=US) as other:
        other.append(1)
        with pytest.raises(gossiplog.TopicMismatch):
            gossiplog.repair(url, other)
    schema = url.partition("schema=")[2]
    assert postgres_server.run(f"SELECT count(*) FROM {schema}.gossiplog_messages") == [(99,)]
    assert gossiplog.repair(url, replica).messages == 100


def test_a_schema_without_a_log_is_not_repaired(url: str, postgres_server: Server) -> None:
    with pytest.raises(NotALog):
        gossiplog.repair(url)
    damage(postgres_server, url, "CREATE SCHEMA @", "CREATE TABLE @.mine (a int)")
    with gossiplog.open(":memory:", TOPIC) as replica, pytest.raises(NotALog, match="holds no log"):
        gossiplog.repair(url, replica)


@pytest.mark.slow
def test_names_that_sqlite_does_not_take_do_not_matter(url: str, replica: Log, postgres_server: Server) -> None:
    damage(postgres_server, url, "DELETE FROM @.gossiplog_leaves", *(f"CREATE TABLE @.{name} (a int)" for name in (
        "sqlite_mine", '"Notes"', '"a""b"'
    )))  # fmt: skip
    assert gossiplog.repair(url).damaged
    assert payloads(url) == list(range(100))


def test_a_copy_that_cannot_be_written_is_said(url: str, replica: Log) -> None:
    with (
        SchemaReplacement(PostgresURL.parse(url), "repair") as replacement,
        pytest.raises(StorageError, match=r"cannot copy .* to /nowhere/copy.db: .* by the variable TMPDIR"),
    ):
        replacement.export("/nowhere/copy.db", ())


@pytest.mark.integration
def test_pages_that_the_server_cannot_read(own_postgres: Callable[..., Server]) -> None:
    """The header of one page of a table, and one of the index over another, are overwritten on the disk."""
    server = own_postgres()
    url = server.url("notes")
    write(url, *("x" * 200 for _ in range(300)))
    with gossiplog.open(":memory:", TOPIC) as replica:
        replica.pull(url)
        server.run("CHECKPOINT")
        paths = [
            server.run(f"SELECT pg_relation_filepath('notes.{name}')")[0][0]
            for name in ("gossiplog_messages", "gossiplog_leaves_pkey")
        ]
        server.stop()
        for path in paths:
            with (server.data / path).open("r+b") as file:
                file.seek(8192)
                file.write(b"\xff" * 64)
        server.start()
        with pytest.raises(gossiplog.CorruptLog), gossiplog.open(url, read_only=True) as log:
            log.verify()
        result = gossiplog.repair(url, replica)
        assert any("1 of " in each and "pages of gossiplog_messages" in each for each in result.damaged)
        assert 0 < result.fetched < 300
        with gossiplog.open(url) as log:
            assert log.verify().root == replica.root


@pytest.mark.slow
def test_operators_that_somebody_planted_in_the_schema_are_not_called(url: str, target: Log) -> None:
    dropped = write(url, *range(3))[0]
    place = Place(url)
    place.rows(PLANTED.replace("@", PostgresURL.parse(url).schema))
    with pytest.raises(psycopg.errors.RaiseException, match="planted"):
        place.rows("SELECT 1::oid = 1::int4")
    write(url, *range(600))
    write(url, 1)
    with gossiplog.open(url, TOPIC, apply=note, setup=setup) as log:
        assert len(log) == 604
        assert log.get(dropped.id) == dropped
        assert log.verify().messages == 604
    rebase(url, target, dropped)
    place.rows("DELETE FROM gossiplog_heads")
    assert gossiplog.repair(url).damaged
    assert len(payloads(url)) == 603
