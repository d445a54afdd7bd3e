"""Runs members of a network on one event loop: in the coordinator's process, or as a process of its own.

`python -m gossiplog.testnet.worker FD` reads commands from the socket FD and writes answers and reports to it, until
the other side is gone; then its members end in order.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskStatus

import gossiplog.log
from gossiplog.dashboard.events import Event
from gossiplog.errors import GossipLogError, NetworkError, NotALog
from gossiplog.log import Log
from gossiplog.net.garbage import collect_rarely
from gossiplog.net.service import Service, background
from gossiplog.storage import MemoryStorage
from gossiplog.testnet.member import Member, random_text
from gossiplog.testnet.messages import (
    Answer,
    Append,
    Arrived,
    Block,
    Command,
    Dial,
    Done,
    Failed,
    Happened,
    Lines,
    Measure,
    Numbered,
    Observe,
    Open,
    Report,
    Settle,
    Start,
    Stop,
    answer_line,
    read_command,
    receive,
)
from gossiplog.testnet.plan import author_of
from gossiplog.testnet.translation import Translator

REPORT_SECONDS = 0.05
"""Between two reports of a worker."""
SETTLE_SECONDS = 2.0
"""How long members are waited for that have not said which peer brought a message; those that were stopped never do."""
TRAFFIC_SECONDS = 1.0
"""Between two of how many bytes its members have sent and received."""

EXPECTED = (GossipLogError, OSError, ValueError, RuntimeError)
"""Why a command may not be executed; all else is a defect, and ends the worker."""


class Worker(Service):
    """Members of a network, for the time of its context, which is entered once.

    Args:
        report: is called with what happens, in order, on the event loop; it must not block.
    """

    def __init__(self, report: Callable[[Report | Failed], None]) -> None:
        super().__init__()
        self._report = report
        self._members: dict[int, Member] = {}
        self._flow = 0
        self._began = 0.0
        # What a member reports is to be in order, so reports are made one after the other.
        self._flushing: anyio.Lock
        self._logs: AsyncExitStack
        self._tasks: anyio.abc.TaskGroup

    async def _start(self, stack: AsyncExitStack) -> None:
        self._flushing = anyio.Lock()
        # Logs are closed after all that uses them has ended.
        self._logs = await stack.enter_async_context(AsyncExitStack())
        self._tasks = await stack.enter_async_context(background())
        self._tasks.start_soon(self._report_all)

    async def execute(self, command: Command) -> tuple[str, ...]:
        """Execute a command; return what its answer has: see `Done`.

        Raises:
            GossipLogError, OSError, ValueError, RuntimeError: why it cannot be executed.
        """
        match command:
            case Open():
                await self._open(command)
            case Start(number):
                return tuple(await self._tasks.start(self._run, self._member(number), command))
            case Stop(number):
                await self._member(number).stop()
            case Append(number):
                await self._member(number).append(command)
            case Block(number, names):
                self._member(number).block(names)
            case Dial(number, address):
                await self._member(number).dial(address)
            case Measure(flow):
                self._flow = flow
                for translator in self._translators():
                    translator.measure(flow)
            case Observe():
                for translator in self._translators():
                    translator.observed = True
                    # With what was not read before.
                    translator.changed()
            case Settle():
                await self._settle()
        return ()

    def _member(self, number: int) -> Member:
        member = self._members.get(number)
        if member is None:
            raise NetworkError(f"there is no member {number} here")
        return member

    def _translators(self) -> Iterable[Translator]:
        return [member.translator for member in self._members.values()]

    def _clock(self) -> float:
        return time.monotonic() - self._began

    async def _open(self, command: Open) -> None:
        self._began = command.began
        opened = []
        for number, kind, name in command.members:
            signer = author_of(command.seed, number)
            log = None if kind == "bootstrap" else self._logs.enter_context(_open_log(command, number))
            translator = Translator(name, signer.did, log, self._clock)
            member = Member(
                number,
                kind,
                seed=command.seed,
                topic=command.topic,
                log=log,
                signer=signer,
                translator=translator,
                text=partial(random_text, Random(f"text {command.seed} {number}"), command.message_bytes),
                clock=self._clock,
            )
            self._members[number] = member
            opened.append(member)
        for member in opened:
            if command.offline_messages and member.has_log:
                await member.append(Append(member.number, command.offline_messages))
            member.translator.changed()
        await self._flush()

    async def _run(self, member: Member, command: Start, *, task_status: TaskStatus[Iterable[str]]) -> None:
        """Run a member; report an end that nobody asked for."""
        status = _Status(task_status)
        try:
            await member.run(command, task_status=status)
        except EXPECTED as error:
            if not status.has_started:
                raise
            self._report(Failed(0, f"the member {member.number} has ended: {error}", type(error).__name__))

    async def _report_all(self) -> None:
        counted = anyio.current_time()
        while True:
            await anyio.sleep(REPORT_SECONDS)
            if (now := anyio.current_time()) >= counted + TRAFFIC_SECONDS:
                counted = now
                for member in tuple(self._members.values()):
                    member.count_traffic()
                    # To count takes half a millisecond, which messages must not wait for 64 times.
                    await anyio.lowlevel.checkpoint()
            await self._flush()

    async def _settle(self) -> None:
        """Report what members have been notified of; which peer brought a message, they are told a moment later."""
        with anyio.move_on_after(SETTLE_SECONDS):
            while any(translator.is_waiting for translator in self._translators()):
                await anyio.sleep(REPORT_SECONDS)
        await self._flush()

    async def _flush(self) -> None:
        """Report what all members have to report."""
        events: list[Event] = []
        latencies: dict[int, list[float]] = {}
        async with self._flushing:
            for translator in self._translators():
                some, late = translator.take()
                events += some
                if late:
                    # Another measurement may begin before all are asked.
                    latencies.setdefault(self._flow, []).extend(late)
                if some:
                    # Its log was read, on this thread: half a millisecond for one in a file, which is less than what a
                    # thread costs, but more than messages should wait for 24 times.
                    await anyio.lowlevel.checkpoint()
            if events:
                self._report(Happened(tuple(events)))
            for flow, each in latencies.items():
                self._report(Arrived(flow, tuple(each)))


class _Status(TaskStatus[Iterable[str]]):
    """Passes on that a task has started, and remembers it."""

    def __init__(self, status: TaskStatus[Iterable[str]]) -> None:
        self._status = status
        self.has_started = False

    def started(self, value: Iterable[str] | None = None) -> None:
        self.has_started = True
        self._status.started(value or ())


def _open_log(command: Open, number: int) -> Log:
    path = None if command.folder is None else Path(command.folder) / f"{number}.db"
    if path is not None and path.exists():
        raise NotALog(f"{path} is there already: give a folder without logs")
    return gossiplog.log.open(MemoryStorage() if path is None else path, topic=command.topic)


async def serve_commands(stream: anyio.abc.UNIXSocketStream) -> None:
    """Execute the commands that come on a stream, until it ends.

    Raises:
        ProtocolError: a line that is no command.
    """
    answers, to_write = anyio.create_memory_object_stream[Answer](float("inf"))

    async def write() -> None:
        async for answer in to_write:
            await stream.send(answer_line(answer))

    async def execute(worker: Worker, command: Numbered) -> None:
        try:
            addresses = await worker.execute(command.call)
        except EXPECTED as error:
            answers.send_nowait(Failed(command.id, str(error), type(error).__name__))
        else:
            answers.send_nowait(Done(command.id, addresses))

    lines = Lines()
    # A coordinator that is gone reads no answers.
    with answers, to_write, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with Worker(answers.send_nowait) as worker, background() as tasks:
            tasks.start_soon(write)
            with suppress(anyio.EndOfStream):
                while True:
                    for line in lines.feed(await receive(stream)):
                        tasks.start_soon(execute, worker, read_command(line))


async def _main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as pair:
        async with await anyio.abc.UNIXSocketStream.from_socket(pair) as stream:
            await serve_commands(stream)


if __name__ == "__main__":
    collect_rarely()
    anyio.run(_main, int(sys.argv[1]), backend="asyncio")
