"""Calls an ASGI application as a server does, without one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.types import ASGIApp, Message

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        pieces: how many parts the body came in.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    pieces: int

    @property
    def error(self) -> str:
        """The reason for a refusal."""
        assert self.headers["content-type"] == "application/json"
        found = json.loads(self.body)
        assert found.keys() == {"error"}
        return str(found["error"])


def scope(kind: str, target: str, method: str = "GET", headers: Headers = ()) -> dict[str, Any]:
    """The scope of a request, or of a WebSocket."""
    path, _, query = target.partition("?")
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }


async def call(
    app: ASGIApp, target: str, method: str = "GET", body: bytes | list[bytes] = b"", headers: Headers = ()
) -> Answer:
    """Makes a request, its body in one part or in several, and takes the answer."""
    parts = body if isinstance(body, list) else [body]
    requests = iter(
        [{"type": "http.request", "body": part, "more_body": n < len(parts)} for n, part in enumerate(parts, 1)]
    )
    sent: list[Message] = []

    async def receive() -> Message:
        if (message := next(requests, None)) is None:
            # The connection stays open until the answer is complete.
            await anyio.sleep_forever()
        return message or {}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope("http", target, method, headers), receive, send)
    start, *rest = sent
    assert start["type"] == "http.response.start"
    assert not rest[-1].get("more_body", False)
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    pieces = [message["body"] for message in rest if message["body"]]
    return Answer(start["status"], found, b"".join(pieces), len(pieces))
