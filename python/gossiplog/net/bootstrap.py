"""A bootstrap node: peers of a topic find each other through it. It holds no log, and passes no messages on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import anyio
import anyio.abc

from gossiplog._core import check_address, check_peer_id
from gossiplog.errors import NetworkError
from gossiplog.net import events
from gossiplog.net.arguments import check_callbacks, check_settings, check_texts
from gossiplog.net.peer import LISTEN, Identity, identity_seed
from gossiplog.net.service import Service, background
from gossiplog.net.transport.host import Arrival, Host, News, open_host
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.stream import Signal

# For the system to give all listeners their addresses.
_LISTENING_SECONDS = 10.0


class Bootstrap(Service):
    """A node of a topic's Kademlia without a log, for the time of its context, which is entered once.

        async with Bootstrap("org.example.chat", listen=["/ip4/0.0.0.0/tcp/9000/ws"]) as node:
            print(node.addresses)

    Args:
        topic: of the logs whose peers are to find each other.
        listen: multiaddrs to listen on, as those of `Peer`.
        bootstrap: multiaddrs of peers that know others, if there are any.
        identity: by which others know the node, as that of `Peer`.
        limits: of connections; None for the usual ones.
        on_event: is called with Connected and Disconnected, on the event loop; it must not block.

    Raises:
        KeyFileError: the file of the identity cannot be read or made, is damaged, or open to others than its owner.
        ValueError: an address that a host cannot use, or an identity of another length than 32 bytes.
        TypeError: limits that are none, a single address where several may be given, or a coroutine or generator
            function as `on_event`.
    """

    _ENTERED_AGAIN = "a bootstrap node runs once: make another"

    def __init__(
        self,
        topic: str,
        listen: Sequence[str] = LISTEN,
        bootstrap: Sequence[str] = (),
        *,
        identity: Identity = None,
        limits: Limits | None = None,
        on_event: Callable[[events.Event], None] | None = None,
    ) -> None:
        super().__init__()
        check_callbacks(on_event=on_event)
        check_settings(limits=(limits, Limits))
        address = "/ip4/127.0.0.1/tcp/9000/ws"
        self._listen = check_texts("listen", listen, address, check_address)
        self._bootstrap = check_texts("bootstrap", bootstrap, address, check_address)
        self._identity = identity_seed(identity)
        self._topic = topic
        self._limits = limits
        self._on_event = on_event or (lambda event: None)
        self._blocked: set[str] = set()
        self._failures: list[str] = []
        self._listening = Signal()
        self._host: Host | None = None

    async def _start(self, stack: AsyncExitStack) -> None:
        self._host = host = open_host(
            identity=self._identity,
            topic=self._topic,
            protocols=(),
            listen=self._listen,
            bootstrap=self._bootstrap,
            limits=self._limits,
            # In the mesh of gossipsub it would take the place of a peer that passes messages on.
            gossips=False,
            notify=self._hear,
        )
        stack.callback(self._end)
        await stack.enter_async_context(host)
        for peer_id in self._blocked:
            host.block(peer_id)
        tasks = await stack.enter_async_context(background())
        tasks.start_soon(self._accept, host, tasks)
        with anyio.move_on_after(_LISTENING_SECONDS) as scope:
            while len(host.addresses) < len(self._listen) and not self._failures:
                await self._listening.wait()
        if scope.cancelled_caught:
            raise NetworkError(f"the node does not listen on all of its addresses within {_LISTENING_SECONDS:g} s")
        if self._failures:
            raise NetworkError("; ".join(self._failures))

    def _end(self) -> None:
        self._host = None

    @property
    def peer_id(self) -> str:
        """By which others know this node, in base58.

        Raises:
            RuntimeError: the node is not running.
        """
        return self._there.peer_id

    @property
    def addresses(self) -> tuple[str, ...]:
        """Multiaddrs by which others reach this node, with the peer id at their end.

        Raises:
            RuntimeError: the node is not running.
        """
        return tuple(self._there.addresses)

    @property
    def peers(self) -> tuple[str, ...]:
        """The ids of those that are connected now; none while the node is not running."""
        return tuple(peer.peer_id for peer in self._host.peers) if self._host is not None else ()

    @property
    def blocked(self) -> tuple[str, ...]:
        """The ids of the peers that are blocked, ascending."""
        return tuple(sorted(self._blocked))

    async def dial(self, address: str) -> None:
        """Connect to a peer, as `Peer.dial` does.

        Raises:
            ConnectionLost: it cannot be reached, or is another peer than the address says.
            NetworkError: too many connections, or an address that is none.
            RuntimeError: the node is not running.
        """
        await self._there.dial(address)

    def block(self, peer_id: str) -> None:
        """Disconnect from a peer, and let it not connect again until it is unblocked, as `Peer.block` does.

        Raises:
            ValueError: an id that is none.
            NetworkError: this node's own id, or too many blocked peers.
        """
        check_peer_id(peer_id)
        if self._host is not None:
            self._host.block(peer_id)
        self._blocked.add(peer_id)

    def unblock(self, peer_id: str) -> bool:
        """Let a peer connect again; return whether it was blocked.

        Raises:
            ValueError: an id that is none.
        """
        check_peer_id(peer_id)
        if self._host is not None:
            self._host.unblock(peer_id)
        was_blocked = peer_id in self._blocked
        self._blocked.discard(peer_id)
        return was_blocked

    @property
    def _there(self) -> Host:
        if self._host is None:
            raise RuntimeError("the node is not running: enter `async with node`")
        return self._host

    def _hear(self, news: News) -> None:
        self._failures += getattr(news, "failed", ())
        self._listening.set()

    async def _accept(self, host: Host, tasks: anyio.abc.TaskGroup) -> None:
        async for arrival in host:
            tasks.start_soon(self._hold, arrival)

    async def _hold(self, arrival: Arrival) -> None:
        """Release a connection once it has ended: no streams are spoken on it."""
        self._on_event(events.Connected(arrival.peer_id))
        closed = await arrival.connection.wait_closed()
        arrival.connection.release("it has ended")
        self._on_event(events.Disconnected(arrival.peer_id, closed.reason, False))
