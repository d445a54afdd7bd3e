from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import StorageError
from gossiplog.storage.postgres.guard import changes_rows, check_statement, first_words
from gossiplog.storage.postgres.storage import PostgresStorage
from tests.places import Place
from tests.strategies import repeatable

ENDS = ["COMMIT", "end", "ROLLBACK", "Abort", "BEGIN", "START TRANSACTION", "SAVEPOINT a", "RELEASE gossiplog_apply"]
BEFORE = st.lists(
    st.sampled_from([" ", "\n", "(", ";", "-- a ' comment\n", "/* one /* within */ another */", "/**/", "\t"]),
    max_size=6,
).map("".join)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("", []),
        ("  -- nothing", []),
        ("/* not closed", []),
        ("/* a /* nested */ one */ SELECT 1", ["select"]),
        ("((select 1))", ["select"]),
        ("; COMMIT", ["commit"]),
        ("PREPARE/**/TRANSACTION 'a'", ["prepare", "transaction"]),
        ("SET-- \n local", ["set", "local"]),
        ('"commit"', []),
        ("INSERT INTO commit VALUES (1)", ["insert", "into"]),
    ],
)
def test_first_words(sql: str, words: list[str]) -> None:
    assert first_words(sql) == words


@given(before=BEFORE, statement=st.sampled_from([*ENDS, "PREPARE TRANSACTION 'a'", "SET a = 1", "DISCARD ALL"]))
@repeatable(100)
def test_whatever_stands_before_it_a_statement_that_ends_the_transaction_is_refused(
    before: str, statement: str
) -> None:
    with pytest.raises(StorageError, match="must not"):
        check_statement(before + statement, "notes")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'COMMIT'",
        "SET LOCAL statement_timeout = 0",
        "SET CONSTRAINTS ALL DEFERRED",
        "SELECT set_config('work_mem', '4MB', true)",
        "CREATE TEMP TABLE t (a int) ON COMMIT DROP",
        "ALTER SCHEMA other RENAME TO another",
        "INSERT INTO t SELECT 1 FROM temporary",
        "PREPARE a AS SELECT 1",
        "UPDATE t SET a = 1",
        "/*",
        "",
    ],
)
def test_what_passes(sql: str) -> None:
    check_statement(sql, "notes")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("COPY t FROM STDIN", "must not COPY"),
        ("SELECT set_config('statement_timeout', '1', false)", "must not change settings"),
        ("SELECT a, pg_catalog.set_config ( 'a.b', lower('X'), 'f' ) FROM t", "must not change settings"),
        ("CREATE TEMP TABLE t (a int)", "temporary tables"),
        ("create local temporary table t as select 1", "temporary tables"),
        ("SELECT 1 AS a INTO TEMP t", "temporary tables"),
        ('ALTER SCHEMA "Notes" RENAME TO other', "the schema of the log"),
    ],
)
def test_what_would_stay_on_the_connection_or_break_it_is_refused(sql: str, said: str) -> None:
    with pytest.raises(StorageError, match=f"`apply` and `setup` must not .*{said}|{said}"):
        check_statement(sql, "notes")


def test_a_right_that_a_statement_of_an_application_lacks_is_no_readers(
    in_postgres: PostgresStorage,
) -> None:
    said = r"lacks a right for a statement of `apply` .*session_replication_role"
    with in_postgres.transaction() as transaction, pytest.raises(StorageError, match=said):
        transaction.execute("SET LOCAL session_replication_role = 'replica'")


def test_what_changes_tables_is_told_from_what_changes_rows() -> None:
    assert changes_rows("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a")
    assert not changes_rows("/* INSERT */ CREATE TABLE t (a integer)")
    assert not changes_rows("")


@pytest.mark.parametrize(
    "sql",
    [
        *ENDS,
        "ROLLBACK TO gossiplog_apply",
        "SET search_path = public",
        "LISTEN mine",
        "DELETE FROM gossiplog_messages",
        "INSERT INTO GossipLog_Heads VALUES ('', 1)",
        "UPDATE gossiplog_meta SET value = '1'",
        "TRUNCATE gossiplog_messages",
        "WITH gone AS (DELETE FROM gossiplog_leaves RETURNING key) SELECT count(*) FROM gone",
        "DO $$ BEGIN DELETE FROM gossiplog_heads; END $$",
        "DROP TABLE gossiplog_children",
        "DROP TABLE gossiplog_children CASCADE",
        "ALTER TABLE gossiplog_tree RENAME TO mine",
        "ALTER TABLE gossiplog_tree DISABLE TRIGGER gossiplog_guard",
        "DROP TRIGGER gossiplog_guard ON gossiplog_tree",
        "CREATE RULE mine AS ON INSERT TO gossiplog_heads DO INSTEAD NOTHING",
        "CREATE INDEX mine ON gossiplog_leaves (hash)",
        "CREATE TABLE gossiplog_mine (a integer)",
        "CREATE VIEW gossiplog_mine AS SELECT 1 AS a",
        "LOCK TABLE gossiplog_heads",
    ],
)
def test_statements_that_would_break_the_log_are_refused_within_apply(in_postgres: PostgresStorage, sql: str) -> None:
    with in_postgres.transaction() as transaction:
        transaction.set_applied(5)
        with pytest.raises(StorageError, match="must not"), transaction.savepoint():
            transaction.execute(sql)
    with in_postgres.reader() as reader:
        assert reader.position().applied == 5
    # Nothing of them is left.
    in_postgres.check_files()


def test_a_refused_statement_is_undone_where_apply_goes_on(in_postgres: PostgresStorage) -> None:
    with in_postgres.transaction() as transaction, transaction.savepoint():
        transaction.execute("CREATE TABLE mine (a integer)")
        for sql in ("DROP TABLE gossiplog_heads", "CREATE TABLE gossiplog_mine (a integer)"):
            with pytest.raises(StorageError, match="must not"):
                transaction.execute(sql)
        transaction.execute("INSERT INTO mine VALUES (1)")
    with in_postgres.transaction() as transaction:
        assert transaction.execute("SELECT a FROM mine").fetchall() == [(1,)]
    in_postgres.check_files()


def test_several_statements_in_one_text_are_refused(in_postgres: PostgresStorage) -> None:
    with in_postgres.transaction() as transaction:
        with pytest.raises(Exception, match="multiple commands"), transaction.savepoint():
            transaction.execute("SELECT 1; COMMIT")
        transaction.set_applied(3)
    with in_postgres.reader() as reader:
        assert reader.position().applied == 3


def test_tables_are_noted_that_are_written_through_views_and_functions(in_postgres: PostgresStorage) -> None:
    place = Place(str(in_postgres.url))
    place.rows("CREATE TABLE behind (a integer)")
    place.rows("CREATE TABLE called (a integer)")
    place.rows("CREATE TABLE read (a integer)")
    place.rows("CREATE VIEW front AS SELECT a FROM behind")
    place.rows("CREATE FUNCTION call() RETURNS integer LANGUAGE sql AS 'INSERT INTO called VALUES (1) RETURNING a'")
    with in_postgres.transaction() as transaction:
        with transaction.savepoint():
            transaction.execute("INSERT INTO front VALUES (1)")
            transaction.execute("SELECT call()")
            transaction.execute("SELECT a FROM read")
        transaction.set_applied(0)
    place.rows("DROP TABLE behind, called, read CASCADE")
    with in_postgres.reader() as reader:
        assert reader.application_tables().missing == ["behind", "called"]


def test_names_that_need_quotes_and_tables_elsewhere_are_noted(in_postgres: PostgresStorage) -> None:
    place = Place(str(in_postgres.url))
    elsewhere = f"{in_postgres.url.schema}_b"
    try:
        with in_postgres.transaction() as transaction:
            with transaction.savepoint():
                transaction.execute(f"CREATE SCHEMA {elsewhere}")
                transaction.execute(f'CREATE TABLE {elsewhere}."My Notes" (a integer)')
                transaction.execute('CREATE TABLE "A ""b""" (a integer)')
                transaction.execute("CREATE TEMP TABLE passing (a integer) ON COMMIT DROP")
            transaction.set_applied(0)
        with in_postgres.reader() as reader:
            assert reader.application_tables().missing == []
        place.rows('DROP TABLE "A ""b"""')
        place.rows(f'DROP TABLE {elsewhere}."My Notes"')
        with in_postgres.reader() as reader:
            assert reader.application_tables().missing == ['"A ""b"""', f'{elsewhere}."My Notes"']
    finally:
        place.rows(f"DROP SCHEMA IF EXISTS {elsewhere} CASCADE")


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE OR REPLACE FUNCTION GOSSIPLOG_guard() RETURNS trigger AS ''",
        "ALTER FUNCTION gossiplog_guard() RESET ALL",
    ],
)
def test_the_function_of_the_guards_is_not_changed(sql: str) -> None:
    with pytest.raises(StorageError, match="must not change gossiplog_ tables"):
        check_statement(sql, "notes")
    check_statement("SELECT 'gossiplog_guard'", "notes")
