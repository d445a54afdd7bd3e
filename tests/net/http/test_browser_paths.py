"""`gossiplog.net.http.browser_paths`, behind the checks of access."""

from __future__ import annotations

import logging

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossiplog.net.http.access import SCOPE_KEY, Allowed, protect
from gossiplog.net.http.browser_paths import BrowserPaths, token_of_query, without_token
from gossiplog.net.rate_limited_log import RateLimitedLog
from tests.net.asgi import Answer, call, scope
from tests.net.http.test_access import OTHER, READ, WRITE, Inner, access, headers
from tests.strategies import repeatable


@pytest.mark.parametrize("name", ["token", "%74oken", "tok%65n"])
def test_a_token_is_taken_out_of_a_query_however_its_name_is_written(name: str) -> None:
    socket = scope("websocket", f"/?a=1&{name}={READ}&b=2")
    assert token_of_query(socket) == READ
    assert without_token(socket)["query_string"] == b"a=1&b=2"
    # Of a query without one nothing is written anew, nor of a request, which does not show its token there.
    for other in (scope("websocket", "/?a=%20&b"), scope("http", f"/?{name}={READ}")):
        assert without_token(other)["query_string"] == other["query_string"]


async def explain(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b"what to do"})


def with_page(inner: Inner, limited_log: RateLimitedLog | None = None) -> ASGIApp:
    """Behind the checks, with a page that explains itself to who has no token."""

    def explained(scope: Scope, status: int) -> ASGIApp | None:
        assert status == 401
        return explain if any(name == b"accept" for name, _ in scope["headers"]) else None

    return protect(inner, access(READ, WRITE), limited_log, browser=BrowserPaths("/", ("/style.css",), explained))


@pytest.mark.anyio
async def test_the_address_of_a_page_may_have_the_token() -> None:
    """It is a header to the checks, and gone behind them; the scope around them, an access log's, stays as it is."""
    inner = Inner()
    app = with_page(inner)
    assert (await call(app, f"/?a=1&token={READ}&b=2", headers=headers("localhost", None, None))).status == 200
    assert inner.scopes[0][SCOPE_KEY] == Allowed(read=True, write=False)
    assert inner.scopes[0]["query_string"] == b"a=1&b=2"
    assert READ not in str(inner.scopes)
    # A header counts for more, and no other path, method or kind of request takes it.
    for path, method, token in (("/", "GET", OTHER), ("/", "POST", None), ("/api", "GET", None), ("//", "GET", None)):
        answer = await call(app, f"{path}?token={READ}", method, headers=headers("localhost", None, token))
        assert answer.status == 401
    assert len(inner.scopes) == 1


@pytest.mark.anyio
async def test_files_of_a_page_need_no_token_but_a_known_host_and_origin() -> None:
    inner = Inner()
    app = with_page(inner)
    assert (await call(app, "/style.css", headers=headers("localhost", None, None))).status == 200
    assert inner.scopes[0][SCOPE_KEY] == Allowed(read=False, write=False)
    for host, origin, token, status in (
        ("evil.example.org", None, None, 403),
        ("localhost", "https://evil.example.org", None, 403),
        ("localhost", None, OTHER, 401),
    ):
        assert (await call(app, "/style.css", headers=headers(host, origin, token))).status == status
    assert (await call(app, "/style.css", "POST", headers=headers("localhost", None, None))).status == 401
    assert len(inner.scopes) == 1


@pytest.mark.anyio
async def test_who_opens_a_page_without_a_token_gets_an_explanation() -> None:
    limited_log = RateLimitedLog(logging.getLogger("gossiplog.test"))
    app = with_page(Inner(), limited_log)
    html = ("Accept", "text/html")
    assert (await call(app, "/", headers=[*headers("localhost", None, None), html])).status == 401
    # To be asked for a token is no refusal; to show a wrong one is, and what no browser asks.
    assert limited_log.counts == {}
    assert (await call(app, f"/?token={OTHER}", headers=[*headers("localhost", None, None), html])).status == 401
    assert (await call(app, "/", headers=headers("localhost", None, None))).status == 401
    assert limited_log.counts == {"token": 2}
    for target in ("/", "/?token=", f"/?token={OTHER}"):
        answer = await call(app, target, headers=[*headers("localhost", None, None), html])
        assert (answer.status, answer.body) == (401, b"what to do")
        assert (await call(app, target, headers=headers("localhost", None, None))).error
    # Other refusals are not about a token.
    assert (await call(app, "/", headers=[*headers("evil.example.org", None, None), html])).status == 403
    assert (await call(app, "/api", headers=[*headers("localhost", None, None), html])).error


@given(query=st.text(st.characters(max_codepoint=255), max_size=60))
@repeatable(200)
def test_no_address_of_a_page_is_let_in_but_by_its_token(query: str) -> None:
    inner = Inner()

    async def ask() -> Answer:
        shown = scope("http", "/", headers=headers("localhost", None, None))
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await with_page(inner)({**shown, "query_string": f"token={query}".encode("latin-1")}, anyio.sleep_forever, send)
        return Answer(sent[0]["status"], {}, b"", 0)

    assert anyio.run(ask).status == 401
    assert inner.scopes == []
