"""A member on its worker's event loop: it starts, stops, and is found again where it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random

import anyio
import anyio.lowlevel
import pytest

import gossiplog
from gossiplog import Log, MemoryStorage
from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.testnet.member import Member, random_text
from gossiplog.testnet.messages import Append, Start
from gossiplog.testnet.plan import Kind, NetworkPlan, author_of, name_of
from gossiplog.testnet.translation import Translator

pytestmark = pytest.mark.anyio

PATIENCE = 60
TOPIC = "org.example.test"
PLAN = NetworkPlan()


@pytest.fixture
def logs() -> Iterator[list[Log]]:
    opened = [gossiplog.open(MemoryStorage(), topic=TOPIC) for _ in range(3)]
    yield opened
    for log in opened:
        log.close()


def member_of(number: int, kind: Kind, log: Log | None) -> Member:
    signer = author_of(0, number)
    translator = Translator(name_of(PLAN, number, kind), signer.did, log, lambda: 1.0)
    return Member(
        number,
        kind,
        seed=0,
        topic=TOPIC,
        log=log,
        signer=signer,
        translator=translator,
        text=lambda: "hi",
        clock=lambda: 1.0,
    )


@asynccontextmanager
async def started(member: Member, command: Start) -> AsyncIterator[list[str]]:
    """The addresses of a member that runs for the time of a block."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            yield list(await tasks.start(member.run, command))
            await member.stop()


async def until_connected(member: Member, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        events, _ = member.translator.take()
        found += [event.other for event in events if isinstance(event, dashboard_events.Connected)]
        await anyio.sleep(0.01)
    return found


async def test_a_member_that_does_not_run() -> None:
    member = member_of(1, "bootstrap", None)
    assert not member.has_log
    assert not member.runs
    await member.stop()
    member.block(["someone"])
    member.translator.observed = True
    member.count_traffic()
    assert member.translator.take() == ([], [])
    with pytest.raises(NetworkError, match="the member 1 does not run, or is no peer: it dials nobody"):
        await member.dial("/ip4/127.0.0.1/tcp/1/ws")
    with pytest.raises(NetworkError, match="the member 1 holds no log: append at another"):
        await member.append(Append(1))


async def test_a_member_that_has_to_have_a_log() -> None:
    member = member_of(1, "peer", None)
    with pytest.raises(NetworkError, match="the member 1 has no log"):
        await member.run(Start(1), task_status=anyio.TASK_STATUS_IGNORED)
    assert not member.runs


async def test_what_is_appended_while_it_does_not_run_is_reported(logs: list[Log]) -> None:
    member = member_of(0, "peer", logs[0])
    await member.append(Append(0, 2, flow=3))
    assert [message.payload for message in logs[0].messages()] == [
        {"number": number, "text": "hi", "sent": 1, "flow": 3} for number in range(2)
    ]
    (event,) = member.translator.take()[0]
    assert isinstance(event, dashboard_events.Committed)
    assert (event.messages, event.inserted) == (2, 2)


@pytest.mark.integration
async def test_peers_are_found_again_where_they_were(logs: list[Log]) -> None:
    first, second = member_of(0, "peer", logs[0]), member_of(1, "peer", logs[1])
    async with started(first, Start(0)) as addresses:
        with pytest.raises(NetworkError, match="the member 0 runs already"):
            await first.run(Start(0), task_status=anyio.TASK_STATUS_IGNORED)
        assert first.runs
    assert not first.runs
    async with started(first, Start(0)) as again, started(second, Start(1)):
        assert again == addresses
        await second.dial(again[0])
        assert await until_connected(first, 1) == [second.translator.name]
        first.translator.observed = True
        first.count_traffic()
        (traffic,) = [
            event for event in first.translator.take()[0] if isinstance(event, dashboard_events.TrafficCounted)
        ]
        assert traffic.bytes_received > 0
        first.block([second.translator.name])
        found: list[type] = []
        while dashboard_events.Disconnected not in found:
            found += [type(event) for event in first.translator.take()[0]]
            await anyio.sleep(0.01)


@pytest.mark.integration
async def test_a_hub_knows_its_clients_by_their_names(logs: list[Log]) -> None:
    hub, client = member_of(0, "hub", logs[0]), member_of(1, "client", logs[1])
    async with (
        started(hub, Start(0)) as (url,),
        started(client, Start(1, (url,), hub=hub.translator.name)) as addresses,
    ):
        assert addresses == []
        assert await until_connected(hub, 1) == [client.translator.name]
        assert await until_connected(client, 1) == [hub.translator.name]
    async with started(hub, Start(0)) as again:
        assert again == [url]


@pytest.mark.parametrize("size", [0, 1, 7, 100])
def test_texts_have_so_many_bytes(size: int) -> None:
    assert len(random_text(Random(0), size).encode()) == size
