"""A peer of a mesh in a process of its own, which appends without end, and which a test kills.

The log, the identity and `acknowledged` are in the folder: the latter has a line with the id of each message that was
appended, written when `append` has returned. The peer prints its address once it listens. It appends until it reads a
line, prints that it has stopped, and runs on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

import gossiplog
from gossiplog.protocol.broadcast.config import BroadcastConfig

TOPIC = "org.example.test"
QUICK = BroadcastConfig(backoff=0.05, longest_backoff=0.2, retry=0.1, longest_retry=0.5)
# Between two messages: three such peers leave each other time to take them.
_PAUSE = 0.01


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def append(log: gossiplog.Log, folder: Path, stop: threading.Event) -> None:
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = 0
    while not stop.is_set():
        message = log.append({"from": folder.name, "number": number})
        os.write(acknowledged, f"{message.id}\n".encode())
        number += 1
        time.sleep(_PAUSE)
    os.close(acknowledged)


async def run(folder: Path, listen: str, bootstrap: Sequence[str]) -> None:
    with gossiplog.open(folder / "log.db", TOPIC, signer=gossiplog.Signer.generate()) as log:
        async with gossiplog.Peer(
            log, listen=[listen], bootstrap=bootstrap, identity=folder / "identity", broadcast=QUICK
        ) as peer:
            stop = threading.Event()
            appending = threading.Thread(target=append, args=(log, folder, stop), daemon=True)
            appending.start()
            say(peer.addresses[0])
            await anyio.to_thread.run_sync(sys.stdin.readline)
            stop.set()
            await anyio.to_thread.run_sync(appending.join)
            say("stopped")
            await anyio.sleep_forever()


def main(folder: Path, listen: str, *bootstrap: str) -> None:
    """Run the peer, with its log in a folder."""
    anyio.run(run, folder, listen, bootstrap)
