"""Networks of real peers on loopback, in this process: to watch one converge, and to measure it.

Every peer has a log of its own, its own host or client, and real sockets; all share one event loop, two cores or so,
and the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

import gossiplog.log
from gossiplog.core import Node, SignedMessage
from gossiplog.errors import NotALog
from gossiplog.log import Log
from gossiplog.net import events
from gossiplog.net.client import connect
from gossiplog.net.http.server import serve
from gossiplog.net.hub import Hub
from gossiplog.net.peer import Peer
from gossiplog.net.service import Service, background
from gossiplog.net.transport.stream import Signal
from gossiplog.signer import Signer
from gossiplog.storage import MemoryStorage

Topology: TypeAlias = Literal["mesh", "hub"]
"""How peers are connected: `mesh`, where all know the first one, and find each other through Kademlia; `hub`, where the
first one is a hub and the others are its clients."""

TOPIC = "org.gossiplog.network"
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What a network is made of.

    Attributes:
        peers: how many, two or more.
        topology: how they are connected.
        offline_messages: that each peer has appended, in a branch of its own, before it joins.
        message_bytes: of text in each payload.
        join_seconds: over which the peers after the first join, evenly at random.
        folder: for the logs to be files in; None keeps them in memory.
        seed: of what is random here. What peers choose is not.
    """

    peers: int = 8
    topology: Topology = "mesh"
    offline_messages: int = 0
    message_bytes: int = 100
    join_seconds: float = 0.0
    folder: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.peers < 2:
            raise ValueError(f"a network has 2 peers or more, not {self.peers}")
        if min(self.offline_messages, self.message_bytes, self.join_seconds) < 0:
            raise ValueError("a network's numbers are not negative")


@dataclass(slots=True, eq=False)
class Member:
    """A peer of the network.

    Attributes:
        number: from 0, the one that the others know.
        log: its own.
        signer: of what it appends.
        joined: whether it runs.
        peer_id: in a mesh, once it has joined.
        connections: to others, as it sees them.
        connected: times that it was connected to another.
        syncs: that it has made.
    """

    number: int
    log: Log
    signer: Signer
    joined: bool = False
    peer_id: str = ""
    connections: set[str] = field(default_factory=set)
    connected: int = 0
    syncs: int = 0

    def append(self, payloads: Sequence[Any]) -> Sequence[SignedMessage]:
        """Append messages to its log."""
        return self.log.append_many(payloads, signer=self.signer)


class LocalNetwork(Service):
    """A network of real peers, for the time of its context, which is entered once.

        async with LocalNetwork(NetworkPlan(peers=64, offline_messages=20)) as network:
            await network.converged()

    Args:
        plan: of the network.

    Attributes:
        plan: of the network.
        members: its peers.
        total: messages that were appended so far.
        started: when the first peer began to, on the event loop's clock.

    Raises:
        NotALog: there are logs in the folder.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__()
        self.plan = plan
        self.members: list[Member] = []
        self.total = 0
        self.started = 0.0
        self._random = Random(plan.seed)
        self._changed = Signal()
        # When whose log got which message, while a flow is measured.
        self._arrivals: dict[str, list[float]] | None = None

    async def _start(self, stack: AsyncExitStack) -> None:
        for number in range(self.plan.peers):
            member = Member(number, stack.enter_context(self._open(number)), Signer(self._random.randbytes(32)))
            self.members.append(member)
        await anyio.to_thread.run_sync(self._append_offline)
        self.started = anyio.current_time()
        tasks = await stack.enter_async_context(background())
        await self._begin(stack, tasks)

    def _open(self, number: int) -> Log:
        folder = self.plan.folder
        path = None if folder is None else folder / f"{number}.db"
        if path is not None and path.exists():
            raise NotALog(f"{path} is there already: give a folder without logs")
        return gossiplog.log.open(MemoryStorage() if path is None else path, topic=TOPIC)

    async def _begin(self, stack: AsyncExitStack, tasks: anyio.abc.TaskGroup) -> None:
        first, *others = self.members
        delays = sorted(self._random.uniform(0, self.plan.join_seconds) for _ in others)
        if self.plan.topology == "mesh":
            known = (await self._join_mesh(stack, first, ())).addresses[:1]
        else:
            hub = Hub(first.log, on_event=self._hearer(first), on_message=self._take)
            await stack.enter_async_context(hub)
            known = ((await tasks.start(serve, hub)).url("ws"),)
            first.joined = True
        tasks.start_soon(self._join_all, tasks, others, delays, known)

    async def _join_all(
        self, tasks: anyio.abc.TaskGroup, others: Sequence[Member], delays: Sequence[float], known: Sequence[str]
    ) -> None:
        start = anyio.current_time()
        for member, delay in zip(others, delays, strict=True):
            await anyio.sleep_until(start + delay)
            tasks.start_soon(self._run, member, known)

    async def _run(self, member: Member, known: Sequence[str]) -> None:
        async with AsyncExitStack() as stack:
            if self.plan.topology == "mesh":
                await self._join_mesh(stack, member, known)
            else:
                (url,) = known
                client = connect(member.log, url, on_event=self._hearer(member), on_message=self._take)
                await stack.enter_async_context(client)
                member.joined = True
            await anyio.sleep_forever()

    async def _join_mesh(self, stack: AsyncExitStack, member: Member, known: Sequence[str]) -> Peer:
        peer = Peer(member.log, bootstrap=known, on_event=self._hearer(member), on_message=self._take)
        await stack.enter_async_context(peer)
        member.peer_id = peer.peer_id
        member.joined = True
        return peer

    def _hearer(self, member: Member) -> Callable[[events.Event], None]:
        def hear(event: events.Event) -> None:
            match event:
                case events.Connected(peer):
                    member.connections.add(peer)
                    member.connected += 1
                case events.Disconnected(peer):
                    member.connections.discard(peer)
                case events.SyncEnded():
                    member.syncs += 1
                case _:
                    return
            self._changed.set()

        return hear

    def _take(self, message: SignedMessage) -> None:
        if self._arrivals is not None:
            self._arrivals.setdefault(message.id, []).append(anyio.current_time())
        self._changed.set()

    def _append_offline(self) -> None:
        for member in self.members:
            member.append([self._payload(number) for number in range(self.plan.offline_messages)])
        self.total += self.plan.peers * self.plan.offline_messages

    def _payload(self, number: int) -> dict[str, Any]:
        size = self.plan.message_bytes
        return {"number": number, "text": self._random.randbytes(size).hex()[:size]}

    @property
    def _joined(self) -> list[Member]:
        return [member for member in self.members if member.joined]

    @property
    def roots(self) -> Counter[Node]:
        """The roots of the logs, and how many have each."""
        return Counter(member.log.root for member in self.members)

    @property
    def complete(self) -> int:
        """How many peers' logs have all messages."""
        return sum(len(member.log) == self.total for member in self.members)

    @property
    def graph(self) -> dict[str, set[str]]:
        """In a mesh, the peer ids of its peers, the first one's first, and those that each is connected to."""
        return {member.peer_id: set(member.connections) for member in self.members if member.peer_id}

    async def connected(self, least: int) -> None:
        """Wait until every peer is connected to so many others, or to all."""
        while min(len(member.connections) for member in self.members) < min(least, self.plan.peers - 1):
            await self._changed.wait()

    async def converged(self) -> None:
        """Wait until all logs have all messages, and so equal roots."""
        while self.complete < self.plan.peers or len(self.roots) > 1:
            # Not at every message: to look at all of the logs takes a moment.
            await anyio.sleep(_LOOK_SECONDS)

    async def flow(self, messages: int, rate: float, burst: int = 1) -> list[float]:
        """Append messages at peers by chance, and wait until every log has them all.

        Args:
            messages: how many.
            rate: so many a second; 0 is one after another, as fast as logs take them.
            burst: so many at a time, at one peer.

        Returns:
            For each message and each peer but the one that appended it, the seconds from the call of `append` until
            the peer was notified of it.
        """
        arrivals: dict[str, list[float]] = {}
        self._arrivals = arrivals
        begun: dict[str, float] = {}
        start = anyio.current_time()
        try:
            for number in range(0, messages, burst):
                if rate:
                    await anyio.sleep_until(start + number / rate)
                member = self._random.choice(self._joined)
                payloads = [self._payload(each) for each in range(number, min(number + burst, messages))]
                called = anyio.current_time()
                appended = await anyio.to_thread.run_sync(member.append, payloads)
                begun.update((message.id, called) for message in appended)
                self.total += len(appended)
            while any(len(arrivals.get(id, ())) < self.plan.peers for id in begun):
                await self._changed.wait()
        finally:
            self._arrivals = None
        # The first one is the peer's own.
        return [at - called for id, called in begun.items() for at in sorted(arrivals[id])[1:]]
