"""Kills writers of a log at random moments, and checks the log after each; run by test_kill.py.

    python kill_writer.py FOLDER KILLS

A writer is forked from this process, which has everything imported. It marks in shared memory whether a transaction is
open, and which messages were acknowledged; another fork opens the log after the kill, verifies it, and looks for those
messages. This process runs no batch of the core itself: its threads would be missing in the forks. Prints JSON: kills,
those that landed in an open transaction, messages acknowledged.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gossiplog
from gossiplog.storage.base import Transaction

_ID = 32
_MOST = 100_000


class Shared:
    """What survives a writer: a mark, a count, and the acknowledged ids."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16 + _MOST * _ID)

    @property
    def in_transaction(self) -> bool:
        return self._memory[0] == 1

    @in_transaction.setter
    def in_transaction(self, value: bool) -> None:
        self._memory[0] = value

    @property
    def count(self) -> int:
        (count,) = struct.unpack_from("<Q", self._memory, 8)
        return int(count)

    @property
    def acknowledged(self) -> list[str]:
        count = self.count
        return [self._memory[start : start + _ID].decode() for start in range(16, 16 + count * _ID, _ID)]

    def acknowledge(self, id: str) -> None:
        count = self.count
        self._memory[16 + count * _ID : 16 + (count + 1) * _ID] = id.encode()
        # Counted last: a writer that is killed before has not acknowledged.
        struct.pack_into("<Q", self._memory, 8, count + 1)


class Marked(gossiplog.SQLiteStorage):
    """Marks while a transaction is open, from after BEGIN to before COMMIT returns."""

    def __init__(self, path: Path, shared: Shared) -> None:
        super().__init__(path)
        self._shared = shared

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with super().transaction() as transaction:
            self._shared.in_transaction = True
            yield transaction
        self._shared.in_transaction = False


def apply(message: gossiplog.SignedMessage, transaction: Any) -> None:
    transaction.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY)")
    transaction.execute("INSERT INTO seen VALUES (?)", (message.id,))


def write(path: Path, shared: Shared, signer: gossiplog.Signer) -> None:
    with gossiplog.open(Marked(path, shared), "kill", apply=apply, signer=signer) as log:
        while True:
            shared.acknowledge(log.append({"text": "one"}).id)
            for message in log.append_many([{"n": n} for n in range(5)]):
                shared.acknowledge(message.id)


def check(path: Path, shared: Shared) -> None:
    with gossiplog.open(path, "kill", apply=apply) as log:
        log.verify()
        ids = {message.id for message in log}
        lost = set(shared.acknowledged) - ids
        if lost:
            raise SystemExit(f"{len(lost)} acknowledged messages are lost")
        seen: set[str] = set()
        with gossiplog.SQLiteStorage.transaction(log._storage) as transaction:
            if ids:
                seen = {id for (id,) in transaction.execute("SELECT id FROM seen")}
        if seen != ids:
            raise SystemExit("the application's table and the messages differ")


def forked(run: Callable[[], None]) -> int:
    """Runs in another process: its id."""
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            # Reached only by an exception; nothing of the parent's is to be cleaned up here.
            traceback.print_exc()
            os._exit(1)
    return child


def main(folder: Path, wanted: int) -> None:
    shared = Shared()
    chance = random.Random(0)
    path = folder / "log.db"
    signer = gossiplog.Signer(bytes(32))
    kills = landed = 0
    while landed < wanted:
        if kills > 20 * wanted:
            raise SystemExit(f"only {landed} of {kills} kills landed in an open transaction")
        shared.in_transaction = False
        writer = forked(lambda: write(path, shared, signer))
        before = shared.count + chance.randrange(20)
        while shared.count < before or not shared.in_transaction:
            time.sleep(0)
        until = time.perf_counter() + chance.choice([0.0, 0.0003, 0.003]) * chance.random()
        while time.perf_counter() < until:
            pass
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit("a writer ended before it was killed")
        kills += 1
        landed += shared.in_transaction
        _, status = os.waitpid(forked(lambda: check(path, shared)), 0)
        if status != 0:
            raise SystemExit(f"the log is not sound after kill {kills}")
    sys.stdout.write(json.dumps({"kills": kills, "landed": landed, "acknowledged": shared.count}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
