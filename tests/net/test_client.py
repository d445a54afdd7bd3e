"""Clients of hubs over loopback sockets, on both event loops."""

from __future__ import annotations

import socket
from collections.abc import Callable

import anyio
import pytest

import gossiplog
from gossiplog import Hub, Log, Signer
from gossiplog.errors import ConnectionLost, LogClosed, NetworkError
from gossiplog.net import client as client_module
from gossiplog.net import events
from tests.net.support import Heard, serving, until_equal

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.01)


def free_url() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"ws://127.0.0.1:{server.getsockname()[1]}"


async def test_synced_means_that_both_hold_the_same(opened: Open, signer: Signer, other_signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened(signer=other_signer)
    ours.append_many(range(1000))
    theirs.append_many(range(1000))
    heard = Heard()
    async with serving(Hub(theirs)) as url, gossiplog.connect(ours, url, on_event=heard) as client:
        await client.synced()
        assert ours.root == theirs.root
        assert len(ours) == 2000
        # What came is told before synced returns.
        assert sum(event.inserted for event in heard.of(events.SyncEnded)) == 1000
        assert client.connected
        theirs.append("live")
        await until_equal(ours, theirs)
    assert client.counters.syncs["complete"] == len(heard.of(events.SyncEnded))


async def test_without_reconnecting_synced_says_why_not(opened: Open) -> None:
    heard = Heard()
    url = free_url()
    async with gossiplog.connect(opened(), url, reconnect=False, on_event=heard) as client:
        with pytest.raises(ConnectionLost, match="cannot be reached"):
            await client.synced()
        assert not client.connected
    assert [event.doing for event in heard.of(events.Failed)] == [f"connecting to {url}"]


@pytest.mark.parametrize("reconnect", [False, True])
async def test_an_address_that_is_none_is_an_error_at_once(opened: Open, reconnect: bool) -> None:
    with pytest.raises(NetworkError, match="expected something like ws://localhost:8000"):
        async with gossiplog.connect(opened(), "http://localhost", reconnect=reconnect) as client:
            await client.synced()


async def test_a_hub_of_another_topic_is_named(opened: Open) -> None:
    async with (
        serving(Hub(opened(topic="another"))) as url,
        gossiplog.connect(opened(), url, reconnect=False) as client,
    ):
        with pytest.raises(NetworkError, match="the peer does not offer the protocol"):
            await client.synced()


async def test_a_client_connects_again(opened: Open, signer: Signer) -> None:
    ours, theirs = opened(), opened(signer=signer)
    heard = Heard()
    hub = Hub(theirs)
    url = free_url()
    port = int(url.rpartition(":")[2])
    async with gossiplog.connect(ours, url, on_event=heard) as client:
        await heard.wait(events.Failed, 2)
        async with serving(hub, port):
            await client.synced()
        await heard.wait(events.Disconnected)
        theirs.append("while apart")
        async with serving(hub, port):
            await until_equal(ours, theirs)
    assert len(heard.of(events.Connected)) == 2


async def test_a_log_closed_meanwhile_ends_the_context(opened: Open) -> None:
    log = opened()

    async def use(url: str) -> None:
        async with gossiplog.connect(log, url) as client:
            await client.synced()
            log.close()
            await anyio.sleep_forever()

    async with serving(Hub(opened())) as url:
        with pytest.raises(LogClosed):
            await use(url)


async def test_a_callback_that_raises_ends_the_context(opened: Open) -> None:
    def fail(event: events.Event) -> None:
        raise ZeroDivisionError

    async def use(url: str) -> None:
        async with gossiplog.connect(opened(), url, on_event=fail):
            await anyio.sleep_forever()

    async with serving(Hub(opened())) as url:
        with pytest.raises(ZeroDivisionError):
            await use(url)
