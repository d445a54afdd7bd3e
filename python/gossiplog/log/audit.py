"""The check of everything that a log stores against what it must be.

Messages are planned again in the order in which they arrived, and the rows compared: signatures, link records,
children, heads. Then every node of the tree's level 1 is held against its leaves, every leaf against its message. The
tree that this process works with is held against one that is built anew from the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as count_up
from itertools import pairwise

from gossiplog import core
from gossiplog.errors import CorruptLog, DecodeError, GossipLogError, StorageError
from gossiplog.log.results import VerifyResult
from gossiplog.log.state import State, named_by_key, raising_corrupt_log, replayed, stored_state
from gossiplog.reference.ancestors import MAX_SHORTCUT, link_distances, write_links
from gossiplog.reprs import counted
from gossiplog.storage import Storage
from gossiplog.storage.base import Reader

_PAGE = 4096
# Of level 1, between whose keys leaves are read together: about 4,096 leaves.
_NODES = 128
# Enough to see what is wrong; a damaged file may have as many problems as messages.
_MOST_PROBLEMS = 1000

_Row = tuple[int, bytes]


class _Enough(Exception):
    """So many problems were found that no more are looked for."""


class Audit:
    """Checks one state of a log.

    Args:
        storage: of the log.
        topic: of the log.
        held: the state of the log that this process works with.
        progress: called with the number of messages checked since it was called before.
    """

    def __init__(self, storage: Storage, topic: str, held: State, progress: Callable[[int], object] | None) -> None:
        self._storage = storage
        self._topic = topic
        self._held = held
        self._progress = progress
        self._problems: list[str] = []
        self._heads: dict[bytes, int] = {}
        self._children = 0
        self._indexed = 0

    def run(self) -> VerifyResult:
        """Check everything.

        Raises:
            CorruptLog: something is wrong; it lists what.
        """
        try:
            verified = self._check()
        except _Enough:
            pass
        except CorruptLog as error:
            # Damage that nothing can be read behind.
            self._problems += error.problems
        if self._problems:
            raise CorruptLog(self._problems)
        return verified

    def _check(self) -> VerifyResult:
        for problem in self._storage.check():
            self._report(problem)
        with self._storage.reader() as reader, raising_corrupt_log:
            position = reader.position()
            self._indexed = position.indexed
            state = stored_state(reader, position)
            with self._reported("the messages after the index"):
                state = replayed(reader, state, position.count, self._topic)
        if position.applied > position.count:
            self._report(f"`apply` ran up to sequence {position.applied} of {position.count}")
        self._check_messages(position.count)
        wrong = self._heads.items() ^ set(state.heads)
        if wrong:
            self._report(f"{counted(len(wrong), 'head is', 'heads are')} stored or missing wrongly")
        self._check_tree(state.tree, state.count)
        with self._reported("the tree over the leaves"):
            self._check_held()
        return VerifyResult(position.count, state.tree.root)

    def _report(self, problem: str) -> None:
        self._problems.append(problem)
        if len(self._problems) == _MOST_PROBLEMS:
            raise _Enough

    @contextmanager
    def _reported(self, where: str) -> Iterator[None]:
        """Record errors of a block as problems of what is stored there; the check goes on after it."""
        try:
            yield
        except CorruptLog as error:
            for problem in error.problems:
                self._report(f"{where}: {problem}")
        except StorageError:
            raise
        except GossipLogError as error:
            self._report(f"{where}: {error}")

    def _check_messages(self, count: int) -> None:
        children = 0
        checked = 0
        while checked < count:
            with self._storage.reader() as reader:
                rows = [row for row in reader.arrivals(checked, _PAGE) if row[0] <= count]
                if not rows:
                    break
                for sequence, row in zip(count_up(checked + 1), rows, strict=False):
                    if row[0] != sequence:
                        self._report(f"there is no message with the sequence {sequence}")
                        break
                for run in self._runs(rows):
                    with self._reported(f"sequences {run[0][0]} to {run[-1][0]}"):
                        self._check_run(reader, run)
                own = range(checked + 1, rows[-1][0] + 1)
                children += len(reader.children(own, 1, self._indexed))
            if self._progress is not None:
                self._progress(len(rows))
            checked = rows[-1][0]
        if checked != count:
            self._report(f"the last message has the sequence {checked}; {count} is expected")
        if children != self._children:
            self._report(f"{children} pairs of parent and child are stored; {self._children} are expected")

    def _runs(self, rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
        """Cut rows where keys do not ascend: within a run a batch gets the sequences that its messages have."""
        start = 0
        keys = core.verify_batch([value for _, value in rows], self._topic, _all_known).keys
        for index in range(1, len(rows)):
            if keys[index] <= keys[index - 1] or rows[index][0] != rows[index - 1][0] + 1:
                yield rows[start:index]
                start = index
        yield rows[start:]

    def _check_run(self, reader: Reader, run: Sequence[_Row]) -> None:
        first, last = run[0][0], run[-1][0]
        batch = core.verify_batch([value for _, value in run], self._topic)
        for index, error in batch.invalid:
            self._report(f"sequence {run[index][0]}: {error}")
        for index in batch.duplicates:
            self._report(f"sequence {run[index][0]}: a message that is stored twice")
        found = reader.sequences(batch.parents())
        parents = {key: sequence for key, sequence in found.items() if sequence < first}
        heads = [sequence for key, sequence in parents.items() if key in self._heads]
        plan = batch.plan(first, parents, reader.links, heads=heads)
        for index, missing in plan.orphans:
            self._report(
                f"sequence {run[index][0]}: parents are missing or came later: {core.encode_id(missing[0])} first"
            )
        for key in plan.heads_removed:
            self._heads.pop(key, None)
        self._heads.update(plan.heads_added)
        children = {pair for pair in plan.children if pair[1] <= self._indexed}
        self._children += len(children)
        if len(plan.order) != len(run):
            return
        links = reader.links([sequence for sequence, _ in run])
        for (sequence, _, expected), stored in zip(plan.messages, links, strict=True):
            if stored != expected and stored != _earlier_links(reader, sequence, expected):
                self._report(f"sequence {sequence}: its links are not those to its ancestors")
        stored_contents = reader.contents([sequence for sequence, _ in run])
        for sequence, content in stored_contents.items() ^ dict(plan.alternatives).items():
            self._report(f"sequence {sequence}: stored or missing wrongly as an encoding of {named_by_key(content)}")
        stored_sequences = reader.sequences([key for key, _, _ in plan.leaves])
        for key, _, sequence in plan.leaves:
            if stored_sequences.get(key) != sequence:
                self._report(f"sequence {sequence}: message {core.encode_id(key)} is not under its key")
        stored_children = set(reader.children(sorted({parent for parent, _ in children}), first, last))
        for parent, child in children - stored_children:
            self._report(f"sequence {child}: not stored as a child of sequence {parent}")

    def _check_tree(self, tree: core.Tree, count: int) -> None:
        leaves = 0
        for node in tree.nodes(1) if tree.root.level > 0 else []:
            start, end = node.key or b"", tree.next_key(1, node.key)
            with self._storage.reader() as reader:
                rows = reader.leaves(start, end, count)
                values = reader.values([key for key, _ in rows], count)
            leaves += len(rows)
            for key, hash in rows:
                if key not in values or core.leaf_hash(key, values[key]) != hash:
                    self._report(f"message {named_by_key(key)}: its leaf is not that of its value")
            with self._reported(f"the tree's node {_name(node)}"):
                children = [core.Node(0, key, hash) for key, hash in rows]
                if node.key is None:
                    children.insert(0, core.Tree().root)
                core.check_children(node, end, children)
        if leaves != count:
            self._report(f"the tree has {leaves} leaves; {count} are expected")

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
            self._report(f"the tree in memory is not the one over the leaves: levels {wrong} differ")


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


def _all_known(keys: list[bytes]) -> list[bytes]:
    """Spare the signatures, where only keys are wanted."""
    return keys


def _name(node: core.Node) -> str:
    return f"(level {node.level}, {'anchor' if node.key is None else named_by_key(node.key)})"


def _earlier_links(reader: Reader, sequence: int, record: bytes) -> bytes | None:
    """Return the link record that this version writes as earlier ones wrote it, None where others are damaged.

    Earlier versions left a frontier out where it was wide itself, not where the search for it was.
    """

    def links(sequences: Sequence[int]) -> list[bytes]:
        return [
            record if each == sequence else stored
            for each, stored in zip(sequences, reader.links(sequences), strict=True)
        ]

    clock, _ = core.link_record(sequence, record)
    try:
        frontiers = [core.frontier(sequence, clock - distance, links) for distance in link_distances(clock)]
    except DecodeError:
        return None
    kept = [() if k and len(found) > MAX_SHORTCUT else found for k, found in enumerate(frontiers)]
    return write_links(sequence, clock, kept)
