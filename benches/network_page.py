"""What a page, and twenty readers of its events of which one never reads, cost the peers of a test network.

    python -m benches.network_page [PEERS] [ROUNDS]

Runs in turns, without and with: the time to one root of branches that meet, and the latencies of appends after it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence

import anyio

from gossiplog.dashboard.stream import Dashboard
from gossiplog.net.service import background
from gossiplog.testnet.controls import NetworkControls
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan
from gossiplog.testnet.schedule import AutoAppend

READERS = 20
MESSAGES, RATE = 100, 20.0
# As a page does it, in a process of its own, as a browser is: the last one never reads.
READER = """
import selectors, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
selector = selectors.DefaultSelector()
kept = []
for number in range(count):
    reader = socket.create_connection(("127.0.0.1", port))
    reader.sendall(b"GET /events HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
    kept.append(reader)
    if number < count - 1:
        selector.register(reader, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in selector.select():
        if not key.fileobj.recv(65536):
            selector.unregister(key.fileobj)
"""


async def _run(peers: int, is_watched: bool) -> tuple[float, list[float]]:
    plan = NetworkPlan(peers, offline_messages=20)
    if not is_watched:
        async with LocalNetwork(plan, apart=True) as network:
            return await _measure(network)
    network = LocalNetwork(plan, lambda event: dashboard.publish(event), apart=True)
    dashboard = Dashboard("", NetworkControls(network, AutoAppend(network.append_anywhere)), network.now)
    async with background() as tasks:
        port = (await tasks.start(dashboard.serve)).port
        command = [sys.executable, "-c", READER, str(port), str(READERS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as readers:
            try:
                assert readers.stdout is not None
                await anyio.to_thread.run_sync(readers.stdout.readline)
                async with network:
                    found = await _measure(network)
                    assert dashboard.readers == READERS
                    return found
            finally:
                readers.kill()


async def _measure(network: LocalNetwork) -> tuple[float, list[float]]:
    await network.converged()
    seconds = anyio.current_time() - network.started
    await network.connected(3)
    return seconds, sorted(await network.flow(MESSAGES, RATE))


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a table."""
    peers, rounds = (int(text) for text in (*arguments, *("16", "5")[len(arguments) :]))
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for is_watched, rows in found.items():
            seconds, latencies = anyio.run(_run, peers, is_watched, backend="asyncio")
            row = seconds, statistics.median(latencies), latencies[int(0.95 * len(latencies))]
            rows.append(row)
            sys.stdout.write(
                f"{'with' if is_watched else 'without'}: one root {row[0]:.2f} s, p50 {1000 * row[1]:.1f} ms,"
                f" p95 {1000 * row[2]:.1f} ms\n"
            )
    medians = {key: [statistics.median(column) for column in zip(*rows, strict=True)] for key, rows in found.items()}
    ratios = [after / before for before, after in zip(medians[False], medians[True], strict=True)]
    sys.stdout.write(f"with / without: one root {ratios[0]:.2f}, p50 {ratios[1]:.2f}, p95 {ratios[2]:.2f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
