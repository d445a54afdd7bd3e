"""What `gossiplog sync` runs for a peer of a mesh: both logs get what the other holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio

from gossiplog.cli.output import Stopwatch, exchange
from gossiplog.cli.sync.hub import Listener, in_step, result
from gossiplog.core import Node
from gossiplog.errors import NetworkError
from gossiplog.log import Log
from gossiplog.net.peer import Peer, driver_of
from gossiplog.net.service import background

# Seconds for the peer to say that it has the log.
_JOINING_SECONDS = 20.0
_PLACE = re.compile(r"/(ip4|ip6|dns|dns4|dns6)/([^/]+)/tcp/(\d+)(?:/|$)")
# What libp2p says of an answer that is none: errors of multistream-select and of WebSockets.
_NO_PEER = (
    "Received an invalid message",
    "not enough input bytes",
    "Protocol negotiation failed",
    "unexpected end of file",
)
_REASONS = "an application refuses what the other log has"


class _Member:
    """A mesh that a log is kept in step with, as `in_step` sees it."""

    def __init__(self, peer: Peer, address: str, *, stays: bool) -> None:
        # What peers hold shows in what they send.
        self.hub_root: Node | None = None
        self.obstacle: Exception | None = None
        self._peer = peer
        self._address = address
        self._stays = stays

    async def synced(self) -> None:
        async with background() as tasks:
            if not self._stays:
                tasks.start_soon(self._watch)
            await self._peer.joined()
            await self._peer.synced()

    async def _watch(self) -> None:
        """Watch the connections; raise NetworkError when the peer is gone and nobody else is there."""
        driver = driver_of(self._peer)
        while driver.peers:
            await driver.peers_changed.wait()
        raise NetworkError(f"{self._address}: the connection ended before both logs were equal")


def sync_with_peer(log: Log, name: str, address: str, *, follow: bool, done: Callable[[dict[str, Any]], None]) -> None:
    """Bring a log and those of a peer, and of others that it leads to, to the same messages.

    Args:
        log: to sync.
        name: what to call it.
        address: a multiaddr of the peer.
        follow: whether to stay connected until Ctrl-C, and to connect again whenever the connection ends.
        done: is called with what that brought and cost, once all are equal.

    Raises:
        NetworkError: the peer cannot be reached, has no log of the topic, or the connection ended early.
        LogsDiffer: the logs do not become equal.
        RefusedByPeer: the peer refuses messages of this log.
    """

    async def run(stack: AsyncExitStack) -> None:
        with exchange(f"{name} ⇄ {address}") as show, Stopwatch() as watch:
            listener = Listener(show, lambda: len(log), aloud=follow)
            peer = await stack.enter_async_context(
                Peer(log, listen=(), bootstrap=(address,) if follow else (), on_event=listener)
            )
            if not follow:
                try:
                    await peer.dial(address)
                except NetworkError as error:
                    raise NetworkError(_advise(address, str(error))) from error
                await _joined(peer, address, log.topic)
            member = _Member(peer, address, stays=follow)
            await in_step(member, listener, name, address, give_up=not follow, reasons=_REASONS)
        done(result(log, name, address, listener, watch))
        if follow:
            await anyio.sleep_forever()

    async def enter() -> None:
        async with AsyncExitStack() as stack:
            await run(stack)

    anyio.run(enter)


def _advise(address: str, reason: str) -> str:
    """Return the reason, and what to do where something answered that is no peer."""
    place = _PLACE.match(address)
    if place is None or not any(sign in reason for sign in _NO_PEER):
        return reason
    kind, host, port = place.groups()
    if kind == "ip6":
        host = f"[{host}]"
    return (
        f"{reason.rstrip('.')}. No peer of a mesh answers there."
        f" If it is a hub, its address is ws://{host}:{port} (or wss://)"
    )


async def _joined(peer: Peer, address: str, topic: str) -> None:
    with anyio.move_on_after(_JOINING_SECONDS):
        await peer.joined()
        return
    raise NetworkError(f"{address} does not exchange messages of the topic {topic!r}")
