"""Repair of a damaged log: sound values from a replica where its own are not, and everything else from the messages.

The log is not changed: a copy is read, as far as SQLite gets, and a new file is built, which takes the log's place when
it is verified. docs/design/log.md says why.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from gossiplog.errors import (
    CorruptLog,
    DecodeError,
    InvalidMessage,
    NewerSchema,
    NotALog,
    OlderSchema,
    StorageError,
    TopicMismatch,
    TreeError,
)
from gossiplog.files import sync
from gossiplog.log.applying import Applier
from gossiplog.log.following import CommitNotifier
from gossiplog.log.insertion import insert_many
from gossiplog.log.log import Log, replica_of
from gossiplog.log.opening import open
from gossiplog.log.payloads import Payloads
from gossiplog.log.reassembly import Reassembly, ReplicaValues, open_source
from gossiplog.log.remains import (
    Remains,
    SoundValues,
    connect,
    count_messages,
    find_damaged,
    is_own_schema,
    open_remains,
)
from gossiplog.log.replica import Replica
from gossiplog.log.results import RepairResult, VerifyResult
from gossiplog.log.state import States
from gossiplog.log.writing import Writer
from gossiplog.reprs import last_counted, shell_path
from gossiplog.storage import SQLiteStorage, Storage
from gossiplog.storage.base import Progress
from gossiplog.storage.location import Location, named_by, schema_replacement, storage_at
from gossiplog.storage.postgres.url import PostgresURL
from gossiplog.storage.sqlite import salvage, write_ahead_log
from gossiplog.storage.sqlite.commit_count import CommitCount, describe_loss
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from gossiplog.storage.sqlite.files import wal_of
from gossiplog.storage.sqlite.replacement import locked_alone
from gossiplog.storage.sqlite.tables import TABLES, TableStatement

Fetch: TypeAlias = Callable[[Log], object]
"""Brings a log up to date with a replica that is no file: a hub or a peer."""
SourceLocation: TypeAlias = Log | Location | Fetch


def repair_log(
    location: Location,
    source: SourceLocation | None = None,
    *,
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> RepairResult:
    """Repair the log in a file or in Postgres; arguments are as of `repair_file`."""
    named = named_by(location)
    if isinstance(named, PostgresURL):
        return _repair_in_postgres(named, source, accept_loss=accept_loss, progress=progress)
    return repair_file(named, source, accept_loss=accept_loss, progress=progress)


def _repair_in_postgres(
    url: PostgresURL,
    source: SourceLocation | None,
    *,
    accept_loss: bool,
    progress: Progress | None,
) -> RepairResult:
    """Repair a log in Postgres: a copy of its rows, in a file, is repaired, and takes their place.

    So it is the same repair. What belongs to pages and indices of the server is new then, too.
    """
    with schema_replacement(url, "repair") as replacement:
        copy = replacement.new
        problems = [*replacement.export(copy, TABLES), *_find_in_postgres(url)]

        def named(text: str) -> str:
            return text.replace(shell_path(copy), shell_path(url.place)).replace(copy, url.place)

        try:
            found = repair_file(copy, source, accept_loss=accept_loss, progress=progress)
        except CorruptLog as error:
            shown = [named(problem) for problem in error.problems]
            raise type(error)(shown, advice=named(error.advice), run=named(error.run)) from error
        except StorageError as error:
            if copy not in str(error):
                raise
            kind = next(each for each in (TopicMismatch, NotALog, StorageError) if isinstance(error, each))
            raise kind(named(str(error))) from error
        problems += [named(problem) for problem in found.damaged if named(problem) not in problems]
        notes = tuple(map(named, found.notes))
        if not problems:
            return replace(found, notes=notes)
        if not replacement.has_sound_tables:
            notes += ("the log's tables were made anew: grant the rights on them again (docs/postgres.md, Roles)",)
        former = replacement.publish("_damaged", {}, former_rows=found.former or copy, moves_tables=False)
        return replace(found, damaged=tuple(problems), notes=notes, former=former)


def _find_in_postgres(url: PostgresURL) -> list[str]:
    """Return what the server finds wrong with a log, and what the opening of it does."""
    storage = storage_at(url, read_only=True)
    try:
        storage.open(None, create=False)
        return storage.check()
    except CorruptLog as error:
        return list(error.problems)
    except NotALog as error:
        return [error.problem]
    finally:
        storage.close()


def repair_file(
    location: str | os.PathLike[str],
    source: SourceLocation | None = None,
    *,
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> RepairResult:
    """Repair the log in a file; see `gossiplog.repair`.

    Args:
        location: the path of the log's file.
        source: a replica that has what is damaged: a log or its file, or a function that is called with a log of the
            sound messages, and brings that up to date. None repairs what follows from the messages alone.
        progress: `progress(done, total)` is called with numbers of messages.
        accept_loss: whether messages may be lost, here and in the source, that no other descends from.
    """
    path = find_damaged(location, has_source=source is not None)
    with locked_alone(path, makes=True) as descriptor, salvage.working_folder(path, "repair") as folder:
        try:
            return _Repair(path, folder, descriptor, progress, accept_loss).run(source)
        except (OSError, sqlite3.OperationalError) as error:
            raise StorageError(
                f"cannot repair {path}: {_describe(error)}; the log is as it was. It takes up to four times the log's"
                " size of free space: make room, or repair a copy of all its files in another folder"
            ) from error


def _describe(error: OSError | sqlite3.OperationalError) -> str:
    if isinstance(error, sqlite3.OperationalError):
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def _diagnose(path: Path) -> tuple[list[str], VerifyResult | None]:
    """Return what is wrong with a log, and what was found if nothing is.

    Raises:
        NewerSchema: a newer version wrote it.
        OlderSchema: a version wrote it whose tables are no longer read.
    """
    try:
        with _open_storage(path) as (storage, topic):
            verified = _verified(storage, topic)
        with closing(connect(path)) as connection:
            # A damaged header may have SQLite read a file that it does not write.
            connection.execute("BEGIN IMMEDIATE")
        return [], verified
    except sqlite3.Error as error:
        return [f"SQLite: {error}"], None
    except CorruptLog as error:
        return list(error.problems), None
    except (NewerSchema, OlderSchema):
        if not is_own_schema(path):
            raise
        return ["the number of its schema is not that of its tables"], None
    except NotALog as error:
        # A damaged header makes a file look like no database.
        return [error.problem], None
    except (TreeError, DecodeError, InvalidMessage) as error:
        return [str(error)], None


class _Repair:
    """One repair."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        descriptor: int,
        progress: Progress | None,
        accept_loss: bool,
    ) -> None:
        self._path = path
        self._folder = folder
        self._descriptor = descriptor
        self._progress = progress
        self._accept_loss = accept_loss

    def run(self, source: SourceLocation | None) -> RepairResult:
        """Repair the log."""
        copy = self._folder / "copy.db"
        merged = self._folder / "merged.db"
        write_ahead_log.copy_with_log(self._descriptor, self._path, merged)
        shutil.copyfile(merged, copy)
        problems, sound = _diagnose(copy)
        problems = [problem.replace(str(copy), str(self._path)) for problem in problems]
        if unread := write_ahead_log.unread_commits(wal_of(self._path)):
            transactions = last_counted(unread, "transaction")
            problems.append(f"the write-ahead log is damaged: SQLite does not read its {transactions}")
        acknowledged, there = count_messages(self._path, copy)
        if acknowledged > there:
            problems.append(describe_loss(acknowledged - there))
        if sound is not None and not problems:
            return RepairResult(messages=sound.messages, root=sound.root, notes=self._set_count(copy))
        with ExitStack() as stack:
            replica = None
            if source is not None and not callable(source):
                replica = stack.enter_context(open_source(source))
            base, remains, salvaged = stack.enter_context(
                open_remains(self._path, copy, None if replica is None else replica.topic, self._progress)
            )
            problems = [*dict.fromkeys([*problems, *(f"SQLite: {line}" for line in salvaged.problems)])]
            own = SoundValues(base, remains.rows)
            if callable(source):
                replica = stack.enter_context(self._fetched(source, remains, own))
            reassembly = Reassembly(own, replica, remains, self._path, accept_loss=self._accept_loss)
            built = self._folder / "built.db"
            with _new_log(built, remains.topic) as log:
                reassembly.run(log)
            new = self._finished(base, salvaged, built, remains, reassembly)
        with _open_storage(new) as (storage, topic):
            verified = _verified(storage, topic)
        former = salvage.take_place(new, self._path, self._descriptor, merged)
        return RepairResult(
            messages=verified.messages,
            root=verified.root,
            damaged=tuple(problems),
            fetched=reassembly.fetched,
            moved=reassembly.moved,
            notes=(*salvaged.lost, *reassembly.notes),
            former=str(former),
        )

    def _set_count(self, copy: Path) -> tuple[str, ...]:
        """Set the count beside a sound log where it is damaged or of another file; return a note of that.

        Args:
            copy: of the log, with what its write-ahead log has.
        """
        count, found = CommitCount(str(self._path)), read_identity_and_count(str(copy))
        acknowledged = count.read()
        if found is None or found[1] is None or not os.path.exists(count.path):
            return ()
        if acknowledged is not None and acknowledged[0] == found[0]:
            return ()
        # What is counted is on disk.
        os.fsync(self._descriptor)
        if (wal := wal_of(self._path)).exists():
            sync(str(wal))
        count.write(found[0], found[1])
        count.close()
        return (f"{count.name} was damaged or of another file, and is this file's now",)

    @contextmanager
    def _fetched(self, fetch: Fetch, remains: Remains, own: SoundValues) -> Iterator[ReplicaValues]:
        """Provide a log of the sound messages that was brought up to date."""
        path = self._folder / "fetched.db"
        with open(SQLiteStorage(path, synchronous="off"), remains.topic) as log:
            insert_many(replica_of(log), own.all(), signed=True, max_refused=0)
            fetch(log)
        with open_source(path) as replica:
            yield replica

    def _finished(
        self,
        base: sqlite3.Connection,
        salvaged: salvage.Salvage,
        built: Path,
        remains: Remains,
        reassembly: Reassembly,
    ) -> Path:
        """Return the new file: what was built, in the application's database where there is one."""
        new = built
        if remains.tables:
            new = salvaged.path
            base.execute("PRAGMA synchronous = OFF")
            base.execute("BEGIN IMMEDIATE")
            names = [made.name for made in map(TableStatement.of, TABLES) if made.kind == "table"]
            for name in names:
                base.execute(f"DROP TABLE IF EXISTS {name}")
            for statement in TABLES:
                base.execute(statement)
            # Not attached: the encodings of the two may differ.
            with closing(connect(built)) as made:
                for name in names:
                    made_rows = made.execute(f"SELECT * FROM {name}")
                    marks = ",".join("?" * len(made_rows.description))
                    base.executemany(f"INSERT INTO {name} VALUES ({marks})", made_rows)
            base.execute("COMMIT")
        base.close()
        with closing(connect(new)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            rows = reassembly.meta(salvaged.lost_tables).items()
            connection.executemany("INSERT OR REPLACE INTO gossiplog_meta(name, value) VALUES (?, ?)", rows)
        return new


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
        states = States(storage, topic)
        payloads: Payloads[Any] = Payloads()
        notifier = CommitNotifier(storage, topic, states.position, payloads)
        applier = Applier(storage, topic, None, payloads, states.sequences)
        writer = Writer(storage, states, topic, applier, notifier.committed)
        yield Replica(storage, states, topic, payloads, writer, notifier)
    finally:
        storage.close()
