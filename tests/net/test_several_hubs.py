"""Several hubs, and a peer of a mesh, on one log in Postgres; and what its server's end does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

import gossiplog
from gossiplog import Log, LogReplaced, LogWentBack, Peer, Signer
from gossiplog.log import following
from gossiplog.net import events
from gossiplog.net.peer import driver_of
from gossiplog.net.replicator import log_writer
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.transport.network import Connection, Network
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol import wire
from gossiplog.protocol.sync import SyncServerConfig
from gossiplog.storage.postgres.storage import PostgresStorage
from tests.net.meshes import QUICK_PEER
from tests.net.support import LISTEN, QUICK, TOPIC, Heard, guest, joined, until_equal
from tests.postgres import Server, own_server
from tests.postgres_proxy import proxy_before

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]
SYNCED = 6000
"""Messages of a sync, which come in several batches."""


class Listener:
    """A client that keeps no log, and counts what is pushed to it.

    Attributes:
        pushed: how often each message was.
    """

    def __init__(self) -> None:
        self.pushed: Counter[bytes] = Counter()
        self._changed = anyio.Event()

    async def wait_for(self, keys: set[bytes]) -> None:
        while not keys <= self.pushed.keys():
            await self._changed.wait()

    async def read(self, stream: Stream) -> None:
        frames = wire.FrameReader(wire.MAX_FRAME)
        while True:
            while (frame := frames.next()) is not None:
                if isinstance(event := wire.decode_push(frame), wire.Insert):
                    self.pushed[event.key] += 1
                    self._changed.set()
                    self._changed = anyio.Event()
            frames.feed(await stream.receive())


async def _refuse(connection: Connection) -> None:
    """Tell whoever asks for what the client holds that it is busy."""
    async for _, stream in connection:
        async with stream:
            await stream.send(wire.encode_answer(wire.Abort(60_000)))


@asynccontextmanager
async def listening(network: Network, hub: Driver) -> AsyncIterator[Listener]:
    listener = Listener()
    async with guest(network, hub) as connection, anyio.create_task_group() as tasks:
        push = await connection.open_stream(hub.protocols.push)
        await push.send(wire.encode_push(wire.Update([])))
        tasks.start_soon(listener.read, push)
        tasks.start_soon(_refuse, connection)
        yield listener
        tasks.cancel_scope.cancel()


def signers() -> Iterator[Signer]:
    number = 0
    while True:
        number += 1
        yield Signer(bytes([number]) * 32)


async def append(logs: Sequence[Log], rounds: int) -> set[bytes]:
    """Append to all logs at once, and return the keys."""
    keys: set[bytes] = set()

    async def write(log: Log) -> None:
        for number in range(rounds):
            keys.add((await anyio.to_thread.run_sync(log.append, number)).key)

    async with anyio.create_task_group() as tasks:
        for log in logs:
            tasks.start_soon(write, log)
    return keys


@pytest.mark.slow
@pytest.mark.usefixtures("quick_gossip")
async def test_two_hubs_and_a_peer_on_one_log_bring_each_message_once(
    network: Network, postgres_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only announcements bring one what another commits.
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 1000.0)
    signer = signers()
    shared = [opened(postgres_url, signer=next(signer)) for _ in range(3)]
    clients = [opened(signer=next(signer)) for _ in range(2)]
    outside = opened(signer=next(signer))
    with anyio.fail_after(120):
        async with (
            Driver(shared[0], broadcast=QUICK) as first,
            Driver(shared[1], broadcast=QUICK) as second,
            Peer(shared[2], listen=[LISTEN], broadcast=QUICK_PEER) as peer,
            Peer(outside, listen=[LISTEN], bootstrap=peer.addresses, broadcast=QUICK_PEER) as other,
            Driver(clients[0], broadcast=QUICK) as one,
            Driver(clients[1], broadcast=QUICK) as two,
            listening(network, first) as at_first,
            listening(network, second) as at_second,
            joined(network, one, first),
            joined(network, two, second),
        ):
            # What is appended before that is synced, and not pushed.
            for driver, count in (
                (first, 2),
                (second, 2),
                (one, 1),
                (two, 1),
                (driver_of(peer), 1),
                (driver_of(other), 1),
            ):
                while len(driver.peers) < count:
                    await driver.peers_changed.wait()
            while not (peer.counters.mesh and other.counters.mesh):
                await anyio.sleep(0.01)
            logs = [*shared, *clients, outside]
            keys = await append(logs, 5)
            await until_equal(*logs)
            # What was on its way comes before this.
            last = shared[0].append("last").key
            for listener in (at_first, at_second):
                await listener.wait_for({last})
                # What a busy hub gets by a sync it announces; nothing is pushed twice.
                assert listener.pushed == dict.fromkeys(listener.pushed, 1)
                assert listener.pushed.keys() <= {*keys, last}
            await until_equal(*logs)
    assert len(shared[0]) == 31
    shared[0].verify()


@pytest.mark.integration
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_sync_that_began_at_one_hub_goes_on_at_another(
    network: Network, postgres_url: str, opened: Open, signer: Signer
) -> None:
    shared = [opened(postgres_url, signer=signer) for _ in range(2)]
    shared[0].append_many(f"{number} {'x' * 1000}" for number in range(SYNCED))
    client, heard = opened(), Heard()
    served: Counter[str] = Counter()

    def note(name: str, event: events.Event) -> None:
        if isinstance(event, events.Served):
            served[name] += event.messages

    # The first has to break off, and does not want to be asked again soon.
    part = SyncServerConfig(bytes=5 * 2**20, cooldown=60_000)
    with anyio.fail_after(60):
        async with (
            Driver(shared[0], broadcast=QUICK, sync_server=part, on_event=partial(note, "first")) as first,
            Driver(shared[1], broadcast=QUICK, on_event=partial(note, "second")) as second,
            Driver(client, broadcast=QUICK, on_event=heard) as driver,
        ):
            async with joined(network, driver, first):
                await heard.wait(events.SyncEnded)
            got = len(client)
            assert 0 < got < SYNCED
            async with joined(network, driver, second):
                await until_equal(client, shared[0])
    # What had come was not asked for again.
    assert served["second"] == SYNCED - got
    client.verify()


async def test_a_hub_whose_log_was_replaced_ends(
    network: Network, postgres_server: Server, postgres_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 0.02)
    log = opened(postgres_url, signer=next(signers()))
    log.append("first")
    schema = PostgresStorage(postgres_url).url.schema

    async def serve() -> None:
        async with Driver(log, broadcast=QUICK) as hub, joined(network, client, hub):
            await until_equal(log, theirs)
            # As a rebase does it.
            postgres_server.run(f"UPDATE {schema}.gossiplog_meta SET value = repeat('0', 32) WHERE name = 'identity'")
            await anyio.sleep_forever()

    theirs = opened()
    with anyio.fail_after(60):
        async with Driver(theirs, broadcast=QUICK) as client:
            with pytest.raises(LogReplaced):
                await serve()


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with own_server() as server:
        yield server


@pytest.mark.integration
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_a_hub_goes_on_when_its_server_was_restarted(
    own: Server, how: str, network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.1)
    log, client = opened(own.url(f"hub_{how}"), signer=signer), opened(signer=Signer(b"\1" * 32))
    heard = Heard()
    with anyio.fail_after(120):
        async with (
            Driver(log, broadcast=QUICK, on_event=heard) as hub,
            Driver(client, broadcast=QUICK) as driver,
            joined(network, driver, hub),
        ):
            await append([client], 3)
            await until_equal(client, log)
            before = set(log)
            own.stop(how)
            try:
                # A client is not waited for: it keeps what it writes, and the hub takes it once it can.
                await append([client], 20)
                assert await heard.wait(events.Failed)
                assert hub.unready
            finally:
                own.start()
            await append([client], 3)
            await until_equal(client, log)
            while hub.unready:
                await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(log.append, "the hub's own")
            await until_equal(client, log)
    assert before < set(log)
    assert len(log) == 27
    log.verify()


@pytest.mark.integration
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_clients_bring_a_hub_what_the_server_that_took_over_lacks(
    own: Server, network: Network, opened: Open, tmp_path: Path
) -> None:
    signer = signers()
    with proxy_before(own) as way, anyio.fail_after(120):
        log = opened(way.url("failover"), signer=next(signer))
        clients = [opened(tmp_path / f"{number}.db", signer=next(signer)) for number in range(2)]
        left = Heard()
        standby = await anyio.to_thread.run_sync(own.standby)
        try:
            async with Driver(clients[0], broadcast=QUICK, on_event=left) as one, Driver(clients[1]) as two:

                async def serve() -> None:
                    async with (
                        Driver(log, broadcast=QUICK) as hub,
                        joined(network, one, hub),
                        joined(network, two, hub),
                    ):
                        await append([log, *clients], 5)
                        await until_equal(log, *clients)
                        own.wait_for_replay(standby)
                        standby.end_following()
                        await append([log, *clients], 5)
                        await until_equal(log, *clients)
                        await anyio.to_thread.run_sync(standby.promote)
                        way.redirect(standby)
                        await anyio.sleep_forever()

                with pytest.raises(LogWentBack, match="it has 15 messages, and this program has seen 30"):
                    await serve()
                await left.wait(events.Disconnected)
                root = clients[0].root
                log.close()
                again = gossiplog.open(way.url("failover"), TOPIC)
                with again:
                    assert len(again) == 15
                    async with Driver(again, broadcast=QUICK) as hub, joined(network, two, hub):
                        await until_equal(again, *clients)
                    assert again.root == root
                    again.verify()
        finally:
            standby.stop("immediate")
