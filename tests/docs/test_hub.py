"""The blocks of docs/hub.md run, in one folder, and a proxy that is set up as the page says passes clients on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from gossiplog import Hub, Log
from gossiplog.net import events
from gossiplog.net.http.access import Access
from gossiplog.net.http.server import serve
from tests.namespaces import ADDRESS, may_isolate
from tests.net.support import Heard
from tests.readme import DOCS, Shell, background, blocks, run_command, steps

PAGE = DOCS / "hub.md"
HOST = "hub.example.org"
TIMEOUT = 600


@pytest.mark.integration
def test_commands(tmp_path: Path) -> None:
    found = blocks(PAGE)
    assert [block.language for block in found] == ["sh", "console", "console", "nginx", "python", "console", "console"]
    setup, session, page, *_ = found
    run_command(f"set -e; {setup.text}", tmp_path, TIMEOUT)
    with Shell(tmp_path, TIMEOUT) as shell:
        for command, expected in [*steps(session), *steps(page)]:
            shell.run(command, expected)


@pytest.mark.integration
def test_the_way_back_from_a_refusal(tmp_path: Path) -> None:
    *_, program, session, way_back = blocks(PAGE)
    (tmp_path / "checked.py").write_text(program.text, encoding="utf-8")
    with Shell(tmp_path, TIMEOUT) as shell:
        for command, expected in [*steps(session), *steps(way_back)]:
            shell.run(command, expected)


# What the page leaves to the reader: the rest of nginx's own configuration.
NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    {0}
}}
"""


@pytest.mark.integration
@pytest.mark.skipif(not may_isolate(HOST), reason="a hub by the name of the page needs a network of its own")
def test_nginx(tmp_path: Path) -> None:
    """As the page sets it up, but at a port that users may have: two clients sync by it with the hub of the page."""
    setup, _, _, configuration, *_ = blocks(PAGE)
    command = setup.text.replace("DNS:localhost", f"DNS:{HOST}")
    run_command(f"set -e; {command}", tmp_path, TIMEOUT)
    text = configuration.text.replace("listen 443 ssl", "listen 8443 ssl")
    assert text != configuration.text
    (tmp_path / "nginx.conf").write_text(NGINX.format(text), encoding="utf-8")
    url = f"{HOST}:8443"
    options = "--topic org.example.notes --ca-file certificate.pem"
    sync = f"gossiplog sync {{}}.db wss://{url} {options} --token-file {{}}.token"
    curl = 'curl --silent --cacert certificate.pem --output /dev/null --write-out "%{http_code}"'
    wait = "curl --silent --retry 60 --retry-delay 1 --retry-connrefused"
    with Shell(tmp_path, TIMEOUT, HOST) as shell:
        shell.run(f"{serve_command()} > hub.jsonl 2> hub.log &", "")
        shell.run(f"{wait} http://127.0.0.1:8000/healthz", "{…}")
        # Debian has it where only root looks for programs.
        shell.run("PATH=$PATH:/usr/sbin nginx -e stderr -p . -c nginx.conf 2> nginx.log &", "")
        shell.run(f"{wait} --cacert certificate.pem https://{url}/healthz", "{…}")
        shell.run("gossiplog init one.db --topic org.example.notes", "{…}")
        shell.run("gossiplog append one.db 1 2>key.log", "{…}")
        shell.run(sync.format("one", "write"), '{…"inserted":0,…,"sent":1,…}')
        shell.run(sync.format("two", "read"), '{…"inserted":1,…,"sent":0,…}')
        shell.run("gossiplog append one.db 2", "{…}")
        shell.run(f"{sync.format('one', 'read')} || true", "gossiplog: … lets this client read only, …")
        for path, token, status in (("api/clock", "read", 200), ("api/clock", "", 401), ("metrics", "read", 404)):
            header = f'--header "Authorization: Bearer $(cat {token}.token)"' if token else ""
            # As a page of the hub's own origin asks; at its usual port, origins have none.
            shell.run(f"{curl} --header 'Origin: https://{HOST}' {header} https://{url}/{path}", str(status))
    happened = [json.loads(line) for line in (tmp_path / "hub.jsonl").read_text(encoding="utf-8").splitlines()]
    joined = [each["peer"] for each in happened if each.get("event") == "connected"]
    assert len(joined) == 3
    assert all(peer.startswith(f"{ADDRESS}#") for peer in joined)
    assert (tmp_path / "nginx.log").read_text(encoding="utf-8") == ""


def serve_command() -> str:
    """Return the command with which a hub stands behind a proxy."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("    gossiplog serve")).strip()


@pytest.mark.integration
def test_an_authority_stands_for_no_server(tmp_path: Path) -> None:
    """What `openssl req -x509` makes without the page's last option, given to the client, too."""
    (setup, *_) = blocks(PAGE)
    text = setup.text.replace(" -addext basicConstraints=critical,CA:FALSE", "")
    assert text != setup.text
    run_command(f"set -e; {text}", tmp_path, TIMEOUT)
    serve = "gossiplog serve hub.db --hub 127.0.0.1:0 --certificate certificate.pem --private-key key.pem"
    with background(serve, tmp_path, TIMEOUT) as ready:
        url = json.loads(ready)["hub"]
        sync = f"gossiplog sync mine.db {url} --topic org.example.notes --ca-file certificate.pem || true"
        printed = run_command(sync, tmp_path, TIMEOUT)
    assert printed.startswith(f"gossiplog: {url} is not trusted: its certificate is an authority's (CA:TRUE)")
    assert '(docs/hub.md, "TLS")' in printed


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_headers_of_the_proxy(opened: Callable[..., Log]) -> None:
    """nginx as the page sets it up, for a client at 192.0.2.7 that claims to be somebody else."""
    variables = {
        "$host": "hub.example.org",
        "$http_upgrade": "websocket",
        "$connection_upgrade": "upgrade",
        "$proxy_add_x_forwarded_for": "198.51.100.1, 192.0.2.7",
        "$scheme": "https",
    }
    (block,) = (block for block in blocks(PAGE) if block.language == "nginx")
    headers = {name: variables[value] for name, value in re.findall(r"proxy_set_header (\S+) (\S+);", block.text)}
    assert set(headers) == {"Host", "Upgrade", "Connection", "X-Forwarded-For", "X-Forwarded-Proto"}
    assert f"--allow-host {HOST} --trusted-proxy 127.0.0.1 " in serve_command()
    heard = Heard()
    access = Access(hosts=frozenset({"hub.example.org"}))
    async with Hub(opened(), access=access, on_event=heard) as hub, anyio.create_task_group() as tasks:
        address = await tasks.start(
            lambda *, task_status: serve(hub, trusted_proxies=["127.0.0.1"], task_status=task_status)
        )
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            head = {**headers, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            await stream.send(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 101")
            # A frame without a mask.
            await stream.send(b"\x82\x01a")
            await heard.wait(events.Rejected)
        tasks.cancel_scope.cancel()
    assert heard.of(events.Rejected)[0].peer == "192.0.2.7#1"
