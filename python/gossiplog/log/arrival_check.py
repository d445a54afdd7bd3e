"""The check of stored messages in the order in which they arrived, against the rows that came with them.

Messages are planned again, each after those that have smaller sequences, and the rows compared: signatures, link
records, leaves, children, alternative encodings. What is right for a range of sequences is right if what comes before
it is, so that ranges can be checked apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gossiplog import core
from gossiplog.errors import CorruptLog, DecodeError, GossipLogError, InvalidMessage, StorageError
from gossiplog.log.forks import Forks
from gossiplog.log.reading import keys_at, named_by_key
from gossiplog.reference.ancestors import MAX_SHORTCUT, link_distances, write_links
from gossiplog.storage import Storage
from gossiplog.storage.base import Position, Progress, Reader

MOST_PROBLEMS = 1000
_PAGE = 4096

Kind: TypeAlias = Literal["value", "leaf", "tree", "links", "children", "head", "order", "encoding", "index", "file"]
"""What damage is of: the value of a message, its leaf, the tree over the leaves, its link record, its rows among the
children, the heads, the order of arrival, the record that it is an alternative encoding, what the log says of itself as
a whole, the file of the database."""

_Row = tuple[int, bytes]


@dataclass(slots=True)
class ChildCounts:
    """Rows of the children's index, which are counted because a row too many is under no message that asks for it.

    Attributes:
        expected: those of the messages that were checked.
        stored: those whose parents were checked.
        unknown: whether the parents of some message are not known, because its value is damaged or lost.
    """

    expected: int = 0
    stored: int = 0
    unknown: bool = False

    def problem(self) -> Problem | None:
        """Return what is wrong when all messages of a log have been checked."""
        if self.stored == self.expected or (self.unknown and self.stored > self.expected):
            return None
        return Problem("children", f"{self.stored} pairs of parent and child are stored; {self.expected} are expected")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        kind: of what.
        text: a sentence.
        key: of the message that it is about, None where that is not known.
    """

    kind: Kind
    text: str
    key: bytes | None = None


class TooManyProblems(Exception):
    """So many problems were found that no more are looked for."""


class Problems:
    """Collects what is wrong: enough to see it. A damaged file may have as many problems as messages.

    Attributes:
        found: so far.
    """

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def report(self, problem: Problem) -> None:
        """Take a problem that was not found before.

        Raises:
            TooManyProblems: it is the last that is taken.
        """
        # Several looks meet the same damage.
        if problem not in self.found:
            self.found.append(problem)
        if len(self.found) == MOST_PROBLEMS:
            raise TooManyProblems


class ArrivalCheck:
    """Checks messages of one state of a log, with the rows that came with them.

    Args:
        indexed: the sequence up to which the index goes in the state.
        report: takes what is wrong.
        signatures: whether they are verified.
        forks: takes the messages, which then have to be all, up to the first that is damaged.
    """

    def __init__(
        self,
        storage: Storage,
        topic: str,
        indexed: int,
        report: Callable[[Problem], None],
        *,
        signatures: bool = True,
        forks: Forks | None = None,
    ) -> None:
        self._forks = forks
        self._storage = storage
        self._topic = topic
        self._indexed = indexed
        self._report = report
        self._signatures = signatures
        self.heads: dict[bytes, int] = {}
        """Of the messages that were checked, those that none of the others names as a parent."""
        self.children = ChildCounts()
        # Sound messages that are not under their keys, which messages name as their parents.
        self._misplaced: dict[bytes, int] = {}

    def run(self, first: int, last: int, progress: Progress | None = None) -> None:
        """Check the messages with sequences from `first` to `last`.

        Args:
            first: 1 or more.
            last: of a message of the state.
            progress: `progress(done, total)` is called with numbers of messages.

        Raises:
            StorageError: the database cannot be read; CorruptLog where its file is damaged.
        """
        checked, done = first - 1, 0
        while checked < last:
            with self._storage.reader() as reader:
                rows = [row for row in reader.arrivals(checked, _PAGE) if row[0] <= last]
                if not rows:
                    break
                for before, after in _gaps(checked, rows):
                    self._forks = None
                    self.children.unknown = True
                    self._say("order", _missing(before + 1, after - 1))
                parsed = core.read_batch([value for _, value in rows], self._topic)
                for run in _runs(rows, parsed.keys):
                    with reporting(self._report, "order", f"sequences {run[0][0]} to {run[-1][0]}"):
                        # Mostly all of a page is one run.
                        self._check_run(reader, run, parsed if len(run) == len(rows) else None)
                own: Sequence[int] = range(checked + 1, rows[-1][0] + 1)
                if len(own) > 2 * _PAGE:
                    # The sequence of a damaged row may be any number.
                    own = [sequence for sequence, _ in rows]
                self.children.stored += len(reader.children(own, 1, self._indexed))
            done += len(rows)
            if progress is not None:
                progress(done, last - first + 1)
            checked = rows[-1][0]
        if checked != last:
            self._say("order", f"the last message has the sequence {checked}; {last} is expected")

    def _say(self, kind: Kind, text: str, key: bytes | None = None) -> None:
        self._report(Problem(kind, text, key))

    def _check_run(self, reader: Reader, run: Sequence[_Row], parsed: core.Batch | None = None) -> None:
        values = [value for _, value in run]
        if self._signatures:
            batch = core.verify_batch(values, self._topic)
        else:
            batch = parsed or core.read_batch(values, self._topic)
        keys = batch.keys
        leaves = reader.leaf_rows([key for key in keys if key])
        wrong = dict(batch.invalid)
        misplaced = [
            index for index, (sequence, _) in enumerate(run) if leaves.get(keys[index], (b"", 0))[1] != sequence
        ]
        if wrong or misplaced:
            self._forks = None
            self._report_wrong(reader, run, {index: wrong.get(index) for index in sorted({*wrong, *misplaced})})
            # What comes after one of these is judged by the leaves, which say what it was.
            for piece in _without(run, {*wrong, *misplaced}):
                self._check_run(reader, piece)
            return
        first, last = run[0][0], run[-1][0]
        found = reader.sequences(batch.parents())
        if self._misplaced:
            found |= {key: self._misplaced[key] for key in batch.parents() if key in self._misplaced}
        parents = {key: sequence for key, sequence in found.items() if sequence < first}
        first_children = {sequence: first for key, sequence in parents.items() if key in self.heads}
        plan = batch.plan(first, parents, reader.links, first_children=first_children)
        for index, missing in plan.orphans:
            text = f"parents are missing or came later: {core.encode_id(missing[0])} first"
            self._say("order", f"sequence {run[index][0]}: {text}", keys[index])
        for key in plan.heads_removed:
            self.heads.pop(key, None)
        self.heads.update(plan.heads_added)
        pairs = plan.children
        children = {pair for pair in pairs if pair[1] <= self._indexed}
        self.children.expected += len(children)
        if len(plan.order) != len(run):
            self.children.unknown = True
            self._forks = None
            return
        parents_of: dict[int, list[int]] = {}
        for parent, child in pairs:
            parents_of.setdefault(child, []).append(parent)
        if self._forks is not None:
            self._look_for_forks(self._forks, reader, first, batch, parents_of, plan.alternatives)
        for key, hash, _ in plan.leaves:
            if leaves[key][0] != hash:
                self._say("leaf", f"message {named_by_key(key)}: its leaf is not that of its value", key)
        links = reader.links([sequence for sequence, _ in run])
        for key, (sequence, _, record), kept in zip(keys, plan.messages, links, strict=True):
            own = parents_of.get(sequence, [])
            if not _is_expected(sequence, kept, record, own) and not (
                (exact := _exact_links(reader, sequence, record)) and _is_expected(sequence, kept, exact, own)
            ):
                self._say("links", f"sequence {sequence}: its links are not those to its ancestors", key)
        contents = reader.contents([sequence for sequence, _ in run])
        for sequence, content in contents.items() ^ dict(plan.alternatives).items():
            text = f"sequence {sequence}: stored or missing wrongly as an encoding of {named_by_key(content)}"
            self._say("encoding", text, keys[sequence - first])
        stored_children = set(reader.children(sorted({parent for parent, _ in children}), first, last))
        for parent, child in children - stored_children:
            text = f"sequence {child}: not stored as a child of sequence {parent}"
            self._say("children", text, keys[child - first])

    @staticmethod
    def _look_for_forks(
        forks: Forks,
        reader: Reader,
        first: int,
        batch: core.Batch,
        parents: Mapping[int, Sequence[int]],
        alternatives: Sequence[tuple[int, bytes]],
    ) -> None:
        if alternatives:
            canonical = reader.sequences([content for _, content in alternatives])
            for sequence, content in alternatives:
                forks.add_encoding(sequence, content, canonical.get(content))
        for sequence, message in enumerate(batch, first):
            if not isinstance(message, InvalidMessage):
                forks.add(sequence, message.key, message.author, parents.get(sequence, ()), reader.links)

    def _report_wrong(self, reader: Reader, run: Sequence[_Row], wrong: Mapping[int, InvalidMessage | None]) -> None:
        """Report messages that are invalid, or whose keys lead elsewhere; the value or the key is what is wrong."""
        self.children.unknown = True
        batch = core.verify_batch([run[index][1] for index in wrong], self._topic)
        # The id of a damaged value is that of no message.
        leaves = keys_at(reader, {run[index][0] for index in wrong})
        for (index, invalid), verdict in zip(wrong.items(), batch, strict=True):
            sequence = run[index][0]
            failure = invalid or verdict
            if isinstance(failure, InvalidMessage):
                key = leaves.get(sequence)
                name = "" if key is None else f"message {named_by_key(key)}: "
                self._say("value", f"sequence {sequence}: {name}{failure.reason}")
            else:
                self._misplaced[failure.key] = sequence
                self._say("leaf", f"sequence {sequence}: message {failure.id} is not under its key", failure.key)


def log_problems(reader: Reader, position: Position) -> Iterator[Problem]:
    """Yield the problems that no message leads to: stray rows, a contradictory position, damaged notes of `apply`.

    Args:
        reader: of one state of the log.
        position: of this state.
    """
    kinds: Mapping[str, Kind] = {"messages": "order", "leaves": "leaf", "children": "children"}
    for table, row in reader.strays(position):
        yield Problem(kinds.get(table, "encoding"), f"the row {row} of {table} is of no message")
    if position.contradiction:
        yield Problem("index", position.contradiction)
    try:
        reader.application_tables()
    except CorruptLog as error:
        yield from (Problem("index", problem) for problem in error.problems)


@contextmanager
def reporting(report: Callable[[Problem], None], kind: Kind, where: str) -> Iterator[None]:
    """Report errors of a block as problems of what is stored there, and go on after it.

    Args:
        report: takes the problems.
        kind: of the problems.
        where: what the block looks at.

    Raises:
        StorageError: the database cannot be read.
    """
    try:
        yield
    except CorruptLog as error:
        # Each is a sentence of its own.
        for problem in error.problems:
            report(Problem(kind, problem))
    except StorageError:
        raise
    except GossipLogError as error:
        report(Problem(kind, f"{where}: {error}"))


def _runs(rows: Sequence[_Row], keys: Sequence[bytes]) -> Iterator[Sequence[_Row]]:
    """Cut rows where keys do not ascend: within a run a batch gets the sequences that its messages have."""
    start = 0
    for index in range(1, len(rows)):
        if keys[index] <= keys[index - 1] or rows[index][0] != rows[index - 1][0] + 1:
            yield rows[start:index]
            start = index
    yield rows[start:]


def _gaps(before: int, rows: Sequence[_Row]) -> Iterator[tuple[int, int]]:
    """Yield pairs of sequences between which some are missing, from that of the message before the rows on."""
    for sequence, _ in rows:
        if sequence != before + 1:
            yield before, sequence
        before = sequence


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"there is no message with the sequence {first}"
    return f"there are no messages with the sequences {first} to {last} ({last - first + 1:,} messages)"


def _without(run: Sequence[_Row], indices: Collection[int]) -> Iterator[Sequence[_Row]]:
    """Yield the pieces of a run between some of its rows."""
    start = 0
    for index in [*sorted(indices), len(run)]:
        if start < index:
            yield run[start:index]
        start = index + 1


def _is_expected(sequence: int, stored: bytes, expected: bytes, parents: Sequence[int]) -> bool:
    """Return whether a stored link record is the one expected, but for link sets that were left out for their cost.

    The cores search in different ways, and so leave out different ones.

    Args:
        sequence: of the message.
        stored: record.
        expected: record.
        parents: of the message, ascending: what stands in the record where all link sets were left out.
    """
    if stored == expected:
        return True
    clock, link_sets = core.link_record(sequence, expected)
    try:
        stored_clock, found = core.link_record(sequence, stored)
    except DecodeError:
        return False
    if clock != stored_clock:
        return False
    if found and not found[0]:
        return found[-1] == parents
    return all(
        each == wanted or (k > 0 and not each)
        for k, (each, wanted) in enumerate(zip(found, link_sets[: len(found)], strict=True))
    )


def _exact_links(reader: Reader, sequence: int, record: bytes) -> bytes | None:
    """Return a link record without limits on the search for its link sets, None where others are damaged.

    Earlier versions left a link set out where it was wide itself, not where the search for it was.
    """

    def links(sequences: Sequence[int]) -> list[bytes]:
        return [
            record if each == sequence else stored
            for each, stored in zip(sequences, reader.links(sequences), strict=True)
        ]

    clock, _ = core.link_record(sequence, record)
    try:
        link_sets = [core.frontier(sequence, clock - distance, links) for distance in link_distances(clock)]
    except DecodeError:
        return None
    kept = [() if k and len(found) > MAX_SHORTCUT else found for k, found in enumerate(link_sets)]
    return write_links(sequence, clock, kept)
