"""The servers of Postgres that tests start, and what tests do to them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.groups import ROOT
from tests.postgres import Server, schema_of
from tests.postgres_proxy import Proxy, proxy_before

OwnServer = Callable[..., AbstractContextManager[Server]]


def make_table(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (n integer PRIMARY KEY)")


def test_the_server_is_shared_and_private(postgres_server: Server) -> None:
    assert postgres.shared_server().folder == postgres_server.folder
    assert postgres_server.run("SHOW listen_addresses") == [("",)]
    assert postgres_server.run("SELECT rolsuper FROM pg_roles WHERE rolname = current_user", user=postgres.USER) == [
        (False,)
    ]


def test_schemas_are_dropped_also_under_an_open_transaction(postgres_server: Server) -> None:
    with schema_of(postgres_server) as schema, postgres_server.connect(postgres.USER) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.t (n integer)")
        connection.autocommit = False
        connection.execute(f"LOCK TABLE {schema}.t")
        postgres._LOCK_TIMEOUT, before = "10ms", postgres._LOCK_TIMEOUT
        try:
            postgres_server.drop_schema(schema)
        finally:
            postgres._LOCK_TIMEOUT = before
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert postgres_server.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema) == []


def test_urls_name_schemas(postgres_url: str, new_postgres_url: Callable[[], str]) -> None:
    assert "schema=test_" in postgres_url
    assert new_postgres_url() != postgres_url


def test_roles_with_passwords_have_to_give_them(postgres_server: Server) -> None:
    postgres_server.role("word_role", password="wörd/1")
    try:
        url = postgres_server.url(user="word_role", password="wörd/1")
        with psycopg.connect(url) as connection:
            assert connection.info.user == "word_role"
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(postgres_server.url(user="word_role", password="other"))
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(postgres_server.url(user="word_role"), passfile="/dev/null")
    finally:
        postgres_server.drop_role("word_role")


@pytest.mark.integration
def test_a_server_ends_with_the_last_process_that_holds_it() -> None:
    program = (
        "import os; from tests import postgres; s = postgres.shared_server();"
        " print(s.folder, (s.data / 'postmaster.pid').read_text().split()[0], flush=True); os._exit(1)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    folder, pid = run.stdout.split()
    assert Path(folder).parent != postgres._FOLDER
    postgres._wait_for_end([int(pid)])


@pytest.mark.integration
def test_a_server_of_its_own_is_killed_restarted_and_followed(own_postgres: Callable[..., Server]) -> None:
    server = own_postgres(fsync="on", work_mem="5MB")
    assert server.run("SHOW fsync") == [("on",)]
    assert server.run("SHOW work_mem") == [("5MB",)]
    make_table(server.url())
    server.kill()
    server.start()
    server.run("INSERT INTO t VALUES (1)")
    server.restart()
    follower = server.standby()
    server.run("INSERT INTO t VALUES (2)")
    server.wait_for_replay(follower)
    assert follower.run("SELECT n FROM t ORDER BY n") == [(1,), (2,)]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        follower.run("INSERT INTO t VALUES (3)")
    server.stop("immediate")
    follower.promote()
    follower.run("INSERT INTO t VALUES (3)")
    with follower.connect(application_name="a"):
        assert len(follower.backends("a")) == 1
        assert follower.end_backends("a") == 1
    with follower.connect(application_name="b"):
        assert follower.kill_backends("b") == 1


@pytest.fixture
def proxy(postgres_server: Server) -> object:
    with proxy_before(postgres_server) as proxy:
        yield proxy


def test_a_proxy_cuts_all_connections(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url()) as one, psycopg.connect(proxy.url()) as other:
        assert proxy.cut() == 2
        for each in (one, other):
            with pytest.raises(psycopg.OperationalError):
                each.execute("SELECT 1")
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url())
    proxy.refuse(False)
    psycopg.connect(proxy.url()).close()
    assert proxy.accepted == 3


@pytest.mark.parametrize("delivered", [False, True])
def test_a_proxy_cuts_a_commit(delivered: bool, proxy: Proxy, postgres_server: Server) -> None:
    with schema_of(postgres_server) as schema:
        postgres_server.run(f"CREATE SCHEMA {schema} AUTHORIZATION {postgres.USER}")
        connection = psycopg.connect(proxy.url(), autocommit=True)
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE {schema}.t (n integer)")
        was_cut = proxy.cut_at(b"COMMIT", delivered=delivered)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("COMMIT")
        assert was_cut.wait(60)
        found = postgres_server.run("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", schema)
        assert found == ([("t",)] if delivered else [])


def test_a_missing_program_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_BINARIES", "/nowhere/*/bin")
    monkeypatch.setenv("PATH", "/nowhere")
    postgres._program.cache_clear()
    try:
        with pytest.raises(RuntimeError, match="initdb is missing: apt-get install --yes"):
            postgres._program("initdb")
    finally:
        postgres._program.cache_clear()
