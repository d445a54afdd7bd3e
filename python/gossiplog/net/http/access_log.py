"""An access log: one line for each request, and two for each WebSocket."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gossiplog.net.http.access import SCOPE_KEY, Decision, name_of_token
from gossiplog.net.http.metrics import HEALTH_PATHS
from gossiplog.net.rate_limited_log import FIELDS, client_name, one_line

LOGGER = logging.getLogger("gossiplog.access")
_LONGEST_PATH = 1000
# What a server answers where an application closes a WebSocket that it has not accepted (ASGI specification).
_FORBIDDEN = 403
_OK = 200


class AccessLog:
    """ASGI middleware that logs requests and WebSockets to LOGGER.

    A line has no headers and no query, which may contain a token; of a token it has the name, if there is one. Health
    checks that succeed have no line.

    Args:
        app: the application that answers.
        clock: seconds, on a clock that never goes back.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request or a WebSocket to the application, and log it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        entry = _Entry(scope, self._clock)

        async def receiving() -> MutableMapping[str, Any]:
            message = await receive()
            entry.received += _size(message)
            return message

        async def sending(message: MutableMapping[str, Any]) -> None:
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    entry.status = message["status"]
                case "websocket.accept":
                    entry.open()
                case "websocket.close" if not entry.status:
                    entry.status = _FORBIDDEN
            entry.sent += _size(message)
            await send(message)

        try:
            await self._app(scope, receiving, sending)
        finally:
            entry.end()


class _Entry:
    """A request or a WebSocket that is being answered."""

    def __init__(self, scope: Scope, clock: Callable[[], float]) -> None:
        self._scope = scope
        self._client = one_line(client_name(scope.get("client")))
        self._method = "WEBSOCKET" if scope["type"] == "websocket" else one_line(scope["method"])
        self._path = one_line(scope["path"][:_LONGEST_PATH])
        self._clock = clock
        self._start = clock()
        self._is_open = False
        # 0 where the application has sent none: then the server answers 500.
        self.status = 0
        self.received = self.sent = 0

    def open(self) -> None:
        """Log that a WebSocket was accepted."""
        self.status, self._is_open = 101, True
        self._log("opened", {"event": "opened"})

    def end(self) -> None:
        """Log the end."""
        seconds = round(self._clock() - self._start, 3)
        numbers = {"bytes_received": self.received, "bytes_sent": self.sent, "seconds": seconds}
        text = f"{self.received} bytes received, {self.sent} sent, {seconds:.3f} s"
        if self._is_open:
            self._log(f"ended: {text}", {"event": "ended", **numbers})
        elif self._path not in HEALTH_PATHS or self.status != _OK:
            self.status = self.status or 500
            self._log(text, {"event": "answered", **numbers})

    def _log(self, text: str, more: dict[str, Any]) -> None:
        fields = {"client": self._client, "method": self._method, "path": self._path, "status": self.status, **more}
        # Where the checks of `gossiplog.net.http.access` left it.
        decision: Decision | None = self._scope.get(SCOPE_KEY)
        if decision is not None:
            name, token = name_of_token(decision)
            fields |= token
            text += name
        LOGGER.info("%s %s %s %d %s", self._client, self._method, self._path, self.status, text, extra={FIELDS: fields})


def _size(message: MutableMapping[str, Any]) -> int:
    return len(message.get("body") or message.get("bytes") or (message.get("text") or "").encode())
