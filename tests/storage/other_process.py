"""Another process that writes to logs when it is told to: `python -m tests.storage.other_process`.

It reads lines of JSON: the location of a log and the values of messages, as hexadecimal text. It answers each with the
number of messages that the log has then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Self

from gossiplog import core
from gossiplog.storage.base import Reader, Transaction
from gossiplog.storage.location import storage_at

TOPIC = "org.example.test"


def plan_of(reader: Reader, values: list[bytes]) -> core.WritePlan:
    """Return what a log does next to store messages."""
    batch = core.verify_batch(values, TOPIC)
    return batch.plan(reader.position().count + 1, reader.sequences(batch.parents()), reader.links)


def write(transaction: Transaction, values: list[bytes]) -> core.WritePlan:
    """Do what a log does to store messages."""
    count = transaction.position().count
    plan = plan_of(transaction, values)
    tree = core.Tree.open(transaction.level1(), count)
    _, level1 = tree.insert_leaves(plan.leaves, lambda start, end: transaction.leaves(start, end, count))
    transaction.index(plan, level1, count + len(plan.order))
    transaction.write(plan)
    return plan


class OtherProcess:
    """The process, for the time of a block."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate()

    def write(self, location: str, values: list[bytes]) -> int:
        """Have it store messages; return how many there are then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([location, [value.hex() for value in values]]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def main() -> None:
    for line in sys.stdin:
        location, values = json.loads(line)
        storage = storage_at(location)
        storage.open(TOPIC, False)
        with storage.transaction() as transaction:
            write(transaction, [bytes.fromhex(value) for value in values])
        with storage.reader() as reader:
            count = reader.position().count
        storage.close()
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
