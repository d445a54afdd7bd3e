"""The HTTP API of a hub, as canvas-js's under `/api` (wire format, "HTTP API").

It answers as canvas-js does, byte for byte, where that answers well, and refuses what makes it fail: there, a query
parameter that it cannot use ends the process, and errors are plain text or HTML. Here every error is
`{"error": "..."}`. Missing in what it answers is `branch`, which says nothing about a message.

Three more differences are on purpose. A page of messages has 4 MiB of stored values at most, and where it may not be
the last, a header `Link` has the address of the next. `gt`, `gte`, `lt` and `lte` must be ids, where canvas-js
compares any text, and parameters that are not known are refused, since a misspelt bound would widen the answer.

The authors of a log decide what an answer costs. So the core writes messages from their stored bytes, piece by
piece as the client reads, on threads that let others run; what requests keep in memory together is limited (see
`gossiplog.net.http.admission`), a request ends with its client, and the clock does not wait for any of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from importlib import resources
from typing import TypeAlias
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gossiplog import core
from gossiplog.errors import (
    DecodeError,
    LimitExceeded,
    StorageError,
)
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.log.reading import raising_corrupt_log
from gossiplog.net.http.addresses import host_of, source_of
from gossiplog.net.http.admission import Admission
from gossiplog.net.http.answers import (
    JSON_TYPE,
    ExpensiveResponse,
    Page,
    Written,
    as_json,
    read_query,
    refusing,
    until_disconnected,
)
from gossiplog.net.http.message_json import CONTENT_TYPES, from_body
from gossiplog.net.transport.limits import Limits
from gossiplog.storage.base import PAGE_BYTES

MAX_BODY_BYTES = 4 * 2**20
"""Bytes in the body of a request."""
MAX_LIMIT = 64
"""Messages in an answer; the default, too (wire format, "HTTP API")."""
MAX_LINKS = 10_000
"""Ids in an answer about ancestors."""
MAX_READ = 16 * 2**20
"""Bytes of the log that such an answer may cost (see `gossiplog.log.ancestry`): some tenths of a second."""
MAX_PAGE_BYTES = PAGE_BYTES
"""Bytes of the stored values in an answer; a single message is answered, however long it is."""
# What a page may take while it is read: its messages, and one that turns out to be too long for it.
_READING_BYTES = 2 * MAX_PAGE_BYTES
# What a body may take: itself, its value in canonical dag-cbor and what that is made of, and the stored value.
_BODY_COPIES = 4
_COUNT_BYTES = 2**16
# The two content types of canvas-js, for what Express writes and for dag-json.
_JSON = "application/json; charset=utf-8"

Connections: TypeAlias = Callable[[], Iterable[str]]
_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def create_api(
    log: Log,
    connections: Connections,
    admission: Admission | None = None,
    failed: Callable[[StorageError], None] = lambda error: None,
) -> Starlette:
    """Make the ASGI application that is to be mounted at `/api`.

    Args:
        log: it is used in worker threads only.
        connections: gives the addresses of the peers that are connected.
        admission: of the requests; None for the usual memory.
        failed: is called with errors of the log: the answer does not show them.
    """

    async def answer_error(request: Request, error: Exception) -> Response:
        if isinstance(error.__cause__, StorageError):
            failed(error.__cause__)
        return await as_json(request, error)

    api = _Api(log, connections, admission or Admission(Limits().request_bytes))
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
        exception_handlers={HTTPException: answer_error},
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
        with refusing():
            return await handler(request)

    # Every method comes here: Starlette itself would list those that are possible in any order.
    route = Route(path, answer)
    route.methods = None
    return route


async def _describe(request: Request) -> Response:
    read_query(request, ())
    return Response((resources.files("gossiplog.net.http") / "openapi.json").read_bytes(), media_type=JSON_TYPE)


class _Api:
    """What the routes share, and their handlers."""

    def __init__(self, log: Log, connections: Connections, admission: Admission) -> None:
        self._log = log
        self._connections = connections
        self._admission = admission

    async def clock(self, request: Request) -> Response:
        read_query(request, ())

        def read() -> bytes:
            # Not all heads: anybody can make them many, and everybody may ask for them.
            parents = replica_of(self._log).next_parents()
            # Of one state: the clock follows from the parents, which are in the order of their clocks.
            clock = core.decode_clock(core.decode_id(parents[-1]))[0] if parents else 0
            return b'{"clock":%d,"parents":%b}' % (1 + clock, _ids_json(parents))

        return Response(await self._admission.run_cheap(read), media_type=_JSON)

    async def connections(self, request: Request) -> Response:
        read_query(request, ())
        return JSONResponse([{"peer": peer} for peer in self._connections()], media_type=_JSON)

    async def count(self, request: Request) -> Response:
        after, before = _window(read_query(request, _BOUNDS))

        def count() -> bytes:
            return b'{"count":%d}' % self._log.count(after=after, before=before)

        return self._expensive(_COUNT_BYTES, count, _JSON)

    async def messages(self, request: Request) -> Response:
        query = read_query(request, (*_BOUNDS, "order", "limit"))
        after, before = (None if id is None else core.decode_id(id) for id in _window(query))
        reverse, limit = _order(query) == "desc", _limit(query)

        def open_page() -> Page:
            rows, is_more = replica_of(self._log).page(
                after, before, reverse=reverse, limit=limit, most_bytes=MAX_PAGE_BYTES
            )
            text = _text([value for _, value in rows], self._log.topic)
            if text.count < len(rows) or is_more:
                last = core.encode_id(rows[text.count - 1][0])
                return Page(text, {"Link": f'<{_next(query, last)}>; rel="next"'})
            return Page(text, {})

        return ExpensiveResponse(self._admission, _READING_BYTES, open_page)

    async def message(self, request: Request) -> Response:
        read_query(request, ())
        id = request.path_params["id"]

        def open_one() -> Page:
            return Page(_text([replica_of(self._log).value(id)], self._log.topic, is_list=False), {})

        return ExpensiveResponse(self._admission, _READING_BYTES, open_one)

    async def post(self, request: Request) -> Response:
        read_query(request, ())
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in CONTENT_TYPES:
            raise HTTPException(415, f"a body of the type {content_type!r}: expected one of {', '.join(CONTENT_TYPES)}")
        _check_length(request)

        def read(body: bytes) -> tuple[bytes, str]:
            value = from_body(body, content_type)
            return value, core.read_message(value, self._log.topic).id

        async with AsyncExitStack() as stack:
            data = await self._body(request, stack)
            async with until_disconnected(request.receive):
                value, id = await self._admission.run_expensive(lambda: read(data))
                await self._admission.run_write(lambda: self._log.insert(value))
                return Response(status_code=201, headers={"Location": f"messages/{id}"})
        # Nobody reads it.
        return Response(status_code=400)

    async def _body(self, request: Request, stack: AsyncExitStack) -> bytes:
        """Read the body of a request; reserve the memory that its value takes, until the stack is closed."""
        try:
            with self._admission.body() as body:
                with body.scope:
                    async with aclosing(request.stream()) as parts:
                        async for part in parts:
                            self._admission.extend(body, part)
                            if len(body.data) > MAX_BODY_BYTES:
                                raise _too_long()
                            await self._admission.pace(body, source_of(host_of(request.scope)), len(part))
                    body.is_whole = True
                if body.is_whole:
                    await stack.enter_async_context(self._admission.reserve(_BODY_COPIES * len(body.data)))
        except TimeoutError as error:
            raise HTTPException(408, str(error)) from error
        except ClientDisconnect as error:
            raise HTTPException(400, "the body was not sent to its end") from error
        return bytes(body.data)

    async def ancestors(self, request: Request) -> Response:
        """Return the latest ancestors 1, 2, 4, 8, ... clocks back.

        Their form is that in which canvas-js's repository shows its index of ancestors.
        """
        read_query(request, ())
        id = request.path_params["id"]

        def find() -> bytes:
            try:
                found = replica_of(self._log).frontiers(id, MAX_LINKS, MAX_READ)
            except LimitExceeded as error:
                raise HTTPException(413, f"the ancestors of message {id} cannot be answered: {error}") from error
            return b"[%b]" % b",".join(b'{"clock":%d,"links":%b}' % (clock, _ids_json(ids)) for clock, ids in found)

        return self._expensive(MAX_READ, find, _JSON)

    def _expensive(self, size: int, call: Callable[[], bytes], media_type: str) -> Response:
        return ExpensiveResponse(self._admission, size, lambda: Page(Written(call()), {}), media_type)


def _ids_json(ids: Sequence[str]) -> bytes:
    """Return a list of ids in JSON: they need no escapes, and there may be a hundred thousand."""
    return b'["%b"]' % '","'.join(ids).encode() if ids else b"[]"


def _text(values: Sequence[bytes], topic: str, *, is_list: bool = True) -> core.MessageJson:
    with raising_corrupt_log:
        return core.MessageJson(values, topic, is_list)


def _check_length(request: Request) -> None:
    """Refuse a body that is announced as too long."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > MAX_BODY_BYTES:
        raise _too_long()


def _too_long() -> HTTPException:
    return HTTPException(413, f"a body of more than {MAX_BODY_BYTES} bytes")


# Query parameters

_BOUNDS = ("gt", "gte", "lt", "lte")
_LARGEST_KEY = 2 ** (8 * core.KEY_LENGTH) - 1


def _window(query: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the ids between which, both left out, all bounds hold.

    Ids are numbers, so each has one before and one after.
    """
    keys = {name: int.from_bytes(_key(name, query[name])) for name in _BOUNDS if name in query}
    lower = [keys[name] - closed for name, closed in (("gt", 0), ("gte", 1)) if name in keys]
    upper = [keys[name] + closed for name, closed in (("lt", 0), ("lte", 1)) if name in keys]
    return _id(max(lower, default=-1)), _id(min(upper, default=_LARGEST_KEY + 1))


def _key(name: str, id: str) -> bytes:
    try:
        return core.decode_id(id)
    except DecodeError as error:
        raise HTTPException(400, f"the query parameter {name!r} must be a message's id: {error}") from error


def _next(query: Mapping[str, str], last: str) -> str:
    """Return the address of the next page, relative to that of this one, whose last message is known."""
    passed, order = ("lt", "lte"), "desc"
    if _order(query) == "asc":
        passed, order = ("gt", "gte"), "asc"
    bounds = {name: query[name] for name in _BOUNDS if name in query and name not in passed}
    return "?" + urlencode({**bounds, passed[0]: last, "order": order, "limit": _limit(query)})


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
