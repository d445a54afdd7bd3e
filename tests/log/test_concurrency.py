"""Several threads and several processes on one log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest

import gossiplog
from gossiplog import Log, Signer
from gossiplog.log.log import replica_of
from tests.places import Place
from tests.threads import in_threads

TOPIC = "org.example.test"

# Answers each line on its standard input with one on its output, so that a test decides when what happens. Each process
# has a key of its own, which no test has: equal keys and payloads on an empty log would make equal messages.
PROCESS = """
import sys
import gossiplog

with gossiplog.open(sys.argv[1], signer=gossiplog.Signer(bytes([100 + int(sys.argv[2])]) * 32)) as log:
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        match command:
            case "append":
                print(log.append(argument).id, flush=True)
            case "many":
                print(len(log.append_many(range(int(argument)))), flush=True)
            case "state":
                print(len(log), log.clock, log.root.hash.hex(), *log.heads, flush=True)
"""


class Process:
    """Another process with the log open, until the end of a `with` block, where it must end by itself and well."""

    def __init__(self, location: Path | str, number: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(location), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        self.send(command)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # Popen closes the pipes and waits, whatever came before; after an error for nothing that goes on for long.
        with self._process:
            if kind is not None:
                self._process.kill()
        if kind is None:
            assert self._process.returncode == 0


def state(log: Log) -> str:
    return " ".join([str(len(log)), str(log.clock), log.root.hash.hex(), *log.heads])


def test_threads_append_insert_and_read(log: Log, opened: Callable[..., Log], other_signer: Signer) -> None:
    source = opened(signer=other_signer)
    incoming = source.append_many(range(200))

    def read() -> None:
        for _ in range(20):
            snapshot = replica_of(log).snapshot()
            keys = [key for key, _ in snapshot.leaves(b"", None)]
            assert len(keys) == len(snapshot.tree)
            assert snapshot.values(keys, 2**24) is not None
            for message in log.messages(reverse=True, limit=3):
                assert set(message.parents) <= {parent for parent in message.parents if parent in log}

    in_threads(
        [
            lambda: [log.append(n) for n in range(30)],
            lambda: log.append_many(range(50)),
            lambda: [log.insert(message) for message in incoming[:100]],
            lambda: log.insert_many(incoming),
            read,
        ]
    )
    assert len(log) == 280
    log.verify()


@pytest.mark.parametrize("ours", [3, 300])
@pytest.mark.integration
def test_an_append_follows_what_another_log_wrote_since(
    place: Place, opened: Callable[..., Log], signer: Signer, ours: int
) -> None:
    one, two = opened(place.location, signer=signer), opened(place.location, signer=Signer(b"\2" * 32))
    for turn in range(3):
        # From the third on nothing is read before it is signed.
        mine = [one.append((turn, number)) for number in range(ours)]
        assert all(later.parents == (earlier.id,) for earlier, later in pairwise(mine))
        for number in range(2):
            theirs = two.append((turn, number))
        assert one.append("after").parents == (theirs.id,)
    assert one.heads == two.heads
    assert len(one) == 3 * (ours + 3)
    one.verify()


def test_threads_that_append_at_once_make_one_chain(opened: Callable[..., Log], place: Place, signer: Signer) -> None:
    log = opened(place.location, signer=signer)
    log.append_many(range(5))
    in_threads([lambda: [log.append(n) for n in range(50)] for _ in range(4)])
    assert len(log) == len(list(log.messages())) == 205
    assert len(log.heads) == 1
    assert log.clock == 206
    log.verify()


def test_two_connections_see_each_others_commits(place: Place, opened: Callable[..., Log], signer: Signer) -> None:
    one, two = opened(place.location, signer=signer), opened(place.location, signer=signer)
    for number in range(40):
        (one if number % 2 else two).append(number)
        assert state(one) == state(two)
    one.append_many(range(200))
    two.append("last")
    assert state(one) == state(two)
    one.verify()
    two.verify()


@pytest.mark.slow
def test_processes_append_in_turn(place: Place, opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(place.location, signer=signer)
    with Process(place.location, 0) as one, Process(place.location, 1) as two:
        processes = (one, two)
        for number in range(10):
            id = processes[number % 2].ask(f"append {number}")
            assert log.heads == (id,)
            mine = log.append(number)
            assert mine.parents == (id,)
        assert [process.ask("state") for process in processes] == [state(log)] * 2
    log.verify()


@pytest.mark.slow
def test_processes_write_at_once(
    place: Place, opened: Callable[..., Log], signer: Signer, other_signer: Signer
) -> None:
    log = opened(place.location, signer=signer)
    with Process(place.location, 0) as one, Process(place.location, 1) as two:
        processes = (one, two)
        for process in processes:
            process.ask("state")
        for process in processes:
            process.send("many 300")
        incoming = opened(signer=other_signer).append_many(range(300))
        assert log.insert_many(incoming).inserted == 300
        assert [process.answer() for process in processes] == ["300", "300"]
        assert len(log) == 900
        assert [process.ask("state") for process in processes] == [state(log)] * 2
    log.verify()


@pytest.mark.slow
def test_several_processes_make_the_same_log(place: Place) -> None:
    make = "import sys, gossiplog as g; g.open(*sys.argv[1:]).append(1, signer=g.Signer.generate())"
    command = [sys.executable, "-W", "ignore", "-c", make, str(place.location), TOPIC]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with gossiplog.open(place.location) as log:
        assert len(log) == 4
        log.verify()


def test_another_processs_commits_reach_a_subscription(place: Place, opened: Callable[..., Log]) -> None:
    log = opened(place.location)
    with Process(place.location, 1) as process:
        arrivals = log.subscribe()
        id = process.ask("append hello")
        assert [message.id for message in next(arrivals)] == [id]
