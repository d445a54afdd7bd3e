"""What the tests of networks share: the event loop on which the bundled server of a hub runs."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
