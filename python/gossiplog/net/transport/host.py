"""A libp2p host, for async code: connections to peers, dialled by either side, and gossip on one topic.

A layer over `gossiplog._core.Host` as `network` is one over `gossiplog._core.Network`; connections and streams are the
same. A host dials by itself: peers to begin with, and those that it learns of. So connections come from it (`accept`),
also those that were asked for (`dial`).

    async with open_host(identity=secrets.token_bytes(32), topic=topic, protocols=[PUSH, SYNC]) as host:
        await host.dial("/ip4/127.0.0.1/tcp/9000/ws")
        async for arrival in host:
            tasks.start_soon(exchange, arrival.connection)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import anyio.lowlevel

from gossiplog import _core
from gossiplog._core import HostEvent, MeshEvent, PeerEvent, PeerInfo
from gossiplog.core import Batch
from gossiplog.errors import ConnectionLost, NetworkError
from gossiplog.net.transport.connection import Connection, Transport
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.stream import Signal
from gossiplog.pubsub.gossipsub.config import GossipConfig
from gossiplog.reprs import short_repr

Answer = Literal["accept", "ignore", "reject"]


@dataclass(frozen=True, slots=True)
class Publication:
    """A message that the router holds back.

    Attributes:
        ticket: that names it to the router.
        connection: to the peer that it came from, who need not be its author; None if that one is gone.
        name: of that peer.
        data: as it was published.
    """

    ticket: int
    connection: Connection | None
    name: str
    data: bytes


class Router(Protocol):
    """Spreads messages among peers by gossip. No call waits."""

    def publish(self, data: bytes) -> bool:
        """Publish a message; return False if it was sent to nobody.

        Raises:
            NetworkError: it is too large, or the router has ended.
        """

    def validate(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Decide what is to become of messages (by their tickets) that the router holds back.

        Raises:
            NetworkError: the router has ended.
        """


__all__ = ["Arrival", "Host", "News", "open_host"]

News: TypeAlias = MeshEvent | HostEvent
"""What a host reports beside connections: how peers stand with the topic, and what becomes of listeners."""


@short_repr
@dataclass(frozen=True, slots=True)
class Arrival:
    """A peer that is connected.

    Attributes:
        connection: to it, for the caller of `accept` to close.
        peer_id: in base58.
        address: its end of the connection, as a multiaddr.
        dialer: whether this side dialled.
    """

    connection: Connection
    peer_id: str
    address: str
    dialer: bool


class Host(Transport):
    """Connections to peers, driven on a thread of its own: made by `open_host`, for the time of its context.

    Attributes:
        peer_id: this host's, in base58.
    """

    def __init__(
        self, core: _core.Host, notify: Callable[[News], object], validator: _core.GossipValidator | None = None
    ) -> None:
        super().__init__(core)
        self.peer_id = core.peer_id
        self._host = core
        self._notify = notify
        self._validator = validator
        self._arrived: deque[Arrival] = deque()
        self._arriving = Signal()
        self._gossiping = Signal()
        self._accepting = Signal()
        self._asking = Signal()
        self.store_at_once: Callable[[Batch, Sequence[Connection | None]], bool] = lambda batch, sources: False
        """Is called on the event loop with what `accepted` would return, and returns whether that is done with."""
        # What `store_at_once` did not take.
        self._left: tuple[Batch, list[Connection | None]] | None = None
        self._failure: NetworkError | None = None

    @property
    def addresses(self) -> list[str]:
        """Multiaddrs that it listens on now, with the peer id at their end; none when it was stopped."""
        return self._host.addresses() if self._last is None else []

    @property
    def peers(self) -> list[PeerInfo]:
        """The peers that are connected now; none when it was stopped."""
        return self._host.peers() if self._last is None else []

    async def dial(self, address: str) -> None:
        """Connect to a peer, unless it is connected. Waits until the connection stands; `accept` hands it out.

        Args:
            address: a multiaddr, with or without the peer id at its end.

        Raises:
            ConnectionLost: it cannot be reached, or is another peer.
            NetworkError: too many connections, or an address that is none.
        """
        await anyio.lowlevel.checkpoint()
        await self._establish(self._host.dial(address), address)

    async def dial_peer(self, peer_id: str) -> None:
        """Connect to a peer by its id, as `dial` does, where Kademlia has addresses of it.

        Where it has none, it looks the peer up, which this does not wait for: try again.

        Raises:
            ConnectionLost: it is not known, or cannot be reached.
            NetworkError: too many connections, or an id that is none, or this host's.
        """
        await anyio.lowlevel.checkpoint()
        await self._establish(self._host.dial_peer(peer_id), peer_id)

    def rtt(self, peer_id: str) -> float | None:
        """Return the last round trip to a connected peer in seconds; None where there was none."""
        return next((peer.rtt for peer in self.peers if peer.peer_id == peer_id), None)

    async def _establish(self, handle: int, name: str) -> None:
        connection = self._add(handle, f"to {name}")
        try:
            await connection.wait_established()
        except ConnectionLost:
            # The peer is connected under another handle.
            if connection.closed is None or connection.closed.cause != "local":
                raise
        finally:
            if not connection.established:
                connection.release("it was not established")

    def block(self, peer_id: str) -> None:
        """Close the connections to a peer, and refuse new ones, dialled by either side, until it is unblocked.

        Raises:
            NetworkError: an id that is none or this host's own, too many blocked peers, or the host was stopped.
        """
        self._host.block(peer_id)

    def unblock(self, peer_id: str) -> bool:
        """Let a peer connect again, and dial it as any other; return whether it was blocked.

        Raises:
            NetworkError: an id that is none, or the host was stopped.
        """
        return self._host.unblock(peer_id)

    async def accept(self) -> Arrival:
        """Return the next peer that is connected, whichever side dialled. Waits for it.

        Raises:
            NetworkError: the host has ended by a defect: nobody will be connected.
        """
        await anyio.lowlevel.checkpoint()
        while not self._arrived:
            self._check()
            await self._arriving.wait()
        return self._arrived.popleft()

    def __aiter__(self) -> Host:
        return self

    async def __anext__(self) -> Arrival:
        return await self.accept()

    # A router, as `router.Router` has it.

    def publish(self, data: bytes) -> bool:
        """Publish a message to peers that subscribed to the topic; return False if there was none, or no room.

        Raises:
            NetworkError: it is too large, or the host was stopped, or has ended by a defect.
        """
        return self._host.publish(data)

    def validate(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Decide what is to become of messages, by their tickets.

        Raises:
            NetworkError: the host was stopped, or has ended by a defect.
        """
        self._host.validate(answers)

    async def accepted(self) -> tuple[Batch, list[Connection | None]]:
        """Return the messages that the validator has accepted since the last call, one at least. Waits for them.

        Returns:
            The messages, parents first, and for each the connection to the peer that passed it on, or None if that is
            gone.

        Raises:
            NetworkError: the host was stopped, or has ended by a defect.
        """
        if self._validator is None:
            raise RuntimeError("a host without a validator of gossip accepts nothing: open it with one")
        while (taken := self.take_accepted()) is None:
            self._check()
            await self._accepting.wait()
        return taken

    def take_accepted(self) -> tuple[Batch, list[Connection | None]] | None:
        """Return what `accepted` does, or None if there is nothing."""
        if self._left is not None:
            left, self._left = self._left, None
            return left
        taken = self._validator.take() if self._validator is not None else None
        if taken is None:
            return None
        batch, handles = taken
        return batch, [self._connections.get(handle) for handle in handles]

    async def missing(self) -> list[bytes]:
        """Return keys that the validator has come to ask for since the last call, one at least. Waits for them.

        Messages lack these parents: those that the log holds are to be reported to the validator.

        Raises:
            NetworkError: the host was stopped, or has ended by a defect.
        """
        if self._validator is None:
            raise RuntimeError("a host without a validator of gossip asks for nothing: open it with one")
        while not (keys := self._validator.take_missing()):
            self._check()
            await self._asking.wait()
        return keys

    async def gossip(self) -> list[Publication]:
        """Return the messages that came by gossip since the last call and were not accepted, one at least.

        Waits for them. Each has to be answered (`validate`), and is not passed on before.

        Raises:
            NetworkError: the host was stopped, or has ended by a defect.
        """
        while not (messages := self._host.gossip()):
            self._check()
            await self._gossiping.wait()
        return [
            Publication(message.ticket, self._connections.get(message.connection), message.peer_id, message.data)
            for message in messages
        ]

    def _check(self) -> None:
        if self._failure is not None:
            raise NetworkError(str(self._failure))

    def _fail(self, error: NetworkError) -> None:
        self._failure = error
        super()._fail(error)
        self._arriving.set()
        self._gossiping.set()
        self._accepting.set()
        self._asking.set()

    def _take(self, event: object) -> None:
        match event:
            case PeerEvent():
                connection = self._connections.get(event.connection)
                if connection is None:
                    connection = self._add(event.connection, f"to {event.peer_id}")
                self._arrived.append(Arrival(connection, event.peer_id, event.address, event.dialer))
                self._arriving.set()
            case HostEvent():
                if event.gossip:
                    self._gossiping.set()
                if event.accepted and (taken := self.take_accepted()) is not None and not self.store_at_once(*taken):
                    self._left = taken
                    self._accepting.set()
                if event.asked:
                    self._asking.set()
                if event.listening or event.failed or event.refused or event.denied:
                    self._notify(event)
            case MeshEvent():
                self._notify(event)
            case _:
                super()._take(event)


def open_host(
    *,
    identity: bytes,
    topic: str,
    protocols: Sequence[str],
    listen: Sequence[str] = (),
    bootstrap: Sequence[str] = (),
    announce: Sequence[str] = (),
    mdns: bool = False,
    gossips: bool = True,
    gossip: GossipConfig | None = None,
    idle_streams: int = 1,
    allow_peers: Sequence[str] = (),
    limits: Limits | None = None,
    validator: _core.GossipValidator | None = None,
    notify: Callable[[News], object] = lambda news: None,
) -> Host:
    """Return a host that runs for the time of its context.

    Use it as `async with open_host(...) as host`. Leaving the context ends what connections there still are, at once;
    close those that matter before.

    Args:
        identity: the seed of its Ed25519 key, 32 bytes, to be kept secret.
        topic: of gossip, and of the table by which peers find each other.
        protocols: what streams that peers open may speak.
        listen: multiaddrs to listen on; none for a host that only dials.
        bootstrap: multiaddrs of peers that know others; dialled again while there are few connections.
        announce: multiaddrs under which others reach it, beside those that it listens on.
        mdns: whether to look for peers in the local network.
        gossips: whether it spreads messages by gossip itself. Otherwise `protocols` may name those of gossip.
        gossip: the parameters of gossip; None for those of the specification.
        idle_streams: streams to a peer that stay open as long as the connection does, and do not show that it is used,
            where it does not spread messages itself.
        allow_peers: ids of the only peers to which connections are kept, beside those that `bootstrap` names; none for
            any peer.
        limits: None for the usual ones.
        validator: that accepts messages of gossip before they are stored (see `Host.accepted`, `Host.missing`); None
            where all wait for their answers.
        notify: is called on the event loop with what becomes of the mesh and of listeners; it must not block.

    Raises:
        NetworkError: an argument that cannot be used, or the system refuses a thread or a socket.
    """
    core = _core.Host(
        identity=identity,
        topic=topic,
        protocols=protocols,
        listen=listen,
        bootstrap=bootstrap,
        announce=announce,
        mdns=mdns,
        gossip=gossip or GossipConfig(),
        validator=validator,
        allowed=allow_peers,
        limits=limits or Limits(),
        gossips=gossips,
        idle_streams=idle_streams,
    )
    return Host(core, notify, validator)
