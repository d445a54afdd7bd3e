"""The check of what a log stores beside its messages: the rows of each message, the tree, and the file.

`gossiplog.log.arrival_check` looks at ranges of sequences, without the signatures, which are verified by key. The tree
is looked at in ranges of keys that begin with nodes of its level 1: over the leaves of such a range there are the same
nodes as in the whole tree. Which messages are heads is held against the index of the children, which is checked by
sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gossiplog import core
from gossiplog.log.arrival_check import (
    MOST_PROBLEMS,
    ArrivalCheck,
    ChildCounts,
    Problem,
    Problems,
    TooManyProblems,
    log_problems,
    reporting,
)
from gossiplog.spark.jobs.log_metadata import LogMetadata, head_pages, wrong_heads
from gossiplog.spark.jobs.over_logs import LogPart
from gossiplog.storage import Storage
from gossiplog.storage.base import Reader

_PAGE = 1000


def check_rows(storage: Storage, own: LogMetadata, part: LogPart) -> tuple[list[Problem], ChildCounts]:
    """Return what is wrong with the rows of a part, and how many rows of children there are.

    For the part that checks the file, also return the other rows that no message leads to.

    Args:
        storage: of the log.
        own: what the log says of itself.
        part: of the log.

    Raises:
        StorageError: the log cannot be read.
    """
    problems = Problems()

    def report(problem: Problem) -> None:
        # Values are judged where they are read by their keys.
        if problem.kind != "value":
            problems.report(problem)

    check = ArrivalCheck(storage, own.topic, own.indexed, report, signatures=False)
    try:
        if part.checks_file:
            for line in storage.check():
                report(Problem("file", line))
            with storage.reader() as reader:
                for problem in log_problems(reader, reader.position()):
                    report(problem)
        if part.first <= part.last:
            check.run(part.first, part.last)
        with storage.reader() as reader, reporting(report, "tree", "the tree"):
            # The index may have been written since: it is that of the leaves of the same moment.
            leaves = reader.leaves(part.start, part.end, reader.position().indexed)
            stored = reader.level1(part.start, part.end)
            for problem in _tree_problems(leaves, stored, part):
                report(problem)
    except TooManyProblems:
        check.children.unknown = True
    return problems.found, check.children


def check_heads(
    storage: Storage, own: LogMetadata, part: LogPart, childless: pa.ChunkedArray
) -> tuple[list[Problem], list[bytes]]:
    """Return what is wrong with the heads that a log stores in a range of keys, and heads that it lacks there.

    They are those of the messages that the index covers, which may have been written since the log was looked at. Of
    each kind these are the first; those that are lacking are none where the index of the children is damaged. Heads
    are read in pages: a file may have any number of them, whatever its messages.

    Args:
        storage: of the log.
        own: what the log says of itself.
        part: of the log.
        childless: keys of the messages that no other in the range names, none of which arrived later than `own` says.

    Raises:
        StorageError: the log cannot be read.
    """
    problems = Problems()
    lost: list[bytes] = []
    try:
        with storage.reader() as reader, reporting(problems.report, "head", "the heads"):
            indexed = reader.position().indexed
            sound = _check_stored_heads(reader, own, part, indexed, problems)
            for keys in _pages(childless.filter(pc.invert(pc.is_in(childless, sound)))):
                actual = _without_children(reader, keys, indexed)
                lost += sorted(actual)[: MOST_PROBLEMS - len(lost)]
    except TooManyProblems:
        lost.clear()
    return problems.found, lost


def _check_stored_heads(
    reader: Reader, own: LogMetadata, part: LogPart, indexed: int, problems: Problems
) -> pa.ChunkedArray:
    """Return the keys of the messages that are stored as heads in a range, and report those that are none.

    Raises:
        TooManyProblems: there are so many of these.
    """
    kept: list[pa.Array] = []
    strangers = 0
    for rows in head_pages(reader, part.start, part.end):
        numbers = reader.sequences([key for key, _ in rows])
        stored = [key for key, sequence in rows if numbers.get(key) == sequence <= indexed]
        strangers += len(rows) - len(stored)
        # Of what came later another look may judge.
        stored = [key for key in stored if numbers[key] <= own.count]
        actual = _without_children(reader, stored, indexed)
        for key in stored:
            if key not in actual:
                problems.report(Problem("head", "it is stored as a head, and is none", key))
        kept.append(pa.array([key for key, _ in rows if key in numbers], pa.binary()))
    if strangers:
        problems.report(Problem("index", wrong_heads(strangers)))
    return pa.chunked_array(kept, pa.binary())


def _pages(keys: pa.ChunkedArray) -> Iterator[list[bytes]]:
    for at in range(0, len(keys), _PAGE):
        yield keys.slice(at, _PAGE).to_pylist()


def _without_children(reader: Reader, keys: Sequence[bytes], indexed: int) -> set[bytes]:
    """Return those of the keys whose messages the index covers, and no child of them."""
    sequences = {key: number for key, number in reader.sequences(keys).items() if number <= indexed}
    parents = {parent for parent, _ in reader.children(sorted(sequences.values()), 1, indexed)}
    return {key for key, number in sequences.items() if number not in parents}


def _tree_problems(
    leaves: Sequence[tuple[bytes, bytes]], stored: Sequence[tuple[bytes, bytes]], part: LogPart
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
