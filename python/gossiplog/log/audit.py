"""The check of everything that a log stores against what it must be.

First every message is held against the rows that came with it (`arrival_check`), then every node of the tree's level 1
against its leaves. The tree that this process works with is held against one that is built anew from the leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gossiplog import core
from gossiplog.errors import CorruptLog
from gossiplog.log.arrival_check import (
    ArrivalCheck,
    Kind,
    Problem,
    Problems,
    TooManyProblems,
    log_problems,
    reporting,
)
from gossiplog.log.forks import Forks
from gossiplog.log.reading import named_by_key, raise_damage, raising_corrupt_log
from gossiplog.log.results import VerifyResult
from gossiplog.log.state import State, check_index, replayed, stored_state
from gossiplog.reprs import counted
from gossiplog.storage import Storage
from gossiplog.storage.base import DiskFailure, Progress, Reader

# Of level 1, between whose keys leaves are read together: about 4,096 leaves.
_NODES = 128


class Audit:
    """Checks one state of a log.

    Args:
        held: the state of the log that this process works with.
        progress: `progress(done, total)` is called with numbers of messages.
    """

    def __init__(self, storage: Storage, topic: str, held: State, progress: Progress | None) -> None:
        self._storage = storage
        self._topic = topic
        self._held = held
        self._progress = progress
        self._start_over()

    def _start_over(self) -> None:
        self._problems = Problems()
        self._report = self._problems.report

    def run(self) -> VerifyResult:
        """Check everything, and once more where something looks wrong: an error of the disk that passes looks the same.

        Raises:
            CorruptLog: something is wrong; it lists what.
        """
        try:
            return self._run()
        except (CorruptLog, DiskFailure):
            # Messages are counted once.
            self._progress = None
        self._start_over()
        return self._run()

    def _run(self) -> VerifyResult:
        unreadable: tuple[str, ...] = ()
        try:
            verified = self._check()
        except TooManyProblems:
            pass
        except CorruptLog as error:
            # Damage that nothing can be read behind.
            unreadable = error.problems
        if problems := [*(problem.text for problem in self._problems.found), *unreadable]:
            raise_damage(self._storage, CorruptLog(problems))
        return verified

    def _check(self) -> VerifyResult:
        for line in self._storage.check():
            self._say("file", line)
        with self._storage.reader() as reader, raising_corrupt_log:
            position = reader.position()
            for problem in log_problems(reader, position):
                self._report(problem)
            indexed: State | None = None
            with reporting(self._report, "index", "the index"):
                indexed = stored_state(reader, position)
            state = indexed
            if indexed is not None:
                with reporting(self._report, "order", "the messages after the index"):
                    state = replayed(reader, indexed, position.count, self._topic)
        forks = Forks()
        arrivals = ArrivalCheck(self._storage, self._topic, position.indexed, self._report, forks=forks)
        arrivals.run(1, position.count, self._progress)
        if (counts := arrivals.children.problem()) is not None:
            self._report(counts)
        if state is None:
            raise TooManyProblems
        wrong = arrivals.heads.items() ^ set(state.heads)
        # Without the parents of damaged messages, it is not known which messages are heads.
        if wrong and not arrivals.children.unknown:
            heads = counted(len(wrong), "head is", "heads are")
            self._say("head", f"{heads} stored that should not be, or missing")
        self._check_tree(state.tree, state.count)
        with reporting(self._report, "tree", "the tree over the leaves"):
            self._check_held()
        if not self._problems.found:
            # Where the index is not the one that was written, mostly the messages have said so.
            with self._storage.reader() as reader, reporting(self._report, "index", "the index"):
                if reader.position().indexed == indexed.count:
                    check_index(reader, indexed)
        return VerifyResult(position.count, state.tree.root, forks.found)

    def _say(self, kind: Kind, text: str) -> None:
        self._report(Problem(kind, text))

    def _check_tree(self, tree: core.Tree, count: int) -> None:
        leaves = 0
        for node in tree.nodes(1) if tree.root.level > 0 else []:
            start, end = node.key or b"", tree.next_key(1, node.key)
            with self._storage.reader() as reader:
                rows = reader.leaves(start, end, count)
            leaves += len(rows)
            with reporting(self._report, "tree", f"the tree's node {_name(node)}"):
                children = [core.Node(0, key, hash) for key, hash in rows]
                if node.key is None:
                    children.insert(0, core.Tree().root)
                core.check_children(node, end, children)
        if leaves != count:
            self._say("tree", f"the tree has {leaves} leaves; {count} are expected")

    def _check_held(self) -> None:
        held, count = self._held.tree, self._held.count
        built = core.Tree.open([], 0)
        starts = [node.key for node in held.nodes(1)[1::_NODES]] if held.root.level > 0 else []
        for start, end in pairwise([b"", *starts, None]):
            with self._storage.reader() as reader:
                rows = reader.leaves(start or b"", end, count)
                built = _extended(built, rows, reader, count)
        top = max(held.root.level, built.root.level)
        wrong = [level for level in range(1, top + 1) if _nodes(held, level) != _nodes(built, level)]
        if wrong:
            self._say("tree", f"the tree in memory is not the one over the leaves: levels {wrong} differ")


def _extended(tree: core.Tree, rows: Sequence[tuple[bytes, bytes]], reader: Reader, count: int) -> core.Tree:
    """Return a tree with further leaves after its own, all of which are stored."""
    if not rows:
        return tree
    first = rows[0][0]
    extended, _ = tree.insert_leaves(
        [(key, hash, 0) for key, hash in rows],
        lambda start, end: reader.leaves(start, first if end is None else min(end, first), count),
    )
    return extended


def _nodes(tree: core.Tree, level: int) -> Sequence[core.Node]:
    return tree.nodes(level) if level <= tree.root.level else []


def _name(node: core.Node) -> str:
    return f"(level {node.level}, {'anchor' if node.key is None else named_by_key(node.key)})"
