"""Two hubs on one log in Postgres, in processes of their own, with clients in others.

The server is that of the tests, with fsync on, so that each message waits for the disk once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pytest
from conftest import Results
from network import Process

import gossiplog
from gossiplog.cli.bench.stage import TOPIC, Result, private_key
from gossiplog.signer import Signer
from tests.postgres import Server, own_server

HUBS, LOGGING, LISTENING = 2, 20, 180
RATE = 50.0
SECONDS = 60.0
MOST_SECONDS = 2.0
# Seconds until the first append, by when all processes have their orders.
_BEGINNING = 1.0
APPENDS = 300
MOST_DELAY = 0.1


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server(fsync="on", full_page_writes="on") as server:
        yield server


def test_announcements(server: Server, results: Results) -> None:
    """A program that appends, and another that follows; the first waits until the second has each message."""
    url = server.url("announced")
    with gossiplog.open(url, TOPIC, signer=Signer(private_key(0))) as log:
        log.append("first")
        with Process("follower", url) as follower:
            delays = []
            for number in range(APPENDS):
                log.append(number)
                returned = time.monotonic()
                delays.append(follower.call("next") - returned)
    delays.sort()
    middle, slowest = statistics.median(delays), delays[APPENDS * 99 // 100]
    results.add(
        Result(
            "a commit to a log in Postgres reaches another process",
            f"within {MOST_DELAY * 1e3:.0f} ms",
            f"{middle * 1e3:.1f} ms",
            slowest <= MOST_DELAY,
            middle,
            None,
            f"99 % of {APPENDS} within {slowest * 1e3:.1f} ms of the return of `append`",
        )
    )


def test_two_hubs(server: Server, tmp_path: Path, results: Results) -> None:
    url = server.url("hubs")
    gossiplog.open(url, TOPIC).close()
    logging, listening = LOGGING // HUBS, LISTENING // HUBS
    period = LOGGING / RATE
    count = round(RATE * SECONDS)
    with ExitStack() as stack:
        hubs = [stack.enter_context(Process("hub", url)) for _ in range(HUBS)]
        loggers = [stack.enter_context(Process("loggers", tmp_path, hub.url)) for hub in hubs]
        listeners = [stack.enter_context(Process("listeners", hub.url)) for hub in hubs]
        for number, each in enumerate(loggers):
            each.call("join", count=logging, first=number * logging)
        for each in listeners:
            each.call("listen", count=listening)
        before = [hub.call("usage")["cpu"] for hub in hubs]
        begin = time.monotonic() + _BEGINNING
        for number, each in enumerate(loggers):
            # Those of one process append between those of the other.
            each.tell("flow", begin=begin + number * period / LOGGING, period=period, seconds=SECONDS)
        end = max(each.answer() for each in loggers)
        whole = chain.from_iterable(each.call("whole", count=count) for each in loggers)
        heard = [times for each in listeners for times in each.call("heard", count=count)]
        late = max(*whole, *(times[-1] for times in heard)) - end
        cpu = [hub.call("usage")["cpu"] - spent for hub, spent in zip(hubs, before, strict=True)]
        exact = all(len(times) == count for times in heard)
    with gossiplog.open(url, read_only=True) as log:
        stored = log.verify().messages
    results.add(
        Result(
            f"two hubs on one log, {LOGGING} clients with logs that append {RATE:g} a second for {SECONDS:g} s and"
            f" {LISTENING} that count frames",
            f"all on all within {MOST_SECONDS:g} s of the end, once",
            f"{late:.2f} s",
            late <= MOST_SECONDS and exact and stored == count,
            late,
            None,
            f"{count:,} messages; {' and '.join(f'{each:.1f}' for each in cpu)} s of CPU in the hubs",
        )
    )
