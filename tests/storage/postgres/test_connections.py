from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Signer
from gossiplog.storage.postgres.connections import ByteaArray, IntegerArray, Session, TextArray, with_literals
from gossiplog.storage.postgres.storage import PostgresStorage
from gossiplog.storage.postgres.url import PostgresURL
from tests.postgres import Server, shared_server
from tests.strategies import repeatable

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A connection for statements that need no log."""
    made = PostgresStorage(shared_server().url()).connect()
    yield made
    made.close()


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(TEXTS))
@repeatable(50)
def test_arrays_arrive_as_they_are(session: Session, blobs: list[bytes], integers: list[int], texts: list[str]) -> None:
    found = session.one("SELECT %b, %b, %b", (ByteaArray(blobs), IntegerArray(integers), TextArray(texts)))
    assert found == (blobs, integers, texts)


@pytest.mark.parametrize("is_standard", ["on", "off"])
@given(blob=st.binary(max_size=40), integer=st.integers(-(2**62), 2**62), text=TEXTS | st.just("a\\' b'' %s \\x27"))
@repeatable(50)
def test_what_is_written_into_a_text_arrives_as_it_is(
    session: Session, is_standard: str, blob: bytes, integer: int, text: str
) -> None:
    statement = with_literals(
        b"SELECT pg_catalog.encode(%b, 'hex'), %b, %b::pg_catalog.text, '%%'", (blob, integer, text)
    )
    assert statement is not None
    session.script(f"SET standard_conforming_strings = {is_standard}".encode())
    try:
        assert session.script_rows(statement) == [(blob.hex(), integer, text, "%")]
    finally:
        session.script(b"RESET standard_conforming_strings")


def test_long_parameters_and_others_are_not_written_into_a_text() -> None:
    for parameter in (bytes(5000), "x" * 5000, "\0", ByteaArray([b"a"]), None, 1.5):
        assert with_literals(b"SELECT %b", (parameter,)) is None
    assert with_literals(b'BEGIN; SET LOCAL search_path = "50%s"', None) == b'BEGIN; SET LOCAL search_path = "50%s"'


def test_a_percent_sign_of_a_name_is_no_placeholder() -> None:
    assert with_literals(b'SELECT %b FROM "a%%b"."%%%%b"', (1,)) == b'SELECT (1) FROM "a%b"."%%b"'


def test_the_server_plans_a_frequent_statement_once(session: Session) -> None:
    session.script(b'CREATE TEMPORARY TABLE "a%b" (number int8, bytes bytea)')
    statement = b'INSERT INTO "a%%b" VALUES (%b, %b)'
    texts = [session.planned(statement, (number, bytes([number]))) for number in (1, 2)]
    assert [text.partition(b"(")[0] for text in texts if text] == [b"EXECUTE gossiplog_0"] * 2
    session.script(*(text for text in texts if text))
    assert session.rows(b'SELECT number, bytes FROM "a%%b" ORDER BY number') == [(1, b"\1"), (2, b"\2")]
    assert session.planned(statement, (1, bytes(5000))) is None
    # As after a pipeline in which a statement failed.
    session._has_failed = True
    session.undo("SELECT 1")
    again = session.planned(statement, (3, b"\3"))
    assert again is not None
    session.script(again)


def test_behind_a_pooler_each_transaction_sets_what_it_needs(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler gives each transaction another connection to the server, as if none of a session's settings were."""
    first = Session.one

    def as_pooled(session: Session, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        found = first(session, statement, parameters)
        return (-1, *found[1:]) if "pg_backend_pid" in statement else found

    monkeypatch.setattr(Session, "one", as_pooled)
    storage = PostgresStorage(postgres_url, synchronous="off")
    storage.open("topic", True)
    other = storage.connect()
    assert other.is_pooled
    with storage.transaction() as transaction:
        assert transaction.execute("SHOW synchronous_commit").fetchall() == [("off",)]
        assert transaction.execute("SHOW search_path").fetchall() == [(f"{storage.url.schema}, pg_temp",)]
    with storage.reader(single=True) as reader:
        assert reader.position().count == 0
    # Nothing is left of it on the connection.
    assert other.rows("SHOW search_path") == [('"$user", public',)]
    other.close()
    storage.close()


def test_a_role_that_is_in_apply_by_its_settings_writes(
    postgres_server: Server, postgres_url: str, signer: Signer
) -> None:
    role, schema = "always_in_apply", PostgresURL.parse(postgres_url).schema
    postgres_server.role(role, superuser=True)
    postgres_server.run(f"ALTER ROLE {role} SET gossiplog.in_apply = 'on'")
    with gossiplog.open(postgres_server.url(schema, user=role), "org.example.test", signer=signer) as log:
        log.append(1)
        assert len(log) == 1
    postgres_server.drop_role(role)


def test_what_other_clients_of_a_pooler_have_prepared_is_left_to_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.script(b"PREPARE theirs AS SELECT 1")
    monkeypatch.setattr(session, "is_pooled", True)
    session.script(b"BEGIN")
    with pytest.raises(psycopg.errors.DivisionByZero), session.pipeline():
        session.run("SELECT 1 / 0")
    session.undo("ROLLBACK")
    assert session.script_rows(b"EXECUTE theirs") == [(1,)]
    session.script(b"DEALLOCATE theirs")
