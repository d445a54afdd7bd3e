"""Our own hub and client, for what the tests take from any implementation: an event loop on a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.from_thread
import hypercorn.trio
import sniffio
from anyio.abc import TaskStatus
from hypercorn.config import Config as Hypercorn

import gossiplog
from gossiplog import Node, Signer, core
from gossiplog.net import client, events, hub, peer
from gossiplog.net.http.access import EVERY, Access
from gossiplog.net.http.listener import Address
from gossiplog.net.http.server import serve
from gossiplog.net.replicator import driver
from gossiplog.net.routing.kinds import RouterName
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import InEvent, Judged, OutEvent, SyncBrought, Verdict
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.protocol.sync import SyncServerConfig
from tests.integration.javascript import PATIENCE
from tests.integration.replica import LogReplica, State


class OwnPeer(LogReplica):
    """Our log on disk with our hub, our clients, or both, on an event loop of its own.

    Args:
        topic: of the log.
        private_key: 32 bytes, with which it signs.
        backend: "asyncio" or "trio".
        directory: of the log.
        broadcast: limits and delays of the broadcast machine.
        sync_server: limits of its sync server.
        payload: checks payloads; None accepts all.
        router: of a peer of a mesh.

    Attributes:
        directory: as given.
        events: what happened, as an application hears of it.
    """

    def __init__(
        self,
        topic: str,
        private_key: bytes,
        *,
        backend: str,
        directory: Path,
        broadcast: BroadcastConfig | None = None,
        sync_server: SyncServerConfig | None = None,
        payload: Callable[[Any], object] | None = None,
        router: RouterName = "libp2p",
    ) -> None:
        self._router: RouterName = router
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.events: list[events.Event] = []
        self._broadcast = broadcast
        self._sync_server = sync_server
        self._changed = threading.Condition()
        self._sources: dict[str, str | None] = {}
        self._port = 0
        self._hub: tuple[anyio.Event, Future[None]] | None = None
        self._clients: dict[str, ExitStack] = {}
        self._stack = ExitStack()
        super().__init__(
            self._stack.enter_context(gossiplog.open(directory / "log.db", topic, payload=payload)), Signer(private_key)
        )
        self._portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal(backend))

    # The log

    def append(self, payload: Any, *, codec: str = "dag-cbor", parents: Sequence[str] | None = None) -> str:
        return self._own([super().append(payload, codec=codec, parents=parents)])[0]

    def append_numbers(self, start: int, count: int) -> None:
        before = set(self.ids())
        super().append_numbers(start, count)
        self._own([id for id in self.ids() if id not in before])

    def insert(self, values: Sequence[bytes]) -> list[tuple[int, str]]:
        refused = super().insert(values)
        self._own([core.encode_id(core.read_message(value, self.log.topic).key) for value in values])
        return refused

    def wait(self, *, count: int | None = None, root: Node | None = None) -> State:
        self._wait(
            lambda: (count is None or len(self.log) >= count) and (root is None or self.log.root == root),
            f"{count} messages, or the root {root}",
        )
        return self.state()

    def wait_for_message(self, id: str) -> str | None:
        self._wait(lambda: id in self._sources, f"message {id}")
        return self._sources[id]

    # The network

    def listen(self) -> str:
        app = hub.Hub(
            self.log,
            access=Access(origins=frozenset([EVERY])),
            broadcast=self._broadcast,
            sync_server=self._sync_server,
            on_event=self._take,
        )
        make_driver = app._make_driver
        app._make_driver = lambda: _observe(make_driver(), self._broadcast, self._learn)
        stop = self._portal.call(anyio.Event)
        served, address = self._portal.start_task(_serve, app, self._port, stop)
        self._hub = stop, served
        self._port = address.port
        return str(address.url("ws"))

    def stop_listening(self) -> None:
        if self._hub is not None:
            stop, served = self._hub
            self._hub = None
            self._portal.call(stop.set)
            served.result(PATIENCE)

    def connect(self, url: str) -> None:
        """Returns once the connection stands. Our client makes it again by itself, if it is connected to the hub."""
        if url not in self._clients:
            self._clients[url] = stack = ExitStack()
            stack.enter_context(self._portal.wrap_async_context_manager(self._connect(url)))
        self.wait_for_event(events.Connected, lambda event: event.peer == url)

    @asynccontextmanager
    async def _connect(self, url: str) -> AsyncIterator[None]:
        connecting = client.connect(
            self.log, url, broadcast=self._broadcast, sync_server=self._sync_server, on_event=self._take
        )
        async with connecting as made:
            # On the event loop, which has not begun to connect: a machine put in later would not know of the hub.
            _observe(made._driver, self._broadcast, self._learn)
            yield

    def join(self, bootstrap: Sequence[str] = (), *, listens: bool = True) -> list[str]:
        joined = peer.Peer(
            self.log,
            listen=["/ip4/127.0.0.1/tcp/0/ws"] if listens else [],
            bootstrap=bootstrap,
            broadcast=self._broadcast,
            sync_server=self._sync_server,
            router=self._router,
            on_event=self._take,
        )
        make_driver = joined._make_driver
        joined._make_driver = lambda **options: _observe(make_driver(**options), self._broadcast, self._learn)  # type: ignore[assignment]
        self._stack.enter_context(self._portal.wrap_async_context_manager(joined))
        return list(self._portal.call(lambda: joined.addresses))

    def wait_for_graft(self, peer_id: str) -> None:
        self.wait_for_event(events.Grafted, lambda event: event.peer == peer_id)

    def disconnect(self, url: str) -> None:
        self._clients.pop(url).close()

    def syncs(self) -> list[int]:
        return [sync.inserted for sync in self.syncs_ended()]

    def syncs_ended(self) -> list[events.SyncEnded]:
        """All syncs so far, with what they cost. Waits while one is under way."""

        def count(kind: type[events.Event]) -> int:
            return sum(isinstance(event, kind) for event in self.events)

        self._wait(lambda: count(events.SyncStarted) == count(events.SyncEnded), "the end of all syncs")
        return [event for event in self.events if isinstance(event, events.SyncEnded)]

    def wait_for_event(self, kind: type[events.Event], wanted: Callable[[Any], bool] = lambda event: True) -> Any:
        """The first event of a kind that is as wanted: one that came before, or the next."""
        found: list[events.Event] = []

        def search() -> bool:
            found[:] = [event for event in self.events if isinstance(event, kind) and wanted(event)]
            return bool(found)

        self._wait(search, f"an event of the kind {kind.__name__}")
        return found[0]

    def close(self) -> None:
        """Ends the hub, the clients and the event loop, and closes the log."""
        with self._stack:
            for stack in self._clients.values():
                stack.close()
            self.stop_listening()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _own(self, ids: list[str]) -> list[str]:
        with self._changed:
            self._sources.update(dict.fromkeys(ids))
        return ids

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, PATIENCE):
                raise TimeoutError(f"not within {PATIENCE:g} s: {what}; there are {len(self.log)} messages")

    def _take(self, event: events.Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def _learn(self, source: str, keys: Sequence[bytes]) -> None:
        with self._changed:
            for key in keys:
                self._sources.setdefault(core.encode_id(key), source)
            self._changed.notify_all()


class _Observed(Broadcast):
    """Says how messages came, which only the broadcast machine hears."""

    def __init__(self, config: BroadcastConfig | None, learn: Callable[[str, Sequence[bytes]], None]) -> None:
        super().__init__(Random(), config)
        self._learn = learn

    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        match event:
            case Judged(delivery, Verdict.INSERTED):
                self._learn("push" if delivery.ticket is None else "pubsub", [delivery.key])
            case SyncBrought(held=keys):
                self._learn("sync", keys)
        return super().handle(event, now)


def _observe(
    observed: driver.Driver, config: BroadcastConfig | None, learn: Callable[[str, Sequence[bytes]], None]
) -> driver.Driver:
    observed._machine._machine = _Observed(config, learn)
    return observed


async def _serve(
    app: hub.Hub, port: int, stop: anyio.Event, *, task_status: TaskStatus[Address] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Runs a hub until it is to stop: under the bundled server, which needs asyncio, or on trio under Hypercorn."""
    async with anyio.create_task_group() as tasks:
        if sniffio.current_async_library() == "asyncio":
            address = await tasks.start(_serve_bundled, app, port)
            task_status.started(address)
        else:
            listener = socket.create_server(("127.0.0.1", port))
            task_status.started(Address(*listener.getsockname(), secure=False))
            config = Hypercorn()
            config.bind = [f"fd://{listener.detach()}"]
            config.errorlog = None
            tasks.start_soon(hypercorn.trio.serve, app, config)
        await stop.wait()
        tasks.cancel_scope.cancel()


async def _serve_bundled(app: hub.Hub, port: int, *, task_status: TaskStatus[Address]) -> None:
    async with app:
        await serve(app, port=port, task_status=task_status)
