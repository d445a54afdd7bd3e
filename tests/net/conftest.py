"""What the tests of the network share: both event loops, and a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gossiplog.net.streams import Network, open_network


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    async with open_network() as network:
        yield network
