"""Peers for tests, over sockets of the loopback interface; strangers among them, and a line that can be cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.abc

from gossiplog import Log, Peer, Signer, core
from gossiplog.net import events
from gossiplog.net.service import background
from gossiplog.net.transport.host import Arrival, Host, open_host
from gossiplog.protocol.wire import Protocols
from tests.net.support import GOSSIP, LISTEN, QUICK, TOPIC, Heard

QUICK_PEER = replace(QUICK, announce=0.5)
"""Delays of a peer: a driver's, but what gossip has lost is soon made up for."""


@asynccontextmanager
async def running(*logs: Log, **options: Any) -> AsyncIterator[tuple[list[Peer], list[Heard]]]:
    """A peer for each log, all of which know the first, once each is in the gossip of another."""
    heard = [Heard() for _ in logs]
    peers: list[Peer] = []
    with anyio.fail_after(120):
        async with AsyncExitStack() as stack:
            for log, listener in zip(logs, heard, strict=True):
                known = peers[0].addresses if peers else ()
                settings = {"broadcast": QUICK_PEER, "on_event": listener, "on_message": listener.message} | options
                peers.append(await stack.enter_async_context(Peer(log, listen=[LISTEN], bootstrap=known, **settings)))
            for listener in heard:
                await listener.wait(events.Connected)
                await listener.wait(events.Grafted)
            yield peers, heard


@asynccontextmanager
async def stranger(peer: Peer) -> AsyncIterator[tuple[Host, Arrival]]:
    """A host that has dialled a peer, for a test to misbehave with."""
    host = open_host(identity=bytes(range(32)), topic=TOPIC, protocols=Protocols(TOPIC).all, gossip=GOSSIP)
    async with host:
        await host.dial(peer.addresses[0])
        yield host, await host.accept()


@asynccontextmanager
async def member(peer: Peer) -> AsyncIterator[tuple[Host, Arrival]]:
    """A stranger with whom the peer exchanges messages, and whose gossip reaches it."""
    async with (
        stranger(peer) as (host, arrival),
        await arrival.connection.open_stream(Protocols(TOPIC).push) as push,
    ):
        assert await push.receive()
        while not any(found.in_mesh for found in host.peers):
            await anyio.sleep(0.01)
        yield host, arrival


async def shunned(host: Host, peer: Peer) -> None:
    """Returns when a peer has refused a connection to a host that it has dropped."""
    await host.dial(peer.addresses[0])
    while not peer.counters.refused_connections:
        await anyio.sleep(0.01)


def signers(count: int) -> list[Signer]:
    return [Signer(bytes([number] * 32)) for number in range(1, count + 1)]


def key_of(value: bytes) -> bytes:
    (key,) = core.read_batch([value], TOPIC).keys
    return key


class Line:
    """Carries TCP connections to a port of this machine, until it is cut.

    Attributes:
        port: where it takes them.
    """

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream], target: int) -> None:
        self.port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
        self._listener = listener
        self._target = target
        self._is_cut = False
        self._frozen = 0
        self._carried: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Breaks what it carries, and takes nothing more."""
        self._is_cut = True
        for scope in self._carried:
            scope.cancel()

    def freeze(self) -> None:
        """Let nothing more through of what it carries, not even an end. It takes new connections."""
        self._frozen += 1

    def mend(self) -> None:
        """Takes connections again."""
        self._is_cut = False

    async def run(self) -> None:
        await self._listener.serve(self._carry)

    async def _carry(self, near: anyio.abc.SocketStream) -> None:
        async with near:
            if self._is_cut:
                return
            with anyio.CancelScope() as scope:
                self._carried.add(scope)
                frozen = self._frozen
                try:
                    async with await anyio.connect_tcp("127.0.0.1", self._target) as far, background() as tasks:
                        tasks.start_soon(self._pump, far, near, scope, frozen)
                        await self._pump(near, far, scope, frozen)
                finally:
                    self._carried.discard(scope)

    async def _pump(
        self,
        source: anyio.abc.ByteReceiveStream,
        target: anyio.abc.ByteSendStream,
        scope: anyio.CancelScope,
        frozen: int,
    ) -> None:
        try:
            async for data in source:
                if frozen < self._frozen:
                    break
                await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # One end is gone; the other hears of it.
            pass
        if frozen < self._frozen:
            await anyio.sleep_forever()
        scope.cancel()


@asynccontextmanager
async def line(address: str) -> AsyncIterator[Line]:
    """A line to a peer that listens at a multiaddr."""
    target = int(address.partition("/tcp/")[2].partition("/")[0])
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, background() as tasks:
        wire = Line(listener.listeners[0], target)
        tasks.start_soon(wire.run)
        yield wire
