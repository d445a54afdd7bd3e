"""Every block of docs/postgres.md runs: commands, the program between them, the pooler's settings too."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote

import pytest

import gossiplog
from gossiplog import ApplyTransaction, SignedMessage, Signer
from tests import postgres
from tests.docs.test_hub import NGINX
from tests.postgres import Server
from tests.readme import DOCS, Shell, blocks, fits, run_command, run_here, run_program, run_steps

pytestmark = pytest.mark.integration

PAGE = DOCS / "postgres.md"
TIMEOUT = 120


@pytest.fixture
def free_ports() -> list[int]:
    with ExitStack() as stack:
        reserved = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [each.getsockname()[1] for each in reserved]


def test_the_blocks(tmp_path: Path, own_postgres: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    server = own_postgres()
    # The page makes it.
    server.run("DROP DATABASE notes", database="postgres")
    for name, value in {"PGHOST": str(server.folder), "PGUSER": "postgres"}.items():
        monkeypatch.setenv(name, value)
    languages = [block.language for block in blocks(PAGE)]
    assert languages == ["console", "sh", "console", "python", "console", "nginx", "ini", "console", "console"]
    first, roles, rights, program, between, _, _, backup, repair = blocks(PAGE)
    run_steps(first, tmp_path, TIMEOUT)
    run_command(f"set -e; {roles.text}", tmp_path, TIMEOUT)
    run_steps(rights, tmp_path, TIMEOUT)
    assert run_program(program.text, tmp_path, TIMEOUT) == "1\n"
    for block in (between, backup, repair):
        run_steps(block, tmp_path, TIMEOUT)


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


def served_ports() -> list[str]:
    """Return the ports of the hubs that the page starts."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [
        line.partition("--hub 127.0.0.1:")[2].split()[0] for line in lines if line.startswith("    gossiplog serve")
    ]
    assert len(found) == 2
    return found


def test_several_hubs_behind_a_proxy(tmp_path: Path, postgres_url: str, free_ports: list[int]) -> None:
    """As the page sets them up, with the configuration of docs/hub.md, but for TLS and the ports."""
    (upstream,) = (block.text for block in blocks(PAGE) if block.language == "nginx")
    (server,) = (block.text for block in blocks(DOCS / "hub.md") if block.language == "nginx")
    *hubs, front = free_ports
    for found, port in zip(served_ports(), hubs, strict=True):
        upstream = upstream.replace(found, str(port))
    for found, ours in {
        "listen 443 ssl;": f"listen 127.0.0.1:{front};",
        "server_name hub.example.org;": "server_name localhost;",
        "ssl_certificate certificate.pem;": "",
        "ssl_certificate_key key.pem;": "",
        "proxy_pass http://127.0.0.1:8000;": "proxy_pass http://hubs;",
    }.items():
        assert found in server
        server = server.replace(found, ours)
    (tmp_path / "nginx.conf").write_text(NGINX.format(upstream + server), encoding="utf-8")
    topic, url = "--topic org.example.notes", f"ws://localhost:{front}"
    wait = "curl --silent --retry 60 --retry-delay 1 --retry-connrefused"
    with Shell(tmp_path, TIMEOUT) as shell:
        run_here(f"gossiplog init {quote(postgres_url)} {topic}", tmp_path, TIMEOUT)
        for port in hubs:
            options = f"--hub 127.0.0.1:{port} --trusted-proxy 127.0.0.1"
            shell.run(f"gossiplog serve {quote(postgres_url)} {options} > {port}.jsonl 2> {port}.log &", "")
            shell.run(f"{wait} http://127.0.0.1:{port}/readyz", "{…}")
        shell.run("PATH=$PATH:/usr/sbin nginx -e stderr -p . -c nginx.conf 2> nginx.log &", "")
        shell.run(f"{wait} http://localhost:{front}/healthz", "{…}")
        run_here(f"gossiplog init one.db {topic}", tmp_path, TIMEOUT)
        for number in range(2):
            shell.run(f"gossiplog append one.db {number} 2> key.log", "{…}")
            shell.run(f"gossiplog sync one.db {url} {topic}", '{…"inserted":0,…,"sent":1,…}')
            # The next one comes to the other hub.
            shell.run(f"gossiplog sync two.db {url} {topic}", '{…"inserted":1,…,"sent":0,…}')
        joined = [peers_of(tmp_path / f"{port}.jsonl") for port in hubs]
        assert [len(peers) for peers in joined] == [2, 2]
        # The proxy is believed, which says no port of its clients.
        assert all(peer.startswith("127.0.0.1#") for peers in joined for peer in peers)
        # One of them ends, and nobody notices.
        shell.run("kill %1; wait %1 || true", "")
        run_here("gossiplog append one.db 2", tmp_path, TIMEOUT)
        for name, sent in (("one", 1), ("two", 0)):
            shell.run(f"gossiplog sync {name}.db {url} {topic}", f'{{…"sent":{sent},…}}')
        assert fits('{"messages":3,…}', run_here("gossiplog verify two.db", tmp_path, TIMEOUT))


def peers_of(path: Path) -> list[str]:
    """Return the names of the clients that have joined a hub."""
    happened = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [each["peer"] for each in happened if each.get("event") == "connected"]
