"""What clients and messages cost a hub: writes the table of docs/operations.md. For Linux.

    .venv/bin/python -m benches.capacity

A hub (`gossiplog serve`) and its clients are processes of their own. Each client is a WebSocket with a push stream,
which is read and thrown away. Memory is what is resident after all have joined, the cost of a message the processor
time of the hub, from when one more client begins to append until all clients have got all messages. Neither depends
much on what else the machine does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import anyio

import gossiplog
from benches.pages import head, line, rewrite
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import open_network
from gossiplog.protocol.wire import Protocols

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
TOPIC = "org.example.capacity"
CLIENTS = (0, 200, 1000)
MESSAGES = 100
RATE = 10.0
"""Messages a second."""
_TICK = os.sysconf("SC_CLK_TCK")
_PAYLOAD = {"text": "x" * 200}


def main() -> None:
    """Measure, and write the table."""
    figures = [measure(count) for count in CLIENTS]
    lines = head(
        ["clients"], ["memory of the hub", "of each client", "processor time of a message", "of each delivery"]
    )
    alone = figures[0]
    for count, (memory, seconds) in zip(CLIENTS, figures, strict=True):
        each = f"{(memory - alone[0]) / count / 2**10:.0f} KiB" if count else ""
        delivery = f"{(seconds - alone[1]) / count * 1e6:.0f} µs" if count else ""
        lines.append(line(f"{count:,}", f"{memory / 2**20:.0f} MiB", each, f"{seconds * 1e3:.1f} ms", delivery))
    rewrite(PAGE, {"capacity": lines})


def measure(count: int) -> tuple[int, float]:
    """Return the bytes of a hub with so many clients, and the seconds of processor time that a message costs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hub.db")
        command = [sys.executable, "-m", "gossiplog", "serve", str(path), "--topic", TOPIC, "--hub", "127.0.0.1:0"]
        command += ["--no-events", "--connections", str(count + 10)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as hub:
            try:
                assert hub.stdout is not None
                url = json.loads(hub.stdout.readline())["hub"]
                ours, theirs = multiprocessing.Pipe()
                clients = multiprocessing.Process(target=_listen, args=(url, count, theirs), daemon=True)
                clients.start()
                ours.recv()
                memory = _resident(hub.pid)
                before = _seconds(hub.pid)
                anyio.run(_append, url, Path(folder, "writer.db"))
                ours.recv()
                seconds = (_seconds(hub.pid) - before) / MESSAGES
                clients.terminate()
            finally:
                hub.terminate()
        return memory, seconds


def _listen(url: str, count: int, pipe: Pipe) -> None:
    anyio.run(_join, url, count, pipe)


async def _join(url: str, count: int, pipe: Pipe) -> None:
    protocols, limits = Protocols(TOPIC), Limits(connections=count + 10)
    received = [0] * count

    async def join(number: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        connection = await network.dial(url, protocols.all)
        async with await connection.open_stream(protocols.push) as stream:
            # The heads, of which there are none.
            task_status.started()
            while data := await stream.receive():
                received[number] += len(data)

    async with open_network(limits) as network, anyio.create_task_group() as tasks:
        for number in range(count):
            await tasks.start(join, number)
        await anyio.sleep(1)
        pipe.send(None)
        received[:] = [0] * count
        size = MESSAGES * len(_PAYLOAD["text"])
        while any(found < size for found in received):
            await anyio.sleep(0.1)
        pipe.send(None)
        await anyio.sleep_forever()


async def _append(url: str, path: Path) -> None:
    with gossiplog.open(path, TOPIC, signer=gossiplog.Signer.generate()) as log:
        async with gossiplog.connect(log, url) as client:
            await client.synced()
            for _ in range(MESSAGES):
                await anyio.to_thread.run_sync(log.append, _PAYLOAD)
                await anyio.sleep(1 / RATE)
            await client.synced()


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


if __name__ == "__main__":
    main()
