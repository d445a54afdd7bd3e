"""`events()` of hubs, clients and peers: events for `async for`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import gossiplog
from gossiplog import AsyncLog, Committed, Connected, Disconnected, EventsDropped, Hub, Log, Peer, Signer
from gossiplog.net.event_stream import EventStream
from gossiplog.net.service import background

pytestmark = pytest.mark.anyio


async def test_who_does_not_keep_up_is_told_how_many_are_missing() -> None:
    stream = EventStream(3)
    for number in range(5):
        stream._put(Connected(str(number)))
    assert [await anext(stream) for _ in range(2)] == [EventsDropped(2), Connected("2")]
    for number in (5, 6):
        stream._put(Connected(str(number)))
    stream._end()
    stream._put(Connected("too late"))
    assert [event async for event in stream] == [EventsDropped(1), *(Connected(each) for each in "456")]


async def test_a_wait_that_is_cancelled_loses_nothing() -> None:
    stream = EventStream(3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, stream)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(
            RuntimeError,
            match=r"^another thread or task waits for the next of these: give each an iterator of its own$",
        ):
            await anext(stream)
        tasks.cancel_scope.cancel()
    stream._put(Connected("a"))
    assert await anext(stream) == Connected("a")


async def test_closing_ends_a_wait_and_drops_what_waits() -> None:
    stream = EventStream(1)

    async def close() -> None:
        await anyio.wait_all_tasks_blocked()
        stream.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        assert [event async for event in stream] == []
    async with EventStream(1) as other:
        other._put(Connected("a"))
        other._put(Connected("b"))
    assert [event async for event in other] == []


async def test_another_thread_closes_it() -> None:
    stream = EventStream(1)
    stream._put(Connected("a"))
    assert await anext(stream) == Connected("a")

    async def close() -> None:
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(stream.close)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        assert [event async for event in stream] == []
    stream._put(Connected("b"))
    assert [event async for event in stream] == []


async def test_mistakes_are_named() -> None:
    for number in (0, 2**63):
        with pytest.raises(ValueError, match=f"a capacity of {number}: expected 1 or more"):
            EventStream(number)
    for wrong in (1.5, True, "1"):
        with pytest.raises(TypeError, match=f"a capacity of {wrong!r}: expected an integer"):
            EventStream(wrong)  # type: ignore[arg-type]
    stream: Any = EventStream(1)
    with pytest.raises(TypeError, match="async for"):
        iter(stream)


async def test_a_hub_and_its_client(opened: Callable[..., Log], signer: Signer) -> None:
    there, here = opened(signer=signer), opened(signer=signer)
    hub = Hub(there)
    client = gossiplog.connect(here, "ws://127.0.0.1:1", reconnect=False)
    for service in (hub, client, Peer(here)):
        with pytest.raises(RuntimeError, match=r"not running|not started"):
            service.events()
    async with hub:
        stream, small = hub.events(), hub.events(capacity=1)
        await AsyncLog(there).append(1)
        async with background():
            async for event in stream:
                if isinstance(event, Committed):
                    break
        assert (event.messages, event.inserted) == (1, 1)
        await AsyncLog(there).append(2)
        assert isinstance(await anext(stream), Committed)
        again = hub.events()
    # What happened until its end comes, and then no more.
    assert [event async for event in again] == []
    # It had room for one of the two that came after the other's.
    assert [type(event) for event in [event async for event in small]] == [EventsDropped, Committed]
    async with hub:
        assert [event async for event in stream] == []
        async with client:
            failures = client.events()
            await client.ended()
    assert any(isinstance(event, gossiplog.Failed) for event in [event async for event in failures])


async def test_peers(opened: Callable[..., Log], signer: Signer) -> None:
    logs = opened(signer=signer), opened(signer=signer)
    async with Peer(logs[0]) as one:
        stream = one.events()
        async with Peer(logs[1], bootstrap=one.addresses) as other:
            commits = other.events()
            await AsyncLog(logs[1]).append(1)
            await other.synced()
            async for event in stream:
                if isinstance(event, Connected):
                    break
            peer_id = other.peer_id
            assert event.peer == peer_id
            # The feed of changes may come to it later than the sync does.
            async for change in commits:
                if isinstance(change, Committed):
                    break
            assert change.inserted == 1
    rest = [event async for event in stream]
    assert any(isinstance(event, Disconnected) and event.peer == peer_id for event in rest)
    assert [event async for event in commits if isinstance(event, Committed)] == []
