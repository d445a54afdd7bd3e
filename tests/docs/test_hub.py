"""The blocks of docs/hub.md run, in one folder, and a proxy that is set up as the page says passes clients on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from gossiplog import Hub, Log
from gossiplog.net import events
from gossiplog.net.access import Access
from gossiplog.net.serving import serve
from tests.net.support import Heard
from tests.readme import DOCS, background, blocks, fits, run_command, steps

PAGE = DOCS / "hub.md"
TIMEOUT = 600


@pytest.mark.integration
def test_commands(tmp_path: Path) -> None:
    found = blocks(PAGE)
    assert [block.language for block in found] == ["sh", "console", "nginx"]
    setup, session, _ = found
    run_command(f"set -e; {setup.text}", tmp_path, TIMEOUT)
    with ExitStack() as stack:
        for command, expected in steps(session):
            if command.endswith(" &"):
                printed = stack.enter_context(background(command.removesuffix(" &"), tmp_path, TIMEOUT))
            else:
                printed = run_command(command, tmp_path, TIMEOUT)
            assert fits(expected, printed), f"{command}\n{printed}"


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
    command = next(
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("    gossiplog serve")
    )
    assert "--allow-host hub.example.org --trusted-proxy 127.0.0.1 " in command
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
    assert heard.of(events.Rejected)[0].peer.startswith("192.0.2.7:")
