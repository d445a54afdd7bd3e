"""Connections, and streams by protocol name on them, for async code: on trio and on asyncio, through anyio.

As hubs and their clients speak them ("Streams" of the wire format: a WebSocket's binary messages, on them yamux, on
each of its streams multistream-select).

    async with open_network() as network:
        async with await network.dial("ws://localhost:8000", [SYNC]) as connection:
            async with await connection.open_stream(PUSH) as stream:
                await stream.send(data)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel

from gossiplog import _core
from gossiplog._core import Closed, redacted_url
from gossiplog.errors import ConnectionLost, NetworkError
from gossiplog.files import check_file
from gossiplog.net.transport.connection import Connection, Transport
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.stream import CHUNK, Stream

__all__ = ["Closed", "Connection", "Network", "PipeConnection", "Stream", "open_network"]


class PipeConnection(Connection):
    """A connection whose bytes somebody else carries.

    What comes from the peer is fed, what goes to the peer is drained.
    """

    def __init__(self, pipes: _core.Network, handle: int, name: str, forget: Callable[[int], object]) -> None:
        super().__init__(pipes.streams, handle, name, forget)
        self._pipes = pipes
        self._feeding = anyio.ResourceGuard("feeding")
        self._draining = anyio.ResourceGuard("draining")

    async def __aenter__(self) -> PipeConnection:
        return self

    async def feed(self, data: bytes) -> None:
        """Feed bytes that came from the peer.

        Waits while there is no room. Cancelled, it may have fed a part of them.

        Raises:
            ConnectionLost: the connection has ended.
        """
        await anyio.lowlevel.checkpoint()
        with self._feeding:
            taken = 0
            while taken < len(data):
                self._check()
                fed = self._pipes.feed(self._handle, data, taken)
                taken += fed
                if fed == 0:
                    await self._writable.wait()

    def feed_eof(self) -> None:
        """Report that no more bytes come from the peer. The connection ends."""
        if self._gone is None:
            self._pipes.feed_eof(self._handle)

    async def drain(self, limit: int = CHUNK) -> bytes:
        """Return bytes to send to the peer, from 1 to `limit`; b"" when there will be no more. Waits for them.

        Raises:
            ConnectionLost: this side released the connection.
        """
        await anyio.lowlevel.checkpoint()
        with self._draining:
            while True:
                self._check()
                data = self._pipes.drain(self._handle, limit)
                if data is not None:
                    return data
                await self._readable.wait()


class Network(Transport):
    """Connections, driven on a thread of its own: made by `open_network`, for the time of its context."""

    def __init__(self, core: _core.Network) -> None:
        super().__init__(core)
        self._network = core

    def attach(self, protocols: Sequence[str], *, client: bool) -> PipeConnection:
        """Return a connection over bytes that somebody else carries, such as an ASGI server's WebSocket.

        Args:
            protocols: what streams that the peer opens may speak.
            client: this end is yamux's client; exactly one end is.

        Raises:
            NetworkError: too many connections, or a name that cannot be a protocol's.
        """
        handle = self._network.attach(protocols, client)
        connection = PipeConnection(self._network, handle, "over a pipe", self._forget)
        self._connections[handle] = connection
        return connection

    def set_external_bytes(self, size: int) -> None:
        """Count so many bytes, which are kept outside of connections now, against the total of the limits."""
        # A network that has failed counts no more.
        with contextlib.suppress(NetworkError):
            self._network.set_external_bytes(size)

    async def dial(
        self,
        url: str,
        protocols: Sequence[str],
        *,
        headers: Sequence[tuple[str, str]] = (),
        ca_file: str | os.PathLike[str] | None = None,
        connect_timeout: float = 10.0,
        keepalive: float = 20.0,
        max_message: int = 1 << 20,
    ) -> Connection:
        """Return a connection to a hub's WebSocket. Waits until it stands.

        Args:
            url: `ws://` or `wss://`.
            protocols: what streams that the hub opens may speak.
            headers: more headers for the opening request.
            ca_file: a PEM file of certificate authorities to trust beside the platform's.
            connect_timeout: seconds.
            keepalive: seconds between pings; after twice as long without a sign of life the connection is given up.
            max_message: bytes of the largest message that is accepted.

        Raises:
            ConnectionLost: it cannot be reached, or does not answer.
            NetworkError: too many connections, or an address that is none.
        """
        await anyio.lowlevel.checkpoint()
        if ca_file is not None:
            _check_authorities(ca_file)
        handle = self._network.dial(url, protocols, headers, ca_file, connect_timeout, keepalive, max_message)
        connection = self._add(handle, f"to {redacted_url(url)}")
        try:
            await connection.wait_established()
        except BaseException:
            # The hub may have accepted the connection already: close it in order.
            await connection.leave()
            raise
        return connection


def _check_authorities(path: str | os.PathLike[str]) -> None:
    """Refuse what the core, on a thread of its own, would wait for without end."""
    try:
        check_file(path)
    except OSError as error:
        reason = f"the file of certificate authorities {os.fsdecode(path)} cannot be read: {error.strerror}"
        raise ConnectionLost("transport", reason) from error


def open_network(limits: Limits | None = None) -> Network:
    """Return a network that runs for the time of its context.

    Use it as `async with open_network() as network`. Leaving the context ends what connections there still are, at
    once; close those that matter before.

    Args:
        limits: None for the usual ones.

    Raises:
        NetworkError: the system refuses a thread or a socket.
    """
    return Network(_core.Network(limits or Limits()))
