"""Clients of the bundled server, over sockets of this process."""

from __future__ import annotations

from typing import Any

from anyio.abc import ByteStream
from websockets.asyncio.client import connect

from gossiplog.net.http.listener import Address

PATIENCE = 60
"""Seconds that an answer may take on a busy machine."""


HANDSHAKE = (
    "GET /flood HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def websocket(address: Address, path: str = "/", **settings: Any) -> connect:
    return connect(address.url("ws") + path, ping_interval=None, proxy=None, **settings)


async def request(stream: ByteStream, text: str) -> bytes:
    await stream.send(text.encode())
    return await stream.receive()
