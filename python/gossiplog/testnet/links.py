"""Calls of a worker: of one on this event loop, or of one in a process of its own."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import anyio
import anyio.abc

from gossiplog.errors import NetworkError
from gossiplog.net.service import Service, background
from gossiplog.testnet.messages import (
    Arrived,
    Command,
    Done,
    Failed,
    Happened,
    Lines,
    Numbered,
    Report,
    command_line,
    read_answer,
    receive,
)
from gossiplog.testnet.worker import EXPECTED, Worker

# For a worker's members to leave in order, before its process is killed.
_ENDING_SECONDS = 15.0


class WorkerLink(Service):
    """A worker, for the time of its context, which is entered once.

    When the worker ends by itself, or one of its members does, the context ends with a NetworkError that says so.

    Args:
        report: is called with what the worker reports, on the event loop; it must not block.
    """

    def __init__(self, report: Callable[[Report], None]) -> None:
        super().__init__()
        self._report = report

    @abstractmethod
    async def call(self, command: Command) -> tuple[str, ...]:
        """Have a command executed; return what its answer has: see `Done`.

        Raises:
            NetworkError: it cannot be executed; the words are the worker's.
        """


class LocalLink(WorkerLink):
    """A worker on this event loop."""

    async def _start(self, stack: AsyncExitStack) -> None:
        self._failure: Failed | None = None
        self._failed = anyio.Event()
        tasks = await stack.enter_async_context(background())
        tasks.start_soon(self._raise_failure)
        self._worker = await stack.enter_async_context(Worker(self._take))

    async def call(self, command: Command) -> tuple[str, ...]:
        """Have a command executed."""
        try:
            return await self._worker.execute(command)
        except EXPECTED as error:
            raise NetworkError(str(error)) from error

    def _take(self, report: Report | Failed) -> None:
        if isinstance(report, Failed):
            self._failure = self._failure or report
            self._failed.set()
        else:
            self._report(report)

    async def _raise_failure(self) -> None:
        await self._failed.wait()
        if self._failure is not None:
            raise NetworkError(self._failure.error)


class ProcessLink(WorkerLink):
    """A worker in a process of its own, which ends when this one does.

    Args:
        report: is called with what the worker reports, on the event loop; it must not block.
        name: of the worker, in errors.
    """

    def __init__(self, report: Callable[[Report], None], name: str) -> None:
        super().__init__(report)
        self._name = name
        self._numbers = itertools.count(1)
        self._answers: dict[int, Done | Failed] = {}
        self._waiting: dict[int, anyio.Event] = {}
        self._lock: anyio.Lock
        self._stream: anyio.abc.UNIXSocketStream

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    async def _start(self, stack: AsyncExitStack) -> None:
        self._lock = anyio.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "gossiplog.testnet.worker", str(theirs.fileno())]
            self._process = await anyio.open_process(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
                # Ctrl-C goes to all processes of a terminal's session: this one ends the worker in order.
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        stack.push_async_callback(self._end_process)
        self._stream = await anyio.abc.UNIXSocketStream.from_socket(ours)
        stack.push_async_callback(self._stream.aclose)
        tasks = await stack.enter_async_context(background())
        tasks.start_soon(self._read)

    async def call(self, command: Command) -> tuple[str, ...]:
        """Have a command executed."""
        number = next(self._numbers)
        self._waiting[number] = answered = anyio.Event()
        try:
            async with self._lock:
                await self._stream.send(command_line(Numbered(number, command)))
            await answered.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # `_read` finds why.
            await anyio.sleep_forever()
        finally:
            del self._waiting[number]
        answer = self._answers.pop(number)
        if isinstance(answer, Failed):
            raise NetworkError(answer.error)
        return answer.addresses

    async def _read(self) -> None:
        lines = Lines()
        try:
            while True:
                for line in lines.feed(await receive(self._stream)):
                    self._take(line)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            status = await self._process.wait()
        raise NetworkError(f"the {self._name} has ended by itself, {_ending(status)}: its peers are gone")

    def _take(self, line: bytes) -> None:
        match read_answer(line):
            case Happened() | Arrived() as report:
                self._report(report)
            case Failed(0, error):
                raise NetworkError(error)
            case Done(number) | Failed(number) as answer:
                # The caller may have been cancelled.
                if (answered := self._waiting.get(number)) is not None:
                    self._answers[number] = answer
                    answered.set()

    async def _end_process(self) -> None:
        """Wait until the process has ended, and kill it if it does not."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_ENDING_SECONDS):
                await self._process.wait()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()


def _ending(status: int) -> str:
    """Return how a process ended, in words."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"with status {status}"
