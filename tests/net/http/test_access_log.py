from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from gossiplog.net.http.access import Access, Token, protect
from gossiplog.net.http.access_log import LOGGER, AccessLog
from gossiplog.net.rate_limited_log import FIELDS
from tests.net.asgi import call, scope

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, LOGGER.name):
        yield


def clock() -> Iterator[float]:
    yield 10.0
    while True:
        yield 12.5


def logged_app(app: Any) -> AccessLog:
    times = clock()
    return AccessLog(app, lambda: next(times))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": message["body"] * 2, "more_body": True})
    await send({"type": "http.response.body", "body": b"!"})


async def test_a_request_is_a_line_without_its_query(caplog: pytest.LogCaptureFixture) -> None:
    answer = await call(logged_app(echo), "/api/a\nb?token=a-secret", "POST", b"abc", [("Authorization", "Bearer x")])
    assert (answer.status, answer.body) == (201, b"abcabc!")
    assert caplog.messages == ["127.0.0.1:50000 POST /api/a\\nb 201 3 bytes received, 7 sent, 2.500 s"]
    assert getattr(caplog.records[0], FIELDS) == {
        "client": "127.0.0.1:50000",
        "method": "POST",
        "path": "/api/a\\nb",
        "status": 201,
        "event": "answered",
        "bytes_received": 3,
        "bytes_sent": 7,
        "seconds": 2.5,
    }


async def test_the_name_of_a_token_is_in_the_line_and_the_token_is_not(caplog: pytest.LogCaptureFixture) -> None:
    token = Token("not-to-be-guessed-0123456789", "alice")
    app = logged_app(protect(echo, Access(write_token=[token, Token("another-0123456789")])))
    for shown in ("not-to-be-guessed-0123456789", "another-0123456789"):
        headers = [("Host", "localhost"), ("Authorization", f"Bearer {shown}")]
        assert (await call(app, "/", "POST", b"abc", headers)).status == 201
    assert [message.partition(" sent, ")[2] for message in caplog.messages] == ["2.500 s, token of alice", "0.000 s"]
    assert [getattr(record, FIELDS).get("token") for record in caplog.records] == ["alice", None]
    assert "0123456789" not in caplog.text


async def test_a_refusal_has_the_name_of_the_token(caplog: pytest.LogCaptureFixture) -> None:
    token = Token("not-to-be-guessed-0123456789", "alice")
    app = logged_app(protect(echo, Access(read_token=token, write_token="another-0123456789")))
    headers = [("Host", "localhost"), ("Authorization", "Bearer not-to-be-guessed-0123456789")]
    assert (await call(app, "/", "POST", b"abc", headers)).status == 403
    (record,) = (record for record in caplog.records if record.name == LOGGER.name)
    assert record.getMessage().endswith(" s, token of alice")
    assert getattr(record, FIELDS)["token"] == "alice"
    assert "0123456789" not in caplog.text


@pytest.mark.parametrize(("path", "status", "lines"), [("/healthz", 200, 0), ("/readyz", 503, 1), ("/metrics", 200, 1)])
async def test_health_checks_that_succeed_have_no_line(
    caplog: pytest.LogCaptureFixture, path: str, status: int, lines: int
) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    assert (await call(logged_app(answer), path)).status == status
    assert len(caplog.messages) == lines


async def test_a_request_that_raises_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await call(logged_app(fail), "/" + "x" * 10_000)
    (line,) = caplog.messages
    assert line.endswith("x 500 0 bytes received, 0 sent, 2.500 s")
    assert len(line) < 2000


async def talk(app: AccessLog) -> list[MutableMapping[str, Any]]:
    messages = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "bytes": b"1234"}])
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> Any:
        return next(messages, {"type": "websocket.disconnect", "code": 1000})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope("websocket", "/?token=a-secret"), receive, send)
    return sent


async def test_a_websocket_is_a_line_when_it_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        assert len(caplog.messages) == 1
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": "é" * len(message["bytes"])})
        await send({"type": "websocket.close", "code": 1000})

    await talk(logged_app(serve))
    assert caplog.messages == [
        "127.0.0.1:50000 WEBSOCKET / 101 opened",
        "127.0.0.1:50000 WEBSOCKET / 101 ended: 4 bytes received, 8 sent, 2.500 s",
    ]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ({"type": "websocket.close", "code": 1008}, 403),
        ({"type": "websocket.http.response.start", "status": 401, "headers": []}, 401),
    ],
)
async def test_a_websocket_that_is_refused_is_a_line(
    message: dict[str, Any], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send(message)

    assert await talk(logged_app(refuse)) == [message]
    assert caplog.messages == [f"127.0.0.1:50000 WEBSOCKET / {status} 0 bytes received, 0 sent, 2.500 s"]


async def test_a_lifespan_is_none(caplog: pytest.LogCaptureFixture) -> None:
    scopes: list[Scope] = []

    async def live(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    async def never() -> Any:
        raise AssertionError

    async def unsent(message: MutableMapping[str, Any]) -> None:
        raise AssertionError

    await logged_app(live)({"type": "lifespan"}, never, unsent)
    assert scopes == [{"type": "lifespan"}]
    assert caplog.messages == []
