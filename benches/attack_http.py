"""The HTTP API of a hub while strangers read what costs most: `.venv/bin/python -m benches.attack_http`.

A log has messages with a payload of four million empty lists each. `gossiplog serve` serves it on loopback, in a
process of its own, as users run it. Readers in another process ask for the messages again and again, or hang up as soon
as an answer begins, or do not read it. Meanwhile `/api/clock` is asked for every 20 ms: what is printed is how long
that took, and how much memory the hub had. All of it is bounded: by `--seconds`, and by the readers' number.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gossiplog
from gossiplog import Signer

LISTS = 4_000_000
MESSAGES = 3
QUIET = 200
INTERVAL = 0.02
PATIENCE = 60.0
MUST = 0.1
"""Seconds in which 99 of 100 clocks must be answered."""


def make_log(path: Path, lists: int) -> None:
    """A log with a few messages of many empty lists."""
    with gossiplog.open(path, topic="org.example.attack", signer=Signer(bytes(32))) as log:
        for _ in range(MESSAGES):
            log.append([[]] * lists)


@contextmanager
def serving(path: Path, total_bytes: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """`gossiplog serve` over a log: its process and its address."""
    command = [sys.executable, "-m", "gossiplog", "serve", str(path), "--hub", "127.0.0.1:0", "--json"]
    command += ["--total-bytes", str(total_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            parts = urlsplit(json.loads(process.stdout.readline())["api"])
            yield process.pid, (str(parts.hostname), parts.port or 0)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def read(address: tuple[str, int]) -> None:
    """Reads the messages to their end."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    connection.request("GET", "/api/messages")
    answer = connection.getresponse()
    while answer.read(2**16):
        pass
    connection.close()
    if answer.status == 503:
        time.sleep(int(answer.headers["Retry-After"] or 1))


def hang_up(address: tuple[str, int]) -> None:
    """Asks for the messages and leaves."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(b"GET /api/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(INTERVAL)


def stall(address: tuple[str, int]) -> None:
    """Asks for the messages and does not read them."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /api/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(8)


ATTACKS: dict[str, Callable[[tuple[str, int]], None]] = {"read": read, "hang-up": hang_up, "stall": stall}


def attack(kind: str, address: tuple[str, int], readers: int, seconds: float) -> None:
    """Attacks with so many readers, each in a loop."""
    end = time.monotonic() + seconds

    def run() -> None:
        while time.monotonic() < end:
            with suppress(OSError, http.client.HTTPException):
                ATTACKS[kind](address)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(end - time.monotonic() + 1)


def resident(process: int, name: str) -> int:
    """What a process has in memory, in bytes: VmRSS now, VmHWM at the most."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def ask(address: tuple[str, int]) -> float:
    """The seconds that the clock took; those of the patience where it did not come."""
    began = time.perf_counter()
    try:
        connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
        connection.request("GET", "/api/clock")
        connection.getresponse().read()
        connection.close()
    except OSError:
        return PATIENCE
    return time.perf_counter() - began


def measure(path: Path, kind: str, readers: int, seconds: float, total_bytes: int) -> dict[str, Any]:
    """One attack, and what an honest client met."""
    with serving(path, total_bytes) as (process, address):
        # The first take longer: much is made when it is needed.
        quiet = [ask(address) for _ in range(QUIET + 10)][10:]
        empty = resident(process, "VmRSS")
        # A process that was not forked: this one has threads, and the log in memory.
        reader = multiprocessing.get_context("spawn").Process(target=attack, args=(kind, address, readers, seconds))
        reader.start()
        took: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            took.append(ask(address))
            time.sleep(INTERVAL)
        most = resident(process, "VmHWM")
        reader.join(10)
        if reader.is_alive():
            reader.terminate()
    return {
        "attack": kind,
        "readers": readers,
        "clocks": len(took),
        "quiet_p99_ms": round(1000 * statistics.quantiles(quiet, n=100)[98], 1),
        "p50_ms": round(1000 * statistics.median(took), 1),
        "p99_ms": round(1000 * (statistics.quantiles(took, n=100)[98] if len(took) > 1 else took[0]), 1),
        "slowest_ms": round(1000 * max(took), 1),
        "empty_hub_mib": empty >> 20,
        "most_mib": most >> 20,
        "allowed_mib": empty + total_bytes >> 20,
    }


def main() -> None:
    """Attacks, in turn, and prints a line about each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attack", choices=[*ATTACKS], action="append", help="which; all by default")
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--total-bytes", type=int, default=256 * 2**20)
    parser.add_argument("--lists", type=int, default=LISTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.db")
        make_log(path, arguments.lists)
        print(
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; the clock must be below {MUST * 1000:g} ms at p99"
        )
        for kind in arguments.attack or ATTACKS:
            found = measure(path, kind, arguments.readers, arguments.seconds, arguments.total_bytes)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
