"""What the tests of the network share: a network, and peers whose gossip does not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gossiplog.net import peer
from gossiplog.net.transport.network import Network, open_network
from tests.net.support import GOSSIP


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    async with open_network() as network:
        yield network


@pytest.fixture
def quick_gossip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of gossip in peers are short."""
    monkeypatch.setattr(peer, "GossipConfig", lambda: GOSSIP)
