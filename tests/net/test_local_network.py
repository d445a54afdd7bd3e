"""Networks of real peers in one process."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import gossiplog
from gossiplog.net.local_network import LocalNetwork, NetworkPlan, Topology

pytestmark = pytest.mark.anyio

# Only the bundled server of a hub needs it.
ASYNCIO = [pytest.param("asyncio", id="asyncio")]
PATIENCE = 120


@pytest.mark.integration
@pytest.mark.parametrize("anyio_backend", ASYNCIO)
@pytest.mark.parametrize("topology", ["mesh", "hub"])
async def test_branches_merge_and_messages_arrive_everywhere(topology: Topology, tmp_path: Path) -> None:
    plan = NetworkPlan(peers=4, topology=topology, offline_messages=3, join_seconds=0.2, folder=tmp_path)
    with anyio.fail_after(PATIENCE):
        async with LocalNetwork(plan) as network:
            await network.converged()
            assert network.total == 12
            assert network.complete == 4
            latencies = await network.flow(5, rate=50)
            assert len(latencies) == 5 * 3
            assert min(latencies) > 0
            await network.converged()
            assert list(network.roots.values()) == [4]
    for number in range(4):
        with gossiplog.open(tmp_path / f"{number}.db") as log:
            assert len(log) == 17
            log.verify()


@pytest.mark.integration
async def test_peers_that_know_one_find_others() -> None:
    with anyio.fail_after(PATIENCE):
        async with LocalNetwork(NetworkPlan(peers=6)) as network:
            await network.connected(3)
            assert min(len(member.connections) for member in network.members) >= 3


@pytest.mark.parametrize("wrong", [{"peers": 1}, {"offline_messages": -1}, {"join_seconds": -1.0}])
def test_plans_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a network"):
        NetworkPlan(**wrong)  # type: ignore[arg-type]
