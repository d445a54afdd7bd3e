"""Networks of real peers: how they are connected, cut, healed and grown."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

import gossiplog
from gossiplog.dashboard import events as dashboard_events
from gossiplog.dashboard.state import NetworkState
from gossiplog.errors import NetworkError
from gossiplog.net.routing.kinds import RouterName
from gossiplog.net.service import background
from gossiplog.testnet.links import ProcessLink
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import TOPOLOGIES, NetworkPlan, Topology
from gossiplog.testnet.schedule import Churn
from gossiplog.testnet.status import MemberStatus

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

PATIENCE = 120


@asynccontextmanager
async def running(
    plan: NetworkPlan, on_event: Callable[[dashboard_events.Event], None] | None = None
) -> AsyncIterator[LocalNetwork]:
    with anyio.fail_after(PATIENCE):
        async with LocalNetwork(plan, on_event) as network:
            yield network


async def until(found: Callable[[], bool]) -> None:
    while not found():
        await anyio.sleep(0.01)


def links(network: LocalNetwork) -> set[tuple[str, str]]:
    """Who is connected to whom, by label, each pair once."""
    labels = {member.name: member.plan.label for member in network.members}
    return {
        (member.plan.label, labels[name])
        for member in network.members
        for name in member.connections
        if member.plan.label < labels[name]
    }


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_branches_merge_and_messages_arrive_everywhere(
    topology: Topology, processes: int, tmp_path: Path
) -> None:
    plan = NetworkPlan(
        peers=4, topology=topology, offline_messages=3, join_seconds=0.2, folder=tmp_path, processes=processes
    )
    async with running(plan) as network:
        await network.converged()
        assert (network.total, network.complete, network.peers) == (12, 4, 4)
        latencies = await network.flow(5, rate=50)
        assert len(latencies) == 5 * 3
        assert min(latencies) > 0
        await network.converged()
        (root,) = network.roots
    for number in range(4):
        with gossiplog.open(tmp_path / f"{number}.db") as log:
            assert (len(log), log.root.hash.hex()) == (17, root)
            log.verify()


async def test_peers_that_know_a_bootstrap_find_each_other() -> None:
    async with running(NetworkPlan(peers=5)) as network:
        await network.connected(3)
        bootstrap, *_ = network.members
        assert not bootstrap.has_log
        names = {member.name for member in network.members if member is not bootstrap}
        await until(lambda: bootstrap.connections == names)
        assert next(iter(network.graph.items())) == (bootstrap.name, names)


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("line", {("0", "1"), ("1", "2"), ("2", "3")}),
        ("ring", {("0", "1"), ("1", "2"), ("2", "3"), ("0", "3")}),
    ],
)
async def test_peers_in_a_row_are_connected_to_their_neighbours(
    topology: Topology, expected: set[tuple[str, str]]
) -> None:
    async with running(NetworkPlan(peers=4, topology=topology)) as network:
        await until(lambda: links(network) == expected)
        # One more: a line grows at its end, and a ring opens for it.
        await network.add_peer()
        longer = {("3", "4")} | (expected if topology == "line" else expected - {("0", "3")} | {("0", "4")})
        await until(lambda: links(network) == longer)
        await network.append(network.members[0])
        await network.converged()


@pytest.mark.parametrize("topology", ["mesh", "hub", "mixed"])
async def test_a_member_that_is_stopped_keeps_its_log(topology: Topology) -> None:
    heard: list[dashboard_events.Event] = []
    async with running(NetworkPlan(peers=4, topology=topology), heard.append) as network:
        await network.joined()
        await network.append_anywhere(3)
        await network.converged()
        last = network.members[-1]
        await network.stop(last)
        await network.stop(last)
        await until(lambda: not any(last.name in member.connections for member in network.members))
        await network.append(network.members[1])
        await network.append(last)
        await until(lambda: last.messages == 4)
        await until(lambda: len(network.roots) == 2)
        await network.start(last)
        await network.start(last)
        await network.converged()
        assert (network.total, last.messages) == (5, 5)
    assert [
        type(event) for event in heard if isinstance(event, dashboard_events.PeerStopped | dashboard_events.PeerStarted)
    ] == [
        dashboard_events.PeerStopped,
        dashboard_events.PeerStarted,
    ]


async def test_a_hub_that_is_stopped_comes_back_where_it_was() -> None:
    async with running(NetworkPlan(peers=3, topology="hub")) as network:
        hub, client, other = network.members
        await network.joined()
        for member in (client, other, hub):
            await network.stop(member)
        await network.append(client)
        await network.start(other)
        assert other.state == "suspended"
        # As far as it can.
        await network.joined()
        await network.start(hub)
        assert other.runs
        await network.start(client)
        await network.converged()


async def test_a_hub_is_stopped_and_the_network_heals_and_grows() -> None:
    async with running(NetworkPlan(peers=3, topology="hub")) as network:
        hub, client, other = network.members
        await network.joined()
        await network.cut(hub, client)
        assert client.state == "suspended"
        await network.stop(hub)
        await network.heal()
        added = await network.add_peer()
        assert (client.state, other.state, added.state) == ("suspended", "running", "suspended")
        await network.start(hub)
        assert client.runs
        assert added.runs
        await network.append(client)
        await network.append(other)
        await network.converged()


async def test_a_hub_is_stopped_under_churn() -> None:
    def stop(member: MemberStatus) -> Awaitable[object]:
        stopped.append(member)
        return network.stop(member)

    def start(member: MemberStatus) -> Awaitable[object]:
        started.append(member)
        return network.start(member)

    stopped: list[MemberStatus] = []
    started: list[MemberStatus] = []
    async with running(NetworkPlan(peers=3, topology="hub")) as network, background() as tasks:
        await network.joined()
        hub, *clients = network.members
        churn = Churn(lambda: network.stoppable, stop, start, network.note, rate=20, random=Random(1))
        tasks.start_soon(churn.run)
        await until(lambda: bool(stopped))
        await network.stop(hub)
        await until(lambda: bool(started))
        await until(lambda: started[0].state == "suspended")
        await network.start(hub)
        await until(lambda: started[0].runs)
        assert started[0] in clients


async def test_a_peer_is_started_before_it_joins() -> None:
    heard: list[dashboard_events.Event] = []
    plan = NetworkPlan(peers=3, topology="line", join_seconds=3)
    async with running(plan, heard.append) as network:
        last = network.members[-1]
        assert last.state == "planned"
        await network.start(last)
        assert last.runs
        # At its time nothing happens.
        await anyio.sleep_until(network.started + last.plan.join_after + 0.1)
        await network.joined()
        await network.append(last)
        await network.converged()
    names = [event.peer for event in heard if isinstance(event, dashboard_events.PeerAdded)]
    assert sorted(names) == sorted(member.name for member in network.members)
    assert not any(isinstance(event, dashboard_events.PeerStarted) for event in heard)


async def test_a_network_is_parted_while_its_peers_start() -> None:
    async with running(NetworkPlan(peers=6)) as network:
        assert not network.members[-1].runs
        await network.partition()
        await network.joined()
        _, *peers = network.members
        await until(lambda: all(member.connections for member in peers))
        groups = [{member.name for member in half} for half in (peers[:3], peers[3:])]
        for number, member in enumerate(peers):
            assert member.blocked == groups[number < 3]
        # Connections that were made before a block end, and none is made after it.
        await until(lambda: not any(member.connections & member.blocked for member in peers))
        await network.heal()
        await network.append(peers[0])
        await network.converged()


async def test_a_log_that_is_there_is_no_new_peers(tmp_path: Path) -> None:
    (tmp_path / "2.db").touch()
    async with running(NetworkPlan(peers=2, topology="line", folder=tmp_path)) as network:
        await network.joined()
        with pytest.raises(NetworkError, match=r"2\.db is there already"):
            await network.add_peer()
        assert network.peers == 2
        (tmp_path / "2.db").unlink()
        await network.append(await network.add_peer())
        await network.converged()
        assert network.peers == 3


@pytest.mark.parametrize("topology", ["mesh", "hub", "mixed", "line"])
async def test_a_network_is_parted_and_heals(topology: Topology) -> None:
    heard: list[dashboard_events.Event] = []
    async with running(NetworkPlan(peers=4, topology=topology, processes=2), heard.append) as network:
        await network.joined()
        await network.append_anywhere()
        await network.converged()
        halves = [member for member in network.members if member.has_log]
        await network.partition()
        names = {member.name for member in halves[:2]}, {member.name for member in halves[2:]}
        await until(
            lambda: (
                not any(member.connections & names[1] for member in halves[:2])
                and not any(member.connections & names[0] for member in halves[2:])
            )
        )
        for member in halves:
            await network.append(member)
        # Clients of a hub on the other side are alone.
        await until(lambda: len(network.roots) > 1 and network.complete == 0)
        await network.heal()
        await network.converged()
        assert network.complete == 4
    (parted,) = [event for event in heard if isinstance(event, dashboard_events.Partitioned)]
    assert [set(group) for group in parted.groups] == list(names)
    assert any(isinstance(event, dashboard_events.Healed) for event in heard)


async def test_a_connection_is_cut_until_it_is_healed() -> None:
    async with running(NetworkPlan(peers=3, topology="line")) as network:
        await until(lambda: links(network) == {("0", "1"), ("1", "2")})
        first, second, third = network.members
        with pytest.raises(NetworkError, match="name another"):
            await network.cut(first, first)
        await network.cut(first, second)
        await until(lambda: links(network) == {("1", "2")})
        await network.append(third)
        await until(lambda: second.messages == 1)
        # Whoever comes back does not connect either.
        await network.stop(second)
        await network.start(second)
        await until(lambda: links(network) == {("1", "2")})
        assert first.messages == 0
        await network.heal()
        await network.converged()
        assert links(network) == {("0", "1"), ("1", "2")}


async def test_events_tell_what_the_network_knows() -> None:
    heard: list[Any] = []
    async with running(NetworkPlan(peers=4, offline_messages=2), heard.append) as network:
        await network.converged()
        await network.append(network.members[1])
        await network.converged()
        await until(lambda: any(isinstance(event, dashboard_events.Delivered) and event.latency for event in heard))
        added = [event for event in heard if isinstance(event, dashboard_events.PeerAdded)]
        assert {(event.peer, event.kind) for event in added} == {
            (member.name, member.plan.kind) for member in network.members
        }
        newest = {event.peer: event for event in heard if isinstance(event, dashboard_events.Committed)}
        assert {name: (event.messages, event.root) for name, event in newest.items()} == {
            member.name: (member.messages, member.root) for member in network.members if member.has_log
        }
        assert {event.clock for event in newest.values()} == {newest[network.members[1].name].clock}
        assert all(0 <= event.at <= network.now() for event in heard)
        published = [event.peer for event in heard if isinstance(event, dashboard_events.Published)]
        assert published[-1] == network.members[1].name


@pytest.mark.parametrize(
    ("router", "topology"),
    [("episub", "mesh"), ("floodsub", "mesh"), ("gossipsub", "line"), ("floodsub", "ring"), ("episub", "mixed")],
)
async def test_messages_travel_by_a_router_of_this_package(router: RouterName, topology: Topology) -> None:
    state = NetworkState()
    by_gossip: set[str] = set()

    def note(event: dashboard_events.Event) -> None:
        state.apply(event)
        if isinstance(event, dashboard_events.Delivered) and event.by == "gossip":
            by_gossip.add(event.message)

    def linked(members: Iterable[MemberStatus]) -> bool:
        edges = [edge for edge in state.snapshot()["edges"] if edge["connected"]]
        used = {name for edge in edges if "mesh" in edge["links"] for name in edge["peers"]}
        return used >= {member.name for member in members}

    async with running(NetworkPlan(peers=5, topology=topology, router=router), note) as network:
        gossiping = [member for member in network.members if member.plan.kind in ("peer", "relay")]
        await until(lambda: linked(gossiping))
        agents = {name: peer["agent"] for name, peer in state.snapshot()["peers"].items()}
        assert agents == {member.name: router if member in gossiping else "" for member in network.members}
        while not by_gossip:
            # A peer whose link has just come up may get it by a sync.
            await network.append(gossiping[0])
            await network.converged()


@pytest.mark.parametrize("topology", ["mesh", "hub", "mixed"])
async def test_every_member_counts_its_bytes(topology: Topology) -> None:
    state = NetworkState()
    async with running(NetworkPlan(peers=4, topology=topology), state.apply) as network:
        names = {member.name for member in network.members}
        await until(lambda: state.peers.keys() == names)
        await until(lambda: all(min(peer.bytes_sent, peer.bytes_received) > 0 for peer in state.peers.values()))
        sent = {name: peer.bytes_sent for name, peer in state.peers.items()}
        await network.append(network.members[-1], 100)
        await network.converged()
        # A message has more than the text alone, and has come to each of three others.
        await until(lambda: sum(peer.bytes_sent - sent[name] for name, peer in state.peers.items()) > 3 * 100 * 200)


async def test_nobody_is_found_by_another_name() -> None:
    async with running(NetworkPlan(peers=2, topology="line")) as network:
        assert network.member(network.members[1].name) is network.members[1]
        with pytest.raises(NetworkError, match="there is no peer 'alice' in this network"):
            network.member("alice")


async def test_a_bootstrap_appends_nothing() -> None:
    async with running(NetworkPlan(peers=2)) as network:
        with pytest.raises(NetworkError, match="holds no log: append at another"):
            await network.append(network.members[0])


async def test_a_worker_that_is_killed_ends_the_run() -> None:
    pids: list[int] = []

    async def run() -> None:
        async with running(NetworkPlan(peers=4, topology="line", processes=2)) as network:
            await network.joined()
            pids.extend(link.pid for link in network.links if isinstance(link, ProcessLink))
            os.kill(pids[1], signal.SIGKILL)
            await anyio.sleep_forever()

    with pytest.raises(NetworkError, match="has ended by itself, killed by SIGKILL: its peers are gone"):
        await run()
    assert len(pids) == 2
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


async def test_workers_end_with_the_network() -> None:
    async with running(NetworkPlan(peers=2, topology="line", processes=2)) as network:
        pids = [link.pid for link in network.links if isinstance(link, ProcessLink)]
        # Ctrl-C goes to all processes of a terminal's session, and is not theirs to obey.
        assert all(os.getsid(pid) != os.getsid(0) for pid in pids)
        await network.append_anywhere()
        await network.converged()
    assert len(pids) == 2
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


async def test_logs_that_are_there_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "1.db").touch()
    for processes in (1, 2):
        with pytest.raises(NetworkError, match=r"1\.db is there already: give a folder without logs"):
            async with running(NetworkPlan(peers=2, folder=tmp_path, processes=processes)):
                pass
        (tmp_path / "0.db").unlink(missing_ok=True)
