"""What a dashboard's page may have a network do."""

from __future__ import annotations

import anyio
import pytest

from gossiplog.dashboard import events as dashboard_events
from gossiplog.dashboard.stream import Controls
from gossiplog.errors import NetworkError
from gossiplog.testnet import network as network_module
from gossiplog.testnet.controls import NetworkControls
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan
from gossiplog.testnet.schedule import AutoAppend

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

PATIENCE = 120


async def test_a_network_does_what_a_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[dashboard_events.Event] = []
    with anyio.fail_after(PATIENCE):
        async with LocalNetwork(NetworkPlan(3, "line"), heard.append) as network:
            await network.joined()
            auto_append = AutoAppend(network.append_anywhere)
            controls: Controls = NetworkControls(network, auto_append)
            first, second, third = (member.name for member in network.members)
            await controls.append(first)
            await network.converged()
            assert network.total == 1
            await controls.stop(second)
            assert not network.member(second).runs
            await controls.start(second)
            await controls.cut(first, second)
            await controls.append(third)
            assert network.complete < 3
            await controls.heal()
            await network.converged()
            await controls.partition()
            await controls.heal()
            await controls.add_peer()
            await network.converged()
            assert network.peers == 4
            await controls.auto_append(5.0)
            assert auto_append.rate == 5
            for wrong in (controls.append("alice"), controls.stop("alice"), controls.start("alice")):
                with pytest.raises(NetworkError, match="there is no peer 'alice'"):
                    await wrong
            with pytest.raises(NetworkError, match="name another"):
                await controls.cut(first, first)
            with pytest.raises(NetworkError, match="expected 0 to 10,000"):
                await controls.auto_append(1e9)
            monkeypatch.setattr(network_module, "MOST_PEERS", 4)
            with pytest.raises(NetworkError, match="there are 4 peers, as many as there may be"):
                await controls.add_peer()
    kinds = [type(event) for event in heard]
    for kind in (
        dashboard_events.PeerStopped,
        dashboard_events.PeerStarted,
        dashboard_events.Partitioned,
        dashboard_events.Healed,
        dashboard_events.RateChanged,
    ):
        assert kind in kinds
