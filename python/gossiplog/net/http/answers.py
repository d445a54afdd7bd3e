"""Answers over HTTP that read a log: made on threads, within the memory of all, piece by piece as the client reads."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gossiplog.errors import (
    DecodeError,
    EncodeError,
    InvalidMessage,
    MissingParents,
    RefusedMessage,
    StorageError,
    UnknownMessage,
)
from gossiplog.net.http.admission import Admission, Overloaded, Reservation
from gossiplog.net.service import background

JSON_TYPE = "application/json"
PIECE_BYTES = 2**18
"""Bytes of an answer that are written at once: a longer one is sent in several pieces."""
RETRY_SECONDS = 1
"""After which a client that is turned away may try again."""
_LONGEST_REASON = 1000


@contextmanager
def refusing() -> Iterator[None]:
    """Translate errors of the block into HTTP errors that reveal nothing of the server."""
    try:
        yield
    except UnknownMessage as error:
        raise HTTPException(404, _reason(error)) from error
    except (DecodeError, InvalidMessage, MissingParents, RefusedMessage) as error:
        raise HTTPException(400, _reason(error)) from error
    except EncodeError as error:
        raise HTTPException(406, _reason(error)) from error
    except Overloaded as error:
        raise HTTPException(503, _reason(error), {"Retry-After": str(RETRY_SECONDS)}) from error
    except StorageError as error:
        raise HTTPException(503, "the log cannot be used at the moment") from error


def _reason(error: Exception) -> str:
    """Return what was wrong. An application's error may show what a stranger sent, all of it."""
    text = str(error)
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


async def as_json(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed: `{"error": "..."}`."""
    if not isinstance(error, HTTPException):
        raise error
    is_routed = "endpoint" in request.scope
    reason = error.detail if is_routed else f"there is nothing at {request.url.path}"
    return JSONResponse({"error": reason}, error.status_code, error.headers)


class Text(Protocol):
    """An answer that is written piece by piece (see `core.MessageJson`)."""

    @property
    def held(self) -> int: ...
    def read(self, limit: int, /) -> bytes: ...


class Written:
    """An answer that was written at once."""

    def __init__(self, text: bytes) -> None:
        self._rest = text
        self.held = len(text)

    def read(self, limit: int, /) -> bytes:
        """All of it; then nothing."""
        text, self._rest = self._rest, b""
        return text


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that is ready to be written.

    Attributes:
        text: its body.
        headers: beside its type.
    """

    text: Text
    headers: Mapping[str, str]


class ExpensiveResponse(Response):
    """An answer that takes memory and time: it is made, as fast as the client reads, once there is room for it.

    Args:
        admission: of the request.
        size: bytes that finding it may take.
        open: finds it, on a thread.
        media_type: of the answer.
    """

    def __init__(self, admission: Admission, size: int, open: Callable[[], Page], media_type: str = JSON_TYPE) -> None:
        super().__init__(media_type=media_type)
        self._admission = admission
        self._size = size
        self._open = open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        with refusing():
            async with until_disconnected(receive):
                await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False
        try:
            async with self._admission.reserve(self._size) as reservation:
                page = await self._admission.run_expensive(self._open)
                self._admission.resize(reservation, page.text.held + 2 * PIECE_BYTES)
                piece, following = await self._admission.run_expensive(lambda: (self._read(page), self._read(page)))
                is_begun = True
                if scope["method"] == "HEAD" and following:
                    await self._stream(reservation, Page(Written(b""), page.headers), (), send)
                    return
                if not following:
                    with reservation.waiting_for_client():
                        await Response(piece, media_type=self.media_type, headers=page.headers)(scope, receive, send)
                    return
                await self._stream(reservation, page, (piece, following), send)
        except Overloaded:
            # The connection ends within the answer, so that the client sees that it is not whole.
            if not is_begun:
                raise

    async def _stream(self, reservation: Reservation, page: Page, first: Sequence[bytes], send: Send) -> None:
        headers = [(b"content-type", self.media_type.encode())] if self.media_type else []
        headers += [(name.lower().encode(), value.encode()) for name, value in page.headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pieces = deque(first)
        while piece := pieces.popleft() if pieces else await self._admission.run_expensive(lambda: self._read(page)):
            with reservation.waiting_for_client():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    def _read(page: Page) -> bytes:
        return page.text.read(PIECE_BYTES)


@asynccontextmanager
async def until_disconnected(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects; read and discard what it still sends."""

    async def watch(scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    with anyio.CancelScope() as scope:
        async with background() as tasks:
            tasks.start_soon(watch, scope)
            yield


def read_query(request: Request, known: Sequence[str]) -> Mapping[str, str]:
    """Return the parameters of a request's query.

    Raises:
        HTTPException: one that is not known, or stands more than once.
    """
    items = request.query_params.multi_items()
    names = [name for name, _ in items]
    for name in names:
        if name not in known:
            expected = ", ".join(known) if known else "none"
            raise HTTPException(400, f"the query parameter {name!r} is not known here: expected {expected}")
        if names.count(name) > 1:
            raise HTTPException(400, f"the query parameter {name!r} stands more than once")
    return dict(items)
