"""Members that are started, stopped and cut, on a worker that a test scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.service import background
from gossiplog.testnet.cuts import Cuts
from gossiplog.testnet.lifecycle import Lifecycle
from gossiplog.testnet.messages import Block, Command, Dial, Start, Stop
from gossiplog.testnet.plan import NetworkPlan, Topology, member_plans
from gossiplog.testnet.status import MemberStatus

pytestmark = pytest.mark.anyio

PATIENCE = 60


class Scripted:
    """A network whose worker does nothing but answer, as soon as a test lets it.

    Attributes:
        members: in order.
        called: commands that were sent.
        told: events.
        held: kinds of commands that are not answered for the time being.
        failing: numbers of members that cannot be started.
    """

    def __init__(self, topology: Topology, peers: int = 3) -> None:
        plan = NetworkPlan(peers=peers, topology=topology)
        by_number = {each.number: MemberStatus(each) for each in member_plans(plan)}
        self.members = list(by_number.values())
        self.cuts = Cuts(Random(0))
        self.called: list[Command] = []
        self.told: list[dashboard_events.Event] = []
        self.held: set[type[Any]] = set()
        self.failing: set[int] = set()
        self.lives = Lifecycle(
            by_number,
            self.cuts,
            call=self._call,
            report=self.told.append,
            clock=lambda: 1.0,
            changed=lambda: None,
            router="libp2p",
            origins=tuple,
        )

    async def _call(self, member: MemberStatus, command: Command) -> tuple[str, ...]:
        self.called.append(command)
        await until(lambda: type(command) not in self.held)
        if isinstance(command, Start) and member.number in self.failing:
            raise NetworkError("its port is taken")
        return (f"address of {member.number}", f"second address of {member.number}")

    async def join(self) -> None:
        """Start all, one after the other."""
        for member in self.members:
            await self.lives.join(member)
        self.called.clear()
        self.told.clear()

    @property
    def states(self) -> Sequence[str]:
        """Of the members."""
        return [member.state for member in self.members]

    def kinds(self) -> list[type[Any]]:
        """What was told."""
        return [type(event) for event in self.told]


async def until(found: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not found():
            await anyio.lowlevel.checkpoint()


async def settled() -> None:
    """Let all tasks run that can."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def test_a_member_joins_once() -> None:
    network = Scripted("line")
    first = network.members[0]
    await network.lives.join(first)
    await network.lives.join(first)
    await network.lives.start(first)
    assert [type(command) for command in network.called] == [Start]
    assert network.told == [dashboard_events.PeerAdded(1.0, first.name, "0", "peer")]
    assert first.addresses[0] == "address of 0"


async def test_a_member_that_was_started_before_its_turn() -> None:
    network = Scripted("line")
    await network.lives.start(network.members[2])
    await network.lives.join(network.members[2])
    assert network.states == ["planned", "planned", "running"]
    assert network.kinds() == [dashboard_events.PeerAdded]


async def test_a_member_that_was_stopped_before_its_turn() -> None:
    network = Scripted("line")
    last = network.members[2]
    await network.lives.stop(last)
    await network.lives.join(last)
    await network.lives.stop(last)
    assert network.states == ["planned", "planned", "stopped"]
    assert network.called == []
    assert network.kinds() == [dashboard_events.PeerAdded, dashboard_events.PeerStopped]
    await network.lives.start(last)
    assert last.runs
    assert network.kinds()[2:] == [dashboard_events.PeerStarted]


async def test_a_member_is_stopped_while_it_starts() -> None:
    network = Scripted("line")
    first = network.members[0]
    network.held = {Start}
    async with background() as tasks:
        tasks.start_soon(network.lives.join, first)
        await until(lambda: first.state == "starting")
        tasks.start_soon(network.lives.stop, first)
        await settled()
        assert first.state == "starting"
        network.held = set()
        await until(lambda: first.state == "stopped")
    assert [type(command) for command in network.called] == [Start, Stop]
    assert network.kinds() == [dashboard_events.PeerAdded, dashboard_events.PeerStopped]


async def test_starts_and_stops_are_made_in_their_order() -> None:
    network = Scripted("line")
    await network.join()
    first = network.members[0]
    network.held = {Stop}
    async with background() as tasks:
        tasks.start_soon(network.lives.stop, first)
        await until(lambda: bool(network.called))
        tasks.start_soon(network.lives.start, first)
        await settled()
        tasks.start_soon(network.lives.stop, first)
        await settled()
        network.held = set()
        await until(lambda: network.kinds().count(dashboard_events.PeerStopped) == 2)
    assert network.kinds() == [dashboard_events.PeerStopped, dashboard_events.PeerStarted, dashboard_events.PeerStopped]
    assert first.state == "stopped"


async def test_a_cut_that_is_made_while_a_member_starts() -> None:
    network = Scripted("line")
    first, second, _ = network.members
    await network.lives.join(first)
    network.held = {Start}
    async with background() as tasks:
        tasks.start_soon(network.lives.join, second)
        await until(lambda: second.state == "starting")
        network.cuts.cut(0, 1)
        tasks.start_soon(network.lives.keep_cuts, network.members)
        await settled()
        assert second.blocked == frozenset()
        network.held = set()
        await until(lambda: second.runs and bool(second.blocked))
        await settled()
    assert network.called[-2:] == [Block(0, (second.name,)), Block(1, (first.name,))]
    assert second.blocked == {first.name}
    # Whoever starts later knows of it from the start, and dials nobody whom it is to block.
    await network.lives.stop(second)
    await network.lives.start(second)
    assert network.called[-1] == Start(1, allowed=second.plan.allowed, blocked=(first.name,))


async def test_nobody_waits_for_a_cut_that_nobody_is_there_to_make() -> None:
    """Whoever made it may be gone: a member that starts keeps to it all the same."""
    network = Scripted("line")
    first, second, _ = network.members
    await network.lives.join(first)
    network.held = {Start}
    async with background() as tasks:
        tasks.start_soon(network.lives.join, second)
        await until(lambda: second.state == "starting")
        network.cuts.cut(0, 1)
        network.held = set()
        await until(lambda: second.blocked == {first.name})
    assert not any(isinstance(command, Dial) for command in network.called)


async def test_peers_that_start_at_the_same_time_dial_each_other() -> None:
    network = Scripted("line", 2)
    network.held = {Start}
    async with background() as tasks:
        for member in network.members:
            tasks.start_soon(network.lives.join, member)
        await until(lambda: network.states == ["starting", "starting"])
        network.held = set()
        await until(lambda: any(isinstance(command, Dial) for command in network.called))
        await settled()
    assert [command.dials for command in network.called if isinstance(command, Start)] == [(), ()]
    assert [command for command in network.called if isinstance(command, Dial)] == [Dial(1, "address of 0")]


async def test_a_client_waits_suspended_for_its_hub() -> None:
    network = Scripted("hub")
    hub, client, other = network.members
    network.held = {Start}
    async with background() as tasks:
        for member in network.members:
            tasks.start_soon(network.lives.join, member)
        await until(lambda: network.states == ["starting", "suspended", "suspended"])
        # The locks of those that wait are free.
        await network.lives.stop(other)
        assert not network.lives.has_joined(hub)
        network.held = set()
        await until(lambda: client.runs)
    assert network.states == ["running", "running", "stopped"]
    assert network.called[-1] == Start(1, ("address of 0",), hub=hub.name)
    assert all(map(network.lives.has_joined, network.members))


async def test_a_hub_that_is_stopped_keeps_nobody_waiting() -> None:
    """heal, start and add_peer hung in a reader's script."""
    network = Scripted("hub")
    hub, client, other = network.members
    await network.join()
    network.cuts.cut(0, 1)
    await network.lives.keep_cuts(network.members)
    assert network.states == ["running", "suspended", "running"]
    await network.lives.stop(hub)
    assert network.cuts.heal([member.plan for member in network.members]) == []
    with anyio.fail_after(PATIENCE):
        await network.lives.keep_cuts(network.members)
        # Whoever runs finds its hub again by itself; whoever starts now is suspended.
        assert network.states == ["stopped", "suspended", "running"]
        await network.lives.stop(other)
        await network.lives.start(other)
        assert network.states == ["stopped", "suspended", "suspended"]
        assert all(map(network.lives.has_joined, network.members))
        await network.lives.start(hub)
    assert network.states == ["running", "running", "running"]
    assert [client.runs, other.runs] == [True, True]


async def test_a_client_that_is_cut_from_its_hub() -> None:
    network = Scripted("hub")
    hub, client, _ = network.members
    await network.join()
    client.connections.add(hub.name)
    network.cuts.cut(0, 1)
    await network.lives.keep_cuts(network.members)
    assert client.state == "suspended"
    assert network.told == [dashboard_events.Disconnected(1.0, client.name, hub.name)]
    assert client.connections == set()
    # It may be stopped and started, and stays cut.
    await network.lives.stop(client)
    await network.lives.start(client)
    assert client.state == "suspended"
    assert network.kinds()[1:] == [dashboard_events.PeerStopped, dashboard_events.PeerStarted]
    network.cuts.heal([member.plan for member in network.members])
    await network.lives.keep_cuts(network.members)
    assert client.runs


async def test_a_page_whose_hub_is_stopped_while_it_starts() -> None:
    network = Scripted("hub")
    hub, client, _ = network.members
    await network.lives.join(hub)
    network.held, network.failing = {Start}, {1}
    async with background() as tasks:
        tasks.start_soon(network.lives.join, client)
        await until(lambda: client.state == "starting")
        await network.lives.stop(hub)
        network.held = set()
        await until(lambda: client.state == "suspended")
    network.failing = set()
    await network.lives.start(hub)
    assert client.runs


async def test_a_member_that_cannot_be_started() -> None:
    network = Scripted("line")
    first = network.members[0]
    network.failing = {0}
    with pytest.raises(NetworkError, match="its port is taken"):
        await network.lives.start(first)
    assert first.state == "stopped"
    # A page that was told of it has to show that it does not run.
    assert network.kinds() == [dashboard_events.PeerAdded, dashboard_events.PeerStopped]
    network.failing = set()
    await network.lives.start(first)
    assert first.runs


async def test_one_that_cannot_start_again_is_noted_and_others_start() -> None:
    network = Scripted("hub")
    _, client, other = network.members
    await network.join()
    network.cuts.part([[0], [1, 2]])
    await network.lives.keep_cuts(network.members)
    network.cuts.heal([])
    network.failing = {1}
    network.told.clear()
    await network.lives.keep_cuts(network.members)
    assert (client.state, other.state) == ("stopped", "running")
    assert network.told == [
        dashboard_events.PeerStopped(1.0, client.name),
        dashboard_events.Noted(1.0, "its port is taken", client.name),
    ]


async def test_connections_that_are_cut_are_lost() -> None:
    network = Scripted("line")
    first, second, _ = network.members
    await network.join()
    first.connections.add(second.name)
    network.cuts.cut(0, 1)
    await network.lives.keep_cuts(network.members)
    assert network.cuts.heal([]) == [(0, 1)]


async def test_only_members_that_run_are_started_anew() -> None:
    network = Scripted("ring")
    await network.join()
    first, second, _ = network.members
    await network.lives.stop(second)
    network.called.clear()
    for member in (first, second):
        await network.lives.restart(member)
    assert [(type(command), command.number) for command in network.called if isinstance(command, Start | Stop)] == [
        (Stop, 0),
        (Start, 0),
    ]
