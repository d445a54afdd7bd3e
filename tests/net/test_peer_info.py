"""`PeerInfo` of a hub's clients and of a client's hub; `test_peer.py` has those of a mesh."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gossiplog
from gossiplog import Hub, Log, PeerInfo
from tests.net.support import serving

pytestmark = pytest.mark.anyio


async def test_a_hub_and_its_client_list_each_other(opened: Callable[..., Log]) -> None:
    hub = Hub(opened())
    assert hub.peers == ()
    async with serving(hub) as url, gossiplog.connect(opened(), url) as client:
        assert client.peers == ()
        await client.synced()
        assert client.peers == (PeerInfo(url, "hub", replicates=True, dialer=True),)
        (listed,) = hub.peers
        assert listed == PeerInfo(listed.name, "client", replicates=True, dialer=False)
        assert listed.name.startswith("127.0.0.1:")
    assert (hub.peers, client.peers) == ((), ())
