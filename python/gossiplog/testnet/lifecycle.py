"""Starts and stops the members of a network, and has them keep those connections alone that are not cut.

A member is changed by one task at a time, which holds its lock and waits for nothing but its worker meanwhile: a stop
or a cut that comes while a member starts is made as soon as it runs. Nobody takes a second lock under it. What waits
for another member, as a client for its hub, is suspended; the start of that other member starts it, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.routing.kinds import RouterName
from gossiplog.net.service import leaves
from gossiplog.testnet.cuts import Cuts
from gossiplog.testnet.messages import Block, Command, Dial, Start, Stop
from gossiplog.testnet.status import MemberStatus, State


class Lifecycle:
    """Starts and stops members.

    Args:
        members: of the network, by number; others may be added.
        cuts: of the network, to which its members are kept.
        call: has a member's worker execute a command; returns what the answer has.
        report: reports an event.
        clock: returns the seconds since the network began.
        changed: is called when a member's state has changed.
        router: what spreads the messages of peers.
        origins: returns those of pages, which hubs let in.
    """

    def __init__(
        self,
        members: Mapping[int, MemberStatus],
        cuts: Cuts,
        *,
        call: Callable[[MemberStatus, Command], Awaitable[tuple[str, ...]]],
        report: Callable[[dashboard_events.Event], object],
        clock: Callable[[], float],
        changed: Callable[[], object],
        router: RouterName,
        origins: Callable[[], tuple[str, ...]],
    ) -> None:
        self._members = members
        self._cuts = cuts
        self._call = call
        self._report = report
        self._clock = clock
        self._changed = changed
        self._router: RouterName = router
        self._origins = origins

    async def join(self, member: MemberStatus) -> None:
        """Start a member for the first time, unless somebody has started or stopped it before its turn.

        Raises:
            NetworkError: it cannot be started.
        """
        async with member.changing:
            await self._join(member)
        await self._resume_clients(member)

    async def start(self, member: MemberStatus) -> None:
        """Start a member that was stopped, or whose turn to join has not come. Does nothing where it runs.

        A client whose hub does not run is suspended: it starts with its hub.

        Raises:
            NetworkError: it cannot be started.
        """
        async with member.changing:
            await self._join(member)
            if member.state == "stopped":
                await self._run(member)
                self._report(dashboard_events.PeerStarted(self._clock(), member.name))
        await self._resume_clients(member)

    async def stop(self, member: MemberStatus) -> None:
        """Stop a member, also one that is starting or whose turn to join has not come; its log stays."""
        async with member.changing:
            if member.state == "stopped":
                return
            if member.state == "planned":
                self._announce(member)
            if member.runs:
                await self._halt(member)
            self._set(member, "stopped")
            self._report(dashboard_events.PeerStopped(self._clock(), member.name))

    async def restart(self, member: MemberStatus) -> None:
        """Start a running member anew; does nothing where it does not run.

        Raises:
            NetworkError: it cannot be started.
        """
        async with member.changing:
            if member.runs:
                await self._halt(member)
                await self._run(member)

    async def keep_cuts(self, members: Collection[MemberStatus]) -> None:
        """Have members keep those connections that are not cut, and run clients that are not cut from their hubs.

        Where one of them cannot, this is noted, and no reason to leave out others.
        """
        async with together() as tasks:
            for member in members:
                tasks.start_soon(self._keep_or_note, member)

    async def dial(self, member: MemberStatus, other: MemberStatus) -> None:
        """Have a member connect to another, if both run and are not cut from each other; note where it cannot."""
        if not (member.runs and other.runs) or self._is_cut(member, other):
            return
        try:
            await self._call(member, Dial(member.number, _address(other, member)))
        except NetworkError as error:
            self.note(member, f"it does not reach {other.plan.label}: {error}")

    def has_joined(self, member: MemberStatus) -> bool:
        """Return whether a member runs, or will not before somebody starts it or its hub, or heals the network."""
        if member.state == "suspended":
            return not self._may_run(member)
        return member.state in ("running", "stopped")

    def note(self, member: MemberStatus, what: object) -> None:
        """Report something that is worth a line in the log of events, about a member."""
        self._report(dashboard_events.Noted(self._clock(), str(what), member.name))

    async def _join(self, member: MemberStatus) -> None:
        if member.state == "planned":
            self._announce(member)
            await self._run(member)

    def _announce(self, member: MemberStatus) -> None:
        kind: dashboard_events.PeerKind = "hub" if member.plan.kind == "relay" else member.plan.kind
        # Gossip of the host itself is nothing to speak of.
        runs_router = member.plan.kind in ("peer", "relay") and self._router != "libp2p"
        agent = self._router if runs_router else ""
        self._report(dashboard_events.PeerAdded(self._clock(), member.name, member.plan.label, kind, agent))

    async def _run(self, member: MemberStatus) -> None:
        """Start a member whose lock is held; suspend a client that cannot join its hub."""
        if not self._may_run(member):
            self._set(member, "suspended")
            return
        self._set(member, "starting")
        hub = self._hub_of(member)
        neighbours = [self._members[number] for number in member.plan.neighbours]
        known = [other for other in neighbours if other.runs and not self._is_cut(member, other)]
        blocked = self._blocked(member)
        command = Start(
            member.number,
            dials=tuple(_address(other, member) for other in known),
            allowed=member.plan.allowed,
            blocked=tuple(sorted(blocked)),
            hub="" if hub is None else hub.name,
            origins=self._origins(),
            router=self._router,
        )
        try:
            member.addresses = await self._call(member, command)
        except NetworkError:
            if not self._may_run(member):
                # A page cannot join a hub that was stopped meanwhile.
                self._set(member, "suspended")
                return
            self._set(member, "stopped")
            self._report(dashboard_events.PeerStopped(self._clock(), member.name))
            raise
        member.blocked = frozenset(blocked)
        self._set(member, "running")
        # Those that were made while it started.
        await self._keep_cuts(member)
        if member.plan.is_peer:
            # Those that were being started at the same time know nothing of this one either.
            for other in neighbours:
                if other not in known:
                    await self.dial(member, other)

    async def _halt(self, member: MemberStatus) -> None:
        await self._call(member, Stop(member.number))
        for name in member.connections:
            self._report(dashboard_events.Disconnected(self._clock(), member.name, name))
        member.connections.clear()

    async def _keep_or_note(self, member: MemberStatus) -> None:
        async with member.changing:
            try:
                await self._keep_cuts(member)
            except NetworkError as error:
                self.note(member, error)

    async def _keep_cuts(self, member: MemberStatus) -> None:
        """Have a member whose lock is held keep to the cuts."""
        if member.plan.is_client:
            if member.runs and not self._may_run(member):
                await self._halt(member)
                self._set(member, "suspended")
            elif member.state == "suspended":
                await self._run(member)
        elif member.runs and (blocked := self._blocked(member)).keys() != member.blocked:
            for name in blocked.keys() & member.connections:
                self._cuts.lose(member.number, blocked[name])
            member.blocked = frozenset(blocked)
            await self._call(member, Block(member.number, tuple(sorted(blocked))))

    async def _resume_clients(self, hub: MemberStatus) -> None:
        """Start the clients that wait for a hub, if this is one that runs."""
        if hub.runs and hub.plan.kind in ("hub", "relay"):
            waiting = (member for member in self._members.values() if member.state == "suspended")
            await self.keep_cuts([member for member in waiting if self._hub_of(member) is hub])

    def _hub_of(self, member: MemberStatus) -> MemberStatus | None:
        """Return the hub of a client; None of others."""
        return self._members[member.plan.neighbours[0]] if member.plan.is_client else None

    def _may_run(self, member: MemberStatus) -> bool:
        """Return whether nothing is in a member's way; one that runs already finds its hub again by itself."""
        hub = self._hub_of(member)
        return hub is None or ((hub.runs or member.runs) and not self._is_cut(member, hub))

    def _is_cut(self, member: MemberStatus, other: MemberStatus) -> bool:
        return self._cuts.is_cut(member.number, other.number)

    def _blocked(self, member: MemberStatus) -> Mapping[str, int]:
        return self._cuts.blocked(member.plan, (other.plan for other in self._members.values()))

    def _set(self, member: MemberStatus, state: State) -> None:
        member.state = state
        self._changed()


def _address(other: MemberStatus, member: MemberStatus) -> str:
    """Return where a member finds another: a hub's URL for its clients, and else a multiaddr."""
    if not member.plan.is_client and other.plan.kind == "relay":
        return other.addresses[1]
    return other.addresses[0]


@asynccontextmanager
async def together() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Provide a task group that waits for all of its tasks, and raises the first error as it is."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise next(leaves(group)) from None
