"""The way back from a damaged log: its valid messages in another one.

A copy of the file is read as a repair reads it, page by page where SQLite cannot read it.
"""

from __future__ import annotations

import math
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gossiplog import core
from gossiplog.errors import CorruptLog, GossipLogError, InvalidMessage, NewerSchema, OlderSchema, StorageError
from gossiplog.files import explain_denial, publish, sync
from gossiplog.log.blocking import warn_of_whole_log
from gossiplog.log.callbacks import check_progress
from gossiplog.log.insertion import insert_many
from gossiplog.log.log import Log, replica_of
from gossiplog.log.opening import open
from gossiplog.log.remains import Remains, SoundValues, find_damaged, is_own_schema, open_remains
from gossiplog.log.results import RecoverResult
from gossiplog.reprs import counted, shell_path
from gossiplog.storage import SQLiteStorage, Storage
from gossiplog.storage.base import Progress
from gossiplog.storage.location import Location, storage_at
from gossiplog.storage.sqlite import salvage, write_ahead_log
from gossiplog.storage.sqlite.commit_count import CommitCount, describe_former, describe_left, describe_loss
from gossiplog.storage.sqlite.replacement import locked_alone
from gossiplog.storage.sqlite.tables import storage_error


def recover(
    damaged: str | os.PathLike[str],
    new: Location | Storage,
    *,
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> RecoverResult:
    """Make a log of the messages of a damaged one that are valid and descend from no lost one.

    Each message is verified as if a peer had sent it. So this is also the way on from a log whose messages an earlier
    version accepted and this one refuses; what descends from them is refused as well, as by every peer. A copy is
    read, beside the new log, with its write-ahead log: where SQLite cannot read it, page by page.

    Args:
        damaged: the path of the log's file, which no program has open. It is not changed.
        new: as `location` of `open`; a log of the same topic that is there gets what it lacks. Where none is there, the
            file gets its name when it is complete.
        accept_loss: whether to go on where acknowledged messages are gone from the end of the log. Otherwise the error
            says how many messages the new log would have.
        progress: `progress(done, total)` is called with numbers of messages.

    Raises:
        TopicMismatch: there is a log at `new`, of another topic.
        NotALog: there is no log to recover, or nothing is left of it.
        NewerSchema, OlderSchema: another version wrote the log, in tables that this one does not read.
        CorruptLog: acknowledged messages are lost, or all messages descend from lost ones; or the file was deleted or
            replaced, and a program has the former one open. No new log was made.
        StorageError: a program has the log open; or one of the files cannot be read or written: the error says how many
            messages are in the new log, if it was there before.
        TypeError: a `progress` that cannot be called so.

    Examples:
        >>> messages = log.append_many(["one", "two"])
        >>> log.close()
        >>> result = gossiplog.recover("notes.db", "recovered.db")
        >>> result.inserted, result.refused
        (2, ())
    """
    check_progress(progress)
    warn_of_whole_log("gossiplog.recover")
    path = find_damaged(damaged)
    target = storage_at(new)
    is_new = not isinstance(new, Storage) and target.file is not None and _is_missing_or_empty(target.file)
    if is_new:
        # What is left there of another log would be taken for this one's.
        CommitCount(str(target.file)).check_not_gone()
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(_folder_beside(target))
            copy = folder / "copy.db"
            with _descriptor(path) as descriptor:
                write_ahead_log.copy_with_log(descriptor, path, copy)
            _check_schema(copy, path)
            base, remains, _ = stack.enter_context(open_remains(path, copy, None, progress))
        except OSError as error:
            raise StorageError(
                f"cannot copy {path} to {target.place}: {error.strerror}; it takes up to twice the log's size of free"
                " space: make room, or name another NEW"
            ) from error
        except sqlite3.Error as error:
            raise storage_error(str(path), "read", error) from error
        lost, own = max(remains.acknowledged - remains.last, 0), SoundValues(base, remains.rows)
        if lost and not accept_loss:
            with open(SQLiteStorage(folder / "tried.db", synchronous="off"), remains.topic) as log:
                raise _loss(path, lost, _insert(log, own, remains, lost).inserted, remains.acknowledged)
        # A complete file gets the name, whenever the process ends.
        built = folder / "new.db" if is_new else None
        with open(target if built is None else built, remains.topic) as log:
            try:
                result = _insert(log, own, remains, lost)
            except (StorageError, sqlite3.Error) as error:
                raise _stopped(log, path, target, error, is_kept=not is_new) from error
        if built is not None and not result.inserted and (lost or result.refused):
            raise _loss(path, lost, 0, remains.acknowledged)
        if built is not None and target.file is not None:
            _publish(built, target.file)
        return result


def _is_missing_or_empty(path: Path) -> bool:
    return not path.exists() or (path.is_file() and path.stat().st_size == 0)


def _publish(built: Path, path: Path) -> None:
    """Give the name of the new log to the complete file, and then to its count.

    Raises:
        StorageError: the file system failed, or another program has made a file of the name, or writes to it.
    """
    try:
        sync(str(built))
        try:
            publish(built, path)
        except FileExistsError:
            # An attempt that did not come to its end may have left an empty file. Another must not be opened: where
            # this process has it open, closing it again would release SQLite's locks.
            if path.stat().st_size:
                raise
            with locked_alone(path) as descriptor:
                there = os.fstat(descriptor)
                if there.st_size or not os.path.samestat(there, path.stat()):
                    raise
                os.replace(built, path)
        count = CommitCount(str(built))
        if os.path.exists(count.path):
            os.replace(count.path, CommitCount(str(path)).path)
        sync(str(path.absolute().parent))
    except OSError as error:
        raise StorageError(f"cannot make {path}: {error.strerror}; repeat the command with another NEW") from error


def _insert(log: Log, own: SoundValues, remains: Remains, lost: int) -> RecoverResult:
    """Insert the sound messages, in the order in which they arrived."""
    places = remains.places
    keys = sorted(remains.rows, key=lambda key: places.get(key, math.inf))
    result = insert_many(replica_of(log), own.in_order(keys), signed=True)
    refused: list[tuple[int, GossipLogError]] = [(places[keys[index]], error) for index, error in result.refused]
    refused += _damaged(remains).items()
    return RecoverResult(result.inserted, result.duplicates, tuple(sorted(refused, key=lambda each: each[0])), lost)


def _damaged(remains: Remains) -> dict[int, InvalidMessage]:
    """Return by their sequences what is wrong with the messages that are not sound."""
    found = dict(remains.unsound)
    for key, sequence in remains.places.items():
        if key not in remains.rows:
            reason = found[sequence].reason if sequence in found else "it is lost, but for its id"
            found[sequence] = InvalidMessage(reason, core.encode_id(key))
    taken = {*found, *remains.places.values()}
    # A sound message whose place another has may have been at any of the others.
    nameless = max(remains.last - len(remains.rows) - len(found), 0)
    gaps = [sequence for sequence in range(1, remains.last + 1) if sequence not in taken]
    return found | {sequence: InvalidMessage("it is lost, with its id") for sequence in gaps[:nameless]}


@contextmanager
def _folder_beside(target: Storage) -> Iterator[Path]:
    """Provide a folder for copies beside a log that is in a file."""
    if target.file is not None:
        with salvage.working_folder(target.file.absolute(), "recover") as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory(prefix="gossiplog-recover-") as name:
        yield Path(name)


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    """Provide a descriptor of a database, locked unless this user may not write to it."""
    if os.access(path, os.W_OK) or not path.exists():
        with locked_alone(path, makes=True) as descriptor:
            yield descriptor
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError as error:
        raise StorageError(f"cannot open {path}: {explain_denial(path, 'read')}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_schema(copy: Path, path: Path) -> None:
    """Refuse a log that another version wrote in tables that are not read; damage is left to others."""
    storage = SQLiteStorage(copy, read_only=True)
    try:
        storage.open(None, create=False)
    except (NewerSchema, OlderSchema) as error:
        if not is_own_schema(copy):
            raise type(error)(str(error).replace(str(copy), str(path))) from error
    except StorageError:
        return
    storage.close()


def _loss(path: Path, lost: int, left: int, acknowledged: int) -> CorruptLog:
    """Return the error for a log that lacks messages.

    Args:
        path: of its file.
        lost: how many acknowledged messages are gone from its end.
        left: how many messages the new log would have.
        acknowledged: how many were; 0 where that is not known.
    """
    name = shell_path(path)
    if left:
        last = f"Only if that fails: gossiplog recover {name} NEW --accept-loss makes a log of"
        last = f"{last} {describe_left(left, acknowledged)}"
    else:
        last = "Without one, no log can be made: what is left descends from what is lost"
    if lost and lost == acknowledged - left:
        problem = describe_loss(lost)
    elif acknowledged:
        gone = f"{acknowledged - left:,} of the {acknowledged:,} acknowledged messages"
        problem = f"{gone} are lost, or descend from lost ones"
    else:
        problem = "all messages are lost, or descend from lost ones"
    return CorruptLog(
        [problem],
        advice=f"; gossiplog repair {name} --from SOURCE gets back what a replica has. {last}"
        f"{describe_former(str(path))}",
    )


def _stopped(log: Log, path: Path, target: Storage, error: Exception, *, is_kept: bool) -> StorageError:
    """Return the error for a recovery that stopped on the way."""
    holds = ""
    # The disk may be what failed.
    with suppress(StorageError):
        if is_kept:
            holds = f"; {target.place} holds {counted(len(log), 'message')} of {path}"
        else:
            holds = f"; {counted(len(log), 'message')} of {path} had been recovered, and {target.place} was not made"
    return StorageError(f"{error}{holds}. Repeat the command with another NEW")
