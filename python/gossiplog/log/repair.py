"""Repair of a damaged log: sound values from a replica where its own are not, and everything else from the messages.

The log is not changed: a copy is read, as far as SQLite gets, and a new file is built, which takes the log's place when
it is verified. docs/design/log.md says why.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from gossiplog import core
from gossiplog.errors import (
    CorruptLog,
    CorruptSource,
    DecodeError,
    InvalidMessage,
    NewerSchema,
    NotALog,
    OlderSchema,
    StorageError,
    TreeError,
)
from gossiplog.files import explain_denial
from gossiplog.log.applying import Applier
from gossiplog.log.following import CommitNotifier
from gossiplog.log.insertion import insert_many
from gossiplog.log.log import Log
from gossiplog.log.opening import open
from gossiplog.log.remains import Remains, SoundValues, read_remains
from gossiplog.log.replica import Replica
from gossiplog.log.results import RepairResult, VerifyResult
from gossiplog.log.state import States
from gossiplog.log.writing import Writer
from gossiplog.message import key_of
from gossiplog.reprs import counted
from gossiplog.storage import SQLiteStorage, Storage, salvage, write_ahead_log
from gossiplog.storage.base import REBUILD_REQUESTED
from gossiplog.storage.commit_count import CommitCount
from gossiplog.storage.location import is_url, storage_at
from gossiplog.storage.replacement import locked_alone
from gossiplog.storage.sqlite_tables import TABLES, TableStatement, new_meta, stored_identity

Fetch: TypeAlias = Callable[[Log], object]
"""Brings a log up to date with a replica that is no file: a hub or a peer."""
Source: TypeAlias = Log | str | os.PathLike[str] | Fetch

_PAGE = 1024


def repair_file(
    location: str | os.PathLike[str],
    source: Source | None = None,
    progress: Callable[[int], object] | None = None,
) -> RepairResult:
    """Repair the log in a file; see `gossiplog.repair`.

    Args:
        location: the path of the log's file.
        source: a replica that has what is damaged: a log or its file, or a function that is called with a log of the
            sound messages, and brings that up to date. None repairs what follows from the messages alone.
        progress: is called with the number of messages read since it was called before.
    """
    path = Path(location).absolute()
    if not path.is_file():
        raise NotALog(f"there is no log {os.fspath(location)}")
    path = path.resolve()
    with ExitStack() as stack:
        # First: what another repair has made is in use until that has ended.
        descriptor = stack.enter_context(locked_alone(path))
        for leftover in salvage.leftovers(path):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{path.name}{salvage.LEFTOVER}", dir=path.parent))
        except PermissionError as error:
            raise StorageError(f"cannot repair {path}: {explain_denial(path.parent, 'write to')}") from error
        except OSError as error:
            raise StorageError(f"cannot repair {path}: no folder can be made beside it: {error.strerror}") from error
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            return _Repair(path, folder, descriptor, progress).run(source)
        except OSError as error:
            raise StorageError(f"cannot repair {path}: {error}; the log is as it was") from error


def _diagnose(path: Path) -> tuple[list[str], VerifyResult | None]:
    """Return what is wrong with a log, and what was found if nothing is.

    Raises:
        NewerSchema: a newer version wrote it.
        OlderSchema: a version wrote it whose tables are not read any more.
    """
    try:
        with _open_storage(path) as (storage, topic):
            return [], _verified(storage, topic)
    except CorruptLog as error:
        return list(error.problems), None
    except (NewerSchema, OlderSchema) as error:
        with closing(_connection(path)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM gossiplog_meta")}
        # Another schema has other tables, or says more of itself: here the number alone is wrong.
        if not names >= {*new_meta(), "topic"}:
            raise
        return [str(error)], None
    except (NotALog, TreeError, DecodeError, InvalidMessage) as error:
        # A damaged header makes a file look like no database.
        return [str(error)], None


class _Repair:
    """One repair."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        descriptor: int,
        progress: Callable[[int], object] | None,
    ) -> None:
        self._path = path
        self._folder = folder
        self._descriptor = descriptor
        self._progress = progress

    def run(self, source: Source | None) -> RepairResult:
        """Repair the log."""
        copy = self._folder / "copy.db"
        merged = self._folder / "merged.db"
        write_ahead_log.copy_with_log(self._descriptor, self._path, merged)
        shutil.copyfile(merged, copy)
        problems, sound = _diagnose(copy)
        problems = [problem.replace(str(copy), str(self._path)) for problem in problems]
        if unread := write_ahead_log.unread_commits(write_ahead_log.log_of(self._path)):
            transactions = counted(unread, "transaction")
            problems.append(f"the write-ahead log is damaged: SQLite does not read its last {transactions}")
        acknowledged, there = _counts(self._path, copy)
        if acknowledged > there:
            are = counted(acknowledged - there, "acknowledged message is", "acknowledged messages are")
            problems.append(f"the last {are} lost")
        if sound is not None and not problems:
            return RepairResult(messages=sound.messages, root=sound.root)
        readable, found, lost = salvage.read_all(copy, self._folder)
        problems = [*dict.fromkeys([*problems, *(f"SQLite: {line}" for line in found)])]
        with ExitStack() as stack:
            base = stack.enter_context(closing(_connection(readable)))
            replica = None
            if source is not None and not callable(source):
                replica = stack.enter_context(_open_source(source))
            remains = read_remains(
                base,
                None if replica is None else replica.topic,
                incomplete=bool(found),
                acknowledged=acknowledged,
                progress=self._progress,
            )
            own = SoundValues(base, remains.rows)
            if callable(source):
                replica = stack.enter_context(self._fetched(source, remains, own))
            if lost:
                lost.append("gossiplog rebuild makes the application's tables anew from the messages")
            build = _Build(own, replica, remains, self._path)
            built = self._folder / "built.db"
            with _new_log(built, remains.topic) as log:
                build.run(log)
            new = self._finished(base, readable, built, remains, build)
        with _open_storage(new) as (storage, topic):
            verified = _verified(storage, topic)
        former = salvage.take_place(new, self._path, self._descriptor, merged)
        return RepairResult(
            messages=verified.messages,
            root=verified.root,
            damaged=tuple(problems),
            fetched=build.fetched,
            moved=build.moved,
            notes=(*lost, *build.notes),
            former=str(former),
        )

    @contextmanager
    def _fetched(self, fetch: Fetch, remains: Remains, own: SoundValues) -> Iterator[_Source]:
        """Provide a log of the sound messages that was brought up to date."""
        path = self._folder / "fetched.db"
        with open(SQLiteStorage(path, synchronous="off"), remains.topic) as log:
            insert_many(log.replica, own.all(), signed=True, most_refused=0)
            fetch(log)
        with _open_source(path) as replica:
            yield replica

    def _finished(self, base: sqlite3.Connection, readable: Path, built: Path, remains: Remains, build: _Build) -> Path:
        """Return the new file: what was built, in the application's database where there is one."""
        new = built
        if remains.tables:
            new = readable
            base.execute("PRAGMA synchronous = OFF")
            base.execute("ATTACH ? AS built", (str(built),))
            base.execute("BEGIN IMMEDIATE")
            names = [made.name for made in map(TableStatement.of, TABLES) if made.kind == "table"]
            for name in names:
                base.execute(f"DROP TABLE IF EXISTS main.{name}")
            for statement in TABLES:
                base.execute(statement)
            for name in names:
                base.execute(f"INSERT INTO main.{name} SELECT * FROM built.{name}")
            base.execute("COMMIT")
            base.execute("DETACH built")
        base.close()
        with closing(_connection(new)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            rows = build.meta().items()
            connection.executemany("INSERT OR REPLACE INTO gossiplog_meta(name, value) VALUES (?, ?)", rows)
        return new


def _counts(path: Path, copy: Path) -> tuple[int, int]:
    """Return how many messages of a log were acknowledged, 0 where that is not known, and how many are in its copy."""
    found = CommitCount(str(path)).read()
    try:
        with closing(_connection(copy)) as connection:
            (there,) = connection.execute("SELECT coalesce(max(seq), 0) FROM gossiplog_messages").fetchone()
            is_own = found is not None and found[0] == stored_identity(connection)
    except (sqlite3.Error, CorruptLog):
        return 0, 0
    return found[1] if found is not None and is_own else 0, there


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


@contextmanager
def _open_storage(path: Path) -> Iterator[tuple[Storage, str]]:
    """Open a log to read it, and provide its topic too."""
    storage = SQLiteStorage(path, read_only=True)
    topic = storage.open(None, create=False)
    try:
        yield storage, topic
    finally:
        storage.close()


def _verified(storage: Storage, topic: str) -> VerifyResult:
    # Here, because it imports the reference implementation.
    from gossiplog.log.audit import Audit

    return Audit(storage, topic, States(storage, topic).newest, None).run()


@contextmanager
def _new_log(path: Path, topic: str) -> Iterator[Replica]:
    """Make a log, to be written to."""
    storage = SQLiteStorage(path, synchronous="off")
    storage.open(topic, create=True)
    try:
        states, notifier = States(storage, topic), CommitNotifier(storage, topic)
        writer = Writer(storage, states, topic, Applier(storage, topic, None), notifier.committed)
        yield Replica(storage, states, topic, None, writer, notifier)
    finally:
        storage.close()


@contextmanager
def _open_source(source: Log | str | os.PathLike[str]) -> Iterator[_Source]:
    if not isinstance(source, (str, os.PathLike)):
        yield _Source(source.snapshot().storage, source.topic)
        return
    if isinstance(source, str) and is_url(source):
        raise StorageError(f"{source} is no log's file, hub (ws://, wss://) or peer (a multiaddr)")
    storage = storage_at(source, read_only=True)
    try:
        topic = storage.open(None, create=False)
    except CorruptLog as error:
        raise CorruptSource(error.problems) from error
    try:
        yield _Source(storage, topic)
    finally:
        storage.close()


class _Source:
    """A log that has what another one lost. What is damaged in it counts as missing."""

    def __init__(self, storage: Storage, topic: str) -> None:
        self.topic = topic
        self._storage = storage

    def of(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those of the keys that it has."""
        values: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _PAGE):
            some = keys[start : start + _PAGE]
            try:
                values |= self._read(some)
            except CorruptLog:
                for key in some:
                    try:
                        values |= self._read([key])
                    except CorruptLog:
                        continue
        verdicts = core.verify_batch([*values.values()], self.topic)
        return {
            key: value
            for (key, value), verdict in zip(values.items(), verdicts, strict=True)
            if not isinstance(verdict, InvalidMessage) and verdict.key == key
        }

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._storage.reader() as reader:
            return reader.values(keys, reader.position().count)

    def all_keys(self) -> list[bytes]:
        """Return all keys, ascending: parents come before their children."""
        with self._storage.reader() as reader, reader.scan(("key",), b"", None, reader.position().count) as rows:
            return [key for (key,) in rows if len(key) == core.KEY_LENGTH]


class _Build:
    """Writes a log's messages anew, in the order in which they arrived, or nearest to it.

    Args:
        own: the log's own sound values.
        source: that has the others, if there is one.
        remains: what is left of the log.
        path: of the log, for errors.

    Attributes:
        fetched: how many messages came from the source.
        moved: how many have another sequence than before.
        notes: what the user should know.
    """

    def __init__(self, own: SoundValues, source: _Source | None, remains: Remains, path: Path) -> None:
        self.fetched = 0
        self.moved = 0
        self.notes: list[str] = []
        self._own = own
        self._source = source
        self._remains = remains
        self._path = path
        self._places = dict(remains.places)
        self._written: dict[bytes, int] = {}
        # Messages whose parents come later, by the first parent that is missing.
        self._waiting: dict[bytes, list[tuple[bytes, bytes, tuple[bytes, ...]]]] = defaultdict(list)
        self._run: list[tuple[bytes, bytes]] = []

    def run(self, log: Replica) -> None:
        """Write the messages.

        Raises:
            CorruptLog: some are nowhere.
        """
        self._log = log
        order = self._with_source(self._remains.order)
        for start in range(0, len(order), _PAGE):
            self._take(order[start : start + _PAGE])
        self._fetch_ancestors()
        self._flush()
        waiting = {key for rows in self._waiting.values() for key, _, _ in rows}
        missing = sorted(self._waiting.keys() - waiting)
        if missing or self._lost:
            where = "is lost here" if self._source is None else "is neither here nor in the source"
            problems = [f"message {core.encode_id(key)} {where}" for key in sorted({*missing, *self._lost})]
            raise CorruptLog(problems, advice=self._advice())
        places = self._places
        self.moved = sum(places[key] != sequence for key, sequence in self._written.items() if key in places)
        if self.moved:
            self.notes.append(
                f"{counted(self.moved, 'message has', 'messages have')} another sequence than before: cursors after the"
                " first of them name other messages"
            )

    def _advice(self) -> str:
        """Return how an error about lost messages ends: the way back that loses nothing comes first."""
        path = shlex.quote(str(self._path))
        missing = "No replica was named" if self._source is None else "Name another replica"
        return (
            f"; the log is as it was. {missing}: gossiplog repair {path} --from SOURCE takes them from a file, a hub or"
            f" a peer. Only if none has them: gossiplog recover {path} NEW makes a log of what is left, without these"
            " and what descends from them"
        )

    def _with_source(self, order: Sequence[bytes]) -> Sequence[bytes]:
        """Return the order with messages of the source in the places of those that are not known any more."""
        self._lost: set[bytes] = set()
        unknown = self._remains.unknown
        if self._source is None and not unknown:
            if self._remains.incomplete:
                self.notes.append(
                    "the file is damaged in a way that may hide messages: gossiplog sync with a replica brings what it"
                    " lacks"
                )
            return order
        if not unknown and not self._remains.incomplete:
            return order
        if self._source is None:
            problem = f"{counted(unknown, 'message is', 'messages are')} lost, of which not even the ids are left"
            raise CorruptLog([problem], advice=self._advice())
        known = set(order)
        others = [key for key in self._source.all_keys() if key not in known]
        if len(others) < unknown:
            self.notes.append(
                f"{counted(unknown - len(others), 'message was', 'messages were')} lost of which nothing is left here"
                " or in the source"
            )
        places = self._places
        taken = set(places.values())
        gaps = [sequence for sequence in range(1, max(taken, default=0) + unknown + 1) if sequence not in taken]
        for gap, key in zip(gaps, others, strict=False):
            places[key] = gap
        rest = others[len(gaps) :]
        return [*sorted(places, key=places.__getitem__), *rest]

    def _take(self, keys: Sequence[bytes]) -> None:
        values = self._values(keys)
        for key in keys:
            if key not in values:
                self._lost.add(key)
        batch = core.read_batch([*values.values()], self._log.topic)
        for (key, value), message in zip(values.items(), batch, strict=True):
            if isinstance(message, InvalidMessage):
                self._lost.add(key)
                continue
            self._place(key, value, tuple(map(key_of, message.parents)))

    def _values(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        own = self._own.of(keys)
        missing = [key for key in keys if key not in own]
        if not missing or self._source is None:
            return own
        fetched = self._source.of(missing)
        self.fetched += len(fetched)
        return {key: value for key in keys if (value := own.get(key) or fetched.get(key)) is not None}

    def _place(self, key: bytes, value: bytes, parents: tuple[bytes, ...]) -> None:
        """Write a message, and those that waited for it; or have it wait for a parent."""
        ready = deque([(key, value, parents)])
        while ready:
            row = ready.popleft()
            missing = next((parent for parent in row[2] if parent not in self._written), None)
            if missing is not None:
                self._waiting[missing].append(row)
                continue
            if row[0] in self._written:
                continue
            self._written[row[0]] = len(self._written) + 1
            if self._run and (row[0] <= self._run[-1][0] or len(self._run) == _PAGE):
                self._flush()
            self._run.append(row[:2])
            ready.extend(self._waiting.pop(row[0], ()))

    def _flush(self) -> None:
        """Write messages whose keys ascend: within a batch, that is the order in which they get their sequences."""
        if not self._run:
            return
        log = self._log
        log.insert(log.check(log.verify([value for _, value in self._run], signed=True)))
        self._run = []

    def _fetch_ancestors(self) -> None:
        """Get parents that no message of the log was known by."""
        asked: set[bytes] = set()
        while self._source is not None and (missing := [key for key in sorted(self._waiting) if key not in asked]):
            asked.update(missing)
            values = self._source.of(missing)
            self.fetched += len(values)
            for key, message in zip(values, core.read_batch([*values.values()], self._log.topic), strict=True):
                if not isinstance(message, InvalidMessage):
                    self._place(key, values[key], tuple(map(key_of, message.parents)))

    def meta(self) -> dict[str, Any]:
        """Return the rows of `gossiplog_meta` that the log had, for the sequences that its messages have now."""
        stored, count = self._remains.meta, len(self._written)
        least = {"generation": 0, "apply_version": 1, "rebuild": REBUILD_REQUESTED}
        meta = {
            name: stored[name]
            for name, default in new_meta().items()
            # The new file has an identity of its own: it may have fewer messages than were acknowledged.
            if name != "identity"
            and type(stored.get(name)) is type(default)
            and (name not in least or least[name] <= stored[name])
            and (name != "rebuild" or stored[name] <= count)
        }
        applied = stored.get("applied")
        last = max(self._places.values(), default=0)
        if not isinstance(applied, int) or not 0 <= applied <= last:
            if not self._remains.tables:
                return meta | {"applied": 0}
            self.notes.append(
                "how far `apply` has run is not known any more: gossiplog rebuild runs it anew from the first message"
            )
            return meta | {"applied": count}
        places = self._places
        before = [sequence for key, sequence in self._written.items() if places.get(key, last + 1) <= applied]
        if before and max(before) != len(before):
            self.notes.append("`apply` may have run for other messages: gossiplog rebuild runs it anew from the first")
        return meta | {"applied": min(count, max(before, default=0))}
