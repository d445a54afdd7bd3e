"""How large the write-ahead log of a log gets while several processes read and append without a pause.

    .venv/bin/python -m benches.write_ahead_log [SECONDS [PROCESSES]]

Prints the size of the file at each second, in MiB, and the largest at the end; ends with status 1 where it was above
LIMIT. A checkpoint lets the file begin anew only when no reader uses it, and with several readers one always does.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import gossiplog

TOPIC = "org.example.write-ahead-log"
SECONDS = 150
PROCESSES = 5
LIMIT = 64 * 2**20
_TEXT = "x" * 4_000
_AT_FIRST = 5_000
# Threads in each process.
_READERS = 2
# In a second.
_LOOKS = 20


def main(seconds: int = SECONDS, processes: int = PROCESSES) -> None:
    """Measure, and print the sizes."""
    with tempfile.TemporaryDirectory() as folder:
        largest = 0
        for second, size in enumerate(sizes(Path(folder, "log.db"), seconds, processes), 1):
            largest = max(largest, size)
            print(f"{second:>4} s  {size / 2**20:6.1f} MiB", flush=True)
        print(f"largest: {largest / 2**20:.1f} MiB in {seconds} s of {processes} processes")
    sys.exit(largest > LIMIT)


def sizes(path: Path, seconds: int, processes: int) -> Iterator[int]:
    """Yield the largest size in bytes of the write-ahead log in each second while processes read and append.

    Args:
        path: of a log that is made.
        seconds: how many sizes are yielded.
        processes: how many use the log.
    """
    with gossiplog.open(path, TOPIC, signer=gossiplog.Signer.generate()) as log:
        log.append_many({"n": number, "text": _TEXT} for number in range(_AT_FIRST))
    context = multiprocessing.get_context("spawn")
    users = [context.Process(target=use, args=(path, number), daemon=True) for number in range(processes)]
    for user in users:
        user.start()
    wal = Path(f"{path}-wal")
    try:
        for _ in range(seconds):
            largest = 0
            for _ in range(_LOOKS):
                time.sleep(1 / _LOOKS)
                largest = max(largest, wal.stat().st_size if wal.exists() else 0)
            if not all(user.is_alive() for user in users):
                raise RuntimeError("a process has ended early")
            yield largest
    finally:
        for user in users:
            user.terminate()
            user.join()


def use(path: Path, number: int) -> None:
    """Read and append, without end: two threads read, and the others append one message or many."""
    with gossiplog.open(path, signer=gossiplog.Signer.generate()) as log:
        for _ in range(_READERS):
            threading.Thread(target=read, args=(log,), daemon=True).start()
        for turn in itertools.count():
            log.append_many([{"turn": turn, "text": _TEXT}] * (1 if number else 50))


def read(log: gossiplog.Log) -> None:
    """Read the log again and again."""
    while True:
        for message in log.messages(reverse=True, limit=5_000):
            len(message.value)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
