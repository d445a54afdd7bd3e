"""Workers: what they do with commands, and what they report by themselves."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError, NotALog, ProtocolError
from gossiplog.net.service import background
from gossiplog.testnet import worker as worker_module
from gossiplog.testnet.member import Member
from gossiplog.testnet.messages import (
    Append,
    Arrived,
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
    command_line,
    read_answer,
)
from gossiplog.testnet.plan import NetworkPlan, member_plans
from gossiplog.testnet.translation import Translator
from gossiplog.testnet.worker import Worker, serve_commands

pytestmark = pytest.mark.anyio

PATIENCE = 60


def opened(peers: int = 3, offline_messages: int = 0, folder: Path | None = None) -> Open:
    plans = member_plans(NetworkPlan(peers=peers, topology="line"))
    return Open(
        topic="org.example.test",
        seed=0,
        message_bytes=10,
        offline_messages=offline_messages,
        began=time.monotonic(),
        members=tuple((plan.number, plan.kind, plan.name) for plan in plans),
        folder=None if folder is None else str(folder),
    )


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers report when they are told to alone."""
    monkeypatch.setattr(worker_module, "REPORT_SECONDS", 3600.0)


def happened(reports: Sequence[Report | Failed]) -> list[Any]:
    return [event for report in reports if isinstance(report, Happened) for event in report.events]


async def until(found: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not found():
            await anyio.lowlevel.checkpoint()


@pytest.mark.usefixtures("quiet")
async def test_logs_are_opened_and_reported() -> None:
    reports: list[Report | Failed] = []
    async with Worker(reports.append) as worker:
        assert await worker.execute(opened(2, offline_messages=3)) == ()
    events = happened(reports)
    assert [(type(event), event.messages) for event in events] == [(dashboard_events.Committed, 3)] * 2
    assert len({event.root for event in events}) == 2


async def test_logs_that_are_there_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "1.db").touch()
    async with Worker(lambda report: None) as worker:
        with pytest.raises(NotALog, match=r"1\.db is there already: give a folder without logs"):
            await worker.execute(opened(2, folder=tmp_path))


@pytest.mark.parametrize("command", [Stop(7), Start(7), Append(7), Dial(7, "/ip4/127.0.0.1/tcp/1/ws")])
async def test_members_that_are_not_there(command: Command) -> None:
    async with Worker(lambda report: None) as worker:
        with pytest.raises(NetworkError, match="there is no member 7 here"):
            await worker.execute(command)


async def test_a_worker_settles_once_sources_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ended with its last message had 291 deliveries of 300 in its recording."""
    monkeypatch.setattr(worker_module, "REPORT_SECONDS", 0.001)
    waiting = [True, True, False, False]
    monkeypatch.setattr(Translator, "is_waiting", property(lambda translator: waiting.pop(0) if waiting else False))
    reports: list[Report | Failed] = []
    async with Worker(reports.append) as worker:
        await worker.execute(opened(2))
        reports.clear()
        next(iter(worker._translators())).changed()
        await worker.execute(Settle())
        assert waiting == []
        assert len(happened(reports)) == 1


async def test_a_worker_waits_for_sources_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(Translator, "is_waiting", True)
    async with Worker(lambda report: None) as worker:
        await worker.execute(opened(2))
        with anyio.fail_after(PATIENCE):
            await worker.execute(Settle())


@pytest.mark.usefixtures("quiet")
async def test_others_have_their_turn_between_two_logs_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 logs in files took 11 ms, twenty times a second, in which no member read or wrote a byte."""
    turns: list[str] = []
    take = Translator.take

    def note(translator: Translator) -> Any:
        turns.append("log")
        return take(translator)

    async def others() -> None:
        while True:
            turns.append("others")
            await anyio.lowlevel.checkpoint()

    async with Worker(lambda report: None) as worker, background() as tasks:
        await worker.execute(opened(4))
        monkeypatch.setattr(Translator, "take", note)
        await worker.execute(Observe())
        tasks.start_soon(others)
        await anyio.lowlevel.checkpoint()
        turns.clear()
        await worker._flush()
    reads = [number for number, turn in enumerate(turns) if turn == "log"]
    assert len(reads) == 4
    assert all("others" in turns[first:second] for first, second in pairwise(reads))


@pytest.mark.usefixtures("quiet")
async def test_reports_keep_the_order_of_what_a_member_has_done() -> None:
    reports: list[Report | Failed] = []
    async with Worker(reports.append) as worker, background() as tasks:
        await worker.execute(opened(2))
        await worker.execute(Observe())
        reports.clear()
        first = worker._members[0].translator
        first.append(1.0, ["a"])
        tasks.start_soon(worker._flush)
        # The first of two waits before the second member.
        await until(lambda: not first._events)
        first.append(2.0, ["b"])
        await worker._flush()
    events = [event.message for event in happened(reports) if isinstance(event, dashboard_events.Published)]
    assert events == ["a", "b"]


@pytest.mark.usefixtures("quiet")
async def test_latencies_are_those_of_the_flow_in_which_they_were_measured() -> None:
    reports: list[Report | Failed] = []
    async with Worker(reports.append) as worker, background() as tasks:
        await worker.execute(opened(2))
        first, second = (member.translator for member in worker._members.values())
        await worker.execute(Measure(1))
        first._latencies.append(0.25)
        first.changed()
        second._latencies.append(0.5)
        reports.clear()
        tasks.start_soon(worker._flush)
        await until(lambda: not first._latencies)
        await worker.execute(Measure(2))
        second._latencies.append(0.75)
        await worker._flush()
    assert [report for report in reports if isinstance(report, Arrived)] == [Arrived(1, (0.25,)), Arrived(2, (0.75,))]


async def test_a_member_that_ends_by_itself_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(member: Member, command: Start, *, task_status: anyio.abc.TaskStatus[Any]) -> None:
        task_status.started(("address",))
        raise NetworkError("its host has failed")

    reports: list[Report | Failed] = []
    monkeypatch.setattr(Member, "run", run)
    async with Worker(reports.append) as worker:
        await worker.execute(opened(2))
        assert await worker.execute(Start(1)) == ("address",)
        await until(lambda: any(isinstance(report, Failed) for report in reports))
    assert [report for report in reports if isinstance(report, Failed)] == [
        Failed(0, "the member 1 has ended: its host has failed", "NetworkError")
    ]


async def test_a_member_that_cannot_start_is_the_callers_error_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(member: Member, command: Start, *, task_status: anyio.abc.TaskStatus[Any]) -> None:
        raise NetworkError("its port is taken")

    reports: list[Report | Failed] = []
    monkeypatch.setattr(Member, "run", run)
    async with Worker(reports.append) as worker:
        await worker.execute(opened(2))
        with pytest.raises(NetworkError, match="its port is taken"):
            await worker.execute(Start(1))
    assert not any(isinstance(report, Failed) for report in reports)


async def served(lines: bytes) -> list[Any]:
    """What a worker writes that reads these lines, and then their end."""
    ours, theirs = socket.socketpair()
    found: list[Any] = []
    with anyio.fail_after(PATIENCE):
        async with (
            await anyio.abc.UNIXSocketStream.from_socket(ours) as near,
            await anyio.abc.UNIXSocketStream.from_socket(theirs) as far,
            anyio.create_task_group() as tasks,
        ):

            async def serve() -> None:
                async with far:
                    await serve_commands(far)

            tasks.start_soon(serve)
            reading = Lines()
            await near.send(lines)
            # Each command is answered before the end comes.
            while sum(isinstance(answer, Done | Failed) for answer in found) < lines.count(b"\n"):
                found += [read_answer(line) for line in reading.feed(await near.receive())]
            await near.send_eof()
    return found


async def test_commands_on_a_stream_are_answered_by_their_numbers() -> None:
    commands = [Numbered(1, opened(2)), Numbered(2, Stop(7)), Numbered(3, Measure(1))]
    found = await served(b"".join(map(command_line, commands)))
    answers = {answer.id: answer for answer in found if isinstance(answer, Done | Failed)}
    assert answers == {1: Done(1), 2: Failed(2, "there is no member 7 here", "NetworkError"), 3: Done(3)}


async def test_a_line_that_is_no_command_ends_a_worker() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await served(b"nonsense\n")
    assert caught.group_contains(ProtocolError, match="a worker's line is no command")
