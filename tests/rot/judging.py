"""What becomes of a change of a log's file: each use of the log after it, held against the same use of the sound log.

A change is harmless where every use has the results that it had. Otherwise the log is refused when it is opened, or the
use that meets the damage raises CorruptLog. What is neither is a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from pyspark.sql.types import StructType

import gossiplog
from gossiplog import Log, SignedMessage, core
from gossiplog.errors import CorruptLog, CorruptSource, GossipLogError, StorageError
from gossiplog.log.log import replica_of
from gossiplog.spark.jobs.verify import VerifyWork
from gossiplog.spark.source.options import BATCH_OPTIONS, SCHEMA, read_options
from gossiplog.spark.source.problems import problem_error
from gossiplog.spark.source.reader import LogReader
from tests.rot.cells import Cell, Unchanged
from tests.rot.shapes import SIGNER, Shape
from tests.spark.jobs.inline_logs import inline

Use: TypeAlias = Callable[[Log], object]

#: How many ids `get` and the questions about ancestors are asked for.
_ASKED = 12
#: What reads rows of an index alone, and cannot know that it lacks one: then `verify` names it (docs/design/log.md).
_LEFT_TO_VERIFY = ("children", "count")


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of a file.

    Attributes:
        shape: of the log.
        file: its name.
        offset: of the byte.
        bit: of the byte, 0 to 7.
    """

    shape: str
    file: str
    offset: int
    bit: int

    def __str__(self) -> str:
        return f"{self.shape}:{self.file}:{self.offset}:{self.bit}"

    def apply(self, folder: Path) -> None:
        """Flip the bit in a folder with the log."""
        with (folder / self.file).open("r+b") as file:
            file.seek(self.offset)
            byte = file.read(1)[0]
            file.seek(self.offset)
            file.write(bytes([byte ^ 1 << self.bit]))


Change: TypeAlias = Flip | Cell


@dataclass(frozen=True, slots=True)
class Known:
    """The results of a sound log, to compare with.

    Attributes:
        shape: of the log.
        reads: the results by the names of the uses, as digests.
        keys: of its messages.
        ids: some of them.
        parents: what an own message follows.
        order: the values in the order of their arrival, as a digest.
        root: of its tree.
        count: of its messages.
        children: of those messages.
        topic: the topic of the log.
        added: the messages that only the later log has.
    """

    shape: Shape
    reads: Mapping[str, str]
    keys: frozenset[bytes]
    ids: tuple[str, ...]
    parents: tuple[str, ...]
    order: str
    root: core.Node
    count: int
    children: tuple[tuple[str, ...], ...]
    topic: str
    added: tuple[SignedMessage, ...]


@dataclass(slots=True)
class Outcome:
    """What became of a change.

    Attributes:
        change: of the file.
        fate: "harmless", "named" or "refused"; "none" where the file cannot be changed so.
        failures: what must not have happened, one sentence each.
        repaired: whether there was something to repair.
    """

    change: Change
    fate: str = "harmless"
    failures: list[str] = field(default_factory=list)
    repaired: bool = False


def uses(ids: Iterable[str]) -> dict[str, Use]:
    """Return every public read, by name."""
    some = [*ids]
    first, last = some[0], some[-1]
    return {
        "messages": lambda log: [message.value for message in log.messages()],
        "messages in reverse": lambda log: [message.id for message in log.messages(reverse=True, limit=20)],
        "a range of messages": lambda log: [message.id for message in log.messages(after=some[1], before=last)],
        "a range in reverse": lambda log: [message.id for message in log.messages(before=last, reverse=True, limit=40)],
        "a page": lambda log: replica_of(log).page(
            core.decode_id(first), None, reverse=False, limit=50, most_bytes=20_000
        ),
        "get": lambda log: [log.get(id).value for id in some],
        "content_id": lambda log: [log.content_id(id) for id in some],
        "contains": lambda log: [id in log for id in some],
        "len": len,
        "count": lambda log: log.count(after=first, before=last),
        "subscribe": _subscribed,
        "heads": lambda log: log.heads,
        "clock": lambda log: log.clock,
        "root": lambda log: log.root,
        "is_ancestor": lambda log: [log.is_ancestor(first, id) for id in some],
        "frontier": lambda log: [log.frontier(id, 3) for id in some],
        "children": lambda log: [log.children(id) for id in some],
        "info": lambda log: (log.info().authors, log.info().messages),
    }


def _subscribed(log: Log) -> list[bytes]:
    values: list[bytes] = []
    count = len(log)
    for messages in log.subscribe(after=0, batch_size=1000):
        values += [message.value for message in messages]
        if len(values) >= count:
            return values
    return values


def know(shape: Shape) -> Known:
    """Return the results of a sound log."""
    path = shape.folder.parent / "known" / "log.db"
    path.parent.mkdir(exist_ok=True)
    for file in shape.folder.iterdir():
        shutil.copy(file, path.parent)
    with gossiplog.open(path) as log:
        messages = list(log.messages())
        ids = tuple(message.id for message in messages[:: max(1, len(messages) // _ASKED)])
        reads = {name: _digest(use(log)) for name, use in uses(ids).items()}
        keys = frozenset(message.key for message in messages)
        parents = replica_of(log).next_parents()
        root = log.root
        children = tuple(log.children(id) for id in ids)
    with gossiplog.open(shape.later, read_only=True) as later:
        added = tuple(message for message in later.messages() if message.key not in keys)
        topic = later.topic
    return Known(shape, reads, keys, ids, tuple(parents), _order(path), root, len(messages), children, topic, added)


def _digest(result: object) -> str:
    return hashlib.sha256(repr(result).encode()).hexdigest()


def _order(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        # A value that is stored as text has the same bytes.
        rows = connection.execute("SELECT seq, CAST(value AS BLOB) FROM gossiplog_messages ORDER BY seq")
        return _digest(rows.fetchall())


def judge(change: Change, known: Known, work: Path) -> Outcome:
    """Change a copy of a log, use it, and repair it.

    Args:
        change: of the file.
        known: the results of the sound log.
        work: a folder, which is emptied.
    """
    outcome = Outcome(change)
    judgement = _Judgement(outcome, known, work)
    for part in (judgement.read, judgement.serve, judgement.write, judgement.pipeline, judgement.repair):
        try:
            judgement.fresh()
        except Unchanged:
            outcome.fate = "none"
            return outcome
        try:
            with _no_unraisable(outcome.failures):
                part()
        except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.failures.append(
                f"{part.__name__}: {type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
            )
    return outcome


@contextmanager
def _no_unraisable(failures: list[str]) -> Iterator[None]:
    """Take for failures what is raised in a block where nobody can catch it."""
    former = sys.unraisablehook
    sys.unraisablehook = lambda found: failures.append(f"not raised: {found.exc_value!r} in {found.object!r}")
    try:
        yield
    finally:
        sys.unraisablehook = former


class _Judgement:
    def __init__(self, outcome: Outcome, known: Known, work: Path) -> None:
        self._outcome = outcome
        self._known = known
        self._work = work
        self._path = work / "log.db"

    def fresh(self) -> None:
        """Make a changed copy of the log."""
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        for file in self._known.shape.folder.iterdir():
            shutil.copy(file, self._work)
        self._outcome.change.apply(self._work)

    def _fail(self, text: str) -> None:
        self._outcome.failures.append(text)

    def _open(self, **options: object) -> Log | None:
        """Open the log; None where it is refused."""
        try:
            return gossiplog.open(self._path, signer=SIGNER, create=False, synchronous="off", **options)  # type: ignore[arg-type]
        except StorageError as error:
            self._refused(error)
            return None

    def _refused(self, error: StorageError) -> None:
        if self._outcome.fate == "harmless":
            self._outcome.fate = "refused"
        if not str(error):
            self._fail("refused without a word")

    def _named(self, error: GossipLogError, use: str) -> None:
        self._outcome.fate = "named"
        if " LOG " in str(error):
            self._fail(f"{use}: the commands that it advises do not name the log: {error}")
        if not isinstance(error, CorruptLog) or not error.problems:
            self._fail(f"{use}: {type(error).__name__} where CorruptLog is meant: {error}")

    def read(self) -> None:
        """Every public read, and verify."""
        log = self._open()
        if log is None:
            return
        wrong: list[str] = []
        is_named = False
        with log:
            for name, use in uses(self._known.ids).items():
                try:
                    result = _digest(use(log))
                except GossipLogError as error:
                    self._named(error, name)
                    continue
                if result != self._known.reads[name]:
                    wrong.append(name)
            try:
                verified = log.verify()
            except GossipLogError as error:
                self._named(error, "verify")
                is_named = True
            else:
                if verified.root != self._known.root:
                    self._fail("verify finds another root sound")
            if is_named and "children" in wrong:
                children = [log.children(id) for id in self._known.ids]
                if any(set(found) - {*sound} for found, sound in zip(children, self._known.children, strict=True)):
                    self._fail("a message is named as a child of another than its parent")
        wrong = [name for name in wrong if not is_named or name not in _LEFT_TO_VERIFY]
        if wrong:
            self._fail(f"other results without an error: {', '.join(wrong)}")

    def serve(self) -> None:
        """A sync that the log serves, to an empty log and to one with half of the messages."""
        log = self._open(read_only=True)
        if log is None:
            return
        with log, gossiplog.open(":memory:", log.topic) as other:
            if log.topic != self._known.topic:
                self._fail(f"served as a log of the topic {log.topic!r}")
                return
            try:
                other.pull(log)
            except GossipLogError as error:
                self._named(error, "serving")
            taken = {message.key for message in other.messages()}
            if not taken <= self._known.keys:
                self._fail("a message was served that there was not")

    def write(self) -> None:
        """An append, an insertion and a pull: each ends up in a sound log, or raises CorruptLog."""

        def append(log: Log) -> None:
            message = log.append("appended")
            if not set(message.parents) <= {core.encode_id(key) for key in self._known.keys}:
                self._fail("an append follows a message that there was not")
            elif message.parents != self._known.parents:
                self._fail("an append follows other messages than the heads")

        writes: dict[str, Callable[[Log], object]] = {
            "append": append,
            "insert_many": lambda log: log.insert_many(self._known.added),
            "pull": lambda log: log.pull(self._known.shape.later),
        }
        for name, write in writes.items():
            self.fresh()
            log = self._open()
            if log is None:
                return
            with log:
                if log.topic != self._known.topic:
                    self._fail(f"{name}: taken for a log of the topic {log.topic!r}")
                    return
                try:
                    write(log)
                except CorruptSource as error:
                    self._fail(f"{name}: the replica is blamed: {error}")
                except GossipLogError as error:
                    self._named(error, name)

    def pipeline(self) -> None:
        """What `gossiplog pipeline verify` finds, and a read of all of them in four partitions."""
        location = str(self._path)
        outcomes, _ = inline(VerifyWork(), [location], 50)
        if (problem := outcomes[location].problem) is not None:
            self._refused(problem_error(location, problem))
        options = read_options({"path": location, "partitions": "4"}, BATCH_OPTIONS)
        reader = LogReader(options, StructType([field for field in SCHEMA if field.name in ("id", "author")]))
        read: list[dict[str, str | None]] = []
        try:
            for batch in chain.from_iterable(map(reader.read, reader.partitions())):
                read += batch.to_pylist()
                if len(read) > 2 * self._known.count:
                    break
        except StorageError as error:
            self._refused(error)
        # Of a damaged message, what its value says is null.
        ids = [row["id"] for row in read if row["id"] is not None and row["author"] is not None]
        if len({*ids}) < len(ids):
            self._fail("a message is read twice by Spark")
        if not {core.decode_id(id) for id in ids} <= self._known.keys:
            self._fail("a message is read by Spark that there was not")

    def repair(self) -> None:
        """Repair the log from the replica."""
        repaired = gossiplog.repair(self._path, self._known.shape.replica)
        self._outcome.repaired = bool(repaired.damaged)
        with gossiplog.open(self._path, read_only=True) as log:
            verified = log.verify()
        if (verified.root, verified.messages) != (self._known.root, self._known.count):
            self._fail(f"repair: {verified.messages} messages and another root")
        elif repaired.moved == 0 and _order(self._path) != self._known.order:
            self._fail("repair: another order of arrival")
