"""The coordinator of a network of real peers: starts members on workers, cuts and heals, and knows who has what."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from random import Random

import anyio
import anyio.abc

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.service import Service, background
from gossiplog.net.transport.stream import Signal
from gossiplog.testnet.browsers import BrowserLink
from gossiplog.testnet.cuts import Cuts, halves
from gossiplog.testnet.lifecycle import Lifecycle, together
from gossiplog.testnet.links import LocalLink, ProcessLink, WorkerLink
from gossiplog.testnet.messages import Append, Arrived, Command, Happened, Measure, Observe, Open, Report, Settle
from gossiplog.testnet.plan import MOST_PEERS, MemberPlan, NetworkPlan, added_member, member_plans
from gossiplog.testnet.status import MemberStatus

TOPIC = "org.gossiplog.network"


class LocalNetwork(Service):
    """A network of real peers on this machine, for the time of its context, which is entered once.

        async with LocalNetwork(NetworkPlan(peers=64, offline_messages=20)) as network:
            await network.converged()

    The context ends with a NetworkError when a worker or a member ends by itself.

    Args:
        plan: of the network.
        on_event: is called with what happens, on the event loop; it must not block. None reports only what the network
            itself needs to know, which costs less.
        apart: run members in processes of their own also where they would share this one's event loop, which then is
            free for a page that many read.

    Attributes:
        plan: of the network.
        links: its workers.
        total: messages that were appended so far.
        started: when the first member began to start, on the event loop's clock.

    Raises:
        NetworkError: there are logs in the folder, or a member cannot be started.
    """

    def __init__(
        self,
        plan: NetworkPlan,
        on_event: Callable[[dashboard_events.Event], None] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        super().__init__()
        self.plan = plan
        self._apart = apart
        self.total = 0
        self.started = 0.0
        self._on_event = on_event
        self._random = Random(plan.seed)
        self._changed = Signal()
        self._began = time.monotonic()
        self._members: dict[int, MemberStatus] = {}
        self._by_name: dict[str, MemberStatus] = {}
        self.links: list[WorkerLink] = []
        self._browsers: BrowserLink | None = None
        self._link_of: dict[int, WorkerLink] = {}
        self._flow = 0
        self._latencies: list[float] = []
        self._cuts = Cuts(self._random)
        self._lifecycle = Lifecycle(
            self._members,
            self._cuts,
            call=self._call,
            report=self.report,
            clock=self.now,
            changed=self._changed.set,
            router=plan.router,
            origins=self._origins,
        )
        # A member that is added sees what the one before has changed.
        self._adding: anyio.Lock
        self._tasks: anyio.abc.TaskGroup

    async def _start(self, stack: AsyncExitStack) -> None:
        self._adding = anyio.Lock()
        count = self.plan.spread(os.cpu_count() or 1)
        for number in range(count):
            is_apart = self._apart or count > 1
            link = ProcessLink(self._take, f"worker {number}") if is_apart else LocalLink(self._take)
            self.links.append(await stack.enter_async_context(link))
        if self.plan.browsers:
            self._browsers = await stack.enter_async_context(BrowserLink(self._take))
        plans = member_plans(self.plan)
        await self._open(plans, self.plan.offline_messages)
        self.total += sum(plan.has_log for plan in plans) * self.plan.offline_messages
        self._tasks = await stack.enter_async_context(background())
        self.started = anyio.current_time()
        first, *others = plans
        await self._lifecycle.join(self._members[first.number])
        self._tasks.start_soon(self._begin_all, others)

    async def _open(self, plans: Sequence[MemberPlan], offline_messages: int) -> None:
        """Have workers open the logs of members."""
        by_link: dict[WorkerLink, list[MemberPlan]] = {}
        for plan in plans:
            member = self._members[plan.number] = self._by_name[plan.name] = MemberStatus(plan)
            link = self.links[(len(self._members) - 1) % len(self.links)]
            if plan.kind == "browser" and self._browsers is not None:
                link = self._browsers
            self._link_of[plan.number] = link
            by_link.setdefault(link, []).append(member.plan)
        calls = [
            (
                link,
                Open(
                    topic=TOPIC,
                    seed=self.plan.seed,
                    message_bytes=self.plan.message_bytes,
                    offline_messages=offline_messages,
                    began=self._began,
                    members=tuple((plan.number, plan.kind, plan.name) for plan in members),
                    folder=None if self.plan.folder is None else str(self.plan.folder),
                ),
            )
            for link, members in by_link.items()
        ]
        await _call_all(calls)
        if self._on_event is not None:
            await _call_all((link, Observe()) for link in by_link)

    async def _begin_all(self, plans: Sequence[MemberPlan]) -> None:
        start = anyio.current_time()
        async with together() as starting:
            for plan in plans:
                await anyio.sleep_until(start + plan.join_after)
                starting.start_soon(self._lifecycle.join, self._members[plan.number])

    def _origins(self) -> tuple[str, ...]:
        """Return those of pages, which hubs let in."""
        browsers = self._browsers
        if browsers is None:
            return ()
        return tuple(browsers.origin(number) for number, each in self._members.items() if each.plan.kind == "browser")

    async def _call(self, member: MemberStatus, command: Command) -> tuple[str, ...]:
        return await self._link_of[member.number].call(command)

    # What is known.

    @property
    def members(self) -> Sequence[MemberStatus]:
        """Its members, in the order in which they were planned."""
        return list(self._members.values())

    @property
    def roots(self) -> Counter[str]:
        """The roots of the logs, and how many have each."""
        return Counter(member.root for member in self._with_logs)

    @property
    def complete(self) -> int:
        """How many logs have all messages."""
        return sum(member.messages >= self.total for member in self._with_logs)

    @property
    def peers(self) -> int:
        """How many members have a log."""
        return len(self._with_logs)

    @property
    def graph(self) -> dict[str, set[str]]:
        """The names of the peers of a mesh, a bootstrap's first, and those that each is connected to."""
        return {member.name: set(member.connections) for member in self.members if member.plan.is_peer}

    @property
    def stoppable(self) -> list[MemberStatus]:
        """Those that others do not depend on: all with a log but hubs."""
        return [member for member in self._with_logs if member.plan.kind not in ("hub", "relay", "browser")]

    @property
    def _with_logs(self) -> list[MemberStatus]:
        return [member for member in self._members.values() if member.has_log]

    def connections(self, member: MemberStatus) -> int:
        """Return to how many members with a log a member is connected."""
        return sum(self._by_name[name].has_log for name in member.connections if name in self._by_name)

    def now(self) -> float:
        """Return the seconds since the network began, as events have them."""
        return time.monotonic() - self._began

    def member(self, name: str) -> MemberStatus:
        """Return the member of a name.

        Raises:
            NetworkError: there is none.
        """
        if (found := self._by_name.get(name)) is None:
            raise NetworkError(f"there is no peer {name[:100]!r} in this network")
        return found

    async def connected(self, least: int) -> None:
        """Wait until every member with a log is connected to so many others of them, or to all."""
        while min(self.connections(member) for member in self._with_logs) < min(least, self.peers - 1):
            await self._changed.wait()

    async def joined(self) -> None:
        """Wait until every member runs, as far as it is not cut from its hub and nobody has stopped it or its hub."""
        while not all(map(self._lifecycle.has_joined, self._members.values())):
            await self._changed.wait()

    async def converged(self) -> None:
        """Wait until all logs have all messages, and equal roots."""
        while self.complete < self.peers or len(self.roots) > 1:
            await self._changed.wait()

    async def settled(self) -> None:
        """Wait until everything that members have been notified of so far is reported.

        Raises:
            NetworkError: a worker has ended.
        """
        await _call_all((link, Settle()) for link in self.links)

    def _take(self, report: Report) -> None:
        match report:
            case Happened(events):
                for event in events:
                    self._note(event)
                    self.report(event)
            case Arrived(flow, latencies):
                if flow == self._flow:
                    self._latencies += latencies
        self._changed.set()

    def _note(self, event: dashboard_events.Event) -> None:
        if (member := self._by_name.get(getattr(event, "peer", ""))) is None:
            return
        match event:
            case dashboard_events.Committed(messages=messages, root=root):
                member.messages, member.root = messages, root
            case dashboard_events.Connected(other=other):
                member.connections.add(other)
                member.connected += 1
            case dashboard_events.Disconnected(other=other):
                member.connections.discard(other)
            case dashboard_events.SyncEnded():
                member.syncs += 1
            case _:
                pass

    def report(self, event: dashboard_events.Event) -> None:
        """Report an event to the listener, if there is one."""
        if self._on_event is not None:
            self._on_event(event)

    def note(self, member: MemberStatus, what: object) -> None:
        """Report what is worth a line in the log of events, about a member."""
        self._lifecycle.note(member, what)

    # What can be done.

    async def append(self, member: MemberStatus, count: int = 1, flow: int = 0) -> None:
        """Append messages at a member, whether or not it runs.

        Raises:
            NetworkError: it has no log.
        """
        await self._call(member, Append(member.number, count, flow))
        self.total += count
        self._changed.set()

    async def append_anywhere(self, count: int = 1) -> None:
        """Append messages at a running member by chance; do nothing where none runs."""
        if running := [member for member in self._with_logs if member.runs]:
            await self.append(self._random.choice(running), count)

    async def flow(self, messages: int, rate: float, burst: int = 1) -> list[float]:
        """Wait until all members have joined, append messages at them by chance, and wait until all have them all.

        Args:
            messages: how many.
            rate: so many a second; 0 is one after another, as fast as logs take them.
            burst: so many at a time, at one member.

        Returns:
            For each message and each member but the one that appended it, and but browsers, the seconds from the call
            of `append` until the member was notified of it.

        Raises:
            NetworkError: no member runs.
        """
        await self.joined()
        self._flow += 1
        self._latencies = []
        await _call_all((link, Measure(self._flow)) for link in self.links)
        # Pages say of no message whether it belongs to a flow.
        members = [member for member in self._with_logs if member.runs and member.plan.kind != "browser"]
        if not members:
            raise NetworkError("no peer runs at which a message could be appended: start one")
        start = anyio.current_time()
        try:
            for number in range(0, messages, burst):
                if rate:
                    await anyio.sleep_until(start + number / rate)
                await self.append(self._random.choice(members), min(burst, messages - number), self._flow)
            while len(self._latencies) < messages * (len(members) - 1):
                await self._changed.wait()
        finally:
            with anyio.CancelScope(shield=True), suppress(NetworkError):
                await _call_all((link, Measure(0)) for link in self.links)
        return self._latencies

    async def stop(self, member: MemberStatus) -> None:
        """Stop a member, also one that is starting or has not joined yet; its log stays."""
        await self._lifecycle.stop(member)

    async def start(self, member: MemberStatus) -> None:
        """Start a member that was stopped, or that has not joined yet. Does nothing where it runs.

        A client whose hub does not run starts once the hub does.

        Raises:
            NetworkError: it cannot be started.
        """
        await self._lifecycle.start(member)

    async def cut(self, member: MemberStatus, other: MemberStatus) -> None:
        """Cut the connection between two members, and keep it cut until it is healed.

        Raises:
            NetworkError: they are one.
        """
        if member is other:
            raise NetworkError("a connection is between two peers: name another")
        self._cuts.cut(member.number, other.number)
        await self._lifecycle.keep_cuts(self.members)

    async def partition(self, groups: Sequence[Collection[MemberStatus]] = ()) -> None:
        """Part the network: connections between members of different groups are cut, and stay so until it is healed.

        Args:
            groups: of members; those in none form one more. None for two halves by number.
        """
        with_logs = self._with_logs
        groups = groups or halves(with_logs)
        named = {member.number for members in groups for member in members}
        rest = [member for member in with_logs if member.number not in named]
        groups = [members for members in (*groups, rest) if members]
        self._cuts.part([[member.number for member in members] for members in groups])
        self.report(
            dashboard_events.Partitioned(self.now(), tuple(tuple(member.name for member in group) for group in groups))
        )
        await self._lifecycle.keep_cuts(self.members)

    async def heal(self) -> None:
        """Make the network whole: nothing is cut any more, and connections that were are made again."""
        pairs = self._cuts.heal([member.plan for member in self.members])
        self.report(dashboard_events.Healed(self.now()))
        await self._lifecycle.keep_cuts(self.members)
        async with together() as dialling:
            for number, other in pairs:
                dialling.start_soon(self._lifecycle.dial, self._members[number], self._members[other])

    async def add_peer(self) -> MemberStatus:
        """Add a member, and start it. Where its neighbours are to be others', they are started anew.

        Returns:
            The new member.

        Raises:
            NetworkError: there are as many as there may be, or it cannot be started.
        """
        async with self._adding:
            if self.peers >= MOST_PEERS:
                raise NetworkError(f"there are {MOST_PEERS:,} peers, as many as there may be")
            plan, changed = added_member(self.plan, [member.plan for member in self.members])
            try:
                await self._open([plan], 0)
            except NetworkError:
                del self._members[plan.number], self._by_name[plan.name], self._link_of[plan.number]
                raise
            self._cuts.add(plan.number)
            for again in changed:
                self._members[again.number].plan = again
        for again in changed:
            if again.allowed:
                # It lets in none but those that its plan names.
                await self._lifecycle.restart(self._members[again.number])
        new = self._members[plan.number]
        await self._lifecycle.join(new)
        return new


async def _call_all(calls: Iterable[tuple[WorkerLink, Command]]) -> None:
    """Have workers execute commands, all at once.

    Raises:
        NetworkError: one of them cannot.
    """
    async with together() as tasks:
        for link, command in calls:
            tasks.start_soon(link.call, command)
