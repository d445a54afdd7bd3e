from __future__ import annotations

import psycopg
import pytest

from gossiplog import CorruptLog, StorageError
from gossiplog.storage.base import DiskFailure
from gossiplog.storage.postgres.errors import (
    PostgresErrors,
    hiding,
    is_connection_lost,
    is_no_verdict,
    storage_error,
)
from gossiplog.storage.postgres.url import PostgresURL


def error(code: str, text: str = "said") -> psycopg.Error:
    """What the driver raises for a code of the server."""
    return type("Raised", (psycopg.errors.lookup(code),), {"sqlstate": code})(text)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("XX001", CorruptLog, r"\(XX001\)"),
        ("XX002", CorruptLog, "XX002"),
        ("42703", CorruptLog, "its tables are not those of a log"),
        ("42P01", StorageError, "dropped or renamed meanwhile"),
        ("42501", StorageError, "the role lacks a right"),
        ("25006", StorageError, "standby"),
        ("55P03", DiskFailure, "another process did not release its lock in time"),
        ("57014", StorageError, "statement_timeout"),
        ("25P03", DiskFailure, "idle_in_transaction_session_timeout"),
        ("40001", DiskFailure, "40001"),
        ("40P01", DiskFailure, "40P01"),
        ("57P01", DiskFailure, "57P01"),
        ("53100", DiskFailure, "disk is full"),
        ("53300", DiskFailure, "no connections left"),
        ("08006", DiskFailure, "08006"),
    ],
)
def test_errors_of_the_server(code: str, kind: type[StorageError], said: str) -> None:
    found = storage_error("postgresql://host/notes", "read", error(code))
    assert type(found) is kind
    with pytest.raises(kind, match=f"cannot read postgresql://host/notes.*{said}"):
        raise found


FAILED = 'connection failed: connection to server on socket "/run/.s.PGSQL.5432" failed: '


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f'{FAILED}FATAL:  password authentication failed for user "ada"', StorageError, "takes no such password"),
        (f"{FAILED}fe_sendauth: no password supplied", StorageError, "asks for a password: set PGPASSWORD"),
        (f'{FAILED}FATAL:  database "notes" does not exist', StorageError, "make the database first"),
        (f'{FAILED}FATAL:  role "ada" does not exist', StorageError, "name a role that may log in"),
        (f'{FAILED}FATAL:  Peer authentication failed for user "ada"', StorageError, "does not take this program"),
        (f"{FAILED}server does not support SSL, but SSL was required", StorageError, "sslmode"),
        (f'{FAILED}FATAL:  no pg_hba.conf entry for host "::1", user "ada"', StorageError, "pg_hba.conf lets"),
        ('connection is bad: definition of service "a" not found', StorageError, "see the URL, and libpq's"),
        (f"{FAILED}FATAL:  the database system is starting up", DiskFailure, "starting up"),
        (f"{FAILED}Connection refused\n\tIs the server running on that host?", DiskFailure, "refused"),
        (f"{FAILED}FATAL:  irgendetwas", DiskFailure, "irgendetwas"),
        # Of several hosts, one is away.
        (f"{FAILED}no SSL\nconnection to server failed: Is the server running?", DiskFailure, "no SSL"),
    ],
)
def test_what_no_other_try_mends_of_a_connection_is_said(text: str, kind: type[StorageError], said: str) -> None:
    found = storage_error("postgresql://host/notes", "open", psycopg.OperationalError(text))
    assert type(found) is kind
    assert said in str(found)


def test_a_driver_without_a_connection_may_be_tried_again() -> None:
    lost = psycopg.OperationalError("the connection is lost")
    assert is_connection_lost(lost)
    assert type(storage_error("place", "read", lost)) is DiskFailure
    # A defect is none.
    assert not is_connection_lost(psycopg.ProgrammingError("wrong"))
    assert type(storage_error("place", "read", psycopg.ProgrammingError("wrong"))) is StorageError


@pytest.mark.parametrize(
    ("code", "expected"), [("23505", False), ("42P01", False), ("22012", False), ("40P01", True), ("53100", True)]
)
def test_which_errors_say_nothing_about_a_message(code: str, expected: bool) -> None:
    assert is_no_verdict(error(code)) == expected


def test_no_text_shows_a_secret() -> None:
    url = PostgresURL.parse("postgresql://ada:l0ve%20lace@host/notes?sslpassword=t0p")
    hide = hiding(url)
    assert hide('password "l0ve lace" or t0p') == 'password "***" or ***'
    errors = PostgresErrors(url.place, "open", hide)
    with pytest.raises(StorageError) as failure, errors:
        raise psycopg.OperationalError("the server got l0ve lace\nin two lines")
    cause = failure.value.__cause__
    assert str(failure.value).endswith("the server got *** in two lines")
    assert "l0ve" not in f"{cause}{cause!r}"
