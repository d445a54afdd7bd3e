"""Every block of docs/postgres.md runs: commands in one shell, the program after them, the pooler's settings too."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gossiplog
from gossiplog import ApplyTransaction, SignedMessage, Signer
from tests import postgres
from tests.postgres import Server
from tests.readme import DOCS, Shell, blocks, run_command, run_program, steps

pytestmark = pytest.mark.integration

PAGE = DOCS / "postgres.md"
TIMEOUT = 120


def test_the_blocks(tmp_path: Path, own_postgres: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    server = own_postgres()
    # The page makes it.
    server.run("DROP DATABASE notes", database="postgres")
    for name, value in {"PGHOST": str(server.folder), "PGUSER": "postgres"}.items():
        monkeypatch.setenv(name, value)
    languages = [block.language for block in blocks(PAGE)]
    assert languages == ["console", "sh", "console", "python", "console", "ini", "console", "console"]
    first, roles, rights, program, between, _, backup, repair = blocks(PAGE)
    with Shell(tmp_path, TIMEOUT) as shell:
        for command, expected in steps(first):
            shell.run(command, expected)
        run_command(f"set -e; {roles.text}", tmp_path, TIMEOUT)
        for command, expected in steps(rights):
            shell.run(command, expected)
        assert run_program(program.text, tmp_path, TIMEOUT) == "1\n"
        for block in (between, backup, repair):
            for command, expected in steps(block):
                shell.run(command, expected)


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Make a folder for a socket, whose name is short, and which the user may write to that Postgres runs as."""
    with tempfile.TemporaryDirectory(prefix="gossiplog-pooler-") as folder:
        postgres.own(Path(folder))
        yield Path(folder)


@contextmanager
def pooler(server: Server, folder: Path, mode: str) -> Iterator[None]:
    """Run PgBouncer with the page's settings, but for where it listens and whom it believes."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    assert program, "PgBouncer is missing: apt-get install --yes --no-install-recommends pgbouncer"
    (block,) = (block for block in blocks(PAGE) if block.language == "ini")
    text = block.text
    for found, ours in {
        "host=/run/postgresql dbname=notes": f"host={server.folder} dbname=notes user={postgres.USER}",
        "listen_addr = 127.0.0.1\n": f"unix_socket_dir = {folder}\n",
        "listen_port = 6432": "listen_port = 5432",
        "auth_type = scram-sha-256\nauth_file = /etc/pgbouncer/userlist.txt": "auth_type = any",
        "pool_mode = transaction": f"pool_mode = {mode}",
    }.items():
        assert found in text
        text = text.replace(found, ours)
    (folder / "pgbouncer.ini").write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [program, "--quiet", str(folder / "pgbouncer.ini")], cwd=folder, stderr=subprocess.DEVNULL, **postgres.account()
    ) as process:
        try:
            # It writes its socket before it listens.
            wait = "pg_isready --quiet --timeout 60"
            run_command(f"until {wait} --host {folder}; do sleep 0.05; done", folder, TIMEOUT)
            yield
        finally:
            process.terminate()


def note_text(message: SignedMessage, transaction: ApplyTransaction) -> None:
    transaction.execute("CREATE TABLE IF NOT EXISTS texts (text text)")
    transaction.execute("INSERT INTO texts VALUES (%s)", (message.payload,))


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler(postgres_server: Server, mode: str) -> None:
    with (
        postgres.schema_of(postgres_server) as schema,
        socket_folder() as folder,
        pooler(postgres_server, folder, mode),
    ):
        url = postgres_server.url(schema, host=folder)
        with gossiplog.open(url, "notes", apply=note_text, signer=Signer(bytes(32))) as log:
            log.append_many(["one", "two"])
            with gossiplog.open(postgres_server.url(schema), signer=Signer(bytes(32))) as direct:
                direct.append("three")
            assert [message.payload for message in log] == ["one", "two", "three"]
            arriving = log.subscribe()
            with gossiplog.open(postgres_server.url(schema), signer=Signer(bytes(32))) as direct:
                direct.append("four")
            assert [message.payload for message in next(arriving)] == ["four"]
            log.append("five")
            assert log.verify().messages == 5
        assert postgres_server.run(f"SELECT pg_catalog.count(*) FROM {schema}.texts") == [(5,)]
