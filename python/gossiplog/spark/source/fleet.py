"""The plan of work over any number of logs: ranges of logs, packed into tasks of about equal weight.

A task has many small logs, or a part of a large one. What a task costs is estimated by a log's messages, by its bytes,
and by a constant for opening it; all three as numbers of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyspark.sql.datasource import InputPartition

from gossiplog.spark.source.marks import LogMark
from gossiplog.spark.source.remote import is_remote
from gossiplog.storage import Storage

OPEN_WEIGHT = 1000
"""Of opening a log. It takes 1.5 ms of processor time, as the messages of three batches or the signatures of 50."""
BYTES_OF_A_MESSAGE = 512
"""Of a log, for each message that it counts for at least: Spark's 128 MiB are as many messages as a partition has."""

TASK_MESSAGES = 2**17
"""Messages in a task of a job over logs, at most about: some seconds of verifying."""
LEAST_MESSAGES = 2**14
"""For which a task is worth its start while there are idle cores: below, a second one costs about what it spares."""
# Tasks for each core where there are many logs: so the last ones end at about the same time.
_TASKS_OF_A_CORE = 3


class Weighted(Protocol):
    """What takes a share of a task."""

    @property
    def weight(self) -> int:
        """About how many messages it costs as much as."""


Item = TypeVar("Item", bound=Weighted)


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log that work is planned over. Unless it is an `OpenedLog`, the task that opens it takes the state it finds.

    Attributes:
        name: of the log, as the read has it.
        location: of the log, wherever a task runs.
        topic: that it must have; None takes any.
        size: of the log, in bytes; 0 where it is not known.
    """

    name: str
    location: str
    topic: str | None
    size: int

    @property
    def messages(self) -> int:
        """How many messages the log counts for."""
        return self.size // BYTES_OF_A_MESSAGE

    @property
    def weight(self) -> int:
        """What it costs to open it and to read all of it."""
        return OPEN_WEIGHT + self.messages


@dataclass(frozen=True, slots=True)
class OpenedLog(FoundLog):
    """A log in the state that it had when it was opened, in which it is read from then on.

    Attributes:
        topic: its own.
        count: of messages in that state.
        mark: of the log in that state or an earlier one.
    """

    topic: str
    count: int
    mark: LogMark

    @property
    def messages(self) -> int:
        """How many messages the log counts for."""
        return max(self.count, self.size // BYTES_OF_A_MESSAGE)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A part of a log.

    Attributes:
        log: of which it is a part; in the state that its task finds, unless it is an `OpenedLog`.
        start: the least key, itself included.
        end: the key before which it ends, None at the end of the log.
        weight: about how many messages it costs as much as.
    """

    log: FoundLog
    start: bytes
    end: bytes | None
    weight: int


@dataclass(frozen=True, slots=True)
class Bundle(InputPartition):
    """What one task reads.

    Attributes:
        ranges: in the order of the logs and of the keys.
    """

    ranges: tuple[KeyRange, ...]


def split_open(
    storage: Storage, log: OpenedLog, parts: int, first: bytes = b"", last: bytes | None = None
) -> list[KeyRange]:
    """Return ranges of a log that is open, as `split` does."""
    split_keys: Sequence[bytes] = ()
    # Of a log that is copied, each range would take another copy.
    if parts > 1 and not is_remote(log.location):
        with storage.reader(single=True) as reader:
            split_keys = reader.split_keys(first, last, parts)
    weight = OPEN_WEIGHT + log.messages // (len(split_keys) + 1)
    starts, ends = [first, *split_keys], [*split_keys, last]
    return [KeyRange(log, start, end, weight) for start, end in zip(starts, ends, strict=True)]


def pack(items: Sequence[Item], tasks: int) -> list[list[Item]]:
    """Return items in at most so many groups of about equal weight, none of them empty, in their order.

    An item goes where its middle falls if all of them stand in a row that is cut into equal pieces: a group's weight
    differs from the mean by that of one item at most.

    Args:
        items: with weights above 0.
        tasks: 1 or more.
    """
    total = sum(item.weight for item in items)
    groups: dict[int, list[Item]] = {}
    before = 0
    for item in items:
        groups.setdefault((2 * before + item.weight) * tasks // (2 * total), []).append(item)
        before += item.weight
    return list(groups.values())


def packed(items: Sequence[Item], cores: int) -> list[list[Item]]:
    """Return items in groups for tasks, as `pack` does it, in as many as are worth their start.

    Args:
        items: with weights above 0.
        cores: how many tasks run at a time.
    """
    total = sum(item.weight for item in items)
    wanted = max(-(-total // TASK_MESSAGES), min(_TASKS_OF_A_CORE * cores, total // LEAST_MESSAGES), 1)
    return pack(items, wanted)
