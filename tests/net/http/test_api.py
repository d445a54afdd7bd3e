"""The HTTP API, against what canvas-js answered (`vectors/http.json`) and against what it must refuse."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route
from starlette.types import ASGIApp, Message

import gossiplog
from gossiplog import Log, MemoryStorage, Signer, core
from gossiplog.message import PARENTS_OF_MANY_HEADS
from gossiplog.net.http import admission as admission_module
from gossiplog.net.http import answers
from gossiplog.net.http import api as api_module
from gossiplog.net.http.admission import Admission
from gossiplog.net.http.api import MAX_BODY_BYTES, create_api
from gossiplog.net.http.message_json import to_json
from gossiplog.storage.base import PAGE_BYTES
from tests import vectors
from tests.net.asgi import call, scope
from tests.net.support import TOPIC

pytestmark = pytest.mark.anyio

HTTP = vectors.load("http")
JSON = [("Content-Type", "application/json")]
UNKNOWN = "0" * 32


@pytest.fixture
def log() -> Iterator[Log]:
    with gossiplog.open(MemoryStorage(), topic=TOPIC, signer=Signer(bytes(32))) as log:
        yield log


@pytest.fixture(scope="module")
def recorded() -> Iterator[Log]:
    """The log that canvas-js was asked about."""
    values = [value for _, value in vectors.load("log")["entries"]]
    values += [message["value"] for message in vectors.load("messages")["messages"]]
    with gossiplog.open(MemoryStorage(), topic=HTTP["topic"]) as log:
        assert log.insert_many(bytes.fromhex(value) for value in values).refused == ()
        yield log


def app_of(log: Log) -> ASGIApp:
    return create_api(log, lambda: ["ws://127.0.0.1:9"])


def without_branch(text: str) -> bytes:
    """What we answer: canvas-js numbers branches, too."""
    return re.sub(r'\{"branch":\d+,', "{", text).encode()


# What differs on purpose: canvas-js compares any text with ids, reads numbers that JavaScript would, shows the
# methods of a path as 404, and has no ancestors before its repository's head.
STRICTER = [
    "messages/count?gt=0", "messages/count?gt=", "messages/count?gt=vvv", "messages/count?other=1",
    "messages?limit=3abc", "messages?limit=1.5", "clock/", "messages/short", "messages/UPPER",
]  # fmt: skip
ANSWERED = [
    asked
    for asked in HTTP["asked"]
    if asked["method"] == "GET" and asked["status"] == 200 and asked["path"] not in [*STRICTER, "connections"]
]


async def test_the_clock_of_very_many_heads_names_the_parents_of_the_next_message(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be asked for often; anybody can make heads many; and decoding an id takes longer than writing it."""
    signer = Signer(bytes(32))
    root = signer.sign(TOPIC, 1, [], "root")
    late = signer.sign(TOPIC, 2, [core.encode_id(root[0])], "late")
    log.insert_many([root[1], late[1], *(signer.sign(TOPIC, 1, [], number)[1] for number in range(300))])
    decoded: list[bytes] = []
    decode_clock = core.decode_clock

    def decode(key: bytes) -> tuple[int, int]:
        decoded.append(key)
        return decode_clock(key)

    monkeypatch.setattr(core, "decode_clock", decode)
    answer = await call(app_of(log), "/clock")
    assert json.loads(answer.body) == {"clock": 3, "parents": list(log.heads[-PARENTS_OF_MANY_HEADS:])}
    assert decoded == [late[0]]
    message = log.append("next")
    assert (message.clock, list(message.parents)) == (3, json.loads(answer.body)["parents"])


@pytest.mark.parametrize("asked", ANSWERED, ids=lambda asked: asked["path"])
async def test_answers_are_those_of_canvas_js(asked: dict[str, Any], recorded: Log) -> None:
    answer = await call(app_of(recorded), f"/{asked['path']}")
    assert answer.status == 200
    assert answer.headers["content-type"] == asked["headers"]["content-type"]
    assert answer.body == without_branch(asked["response"])


def test_there_are_answers_to_compare() -> None:
    assert len(ANSWERED) > 20
    assert len(HTTP["messages"]) > 400


@pytest.mark.slow
async def test_messages_are_those_of_canvas_js(recorded: Log) -> None:
    app = app_of(recorded)
    for id, body in HTTP["messages"].items():
        answer = await call(app, f"/messages/{id}")
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, body.encode(), "application/json")


async def test_what_canvas_js_took_and_refused_is_taken_and_refused() -> None:
    with gossiplog.open(MemoryStorage(), topic=HTTP["topic"]) as log:
        app = app_of(log)
        for posted in HTTP["posted"]:
            body, content_type = bytes.fromhex(posted["request"]), posted["contentType"]
            answer = await call(app, "/messages", "POST", body, [("Content-Type", content_type)])
            # It names no reason for a type that it does not know.
            expected = 415 if content_type == "text/plain" else posted["status"]
            assert (answer.status, answer.headers.get("location")) == (expected, posted["headers"].get("location"))
            assert answer.status == 201 or answer.error
        assert len(log) == len({posted["headers"].get("location") for posted in HTTP["posted"]} - {None}) > 50


@pytest.mark.parametrize("path", [asked["path"] for asked in HTTP["asked"] if asked["status"] is None])
async def test_what_ends_canvas_js_is_refused(path: str, recorded: Log) -> None:
    answer = await call(app_of(recorded), f"/{path}")
    assert answer.status == 400
    assert path.partition("?")[2].partition("=")[0] in answer.error


@pytest.mark.parametrize(
    ("target", "status", "reason"),
    [
        ("/messages/count?gt=0", 400, "'gt' must be a message's id: an id has 32 ASCII characters"),
        ("/messages?lte=" + "w" * 32, 400, "'lte' must be a message's id"),
        ("/messages/count?other=1", 400, "'other' is not known here: expected gt, gte, lt, lte"),
        ("/clock?a=1", 400, "'a' is not known here: expected none"),
        ("/messages?limit=3abc", 400, "'limit' is '3abc': expected 1 to 64"),
        ("/messages?limit=%D9%A3", 400, "'limit' is '٣'"),
        ("/messages?limit=" + "9" * 5000, 400, "expected 1 to 64"),
        ("/messages?order=up", 400, "'order' is 'up': expected asc or desc"),
        ("/messages/short", 400, "an id has 32 ASCII characters"),
        ("/messages/" + "W" * 32, 400, "id"),
        (f"/messages/{UNKNOWN}", 404, f"message {UNKNOWN} is not in the log"),
        (f"/ancestors/{UNKNOWN}", 404, f"message {UNKNOWN} is not in the log"),
        ("/ancestors/short", 400, "an id has 32 ASCII characters"),
        ("/nothing", 404, "there is nothing at /nothing"),
        ("/clock/", 404, "there is nothing at /clock/"),
        ("/", 404, "there is nothing at /"),
    ],
)
async def test_other_requests_are_refused_with_a_reason(target: str, status: int, reason: str, log: Log) -> None:
    answer = await call(app_of(log), target)
    assert answer.status == status
    assert reason in answer.error


async def test_methods(log: Log) -> None:
    app = app_of(log)
    refused = await call(app, "/clock", "POST")
    assert (refused.status, refused.error) == (405, "POST is not possible here: expected GET, HEAD, OPTIONS")
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS"
    options = await call(app, "/messages", "OPTIONS")
    assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    head, get = await call(app, "/clock", "HEAD"), await call(app, "/clock")
    assert (head.status, head.headers) == (get.status, get.headers)
    assert (await call(app, "/messages", "DELETE")).status == 405


async def test_the_connections_are_listed(log: Log) -> None:
    answer = await call(app_of(log), "/connections")
    assert answer.body == b'[{"peer":"ws://127.0.0.1:9"}]'
    assert answer.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.slow
async def test_every_range(log: Log) -> None:
    app = app_of(log)
    ids = [message.id for message in log.append_many(range(6))]
    for lower in ("gt", "gte"):
        for upper in ("lt", "lte"):
            for first in range(6):
                for last in range(6):
                    query = f"{lower}={ids[first]}&{upper}={ids[last]}"
                    expected = ids[first + (lower == "gt") : last + (upper == "lte")]
                    count = await call(app, f"/messages/count?{query}")
                    assert json.loads(count.body) == {"count": len(expected)}
                    for order in ("asc", "desc"):
                        answer = await call(app, f"/messages?{query}&order={order}")
                        found = [message["id"] for message in json.loads(answer.body)]
                        assert found == expected[:: 1 if order == "asc" else -1]


@pytest.mark.parametrize("key", [bytes(20), b"\xff" * 20])
async def test_the_outermost_bounds(key: bytes, log: Log) -> None:
    log.append("hi")
    id = core.encode_id(key)
    for name, below in (("gt", True), ("gte", True), ("lt", False), ("lte", False)):
        answer = await call(app_of(log), f"/messages/count?{name}={id}")
        assert json.loads(answer.body) == {"count": int(below == (key == bytes(20)))}


async def test_a_message_goes_from_one_log_to_another(log: Log) -> None:
    payload = {"text": "hi", "link": core.CID(b"\x01\x71\x12\x01\x00"), "bytes": b"\0", "list": [None, True, -1, 0.5]}
    first = log.append(payload)
    second = log.append(payload, codec="dag-json")
    with gossiplog.open(MemoryStorage(), topic=log.topic) as other:
        for message in (first, second, first):
            body = (await call(app_of(log), f"/messages/{message.id}")).body
            answer = await call(app_of(other), "/messages", "POST", body, JSON)
            assert (answer.status, answer.headers["location"]) == (201, f"messages/{message.id}")
        assert list(other) == list(log)


async def test_an_alternative_encoding_is_shown_and_comes_back_canonical(log: Log) -> None:
    """Over HTTP the meaning travels, not the bytes: the documented limit of the API."""
    message = log.append({"a": 0.5})
    alternative = message.value.replace(b"\xfb\x3f\xe0" + bytes(6), b"\xf9\x38\x00")
    with (
        gossiplog.open(MemoryStorage(), topic=log.topic) as other,
        gossiplog.open(MemoryStorage(), topic=log.topic) as third,
    ):
        other.insert(alternative)
        (stored,) = other
        assert not stored.canonical
        body = (await call(app_of(other), f"/messages/{stored.id}")).body
        shown = json.loads(body)
        assert (shown["id"], shown["content_id"]) == (stored.id, message.id)
        answer = await call(app_of(third), "/messages", "POST", body, JSON)
        assert answer.headers["location"] == f"messages/{message.id}" != f"messages/{stored.id}"


async def pages_of(app: ASGIApp, target: str) -> list[list[str]]:
    """The ids of each page, from the first to the last."""
    pages: list[list[str]] = []
    while target:
        answer = await call(app, target)
        assert answer.status == 200
        pages.append([message["id"] for message in json.loads(answer.body)])
        found = re.fullmatch(r'<(\?[^>]*)>; rel="next"', answer.headers.get("link", ""))
        target = f"/messages{found[1]}" if found else ""
    return pages


async def test_pages_are_limited_in_bytes_and_lead_to_the_next(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [log.append("x" * size).id for size in (10, 900, 900, 5000, 10, 10)]
    monkeypatch.setattr(api_module, "MAX_PAGE_BYTES", 2500)
    app = app_of(log)
    assert await pages_of(app, "/messages") == [ids[:3], ids[3:4], ids[4:]]
    assert await pages_of(app, "/messages?order=desc&limit=2") == [ids[:3:-1], ids[3:4], ids[2:0:-1], ids[:1]]
    bounds = f"gte={ids[1]}&lt={ids[5]}"
    assert await pages_of(app, f"/messages?{bounds}") == [ids[1:3], ids[3:4], ids[4:5]]
    assert await pages_of(app, f"/messages?{bounds}&order=desc") == [ids[4:5], ids[3:4], ids[2:0:-1]]
    assert await pages_of(app, f"/messages?gt={ids[-1]}") == [[]]


async def test_the_address_of_the_next_page(log: Log) -> None:
    first, second, third = (message.id for message in log.append_many(range(3)))
    answer = await call(app_of(log), f"/messages?gte={first}&lte={third}&limit=2")
    assert answer.headers["link"] == f'<?lte={third}&gt={second}&order=asc&limit=2>; rel="next"'


@pytest.mark.slow
async def test_a_page_of_long_messages(log: Log) -> None:
    """What the storage reads at once ends earlier than the page, which then cannot know what follows."""
    long = "x" * (PAGE_BYTES - 1300)
    ids = [message.id for message in log.append_many([long, long, 1])]
    assert await pages_of(app_of(log), "/messages") == [ids[:1], ids[1:2], ids[2:]]
    assert await pages_of(app_of(log), "/messages?order=desc") == [ids[:0:-1], ids[:1], []]


async def test_a_page_ends_before_a_message_without_a_form(log: Log) -> None:
    first = log.append(1)
    formless = log.append([core.CID(b"\x12\x80\x80\x02" + bytes(2**15))])
    last = log.append(2)
    app = app_of(log)
    answer = await call(app, "/messages")
    assert [message["id"] for message in json.loads(answer.body)] == [first.id]
    assert answer.headers["link"] == f'<?gt={first.id}&order=asc&limit=64>; rel="next"'
    assert (await call(app, f"/messages?gt={first.id}")).status == 406
    assert await pages_of(app, f"/messages?gt={formless.id}") == [[last.id]]


class Client:
    """A client that goes on when a test says so.

    Attributes:
        sent: what it got.
        pieces: how much of an answer it reads before it stops to.
    """

    def __init__(self, pieces: float = math.inf) -> None:
        self.sent: list[Message] = []
        self.is_stuck = anyio.Event()
        self.pieces = pieces
        self._gone = anyio.Event()
        self._asked = False

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if len(self.sent) > self.pieces:
            self.is_stuck.set()
            await anyio.sleep_forever()

    def leave(self) -> None:
        self._gone.set()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


async def test_a_request_ends_with_its_client_while_it_waits(log: Log) -> None:
    log.append(1)
    admission, client = Admission(1), Client()
    app = create_api(log, list, admission)
    async with admission.reserve(1), anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope("http", "/messages"), client.receive, client.send)
        while not admission._queue:
            await anyio.lowlevel.checkpoint()
        client.leave()
    assert client.sent == []
    assert admission.kept == 0


async def test_an_answer_ends_with_its_client(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append("x" * 100_000)
    monkeypatch.setattr(answers, "PIECE_BYTES", 1000)
    admission, client, read = Admission(2**30), Client(pieces=4), list[int]()
    app = create_api(log, list, admission)
    work = admission.run_expensive

    async def counted(call: Callable[[], Any]) -> Any:
        read.append(1)
        return await work(call)

    monkeypatch.setattr(admission, "run_expensive", counted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope("http", "/messages"), client.receive, client.send)
        await client.is_stuck.wait()
        before = len(read)
        assert 100_000 < admission.kept < 200_000
        client.leave()
    assert (len(client.sent), len(read)) == (5, before)
    assert before < 6
    assert admission.kept == 0


async def test_a_client_that_does_not_read_is_dropped_when_another_comes(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append("x" * 100_000)
    monkeypatch.setattr(answers, "PIECE_BYTES", 1000)
    monkeypatch.setattr(admission_module, "STALLED_SECONDS", 0)
    app, stuck = create_api(log, list, Admission(1)), Client(pieces=4)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope("http", "/messages"), stuck.receive, stuck.send)
        await stuck.is_stuck.wait()
        answer = await call(app, "/messages")
    assert (answer.status, len(json.loads(answer.body))) == (200, 1)
    # Its answer was begun, and has no end.
    assert stuck.status == 200
    assert stuck.sent[-1]["more_body"]


async def test_overload_is_answered_with_a_time_to_try_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    message = log.append(1)
    monkeypatch.setattr(admission_module, "MOST_WAITING", 0)
    admission = Admission(1)
    app = create_api(log, lambda: ["a"], admission)
    expensive = ("/messages", "/messages/count", f"/messages/{message.id}", f"/ancestors/{message.id}")
    async with admission.reserve(1):
        for target in expensive:
            answer = await call(app, target)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.error == "too many requests wait already: try again later"
        assert (await call(app, "/messages", "POST", b"{}", JSON)).status == 503
        for target in ("/clock", "/connections", "/openapi.json"):
            assert (await call(app, target)).status == 200
    for target in expensive:
        assert (await call(app, target)).status == 200


async def test_the_clock_does_not_wait_for_messages(log: Log) -> None:
    admission, ended = Admission(2**30), threading.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(admission.run_expensive, ended.wait)
        assert (await call(create_api(log, list, admission), "/clock")).body == b'{"clock":1,"parents":[]}'
        ended.set()


class SlowBody(Client):
    """A client that announces the longest body, sends a part of it, and then nothing."""

    def __init__(self, sends: int) -> None:
        super().__init__()
        self._asked = True
        self._first: Message | None = {"type": "http.request", "body": bytes(sends), "more_body": True}

    @property
    def is_waited_for(self) -> bool:
        return self._first is None

    async def receive(self) -> Message:
        if self._first is not None:
            await anyio.lowlevel.checkpoint()
            first, self._first = self._first, None
            return first
        return await super().receive()


async def test_slow_bodies_keep_nobody_waiting(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they take more memory than what has arrived of them."""
    body = to_json(log.append("hi"))
    monkeypatch.setattr(admission_module, "WAIT_SECONDS", 0)
    admission = Admission(64 * 2**20)
    app, slow = create_api(log, list, admission), [SlowBody(10) for _ in range(5)]
    length = ("Content-Length", str(api_module.MAX_BODY_BYTES))
    async with anyio.create_task_group() as tasks:
        for client in slow:
            tasks.start_soon(app, scope("http", "/messages", "POST", [length, *JSON]), client.receive, client.send)
        while not all(client.is_waited_for or client.sent for client in slow):
            await anyio.lowlevel.checkpoint()
        assert admission.kept == 50
        assert (await call(app, "/messages")).status == 200
        assert (await call(app, "/messages", "POST", body, JSON)).status == 201
        for client in slow:
            client.leave()
    assert admission.kept == 0


async def test_the_slowest_body_gives_way(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    body = to_json(log.append("hi"))
    monkeypatch.setattr(admission_module, "MOST_BODIES", 2)
    monkeypatch.setattr(admission_module, "STALLED_SECONDS", 0)
    admission = Admission(2**22)
    # So much faster that it makes no difference how long before the other it begins on a busy machine.
    app, clients = create_api(log, list, admission), [SlowBody(2**19), SlowBody(1)]
    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(app, scope("http", "/messages", "POST", JSON), client.receive, client.send)
            while not client.is_waited_for:
                await anyio.lowlevel.checkpoint()
        assert (await call(app, "/messages", "POST", body, JSON)).status == 201
        # Its answer may come after that of the client for which it gave way.
        while len(clients[1].sent) < 2:
            await anyio.lowlevel.checkpoint()
        assert clients[1].status == 503
        assert b"others waited" in clients[1].sent[1]["body"]
        assert clients[0].sent == []
        clients[0].leave()


def changed(log: Log, **fields: object) -> bytes:
    body = json.loads(to_json(log.append("hi")))
    for path, value in fields.items():
        part, _, name = path.partition("_")
        body[part][name] = value
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"message_clock": "1"}, "'clock' must be an integer, not str"),
        ({"message_clock": True}, "'clock' must be an integer, not bool"),
        ({"message_clock": 7}, "clock"),
        ({"message_parents": [1]}, "a parent must be a string, not int"),
        ({"message_parents": ["short"]}, "an id has 32 ASCII characters"),
        ({"message_parents": {}}, "'parents' must be a list, not dict"),
        ({"message_topic": "org.example.other"}, "topic"),
        ({"message_payload": "other"}, "signature"),
        ({"signature_codec": "raw"}, "codec"),
        ({"signature_publicKey": "did:web:example.org"}, "did:key"),
        ({"signature_signature": "text"}, "'signature' must be bytes, not str"),
    ],
)
async def test_bad_messages_are_refused_with_a_reason(fields: dict[str, object], reason: str, log: Log) -> None:
    with gossiplog.open(MemoryStorage(), topic=log.topic) as other:
        answer = await call(app_of(other), "/messages", "POST", changed(log, **fields), JSON)
        assert answer.status == 400
        assert reason in answer.error
        assert len(other) == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}", b'{"signature":{},"message":{}}', b"\xff"])
@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/cbor"])
async def test_bodies_that_are_no_message(body: bytes, content_type: str, log: Log) -> None:
    answer = await call(app_of(log), "/messages", "POST", body, [("Content-Type", content_type)])
    assert answer.status == 400
    assert answer.error


async def test_other_media_types(log: Log) -> None:
    for headers in ([], [("Content-Type", "text/plain")], [("Content-Type", "multipart/form-data; boundary=x")]):
        answer = await call(app_of(log), "/messages", "POST", b"{}", headers)
        assert answer.status == 415
        assert "expected one of application/json," in answer.error


async def test_long_bodies_are_refused_before_and_while_they_come(log: Log) -> None:
    too_long = [("Content-Length", str(MAX_BODY_BYTES + 1)), *JSON]
    assert (await call(app_of(log), "/messages", "POST", b"", too_long)).status == 413
    assert (await call(app_of(log), "/messages", "POST", b"", [("Content-Length", "9" * 5000), *JSON])).status == 413
    parts = [b" " * 2**20] * 5
    assert (await call(app_of(log), "/messages", "POST", parts, [("Content-Length", "9"), *JSON])).status == 413
    answer = await call(app_of(log), "/messages", "POST", parts[:4], JSON)
    assert answer.status == 400


async def test_a_body_that_does_not_arrive(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "BODY_SECONDS", 0)
    sent: list[Message] = []

    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await app_of(log)(scope("http", "/messages", "POST", JSON), receive, send)
    assert sent[0]["status"] == 408
    assert b"of the body came in 0 s" in sent[1]["body"]


async def test_a_body_that_breaks_off(log: Log) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app_of(log)(scope("http", "/messages", "POST", JSON), receive, send)
    assert sent[0]["status"] == 400


async def test_a_message_that_the_application_refuses(log: Log) -> None:
    def apply(message: object, transaction: object) -> None:
        raise ValueError("no such room")

    body = to_json(log.append("hi"))
    with gossiplog.open(MemoryStorage(), log.topic, apply=apply) as strict:
        answer = await call(app_of(strict), "/messages", "POST", body, JSON)
    assert answer.status == 400
    assert "no such room" in answer.error


async def test_a_closed_log(log: Log) -> None:
    log.close()
    for target in ("/clock", "/messages", "/messages/count", f"/messages/{UNKNOWN}"):
        answer = await call(app_of(log), target)
        assert (answer.status, answer.error) == (503, "the log cannot be used at the moment")


async def test_long_lists_are_sent_in_pieces(log: Log) -> None:
    log.append_many("x" * 400_000 for _ in range(8))
    answer = await call(app_of(log), "/messages")
    assert answer.pieces > 2
    assert [message["id"] for message in json.loads(answer.body)] == [message.id for message in log]
    assert "content-length" not in answer.headers


@pytest.mark.parametrize(
    "payload",
    [[core.CID(b"\x12\x80\x80\x02" + bytes(2**15))], {"/": {"bytes": 1}}],
    ids=["long link", "no base64"],
)
async def test_a_message_without_a_form(log: Log, payload: Any) -> None:
    message = log.append(payload)
    for target in (f"/messages/{message.id}", "/messages"):
        answer = await call(app_of(log), target)
        assert answer.status == 406
        assert f"message {message.id} has no dag-json form" in answer.error


async def test_ancestors(log: Log) -> None:
    ids = [message.id for message in log.append_many(range(12))]
    answer = await call(app_of(log), f"/ancestors/{ids[-1]}")
    assert json.loads(answer.body) == [{"clock": clock, "links": [ids[clock - 1]]} for clock in (4, 8, 10, 11)]
    assert (await call(app_of(log), f"/ancestors/{ids[0]}")).body == b"[]"


async def test_very_many_ancestors_are_refused(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [log.signer.sign(log.topic, 1, [], n)[1] for n in range(20)] if log.signer else []
    log.insert_many(values)
    head = log.append("all")
    assert (await call(app_of(log), f"/ancestors/{head.id}")).status == 200
    monkeypatch.setattr(api_module, "MAX_LINKS", 19)
    answer = await call(app_of(log), f"/ancestors/{head.id}")
    assert answer.status == 413
    assert answer.error == f"the ancestors of message {head.id} cannot be answered: there are more than 19 of them"
    monkeypatch.setattr(api_module, "MAX_LINKS", 20)
    monkeypatch.setattr(api_module, "MAX_READ", 1000)
    answer = await call(app_of(log), f"/ancestors/{head.id}")
    assert (answer.status, "more than 1000 bytes of the log" in answer.error) == (413, True)


@pytest.fixture
async def described(log: Log) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await call(app_of(log), "/openapi.json")).body)
    return found


async def test_the_description_is_valid(described: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(described).validate()


async def test_the_description_names_every_route(described: dict[str, Any], log: Log) -> None:
    assert described["paths"].keys() == {
        route.path for route in create_api(log, list).routes if isinstance(route, Route)
    }
    for path, methods in described["paths"].items():
        options = await call(app_of(log), path, "OPTIONS")
        documented = {method.upper() for method in methods}
        assert set(options.headers["allow"].split(", ")) == documented | {"HEAD", "OPTIONS"}
