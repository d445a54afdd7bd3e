"""A member of a network, on its worker's event loop: its log, and what keeps that in step while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import TypeAlias
from urllib.parse import parse_qs, quote

import anyio
import anyio.abc
from anyio.abc import TaskStatus
from starlette.types import Scope

from gossiplog.errors import NetworkError
from gossiplog.log import Log
from gossiplog.net.bootstrap import Bootstrap
from gossiplog.net.client import Client, connect
from gossiplog.net.host_service import LISTEN
from gossiplog.net.http.access import Access
from gossiplog.net.http.server import serve
from gossiplog.net.hub import Hub
from gossiplog.net.peer import Peer
from gossiplog.net.service import background
from gossiplog.signer import Signer
from gossiplog.testnet.messages import Append, Start
from gossiplog.testnet.plan import Kind, identity_of
from gossiplog.testnet.translation import Translator, payload_of
from gossiplog.threads import run_in_thread

NAME = "member"
"""The parameter of a hub's URL by which a client says who it is."""


Counting: TypeAlias = Peer | Hub | Client
"""What counts bytes for a member with a log."""


class Member:
    """A member of a network.

    Args:
        number: in its plan.
        kind: what it is.
        seed: of its keys.
        log: its own; None for a bootstrap.
        signer: of what it appends.
        translator: of what it reports.
        topic: of the network.
        text: returns the text of a message.
        clock: returns the seconds since the network began.
    """

    def __init__(
        self,
        number: int,
        kind: Kind,
        *,
        seed: int,
        topic: str,
        log: Log | None,
        signer: Signer,
        translator: Translator,
        text: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self.number = number
        self.translator = translator
        self._kind = kind
        self._seed = seed
        self._topic = topic
        self._log = log
        self._signer = signer
        self._text = text
        self._clock = clock
        self._appended = 0
        # Where it was reached the last time, so that others find it there again.
        self._listen: tuple[str, ...] = LISTEN
        self._port = 0
        self._peer: Peer | Bootstrap | None = None
        # What has counted its bytes.
        self._counting: Bootstrap | Counting | None = None
        self._scope: anyio.CancelScope | None = None
        self._ended = anyio.Event()

    @property
    def has_log(self) -> bool:
        """Whether it takes part with a log."""
        return self._log is not None

    @property
    def runs(self) -> bool:
        """Whether it is started."""
        return self._scope is not None

    async def run(self, command: Start, *, task_status: TaskStatus[Sequence[str]]) -> None:
        """Run until it is stopped; the status gets the addresses by which others reach it."""
        if self.runs:
            raise NetworkError(f"the member {self.number} runs already")
        self._ended = anyio.Event()
        try:
            with anyio.CancelScope() as self._scope:
                async with AsyncExitStack() as stack:
                    task_status.started(await self._start(stack, command))
                    await anyio.sleep_forever()
        finally:
            self._scope = self._peer = self._counting = None
            self.translator.stopped()
            self._ended.set()

    async def stop(self) -> None:
        """Stop it, and wait until its connections are closed. Does nothing where it does not run."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()

    async def append(self, command: Append) -> None:
        """Append messages to its log.

        Raises:
            NetworkError: it has no log.
            StorageError: the log cannot be written.
        """
        log, translator = self._log, self.translator
        if log is None:
            raise NetworkError(f"the member {self.number} holds no log: append at another")
        sent = self._clock()
        payloads = [
            payload_of(self._appended + number, self._text(), sent, command.flow) for number in range(command.count)
        ]
        self._appended += len(payloads)
        messages = await run_in_thread(lambda: log.append_many(payloads, signer=self._signer))
        translator.append(sent, [message.id for message in messages])
        if not self.runs:
            translator.changed(len(messages))

    def count_traffic(self) -> None:
        """Report how many bytes it has sent and received since it was started, if it runs and somebody looks."""
        if (counting := self._counting) is not None and self.translator.observed:
            counted = counting if isinstance(counting, Bootstrap) else counting.counters
            self.translator.count_traffic(counted.bytes_sent, counted.bytes_received)

    def block(self, names: Sequence[str]) -> None:
        """Have its peer keep connections to all but these peers. Does nothing where it has none."""
        if self._peer is None:
            return
        for name in set(self._peer.blocked) - set(names):
            self._peer.unblock(name)
        for name in set(names) - set(self._peer.blocked):
            self._peer.block(name)

    async def dial(self, address: str) -> None:
        """Connect its peer to another.

        Raises:
            NetworkError: it cannot, or has no peer that runs.
        """
        if self._peer is None:
            raise NetworkError(f"the member {self.number} does not run, or is no peer: it dials nobody")
        await self._peer.dial(address)

    async def _start(self, stack: AsyncExitStack, command: Start) -> Sequence[str]:
        if self._kind == "bootstrap":
            return await self._start_bootstrap(stack, command)
        log, translator = self._log, self.translator
        if log is None:
            raise NetworkError(f"the member {self.number} has no log")
        translator.hub, translator.router = command.hub, command.router
        if self._kind == "client":
            (url,) = command.dials
            url = f"{url}/?{NAME}={quote(translator.name)}"
            client = connect(log, url, on_event=translator.handle_event, on_message=translator.take_message)
            self._counting = await stack.enter_async_context(client)
            return ()
        peer: Peer | None = None
        if self._kind != "hub":
            peer = self._peer = Peer(
                log,
                listen=self._listen,
                bootstrap=command.dials,
                identity=identity_of(self._seed, self.number),
                allow_peers=command.allowed,
                router=command.router,
                on_event=translator.handle_event,
                on_message=translator.take_message,
            )
            self.block(command.blocked)
            self._counting = await stack.enter_async_context(peer)
            self._remember(peer.addresses)
        if self._kind == "peer" and peer is not None:
            return peer.addresses
        access = Access(origins=command.origins)
        hub = (
            _NamingHub(log, access=access, peer=peer)
            if peer is not None
            else _NamingHub(log, access=access, on_event=translator.handle_event, on_message=translator.take_message)
        )
        # The hub takes leave of its clients before its server ends.
        tasks = await stack.enter_async_context(background())
        # A relay's peer has what its hub has, too.
        self._counting = await stack.enter_async_context(hub)
        address = await tasks.start(serve, hub, "127.0.0.1", self._port)
        self._port = address.port
        return (address.url("ws"), *(peer.addresses if peer is not None else ()))

    async def _start_bootstrap(self, stack: AsyncExitStack, command: Start) -> Sequence[str]:
        host = self._peer = Bootstrap(
            self._topic,
            self._listen,
            command.dials,
            identity=identity_of(self._seed, self.number),
            on_event=self.translator.handle_event,
        )
        self.block(command.blocked)
        self._counting = await stack.enter_async_context(host)
        self._remember(host.addresses)
        return host.addresses

    def _remember(self, addresses: Sequence[str]) -> None:
        self._listen = tuple(address.partition("/p2p/")[0] for address in addresses)


class _NamingHub(Hub):
    """A hub whose events name clients as these name themselves, so that both ends of a connection are known."""

    def _name(self, scope: Scope) -> str:
        (name, *_) = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(NAME, [""])
        return name[:100] or super()._name(scope)


def random_text(random: Random, size: int) -> str:
    """Return a text of so many bytes."""
    return random.randbytes((size + 1) // 2).hex()[:size]
