"""The HTTP API of a hub, as the original's under `/api` (wire format, "HTTP API").

It answers as the original does, byte for byte, where that answers well, and refuses what makes it fail: there, a query
parameter that it cannot use ends the process, and errors are plain text or HTML. Here every error is
`{"error": "..."}`. Missing in what it answers is `branch`, which tells nothing about a message.

Two more differences are on purpose: `gt`, `gte`, `lt` and `lte` must be ids, where the original compares any text, and
parameters that are not known are refused, since a misspelt bound would widen the answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from importlib import resources
from typing import TypeAlias, TypeVar

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gossiplog import core
from gossiplog.errors import (
    DecodeError,
    EncodeError,
    InvalidMessage,
    MissingParents,
    Refused,
    StorageError,
    TooMuchWork,
    UnknownMessage,
)
from gossiplog.log import Log
from gossiplog.message import SignedMessage
from gossiplog.net.exchange import CONTENT_TYPES, from_body, to_json

MAX_BODY_BYTES = 4 * 2**20
"""Bytes in the body of a request."""
BODY_SECONDS = 30.0
"""How long the body of a request may take to arrive."""
MAX_LIMIT = 64
"""Messages in an answer; the default, too (wire format, "HTTP API")."""
MAX_LINKS = 10_000
"""Ids in an answer about ancestors."""
MAX_READ = 64 * 2**20
"""Bytes of the log that such an answer may cost (see `gossiplog.log.ancestry`): half a second, or one."""
# Bytes of a list of messages that are made at once: a longer one is sent in several pieces.
_PIECE_BYTES = 2**20
# Requests that use the log at the same time. Each may hold a body or a page of messages in memory.
_REQUESTS_AT_ONCE = 8
# Bodies that are being received at the same time: others wait, unread.
_BODIES_AT_ONCE = 32
# The two content types of the original, for what Express writes and for dag-json.
_JSON = "application/json; charset=utf-8"
_DAG_JSON = "application/json"

_Result = TypeVar("_Result")
Connections: TypeAlias = Callable[[], Iterable[str]]
_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def create_api(log: Log, connections: Connections) -> Starlette:
    """Makes the ASGI application that is to be mounted at `/api`.

    Args:
        log: it is used in worker threads only.
        connections: gives the addresses of the peers that are connected.
    """
    api = _Api(log, connections)
    application = Starlette(
        routes=[
            _route("/clock", GET=api.clock),
            _route("/connections", GET=api.connections),
            _route("/messages", GET=api.messages, POST=api.post),
            _route("/messages/count", GET=api.count),
            _route("/messages/{id}", GET=api.message),
            _route("/ancestors/{id}", GET=api.ancestors),
            _route("/openapi.json", GET=_describe),
        ],
        exception_handlers={HTTPException: as_json},
    )
    application.router.redirect_slashes = False
    return application


def _route(path: str, **handlers: _Handler) -> Route:
    allowed = {"Allow": ", ".join(sorted({*handlers, "HEAD", "OPTIONS"}))}

    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allowed)
        handler = handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise HTTPException(405, f"{request.method} is not possible here: expected {allowed['Allow']}", allowed)
        try:
            return await handler(request)
        except UnknownMessage as error:
            raise HTTPException(404, str(error)) from error
        # None of these tells a caller more than what the request or the log's content is to blame for.
        except (DecodeError, InvalidMessage, MissingParents, Refused) as error:
            raise HTTPException(400, str(error)) from error
        except EncodeError as error:
            raise HTTPException(406, str(error)) from error
        except StorageError as error:
            raise HTTPException(503, "the log cannot be used at the moment") from error

    # Every method comes here: Starlette itself would list those that are possible in any order.
    route = Route(path, answer)
    route.methods = None
    return route


async def as_json(request: Request, error: Exception) -> Response:
    """The answer to a request that failed: `{"error": "..."}`."""
    if not isinstance(error, HTTPException):
        raise error
    is_routed = "endpoint" in request.scope
    reason = error.detail if is_routed else f"there is nothing at {request.url.path}"
    return JSONResponse({"error": reason}, error.status_code, error.headers)


async def _describe(request: Request) -> Response:
    _query(request, ())
    return Response((resources.files("gossiplog.net") / "openapi.json").read_bytes(), media_type=_DAG_JSON)


class _Api:
    """What the routes share, and their handlers."""

    def __init__(self, log: Log, connections: Connections) -> None:
        self._log = log
        self._connections = connections
        self._limiter = anyio.CapacityLimiter(_REQUESTS_AT_ONCE)
        self._bodies = anyio.CapacityLimiter(_BODIES_AT_ONCE)

    async def clock(self, request: Request) -> Response:
        _query(request, ())

        def read() -> dict[str, object]:
            # Of one state: the clock is what follows from the heads.
            heads = self._log.heads
            clock = max((core.decode_clock(core.decode_id(id))[0] for id in heads), default=0)
            return {"clock": 1 + clock, "parents": heads}

        return JSONResponse(await self._in_thread(read), media_type=_JSON)

    async def connections(self, request: Request) -> Response:
        _query(request, ())
        return JSONResponse([{"peer": peer} for peer in self._connections()], media_type=_JSON)

    async def count(self, request: Request) -> Response:
        after, before = _window(_query(request, _BOUNDS))
        count = await self._in_thread(lambda: self._log.count(after=after, before=before))
        return JSONResponse({"count": count}, media_type=_JSON)

    async def messages(self, request: Request) -> Response:
        query = _query(request, (*_BOUNDS, "order", "limit"))
        after, before = _window(query)
        reverse, limit = _order(query) == "desc", _limit(query)
        # In a thread, too: the log is looked at to begin with.
        pieces = await self._in_thread(
            lambda: _list(self._log.messages(after=after, before=before, reverse=reverse, limit=limit))
        )
        first, second = [await self._in_thread(lambda: next(pieces, None)) for _ in range(2)]
        if second is None:
            return Response(first, media_type=_DAG_JSON)

        async def stream() -> AsyncIterator[bytes]:
            # A message without a dag-json form breaks the answer off here: its status is sent already.
            for piece in (first, second):
                yield piece or b""
            while piece := await self._in_thread(lambda: next(pieces, None)):
                yield piece

        return StreamingResponse(stream(), media_type=_DAG_JSON)

    async def message(self, request: Request) -> Response:
        _query(request, ())
        id = request.path_params["id"]
        return Response(await self._in_thread(lambda: to_json(self._log.get(id))), media_type=_DAG_JSON)

    async def post(self, request: Request) -> Response:
        _query(request, ())
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in CONTENT_TYPES:
            raise HTTPException(415, f"a body of the type {content_type!r}: expected one of {', '.join(CONTENT_TYPES)}")
        async with self._bodies:
            body = await _body(request)

        def read() -> tuple[bytes, str]:
            try:
                value = from_body(body, content_type)
            except EncodeError as error:
                raise DecodeError(str(error)) from error
            return value, core.read_message(value, self._log.topic).id

        value, id = await self._in_thread(read)
        await self._in_thread(lambda: self._log.insert(value))
        return Response(status_code=201, headers={"Location": f"messages/{id}"})

    async def ancestors(self, request: Request) -> Response:
        """The latest ancestors 1, 2, 4, 8, ... clocks back, as the original's repository shows its index of them."""
        _query(request, ())
        id = request.path_params["id"]
        try:
            found = await self._in_thread(lambda: self._log.replica.ancestors(id, MAX_LINKS, MAX_READ))
        except TooMuchWork as error:
            raise HTTPException(413, f"the ancestors of message {id} cannot be answered: {error}") from error
        return JSONResponse([{"clock": clock, "links": ids} for clock, ids in found], media_type=_JSON)

    async def _in_thread(self, function: Callable[[], _Result]) -> _Result:
        return await to_thread.run_sync(function, limiter=self._limiter)


def _list(messages: Iterator[SignedMessage]) -> Iterator[bytes]:
    """A list in dag-json, in pieces."""
    piece = bytearray(b"[")
    separator = b""
    for message in messages:
        piece += separator + to_json(message)
        separator = b","
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"]"


async def _body(request: Request) -> bytes:
    too_long = HTTPException(413, f"a body of more than {MAX_BODY_BYTES} bytes")
    # Before any of it is read; whoever says less than comes is found out below.
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > MAX_BODY_BYTES:
        raise too_long
    body = bytearray()
    try:
        with anyio.fail_after(BODY_SECONDS):
            async with aclosing(request.stream()) as parts:
                async for part in parts:
                    body += part
                    if len(body) > MAX_BODY_BYTES:
                        raise too_long
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the body was not sent to its end") from error
    return bytes(body)


# Query parameters

_BOUNDS = ("gt", "gte", "lt", "lte")
_LARGEST_KEY = 2 ** (8 * core.KEY_LENGTH) - 1


def _query(request: Request, known: Sequence[str]) -> Mapping[str, str]:
    items = request.query_params.multi_items()
    names = [name for name, _ in items]
    for name in names:
        if name not in known:
            expected = ", ".join(known) if known else "none"
            raise HTTPException(400, f"the query parameter {name!r} is not known here: expected {expected}")
        if names.count(name) > 1:
            raise HTTPException(400, f"the query parameter {name!r} stands more than once")
    return dict(items)


def _window(query: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The ids between which, both left out, all bounds hold: ids are numbers, so each has one before and one behind."""
    keys = {name: int.from_bytes(_key(name, query[name])) for name in _BOUNDS if name in query}
    lower = [keys[name] - closed for name, closed in (("gt", 0), ("gte", 1)) if name in keys]
    upper = [keys[name] + closed for name, closed in (("lt", 0), ("lte", 1)) if name in keys]
    return _id(max(lower, default=-1)), _id(min(upper, default=_LARGEST_KEY + 1))


def _key(name: str, id: str) -> bytes:
    try:
        return core.decode_id(id)
    except DecodeError as error:
        raise HTTPException(400, f"the query parameter {name!r} must be a message's id: {error}") from error


def _id(key: int) -> str | None:
    return core.encode_id(key.to_bytes(core.KEY_LENGTH)) if 0 <= key <= _LARGEST_KEY else None


def _order(query: Mapping[str, str]) -> str:
    order = query.get("order", "asc")
    if order not in ("asc", "desc"):
        raise HTTPException(400, f"the query parameter 'order' is {order!r}: expected asc or desc")
    return order


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(MAX_LIMIT))
    # The length first: Python reads numbers of any length, in any script's digits.
    if len(text) > 4 or not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_LIMIT:
        raise HTTPException(400, f"the query parameter 'limit' is {text!r}: expected 1 to {MAX_LIMIT}")
    return int(text)
