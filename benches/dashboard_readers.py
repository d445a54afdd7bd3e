"""What readers of a dashboard's stream cost the peers of a network: how long messages take with and without them.

    .venv/bin/python -m benches.dashboard_readers [PEERS [MESSAGES [TURNS]]]

In turns, with no reader and with twenty, of which one reads 2 kB a second, in a process of their own. Prints the
medians of both, in milliseconds, and the ratio of each turn, as JSON. The machine's other work is in all of them alike.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import anyio

from gossiplog.dashboard.stream import Dashboard
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan

READERS = 20
_RATE = 20.0
_READER = """
import asyncio, sys
async def read(host, port, slow):
    reader, writer = await asyncio.open_connection(host, port, limit=2048 if slow else 2**16)
    writer.write(b"GET /events HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    while await reader.read(2048 if slow else 2**16):
        if slow:
            await asyncio.sleep(1)
async def main(host, port, count):
    await asyncio.gather(*(read(host, int(port), number == 0) for number in range(int(count))))
asyncio.run(main(*sys.argv[1:]))
"""


async def measure(peers: int, messages: int, turns: int) -> dict[str, object]:
    """Return the medians without and with readers, and their ratios."""
    found: dict[int, list[float]] = {0: [], READERS: []}
    async with anyio.create_task_group() as tasks:
        network = LocalNetwork(NetworkPlan(peers=peers, processes=1), lambda event: dashboard.publish(event))
        dashboard = Dashboard("a network", clock=network.now)
        address = await tasks.start(dashboard.serve)
        async with network:
            await network.converged()
            await network.flow(messages, _RATE)
            for _ in range(turns):
                for count, medians in found.items():
                    command = [sys.executable, "-c", _READER, address.host, str(address.port), str(count)]
                    with subprocess.Popen(command) as readers:
                        while dashboard.readers != count:
                            await anyio.sleep(0.05)
                        medians.append(statistics.median(await network.flow(messages, _RATE)))
                        readers.kill()
                    while dashboard.readers:
                        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    return {
        "peers": peers,
        "without_ms": round(1000 * statistics.median(found[0]), 2),
        "with_ms": round(1000 * statistics.median(found[READERS]), 2),
        "ratios": [round(with_them / without, 3) for without, with_them in zip(found[0], found[READERS], strict=True)],
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(measure, *([int(text) for text in sys.argv[1:]] + [16, 60, 5][len(sys.argv) - 1 :]))))
