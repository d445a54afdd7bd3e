"""The check of what a log stores beside its messages, on all cores: the rows of each message, the tree, and the file.

`gossiplog.log.arrival_check` looks at ranges of sequences, without the signatures, which are verified by key. The tree
is looked at in ranges of keys that begin with nodes of its level 1: over the leaves of such a range there are the same
nodes as in the whole tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import SparkSession

from gossiplog import core
from gossiplog.log.arrival_check import ArrivalCheck, ChildCounts, Problem, Problems, TooManyProblems, reporting
from gossiplog.spark.jobs.log_metadata import LogMetadata
from gossiplog.spark.source.locations import opened
from gossiplog.spark.tasks import spread

_TASK_MESSAGES = 2**17


@dataclass(frozen=True, slots=True)
class _Part:
    """What a task checks.

    Attributes:
        first: the least sequence.
        last: the largest sequence.
        start: the least key, b"" at the start of the log.
        end: the key before which it ends, None at the end of the log.
    """

    first: int
    last: int
    start: bytes
    end: bytes | None


def check_rows(session: SparkSession, location: str, own: LogMetadata) -> list[Problem]:
    """Check the file of a log, the rows that belong to its messages, and its tree.

    Args:
        session: of Spark.
        location: of the log.
        own: what the log says of itself.

    Raises:
        StorageError: the log cannot be read.
        SparkError: Spark gave up.
    """
    number = max(os.cpu_count() or 1, -(-own.count // _TASK_MESSAGES))
    with opened(location, own.topic) as (storage, _):
        problems = [Problem("file", line) for line in storage.check()]
        if not own.count:
            return problems
        with storage.reader(single=True) as reader:
            split_keys = reader.split_keys(b"", None, number)
    bounds = [own.count * part // number for part in range(number + 1)]
    keys = [b"", *split_keys, None]
    # A tree may have fewer nodes than there are tasks: the last ones have no keys then.
    keys += [None] * (number + 1 - len(keys))
    parts = [
        _Part(before + 1, last, b"" if start is None else start, b"" if start is None else end)
        for (before, last), (start, end) in zip(pairwise(bounds), pairwise(keys), strict=True)
    ]
    found = spread(session, parts, _RowTask(location, own))
    counts = ChildCounts(
        sum(each.expected for _, each in found),
        sum(each.stored for _, each in found),
        any(each.unknown for _, each in found),
    )
    problems += [problem for some, _ in found for problem in some]
    if (problem := counts.problem()) is not None:
        problems.append(problem)
    return problems


class _RowTask:
    """Checks a part of a log."""

    def __init__(self, location: str, own: LogMetadata) -> None:
        self._location = location
        self._topic = own.topic
        self._indexed = own.indexed

    def __call__(self, part: _Part) -> tuple[list[Problem], ChildCounts]:
        """Return what is wrong, and how many rows of children there are."""
        problems = Problems()

        def report(problem: Problem) -> None:
            # Values are judged where they are read by their keys.
            if problem.kind != "value":
                problems.report(problem)

        with opened(self._location, self._topic) as (storage, topic):
            check = ArrivalCheck(storage, topic, self._indexed, report, signatures=False)
            try:
                check.run(part.first, part.last)
                with storage.reader() as reader, reporting(report, "tree", "the tree"):
                    # The index may have been written since: it is that of the leaves of the same moment.
                    leaves = reader.leaves(part.start, part.end, reader.position().indexed)
                    stored = [row for row in reader.level1() if _within(row[0], part)]
                    for problem in _tree_problems(leaves, stored, part):
                        report(problem)
            except TooManyProblems:
                check.children.unknown = True
        return problems.found, check.children


def _within(key: bytes, part: _Part) -> bool:
    return part.start <= key and (part.end is None or key < part.end)


def _tree_problems(
    leaves: Sequence[tuple[bytes, bytes]], stored: Sequence[tuple[bytes, bytes]], part: _Part
) -> Iterator[Problem]:
    """Yield the rows of the tree's level 1 that are not those over the leaves."""
    if not leaves and not stored:
        return
    tree, _ = core.Tree.open([], 0).insert_leaves([(key, hash, 0) for key, hash in leaves], lambda *_: [])
    nodes = [(node.key or b"", node.hash) for node in (tree.nodes(1) if tree.root.level > 0 else [])]
    # The anchor of the whole tree stands before the first of the ranges alone.
    built = {row for row in nodes if row[0] or not part.start}
    for key, _ in sorted(built ^ set(stored)):
        yield Problem("tree", "the tree's node that begins with it is stored or missing wrongly", key or None)
