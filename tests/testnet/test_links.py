"""Calls of a worker, on this event loop and in a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest

from gossiplog.errors import NetworkError
from gossiplog.testnet import links
from gossiplog.testnet.links import LocalLink, ProcessLink, WorkerLink
from gossiplog.testnet.messages import Append, Done, Failed, Happened, Open, Report, Stop, answer_line
from gossiplog.testnet.plan import NetworkPlan, member_plans

pytestmark = pytest.mark.anyio

PATIENCE = 60
OPEN = Open(
    topic="org.example.test",
    seed=0,
    message_bytes=10,
    offline_messages=2,
    began=time.monotonic(),
    members=tuple((plan.number, plan.kind, plan.name) for plan in member_plans(NetworkPlan(2, "line"))),
    folder=None,
)


async def check(link: WorkerLink, reports: list[Report]) -> None:
    with anyio.fail_after(PATIENCE):
        assert await link.call(OPEN) == ()
        assert any(isinstance(report, Happened) for report in reports)
        with pytest.raises(NetworkError, match="there is no member 7 here"):
            await link.call(Stop(7))
        # Calls at the same time are told apart.
        async with anyio.create_task_group() as tasks:
            for number in (0, 1, 0):
                tasks.start_soon(link.call, Append(number, 5))


async def test_a_worker_on_this_event_loop() -> None:
    reports: list[Report] = []
    async with LocalLink(reports.append) as link:
        await check(link, reports)


@pytest.mark.integration
async def test_a_worker_in_a_process() -> None:
    reports: list[Report] = []
    async with ProcessLink(reports.append, "worker 0") as link:
        await check(link, reports)
        pid = link.pid
        assert Path(f"/proc/{pid}").exists()
        assert link._answers == link._waiting == {}
    assert not Path(f"/proc/{pid}").exists()


async def test_a_member_that_ends_by_itself_ends_the_context() -> None:
    async def run() -> None:
        async with LocalLink(lambda report: None) as link:
            link._take(Failed(0, "the member 3 has ended: no", "NetworkError"))
            link._take(Failed(0, "another", "NetworkError"))
            with anyio.fail_after(PATIENCE):
                await anyio.sleep_forever()

    with pytest.raises(NetworkError, match="the member 3 has ended: no"):
        await run()


async def test_answers_that_nobody_waits_for_are_dropped() -> None:
    link = ProcessLink(lambda report: None, "worker 0")
    for answer in (Done(5), Failed(6, "no", "NetworkError")):
        link._take(answer_line(answer))
    assert link._answers == {}


async def test_what_ends_in_a_process_ends_the_context() -> None:
    link = ProcessLink(lambda report: None, "worker 0")
    with pytest.raises(NetworkError, match="the member 3 has ended: no"):
        link._take(answer_line(Failed(0, "the member 3 has ended: no", "NetworkError")))


@pytest.mark.parametrize(("status", "words"), [(3, "with status 3"), (-9, "killed by SIGKILL")])
def test_how_a_process_ended(status: int, words: str) -> None:
    assert links._ending(status) == words
