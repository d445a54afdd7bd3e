"""A hub or a client in a process of its own, which a test kills.

    python hub_process.py hub LOG PORT [LIMIT]
    python hub_process.py client LOG URL

The hub prints a line once it listens, the client one for each sync that brought messages and one when it is in step.
With a limit, the hub's files cannot grow beyond so many bytes.
"""

from __future__ import annotations

import resource
import signal
import sys
from functools import partial
from pathlib import Path

import anyio

import gossiplog
from gossiplog.net import events
from gossiplog.net.http.server import serve
from gossiplog.net.service import background
from gossiplog.protocol.broadcast.config import BroadcastConfig

TOPIC = "org.example.test"
QUICK = BroadcastConfig(backoff=0.05, longest_backoff=0.2, retry=0.1, longest_retry=0.5)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def hear(event: events.Event) -> None:
    match event:
        case events.SyncEnded(complete=complete, inserted=inserted, error=error):
            say("sync", complete, inserted, error)
        case events.SyncProgressed(inserted=inserted) if inserted:
            say("progress", inserted)
        case events.Failed(doing, error):
            say("failed", doing, error)


def peak() -> int:
    """Return the largest resident size of this process, in megabytes; getrusage's begins with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


async def run_hub(path: str, port: str, limit: str = "") -> None:
    with gossiplog.open(path, TOPIC) as log:
        if limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
        async with gossiplog.Hub(log, broadcast=QUICK, on_event=hear) as hub, background() as tasks:
            await tasks.start(partial(serve, hub, port=int(port)))
            say("listening")
            await anyio.to_thread.run_sync(sys.stdin.readline)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            await anyio.sleep_forever()


async def run_client(path: str, url: str) -> None:
    with gossiplog.open(path, TOPIC) as log:
        async with gossiplog.connect(log, url, broadcast=QUICK, on_event=hear) as client:
            await client.synced()
            say("synced", len(log), peak())


def main(kind: str, *arguments: str) -> None:
    """Run a hub or a client, with the arguments above."""
    anyio.run({"hub": run_hub, "client": run_client}[kind], *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
