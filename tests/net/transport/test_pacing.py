from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gossiplog.net.transport import pacing
from gossiplog.net.transport.pacing import PART_BYTES, Paced, TimeSlice

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Transport:
    """A transport, as far as a protocol looks at it."""

    def __init__(self) -> None:
        self.is_reading = True
        self.is_closed = False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def colour(self) -> str:
        return "red"


class Reader(asyncio.Protocol):
    """A protocol that pauses when it has so many bytes."""

    def __init__(self, limit: int = 2**30) -> None:
        self.parts: list[bytes] = []
        self.limit = limit

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self.parts.append(data)
        if len(self.data) >= self.limit:
            self.transport.pause_reading()

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)


class PacedReader(Paced, Reader):
    pass


def connected(limit: int = 2**30) -> tuple[PacedReader, Transport]:
    protocol, transport = PacedReader(limit), Transport()
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, transport


DATA = bytes(range(256)) * (PART_BYTES // 64)


async def test_what_is_cheap_is_handled_at_once_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 3600)
    protocol, transport = connected()
    protocol.data_received(b"x")
    protocol.data_received(DATA)
    assert protocol.data == b"x" + DATA
    assert max(map(len, protocol.parts)) == PART_BYTES
    assert transport.is_reading
    assert protocol.transport.colour() == "red"


async def test_what_is_costly_takes_several_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0)
    protocol, transport = connected()
    protocol.data_received(DATA)
    assert (protocol.data, transport.is_reading) == (DATA[:PART_BYTES], False)
    # TLS may bring more of what was read already.
    protocol.data_received(b"more")
    turns = 0
    while not transport.is_reading:
        await asyncio.sleep(0)
        turns += 1
    assert protocol.data == DATA + b"more"
    assert turns == 4


async def test_nothing_is_handled_while_the_protocol_pauses() -> None:
    protocol, transport = connected(limit=PART_BYTES)
    protocol.data_received(DATA)
    for part in range(1, 5):
        await asyncio.sleep(0)
        assert len(protocol.data) == part * PART_BYTES
        assert not transport.is_reading
        protocol.transport.resume_reading()
    await asyncio.sleep(0)
    assert protocol.data == DATA
    assert transport.is_reading


async def test_nothing_is_handled_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0)
    for ends_by_itself in (False, True):
        protocol, transport = connected()
        protocol.data_received(DATA)
        if ends_by_itself:
            protocol.connection_lost(None)
        else:
            transport.is_closed = True
        await asyncio.sleep(0)
        assert len(protocol.data) == PART_BYTES


async def test_the_rest_goes_to_the_protocol_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0)
    protocol, _ = connected()
    successor = Reader()
    protocol.data_received(DATA)
    protocol.successor = successor
    await asyncio.sleep(0)
    assert protocol.data + successor.data == DATA
    assert len(protocol.data) == PART_BYTES


async def test_a_long_loop_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    time_slice = TimeSlice()
    monkeypatch.setattr(pacing.time, "perf_counter", lambda: 0.0)
    await time_slice.rest()
    ran.append("short")
    monkeypatch.setattr(pacing.time, "perf_counter", lambda: 1e9)
    await time_slice.rest()
    ran.append("long")
    assert ran == ["short", "other", "long"]
