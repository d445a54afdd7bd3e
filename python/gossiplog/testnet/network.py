"""The coordinator of a network of real peers: starts members on workers, cuts and heals, and knows who has what."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random

import anyio
import anyio.abc

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.service import Service, background, leaves
from gossiplog.net.transport.stream import Signal
from gossiplog.testnet.browsers import BrowserLink
from gossiplog.testnet.links import LocalLink, ProcessLink, WorkerLink
from gossiplog.testnet.messages import (
    Append,
    Arrived,
    Block,
    Command,
    Dial,
    Happened,
    Measure,
    Observe,
    Open,
    Report,
    Start,
    Stop,
)
from gossiplog.testnet.plan import MemberPlan, NetworkPlan, added_member, member_plans

TOPIC = "org.gossiplog.network"

_MOST_REDIALS = 3
"""Connections of a member that are made again when a partition heals; Kademlia finds the others."""


@dataclass(slots=True, eq=False)
class Member:
    """What the coordinator knows of a member.

    Attributes:
        plan: of it.
        runs: whether it takes part.
        is_suspended: whether it is a client that is cut from its hub, and so not running though it is to run.
        addresses: by which others reach it.
        messages: in its log.
        root: hash of its log's root.
        connections: names of those that it says it is connected to.
        connected: times that it was connected to another.
        syncs: that it has made.
    """

    plan: MemberPlan
    runs: bool = False
    is_suspended: bool = False
    addresses: tuple[str, ...] = ()
    messages: int = 0
    root: str = ""
    connections: set[str] = field(default_factory=set)
    connected: int = 0
    syncs: int = 0
    # Names that it was told to block.
    blocked: frozenset[str] = frozenset()

    @property
    def number(self) -> int:
        """From 0; a bootstrap has -1."""
        return self.plan.number

    @property
    def name(self) -> str:
        """By which events name it."""
        return self.plan.name

    @property
    def has_log(self) -> bool:
        """Whether it takes part with a log."""
        return self.plan.has_log


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
        self._members: dict[int, Member] = {}
        self._by_name: dict[str, Member] = {}
        self.links: list[WorkerLink] = []
        self._browsers: BrowserLink | None = None
        self._link_of: dict[int, WorkerLink] = {}
        self._cut: set[frozenset[int]] = set()
        self._group_of: dict[int, int] = {}
        # Connections that were cut, to be made again.
        self._lost: set[frozenset[int]] = set()
        self._flow = 0
        self._latencies: list[float] = []
        # Starts, stops and cuts are made one after the other: each sees what the one before has done.
        self._changing: anyio.Lock
        self._tasks: anyio.abc.TaskGroup

    async def _start(self, stack: AsyncExitStack) -> None:
        self._changing = anyio.Lock()
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
        await self._begin(first.number)
        self._tasks.start_soon(self._begin_all, others)

    async def _open(self, plans: Sequence[MemberPlan], offline_messages: int) -> None:
        """Have workers open the logs of members."""
        by_link: dict[WorkerLink, list[MemberPlan]] = {}
        for plan in plans:
            member = self._members[plan.number] = self._by_name[plan.name] = Member(plan)
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
        async with _together() as starting:
            for plan in plans:
                await anyio.sleep_until(start + plan.join_after)
                starting.start_soon(self._begin, plan.number)

    async def _begin(self, number: int) -> None:
        """Start a member for the first time."""
        member = self._members[number]
        kind: dashboard_events.PeerKind = "hub" if member.plan.kind == "relay" else member.plan.kind
        # Gossip of the host itself is nothing to speak of.
        runs_router = member.plan.kind in ("peer", "relay") and self.plan.router != "libp2p"
        agent = self.plan.router if runs_router else ""
        self.report(dashboard_events.PeerAdded(self.now(), member.name, member.plan.label, kind, agent))
        await self._run(member)

    async def _run(self, member: Member) -> None:
        """Start a member, unless it is a client that is cut from its hub."""
        hub = ""
        if member.plan.is_client:
            (number,) = member.plan.neighbours
            hub = self._members[number].name
            if member.is_suspended or self._is_cut(member.number, number):
                member.is_suspended = True
                return
            while not self._members[number].runs:
                # It comes back, or the network ends.
                await self._changed.wait()
        neighbours = [self._members[number] for number in member.plan.neighbours]
        known = [other for other in neighbours if other.runs and not self._is_cut(member.number, other.number)]
        dials = [_address(other, member) for other in known]
        blocked = self._blocked(member)
        member.addresses = await self._call(
            member,
            Start(
                member.number,
                tuple(dials),
                member.plan.allowed,
                tuple(sorted(blocked)),
                hub,
                self._origins,
                self.plan.router,
            ),
        )
        member.blocked, member.runs = blocked, True
        self._changed.set()
        if member.plan.is_peer:
            # Those that were being started at the same time know nothing of this one either.
            for other in neighbours:
                if other.runs and other not in known and not self._is_cut(member.number, other.number):
                    await self._dial(member, other)

    @property
    def _origins(self) -> tuple[str, ...]:
        """Those of pages, which hubs let in."""
        browsers = self._browsers
        if browsers is None:
            return ()
        return tuple(browsers.origin(number) for number, each in self._members.items() if each.plan.kind == "browser")

    async def _halt(self, member: Member) -> None:
        await self._call(member, Stop(member.number))
        member.runs = False
        for name in member.connections:
            self.report(dashboard_events.Disconnected(self.now(), member.name, name))
        member.connections.clear()
        self._changed.set()

    async def _call(self, member: Member, command: Command) -> tuple[str, ...]:
        return await self._link_of[member.number].call(command)

    # What is known.

    @property
    def members(self) -> Sequence[Member]:
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
    def stoppable(self) -> list[Member]:
        """Those that others do not depend on: all with a log but hubs."""
        return [member for member in self._with_logs if member.plan.kind not in ("hub", "relay", "browser")]

    @property
    def _with_logs(self) -> list[Member]:
        return [member for member in self._members.values() if member.has_log]

    def connections(self, member: Member) -> int:
        """Return to how many members with a log a member is connected."""
        return sum(self._by_name[name].has_log for name in member.connections if name in self._by_name)

    def now(self) -> float:
        """Return the seconds since the network began, as events have them."""
        return time.monotonic() - self._began

    def member(self, name: str) -> Member:
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
        """Wait until every member has started."""
        while not all(member.runs or member.is_suspended for member in self._members.values()):
            await self._changed.wait()

    async def converged(self) -> None:
        """Wait until all logs have all messages, and equal roots."""
        while self.complete < self.peers or len(self.roots) > 1:
            await self._changed.wait()

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
        """Report an event to whoever listens."""
        if self._on_event is not None:
            self._on_event(event)

    # What can be done.

    async def append(self, member: Member, count: int = 1, flow: int = 0) -> None:
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
        """
        await self.joined()
        self._flow += 1
        self._latencies = []
        await _call_all((link, Measure(self._flow)) for link in self.links)
        # Pages say of no message whether it belongs to a flow.
        members = [member for member in self._with_logs if member.runs and member.plan.kind != "browser"]
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

    async def stop(self, member: Member) -> None:
        """Stop a member; its log stays. Does nothing where it does not run."""
        async with self._changing:
            if member.runs or member.is_suspended:
                member.is_suspended = False
                await self._halt(member)
                self.report(dashboard_events.PeerStopped(self.now(), member.name))

    async def start(self, member: Member) -> None:
        """Start a member that was stopped. Does nothing where it runs.

        Raises:
            NetworkError: it cannot be started.
        """
        async with self._changing:
            if not member.runs and not member.is_suspended:
                if member.plan.is_client and not self._members[member.plan.neighbours[0]].runs:
                    raise NetworkError("the hub of this client does not run: start the hub first")
                await self._run(member)
                self.report(dashboard_events.PeerStarted(self.now(), member.name))

    async def cut(self, member: Member, other: Member) -> None:
        """Cut the connection between two members, and keep it cut until it is healed.

        Raises:
            NetworkError: they are one.
        """
        if member is other:
            raise NetworkError("a connection is between two peers: name another")
        async with self._changing:
            self._cut.add(frozenset((member.number, other.number)))
            await self._apply_cuts()

    async def partition(self, groups: Sequence[Collection[Member]] = ()) -> None:
        """Part the network: connections between members of different groups are cut, and stay so until it is healed.

        Args:
            groups: of members; those in none form one more. None for two halves by number.
        """
        async with self._changing:
            with_logs = self._with_logs
            groups = groups or _halves(with_logs)
            self._group_of = {member.number: group for group, members in enumerate(groups) for member in members}
            rest = [member for member in with_logs if member.number not in self._group_of]
            self._group_of |= {member.number: len(groups) for member in rest}
            named = [tuple(member.name for member in members) for members in (*groups, rest) if members]
            await self._apply_cuts()
            self.report(dashboard_events.Partitioned(self.now(), tuple(named)))

    async def heal(self) -> None:
        """Make the network whole: nothing is cut any more, and connections that were are made again."""
        async with self._changing:
            lost, self._lost = self._lost | self._bridges(), set()
            self._cut.clear()
            self._group_of.clear()
            await self._apply_cuts()
            self.report(dashboard_events.Healed(self.now()))
            dialled: Counter[int] = Counter()
            async with _together() as dialling:
                for number, other in sorted(sorted(pair) for pair in lost):
                    if max(dialled[number], dialled[other]) < _MOST_REDIALS:
                        dialled.update((number, other))
                        dialling.start_soon(self._dial, self._members[number], self._members[other])

    async def add_peer(self) -> Member:
        """Add a member, and start it. Where its neighbours are to be others', they are started anew.

        Returns:
            The new member.
        """
        async with self._changing:
            new, changed = added_member(self.plan, [member.plan for member in self.members])
            await self._open([new], 0)
            if self._group_of:
                self._group_of[new.number] = min(self._group_of.values())
            for plan in changed:
                member = self._members[plan.number]
                member.plan = replace(plan, join_after=member.plan.join_after)
                if member.runs and plan.allowed:
                    await self._halt(member)
                    await self._run(member)
            await self._begin(new.number)
            return self._members[new.number]

    async def _dial(self, member: Member, other: Member) -> None:
        if not (member.runs and other.runs):
            return
        try:
            await self._call(member, Dial(member.number, _address(other, member)))
        except NetworkError as error:
            self.report(
                dashboard_events.Noted(self.now(), f"it does not reach {other.plan.label}: {error}", member.name)
            )

    def _bridges(self) -> set[frozenset[int]]:
        """Return connections that are cut and may not have been there: without them the parts might not meet soon.

        They are those to planned neighbours; and where peers are free to connect, one from each peer into another
        group: peers that have all connections that they want among their own look for no others.
        """
        found = set()
        free = [number for number, member in self._members.items() if member.plan.is_peer and not member.plan.allowed]
        for number, member in self._members.items():
            if member.plan.is_peer:
                found |= {frozenset((number, other)) for other in member.plan.neighbours if self._is_cut(number, other)}
        for number in free:
            others = [other for other in free if other in self._group_of and self._is_cut(number, other)]
            if number in self._group_of and others:
                found.add(frozenset((number, self._random.choice(others))))
        return found

    def _is_cut(self, number: int, other: int) -> bool:
        if frozenset((number, other)) in self._cut:
            return True
        group, others = self._group_of.get(number), self._group_of.get(other)
        return group is not None and others is not None and group != others

    def _blocked(self, member: Member) -> frozenset[str]:
        if not member.plan.is_peer:
            return frozenset()
        others = (other for other in self._members.values() if other.plan.is_peer and other is not member)
        return frozenset(other.name for other in others if self._is_cut(member.number, other.number))

    async def _apply_cuts(self) -> None:
        """Have all members keep those connections that are not cut."""
        calls: list[tuple[WorkerLink, Command]] = []
        for member in self._members.values():
            if member.plan.is_client:
                continue
            blocked = self._blocked(member)
            if not member.runs or blocked == member.blocked:
                continue
            for name in blocked & member.connections:
                self._lost.add(frozenset((member.number, self._by_name[name].number)))
            member.blocked = blocked
            calls.append((self._link_of[member.number], Block(member.number, tuple(sorted(blocked)))))
        await _call_all(calls)
        async with _together() as changing:
            for member in self._members.values():
                if not member.plan.is_client:
                    continue
                is_cut = self._is_cut(member.number, member.plan.neighbours[0])
                if is_cut and member.runs:
                    member.is_suspended = True
                    changing.start_soon(self._halt, member)
                elif not is_cut and member.is_suspended:
                    member.is_suspended = False
                    changing.start_soon(self._run, member)


def _address(other: Member, member: Member) -> str:
    """Return where a member finds another: a hub's URL for its clients, and else a multiaddr."""
    if not member.plan.is_client and other.plan.kind == "relay":
        return other.addresses[1]
    return other.addresses[0]


def _halves(members: Sequence[Member]) -> Sequence[Sequence[Member]]:
    return members[: len(members) // 2], members[len(members) // 2 :]


async def _call_all(calls: Iterable[tuple[WorkerLink, Command]]) -> None:
    """Have workers execute commands, all at once.

    Raises:
        NetworkError: one of them cannot.
    """
    async with _together() as tasks:
        for link, command in calls:
            tasks.start_soon(link.call, command)


@asynccontextmanager
async def _together() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Provide a task group that waits for all of its tasks, and raises the first error as it is."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise next(leaves(group)) from None
