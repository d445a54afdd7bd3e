"""Commands that run until they are stopped."""

from __future__ import annotations

import signal

import anyio


async def until_stopped() -> None:
    """Wait for SIGINT, as Ctrl-C sends it, or SIGTERM. A second one ends the program at once."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return
