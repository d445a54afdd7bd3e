"""Streams in memory and calls without threads, for tests under virtual time."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from gossiplog.errors import StreamReset
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.stream import CHUNK

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Inline(WorkerPool):
    """Makes each call at once: virtual time would pass while a thread works."""

    async def read(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        await anyio.lowlevel.checkpoint()
        return call(*arguments)

    async def verify(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await self.read(call, *arguments)


class End:
    """One end of a stream."""

    def __init__(self, sending: MemoryObjectSendStream[bytes], receiving: MemoryObjectReceiveStream[bytes]) -> None:
        self.was_reset = False
        self._sending = sending
        self._receiving = receiving

    async def send(self, data: bytes) -> None:
        try:
            await self._sending.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise StreamReset("the peer reset the stream") from None

    async def receive(self, limit: int = CHUNK) -> bytes:
        try:
            return await self._receiving.receive()
        except anyio.EndOfStream:
            return b""

    def reserve_memory(self, size: int) -> None:
        assert size >= 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.was_reset = kind is not None
        self._sending.close()
        self._receiving.close()


def stream() -> tuple[End, End]:
    """Both ends of a stream that holds nothing: who sends waits for who receives."""
    to_one, at_one = anyio.create_memory_object_stream[bytes]()
    to_other, at_other = anyio.create_memory_object_stream[bytes]()
    return End(to_other, at_one), End(to_one, at_other)
