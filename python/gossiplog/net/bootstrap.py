"""A bootstrap node: peers of a topic find each other through it. It holds no log, and passes no messages on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import anyio
import anyio.abc

from gossiplog._core import check_address
from gossiplog.net import events
from gossiplog.net.arguments import check_callbacks, check_settings, check_texts
from gossiplog.net.host_service import LISTEN, HostService, Identity, identity_seed
from gossiplog.net.service import background
from gossiplog.net.transport.host import Arrival, Host, News, open_host
from gossiplog.net.transport.limits import Limits


class Bootstrap(HostService):
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

    _WHO = "the node"
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
        self._listeners = len(self._listen)
        self._bootstrap = check_texts("bootstrap", bootstrap, address, check_address)
        self._identity = identity_seed(identity)
        self._topic = topic
        self._limits = limits
        self._on_event = on_event or (lambda event: None)

    async def _start(self, stack: AsyncExitStack) -> None:
        host = open_host(
            identity=self._identity,
            topic=self._topic,
            protocols=(),
            listen=self._listen,
            bootstrap=self._bootstrap,
            limits=self._limits,
            # In the mesh of gossipsub it would take the place of a peer that passes messages on.
            gossips=False,
            notify=self._handle_news,
        )
        await self._enter_host(stack, host)
        tasks = await stack.enter_async_context(background())
        tasks.start_soon(self._accept, host, tasks)
        await self._until_listening()

    @property
    def peers(self) -> tuple[str, ...]:
        """The ids of those that are connected now; none while the node is not running."""
        return tuple(peer.peer_id for peer in self._host.peers) if self._host is not None else ()

    @property
    def bytes_sent(self) -> int:
        """So far, over all TCP connections with what libp2p adds; 0 while the node is not running."""
        return self._counts.get("bytes_sent", 0)

    @property
    def bytes_received(self) -> int:
        """Likewise."""
        return self._counts.get("bytes_received", 0)

    @property
    def _counts(self) -> Mapping[str, int]:
        return self._host.counts() if self._host is not None else {}

    def _handle_news(self, news: News) -> None:
        self._note_listening(getattr(news, "failed", ()))

    async def _accept(self, host: Host, tasks: anyio.abc.TaskGroup) -> None:
        async for arrival in host:
            tasks.start_soon(self._hold, arrival)

    async def _hold(self, arrival: Arrival) -> None:
        """Release a connection once it has ended: no streams are spoken on it."""
        self._on_event(events.Connected(arrival.peer_id))
        closed = await arrival.connection.wait_closed()
        arrival.connection.release("it has ended")
        self._on_event(events.Disconnected(arrival.peer_id, closed.reason, False))
