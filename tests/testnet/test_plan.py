"""Plans of networks: who dials whom, and that all of it follows from the seed."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog._core import check_peer_id
from gossiplog.net.transport.host import open_host
from gossiplog.testnet.plan import (
    TOPOLOGIES,
    MemberPlan,
    NetworkPlan,
    Topology,
    added_member,
    author_of,
    identity_of,
    member_plans,
    peer_id_of,
    topology_named,
)
from tests.strategies import repeatable


def plans(peers: int, topology: Topology, **changed: Any) -> list[MemberPlan]:
    return member_plans(NetworkPlan(peers, topology, **changed))


def reached(members: list[MemberPlan]) -> set[int]:
    """The members that are connected to the first, however far, if every dial succeeds."""
    edges: dict[int, set[int]] = {member.number: set() for member in members}
    for member in members:
        for other in member.neighbours:
            edges[member.number].add(other)
            edges[other].add(member.number)
    found, queue = {members[0].number}, deque([members[0].number])
    while queue:
        new = edges[queue.popleft()] - found
        found |= new
        queue.extend(new)
    return found


@repeatable(100)
@given(st.integers(3, 60), st.sampled_from(TOPOLOGIES), st.integers(), st.floats(0, 100))
def test_every_member_is_reached_and_named_once(peers: int, topology: Topology, seed: int, seconds: float) -> None:
    members = plans(peers, topology, seed=seed, join_seconds=seconds)
    assert reached(members) == {member.number for member in members}
    assert len({member.name for member in members}) == len(members)
    assert sum(member.has_log for member in members) == peers
    assert members[0].join_after == 0
    assert all(0 <= member.join_after <= seconds for member in members)
    assert members == plans(peers, topology, seed=seed, join_seconds=seconds)


def test_a_mesh_has_a_bootstrap_without_a_log_that_all_know() -> None:
    bootstrap, *others = plans(5, "mesh")
    assert (bootstrap.kind, bootstrap.label, bootstrap.has_log) == ("bootstrap", "bootstrap", False)
    assert [other.neighbours for other in others] == [(bootstrap.number,)] * 5
    assert [other.label for other in others] == list("01234")


def test_a_hub_has_clients() -> None:
    hub, *clients = plans(4, "hub")
    assert (hub.kind, hub.neighbours) == ("hub", ())
    assert {(client.kind, client.neighbours) for client in clients} == {("client", (0,))}
    assert hub.name == author_of(0, 0).did


def test_browsers_join_hubs_beside_the_peers() -> None:
    members = plans(5, "mixed", browsers=4)
    pages = members[5:]
    assert [page.kind for page in pages] == ["browser"] * 4
    assert [page.neighbours for page in pages] == [(2,), (0,), (1,), (2,)]
    new, changed = added_member(NetworkPlan(5, "mixed", browsers=4), members)
    assert (new.number, new.kind, changed) == (9, "client", [])


def test_hubs_of_a_mixed_network_know_each_other_and_share_the_clients() -> None:
    members = plans(16, "mixed")
    hubs, clients = members[:4], members[4:]
    assert [hub.kind for hub in hubs] == ["relay"] * 4
    assert hubs[1].neighbours == (0, 2, 3)
    assert sorted(client.neighbours for client in clients) == sorted([(0,), (1,), (2,), (3,)] * 3)


@pytest.mark.parametrize(
    ("topology", "neighbours"),
    [("line", [(1,), (0, 2), (1, 3), (2,)]), ("ring", [(1, 3), (0, 2), (1, 3), (0, 2)])],
)
def test_peers_in_a_row_may_connect_to_neighbours_alone(topology: Topology, neighbours: list[tuple[int, ...]]) -> None:
    members = plans(4, topology)
    assert [member.neighbours for member in members] == neighbours
    for member in members:
        assert member.allowed == tuple(members[other].name for other in member.neighbours)


@pytest.mark.parametrize(
    ("topology", "neighbours", "changed"),
    [
        ("mesh", (-1,), []),
        ("hub", (0,), []),
        ("mixed", (2,), []),
        ("line", (4,), [4]),
        ("ring", (0, 4), [0, 4]),
    ],
)
def test_a_member_more(topology: Topology, neighbours: tuple[int, ...], changed: list[int]) -> None:
    plan = NetworkPlan(5, topology)
    new, others = added_member(plan, member_plans(plan))
    assert (new.number, new.neighbours) == (5, neighbours)
    assert [other.number for other in others] == changed
    for other in others:
        assert new.number in other.neighbours
        assert new.name in other.allowed


@pytest.mark.anyio
async def test_names_of_peers_are_those_of_their_hosts() -> None:
    identity = identity_of(3, 1)
    async with open_host(identity=identity, topic="org.example.test", protocols=[]) as host:
        assert peer_id_of(identity) == host.peer_id
    for member in plans(3, "mesh"):
        check_peer_id(member.name)
    assert identity_of(0, 1) != identity_of(1, 0) != author_of(1, 0).private_key


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"peers": 1}, "a network has 2 to 1,000 peers, not 1"),
        ({"peers": 1001}, "a network has 2 to 1,000 peers, not 1001"),
        ({"offline_messages": -1}, "a network's numbers are not negative"),
        ({"join_seconds": -1.0}, "a network's numbers are not negative"),
        ({"join_seconds": float("inf")}, "join within inf s"),
        ({"processes": -1}, "a network's numbers are not negative"),
        ({"topology": "star"}, "is one of mesh, hub, mixed, line, ring, not 'star'"),
        ({"topology": "ring", "peers": 2}, "a ring has 3 peers or more"),
        ({"browsers": 1}, "browsers join hubs, and a mesh has none"),
        ({"router": "pigeon"}, "router is one of libp2p, gossipsub, floodsub, episub, not 'pigeon'"),
        ({"router": "floodsub", "topology": "hub"}, "a hub pushes messages to its clients, without a router"),
        ({"router": "episub", "topology": "line"}, "peers in a line have no choice: choose the topology mesh or mixed"),
        ({"router": "episub", "topology": "ring"}, "peers in a ring have no choice"),
    ],
)
def test_plans_that_cannot_be(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        NetworkPlan(**wrong)


def test_topologies_by_name() -> None:
    assert [topology_named(name) for name in TOPOLOGIES] == list(TOPOLOGIES)


@pytest.mark.parametrize(
    ("plan", "cores", "processes"),
    [
        (NetworkPlan(8), 2, 1),
        (NetworkPlan(64), 2, 2),
        (NetworkPlan(64, processes=1), 2, 1),
        (NetworkPlan(3, processes=8), 2, 3),
    ],
)
def test_large_networks_are_spread_over_processes(plan: NetworkPlan, cores: int, processes: int) -> None:
    assert plan.spread(cores) == processes
