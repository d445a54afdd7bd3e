"""Kills writers of a log before each statement of a transaction, and at random moments; run by test_kill.py.

    python kill_writer.py FOLDER append|insert_many|pull KILLS

A writer is forked from this process, which has everything imported. It marks in shared memory whether a transaction is
open, and which messages were acknowledged; another fork opens the log after the kill, verifies it, and looks for those
messages. An alarm that nobody handles kills the writer, as at once as `kill -9`; so nobody has to watch
for the moment. This process runs no batch of the core itself: its threads would be missing in the forks. Prints JSON:
kills, those that landed in an open transaction, those of them that were before a statement, messages acknowledged.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import random
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gossiplog
from gossiplog import core
from gossiplog.log import arrival_check, audit, pulling, writing  # noqa: F401 - each fork would import them anew
from gossiplog.storage.base import Transaction

_TOPIC = "kill"
_ID = 32
_MOST = 100_000
_HEADER = 24
# Messages to insert or pull, after which a log is begun anew, and how many of them go into one transaction.
_HISTORY = 2_000
_PORTION = 40
# Where each statement is one to be killed before, of which there are some for each message.
_SMALL_PORTION = 3
# Transactions that a writer may end before it is killed.
_LONGEST_LIFE = 8


class Shared:
    """What survives a writer: a mark, how many transactions were begun, a count, and the acknowledged ids.

    Attributes:
        last: the transaction, counted from 1, in which a writer is killed.
        remaining: how many seconds after its beginning.
        statement: before which of its statements, counted from 1, COMMIT among them; 0 leaves it to `remaining`.
        path: of the log.
    """

    def __init__(self, path: Path) -> None:
        self._memory = mmap.mmap(-1, _HEADER + _MOST * _ID)
        self.path = path
        self.last = 0
        self.remaining = 0.0
        self.statement = 0

    @property
    def in_transaction(self) -> bool:
        return self._memory[0] == 1

    @in_transaction.setter
    def in_transaction(self, value: bool) -> None:
        self._memory[0] = value

    @property
    def transactions(self) -> int:
        return self._number(16)

    @property
    def is_last(self) -> bool:
        return self.transactions == self.last

    def begin(self) -> None:
        struct.pack_into("<Q", self._memory, 16, self.transactions + 1)
        self.in_transaction = True
        if self.is_last and not self.statement:
            signal.setitimer(signal.ITIMER_REAL, self.remaining)

    def count_statement(self, _: str) -> None:
        """End this process before the statement that is meant."""
        self.statement -= 1
        if self.statement == 0:
            os.kill(os.getpid(), signal.SIGALRM)

    @property
    def count(self) -> int:
        return self._number(8)

    @property
    def acknowledged(self) -> list[str]:
        count = self.count
        return [self._memory[start : start + _ID].decode() for start in range(_HEADER, _HEADER + count * _ID, _ID)]

    def begin_log(self, path: Path) -> None:
        """Go on with another log, in which nothing was acknowledged yet."""
        self.path = path
        struct.pack_into("<Q", self._memory, 8, 0)

    def acknowledge(self, id: str) -> None:
        count = self.count
        self._memory[_HEADER + count * _ID : _HEADER + (count + 1) * _ID] = id.encode()
        # Counted last: a writer that is killed before has not acknowledged.
        struct.pack_into("<Q", self._memory, 8, count + 1)

    def _number(self, offset: int) -> int:
        (number,) = struct.unpack_from("<Q", self._memory, offset)
        return int(number)


class Marked(gossiplog.SQLiteStorage):
    """Marks while a transaction is open, from after BEGIN to before COMMIT returns."""

    def __init__(self, path: Path, shared: Shared) -> None:
        super().__init__(path)
        self._shared = shared

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with super().transaction() as transaction:
            self._shared.begin()
            if self._shared.is_last and self._shared.statement:
                transaction._connection.set_trace_callback(self._shared.count_statement)
            yield transaction
        self._shared.in_transaction = False
        if self._shared.is_last and self._shared.statement:
            # It has fewer statements.
            os._exit(0)


def apply(message: gossiplog.SignedMessage, transaction: Any) -> None:
    transaction.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY)")
    transaction.execute("INSERT INTO seen VALUES (?)", (message.id,))


def history(signer: gossiplog.Signer) -> list[bytes]:
    """The values of a chain of messages."""
    values = []
    parents: list[str] = []
    for clock in range(1, _HISTORY + 1):
        key, value = signer.sign(_TOPIC, clock, parents, {"n": clock})
        parents = [core.encode_id(key)]
        values.append(value)
    return values


def append(log: gossiplog.Log, shared: Shared) -> None:
    while True:
        shared.acknowledge(log.append({"text": "one"}).id)
        for message in log.append_many([{"n": n} for n in range(5)]):
            shared.acknowledge(message.id)


def insert_many(log: gossiplog.Log, shared: Shared, values: list[bytes]) -> None:
    for portion in portions(values[len(log) :], shared):
        log.insert_many(portion)
        acknowledge(portion, shared)


def pull(log: gossiplog.Log, shared: Shared, values: list[bytes]) -> None:
    with gossiplog.open(gossiplog.MemoryStorage(), _TOPIC) as source:
        source.insert_many(values[: len(log)])
        for portion in portions(values[len(log) :], shared):
            source.insert_many(portion)
            log.pull(source)
            acknowledge(portion, shared)


def portions(values: list[bytes], shared: Shared) -> Iterator[list[bytes]]:
    size = _SMALL_PORTION if shared.statement else _PORTION
    return (values[start : start + size] for start in range(0, len(values), size))


def acknowledge(values: list[bytes], shared: Shared) -> None:
    for value in values:
        shared.acknowledge(core.read_message(value, _TOPIC).id)


def check(shared: Shared) -> None:
    with gossiplog.open(shared.path, _TOPIC, apply=apply) as log:
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


def writer(kind: str, shared: Shared) -> Callable[[], None]:
    """What a writer of a kind does."""
    signer = gossiplog.Signer(bytes(32))
    values = [] if kind == "append" else history(signer)
    works: dict[str, Callable[[gossiplog.Log], None]] = {
        "append": lambda log: append(log, shared),
        "insert_many": lambda log: insert_many(log, shared, values),
        "pull": lambda log: pull(log, shared, values),
    }

    def run() -> None:
        if shared.statement:
            # Each transaction writes the index, too, as one of hundreds does otherwise.
            writing.INDEX_LAG = 0
        with gossiplog.open(Marked(shared.path, shared), _TOPIC, apply=apply, signer=signer) as log:
            works[kind](log)

    return run


def killed(write: Callable[[], None], shared: Shared) -> bool:
    """Have a writer run until it is killed, and check what it leaves; return False if it ended before."""
    shared.in_transaction = False
    _, status = os.waitpid(forked(write), 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and shared.statement:
        return False
    if code != -signal.SIGALRM:
        raise SystemExit("a writer ended before it was killed")
    return True


def checked(shared: Shared, when: str) -> None:
    _, status = os.waitpid(forked(lambda: check(shared)), 0)
    if status != 0:
        raise SystemExit(f"the log is not sound after it was killed {when}")


def before_each_statement(write: Callable[[], None], shared: Shared) -> int:
    """Kill writers before each statement of their third transaction, the second that has messages; return how many."""
    for number in itertools.count(1):
        shared.statement, shared.last = number, shared.transactions + 3
        if not killed(write, shared):
            shared.statement = 0
            return number - 1
        if not shared.in_transaction:
            raise SystemExit("a statement was outside its transaction")
        checked(shared, f"before statement {number}")
    raise AssertionError


def main(folder: Path, kind: str, wanted: int) -> None:
    shared = Shared(folder / "log.db")
    chance = random.Random(0)
    write = writer(kind, shared)
    statements = before_each_statement(write, shared)
    acknowledged = shared.count
    shared.begin_log(folder / "log-0.db")
    kills = landed = 0
    while landed < wanted:
        if kills > 20 * wanted:
            raise SystemExit(f"only {landed} of {kills} kills landed in an open transaction")
        shared.last = shared.transactions + 1 + chance.randrange(_LONGEST_LIFE)
        # 0 would set no alarm.
        shared.remaining = max(1e-6, chance.choice([0.0001, 0.0003, 0.003]) * chance.random())
        killed(write, shared)
        kills += 1
        landed += shared.in_transaction
        checked(shared, f"by chance, {kills} times")
        if shared.count + (_LONGEST_LIFE + 2) * _PORTION > _HISTORY:
            # Every check and every writer goes through the whole log.
            acknowledged += shared.count
            shared.begin_log(folder / f"log-{kills}.db")
    acknowledged += shared.count
    result = {"kills": kills + statements, "landed": landed + statements, "statements": statements}
    sys.stdout.write(json.dumps(result | {"acknowledged": acknowledged}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
