"""`gossiplog.net.http.event_stream`: the batches by themselves, and the streams in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from gossiplog.net.http import event_stream
from gossiplog.net.http.event_stream import MOST_BEHIND, MOST_KEPT, Batches, Readers
from tests.net.asgi import scope
from tests.net.http.event_streams import read


def test_a_reader_that_fell_behind_gets_a_state() -> None:
    batches = Batches("s", lambda: b"{}")
    for _ in range(MOST_BEHIND + 1):
        batches.add(b"{}")
    assert [each.kind for each in read(batches.since(1))] == ["changes"] * MOST_BEHIND
    assert [each.kind for each in read(batches.since(0))] == ["state"]


def test_many_slow_readers_cost_a_state_each_half_second() -> None:
    """A state is made again when it is older than what a reader may miss; then the batches since follow it."""
    batches = Batches("s", lambda: b"{}")
    first = batches.since(None)
    for number in range(MOST_BEHIND):
        batches.add(b"{}")
        assert batches.since(None).startswith(first)
        assert [each.kind for each in read(batches.since(None))] == ["state"] + ["changes"] * (number + 1)
    batches.add(b"{}")
    assert [each.id for each in read(batches.since(None))] == [f"s-{MOST_BEHIND + 1}"]


def test_pages_that_come_back_resume() -> None:
    batches = Batches("s", lambda: b"{}")
    for _ in range(MOST_KEPT + 5):
        batches.add(b"{}")
    assert batches.resume(f"s-{batches.position}") == batches.position
    position = batches.resume("s-5")
    assert position == 5
    assert [each.id for each in read(batches.missed(5))] == [f"s-{number}" for number in range(6, MOST_KEPT + 6)]


@pytest.mark.parametrize(
    "id", ["", "s", "s-", "s-4", "s-206", "other-100", "s--1", "s-1.5", "s-٣", "s-" + "9" * 5000, "-100", "s-x"]
)
def test_ids_that_cannot_be_resumed_from(id: str) -> None:
    batches = Batches("s", lambda: b"{}")
    for _ in range(MOST_KEPT + 5):
        batches.add(b"{}")
    assert batches.resume(id) is None


def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_KEPT_BYTES", 5000)
    batches = Batches("s", lambda: b"{}")
    for _ in range(50):
        batches.add(b'"%b"' % (b"x" * 950))
    kept = [number for number in range(51) if batches.resume(f"s-{number}") is not None]
    assert 3 <= len(kept) <= 6
    # What is not kept any more, even of less than it may miss, is a new state for a reader.
    assert [each.kind for each in read(batches.since(50 - len(kept)))] == ["state"]
    monkeypatch.setattr(event_stream, "MOST_KEPT_BYTES", 10)
    batches.add(b"{}")
    assert [each.kind for each in read(batches.since(50))] == ["changes"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Pieces:
    """What one reader was sent."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def run(self, readers: Readers, last_id: str = "") -> None:
        async def receive() -> Message:
            await anyio.sleep_forever()
            return {}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                self._received.put_nowait(message["body"])

        its = scope("http", "/events", headers=[("Last-Event-ID", last_id)])
        await readers.answer(Request(its))(its, receive, send)
        self._received.put_nowait(None)

    async def next(self) -> bytes:
        piece = await self._received.get()
        assert piece is not None
        return piece

    async def rest(self) -> list[bytes]:
        found = []
        while (piece := await self._received.get()) is not None:
            found.append(piece)
        return found


@asynccontextmanager
async def reading(readers: Readers, last_id: str = "") -> AsyncIterator[Pieces]:
    pieces = Pieces()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pieces.run, readers, last_id)
        assert await pieces.next() == b"retry: 500\n\n"
        yield pieces
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_reader_is_sent_the_state_and_what_is_added() -> None:
    batches = Batches("s", lambda: b'{"all":1}')
    readers = Readers(batches)
    async with reading(readers) as pieces:
        assert await pieces.next() == b'id: s-0\nevent: state\ndata: {"all":1}\n\n'
        assert readers.count == 1
        batches.add(b'{"more":2}')
        readers.notify()
        assert await pieces.next() == b'id: s-1\nevent: changes\ndata: {"more":2}\n\n'
    assert readers.count == 0


@pytest.mark.anyio
async def test_a_reader_that_comes_back_is_sent_what_it_missed() -> None:
    batches = Batches("s", lambda: b"{}")
    for _ in range(MOST_BEHIND + 5):
        batches.add(b"{}")
    async with reading(Readers(batches), "s-2") as pieces:
        assert [each.id for each in read(await pieces.next())] == [f"s-{n}" for n in range(3, MOST_BEHIND + 6)]


@pytest.mark.anyio
async def test_streams_end_when_they_are_told_to() -> None:
    batches = Batches("s", lambda: b"{}")
    readers = Readers(batches)
    async with reading(readers) as pieces:
        await pieces.next()
        readers.close()
        assert await pieces.rest() == [b""]
        assert readers.count == 0
    async with reading(readers) as pieces:
        assert await pieces.rest() == [b""]
    readers.open()
    async with reading(readers) as pieces:
        assert [each.kind for each in read(await pieces.next())] == ["state"]


@pytest.mark.anyio
async def test_the_streams_that_there_are_end_and_later_ones_do_not() -> None:
    readers = Readers(Batches("s", lambda: b"{}"))
    async with reading(readers) as pieces:
        await pieces.next()
        readers.end_streams()
        assert await pieces.rest() == [b""]
    async with reading(readers) as pieces:
        assert [each.kind for each in read(await pieces.next())] == ["state"]


async def pieces_of(answer: Response) -> list[bytes]:
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    with anyio.fail_after(60):
        await answer(scope("http", "/events"), anyio.sleep_forever, send)
    return [piece for piece in sent if piece]


@pytest.mark.anyio
@pytest.mark.parametrize("last_id", ["", "s-0"])
async def test_a_stream_that_was_ended_before_its_first_piece_sends_nothing(last_id: str) -> None:
    """Also where a page that comes back has missed something."""
    batches = Batches("s", lambda: b"{}")
    readers = Readers(batches)
    batches.add(b"{}")
    request = Request(scope("http", "/events", headers=[("Last-Event-ID", last_id)]))
    answer = readers.answer(request)
    readers.end_streams()
    assert await pieces_of(answer) == [b"retry: 500\n\n"]
    checked = readers.generation
    readers.end_streams()
    assert await pieces_of(readers.answer(request, checked)) == [b"retry: 500\n\n"]


@pytest.mark.anyio
async def test_readers_are_woken_for_new_batches_alone() -> None:
    batches = Batches("s", lambda: b"{}")
    readers = Readers(batches)
    before = readers._added
    readers.notify()
    assert readers._added is before
    batches.add(b"{}")
    readers.notify()
    assert before.is_set()
    assert not readers._added.is_set()


def asking(client: str, method: str = "GET") -> Request:
    return Request({**scope("http", "/events", method), "client": (client, 1234)})


@asynccontextmanager
async def open_from(readers: Readers, *clients: str) -> AsyncIterator[list[str]]:
    """Streams to clients that read nothing, one after the other; gives the clients of those that have ended."""
    ended: list[str] = []

    async def send(message: Message) -> None:
        await anyio.sleep_forever()

    async def run(client: str) -> None:
        its = asking(client)
        await readers.answer(its)(its.scope, anyio.sleep_forever, send)
        ended.append(client)

    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(run, client)
            await anyio.wait_all_tasks_blocked()
        yield ended
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_there_are_so_many_readers_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_READERS", 3)
    readers = Readers(Batches("s", lambda: b"{}"))
    async with open_from(readers, "10.0.0.1", "10.0.0.2"):
        readers.check_room(asking("10.0.0.1"))
    async with open_from(readers, "10.0.0.1", "10.0.0.2", "10.0.0.3"):
        for client in ("10.0.0.1", "10.0.0.4"):
            with pytest.raises(HTTPException, match="3 pages are open already") as caught:
                readers.answer(asking(client))
            assert caught.value.status_code == 503
    assert readers.count == 0


@pytest.mark.anyio
async def test_no_address_takes_the_places_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has the most gives way, even if it reads nothing, and does not get its places back."""
    monkeypatch.setattr(event_stream, "MOST_READERS", 4)
    readers = Readers(Batches("s", lambda: b"{}"))
    greedy = "10.0.0.1"
    # Each address of a /64 network of IPv6 is the same customer's.
    async with open_from(readers, *[greedy] * 4, "10.0.0.2", "2001:db8::1") as ended:
        assert ended == [greedy, greedy]
        assert readers.count == 4
        for client in (greedy, "10.0.0.2", "2001:db8::2"):
            with pytest.raises(HTTPException):
                readers.check_room(asking(client))
        assert ended == [greedy, greedy]


@pytest.mark.anyio
async def test_a_head_takes_no_place() -> None:
    readers = Readers(Batches("s", lambda: b"{}"))
    asked = asking("10.0.0.1", "HEAD")
    with anyio.fail_after(60):
        assert await pieces_of(readers.answer(asked)) == []
    assert readers.count == 0
