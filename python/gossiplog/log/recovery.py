"""The way back from a damaged log: its valid messages in another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from gossiplog.errors import CorruptLog
from gossiplog.log.opening import open
from gossiplog.log.results import RecoverResult
from gossiplog.reprs import last_counted, shell_path
from gossiplog.storage import Storage, write_ahead_log
from gossiplog.storage.commit_count import describe_loss
from gossiplog.storage.location import storage_at

_PAGE = 1024


def recover(
    damaged: str | os.PathLike[str] | Storage,
    new: str | os.PathLike[str] | Storage,
    *,
    accept_loss: bool = False,
    progress: Callable[[int], object] | None = None,
) -> RecoverResult:
    """Make a log of the messages of a damaged one that are valid.

    Nothing but the messages is read: no index, no tree. Each is verified as if a peer had sent it. So this is also the
    way on from a log whose messages an earlier version accepted and this one refuses; what descends from them is
    refused as well, as by every peer.

    Args:
        damaged: as `location` of `open`. It is not changed; a storage upgrades its schema, unless it is read-only.
        new: as `location` of `open`; a log of the same topic that is there gets what it lacks.
        accept_loss: whether to go on where the log has fewer messages than were acknowledged, or its write-ahead log is
            damaged. SQLite then drops what comes after the damage, which `repair` reads.
        progress: called with the number of messages read since it was called before.

    Raises:
        TopicMismatch: there is a log at `new`, of another topic.
        NotALog: there is no log to recover.
        CorruptLog: acknowledged messages are lost, or the write-ahead log is damaged, and the log is as it was; or
            SQLite cannot open the damaged log, or cannot read on in it: what it read before is in the new log.
        StorageError: one of the databases cannot be read or written.
    """
    if not accept_loss and not isinstance(damaged, Storage):
        _check_write_ahead_log(os.fspath(damaged))
    storage = damaged if isinstance(damaged, Storage) else storage_at(damaged, read_only=True, accept_loss=True)
    try:
        topic = storage.open(None, create=False)
    except CorruptLog as error:
        file = shell_path(storage.file or "LOG")
        advice = (
            f"; SQLite cannot read it: gossiplog repair {file} --from SOURCE reads such files. Only if that fails:"
            " gossiplog sync NEW SOURCE makes a log of what a replica has"
        )
        raise CorruptLog(error.problems, advice=advice) from error
    if storage.lost and not accept_loss:
        storage.close()
        raise _loss(storage)
    place = storage_at(new).place
    sequences: list[int] = []

    def values() -> Iterator[bytes]:
        while True:
            try:
                with storage.reader(single=True) as reader:
                    rows = reader.arrivals(sequences[-1] if sequences else 0, _PAGE)
            except CorruptLog as error:
                advice = f"; what was read before is in {place}: get the rest from a peer, a hub or a backup"
                raise CorruptLog(
                    error.problems, advice=f"{advice}: gossiplog sync {shell_path(place)} SOURCE"
                ) from error
            if not rows:
                return
            for sequence, value in rows:
                sequences.append(sequence)
                yield value
            if progress is not None:
                progress(len(rows))

    with closing(storage), open(new, topic) as log:
        result = log.insert_many(values())
    refused = tuple((sequences[index], error) for index, error in result.refused)
    return RecoverResult(result.inserted, result.duplicates, refused, storage.lost)


def _loss(storage: Storage) -> CorruptLog:
    """Return the error for a log that lacks acknowledged messages."""
    name = shell_path(storage.file or "LOG")
    return CorruptLog(
        [describe_loss(storage.lost)],
        advice=f"; gossiplog repair {name} --from SOURCE gets back what a replica has. Only if that fails: gossiplog"
        f" recover {name} NEW --accept-loss makes a log of what is left",
    )


def _check_write_ahead_log(location: str) -> None:
    """Raise CorruptLog where SQLite would drop transactions of the write-ahead log as it opens the log."""
    path = Path(location).resolve()
    wal = write_ahead_log.log_of(path)
    lost = write_ahead_log.unread_commits(wal)
    # A program that begins the file anew meanwhile makes it look damaged once.
    if lost and (lost := write_ahead_log.unread_commits(wal)):
        name = shell_path(location)
        raise CorruptLog(
            [f"{wal} is damaged, and SQLite would drop its {last_counted(lost, 'transaction')}"],
            advice=f"; the log is as it was. gossiplog repair {name} --from SOURCE reads them, and takes from a replica"
            f" what is lost. Only if that fails: gossiplog recover {name} NEW --accept-loss makes a log without them",
        )
