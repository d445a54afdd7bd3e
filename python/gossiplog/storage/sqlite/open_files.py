"""The files of a database that is open: whether they still have their names, and what is saved of one that has not.

SQLite goes on with a file that was deleted or replaced. What it holds is gone once the last connection is closed.
"""

from __future__ import annotations

import filecmp
import os
import sqlite3
import warnings
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from gossiplog.errors import LossWarning, StorageError
from gossiplog.reprs import shell_path
from gossiplog.storage.sqlite.backup import back_up
from gossiplog.storage.sqlite.checkpoints import Checkpoints
from gossiplog.storage.sqlite.commit_count import CommitCount, describe_ways_back
from gossiplog.storage.sqlite.files import (
    COPY_SUFFIX,
    SAVED_SUFFIX,
    NamedFiles,
    file_id,
    has_content,
    move_command,
    numbered_names,
    open_name,
    open_status,
    wal_of,
)
from gossiplog.storage.sqlite.tables import CLOSE_IN_ORDER

_MOST_SAVED = 999
_OWNER_ONLY = 0o600
# From `close` here to that of a log's user, by `Log.close`.
_CALLER = 4


class OpenFiles:
    """The files of a database that one connection writes to, or reads.

    Args:
        path: of the database, absolute; it may be a link.
        file: what `file_id` found there when the database was opened.
        identity: of the database, b"" where it is not known.
        lock_timeout: the seconds that the connection waits for a lock.
        is_saved: whether `close` saves the content of a file that has lost its name.

    Attributes:
        checkpoints: of the connection.
    """

    def __init__(
        self, path: str, file: tuple[int, int] | None, identity: bytes, lock_timeout: float, *, is_saved: bool
    ) -> None:
        self._path = path
        self._file = file
        self._is_saved = is_saved
        # The file that a link leads to, and its write-ahead log, which SQLite puts there.
        self._database = os.path.realpath(path)
        self._wal = str(wal_of(self._database))
        self._wal_file = file_id(self._wal)
        self._index = f"{self._database}-shm"
        self._index_file = file_id(self._index)
        self._named = NamedFiles({path: file, self._wal: self._wal_file})
        self.checkpoints = Checkpoints(self._database, self._wal, identity, lock_timeout)

    @property
    def mode(self) -> int:
        """The mode of the file, also where it has lost its name."""
        status = self._status()
        return _OWNER_ONLY if status is None else status.st_mode

    def is_lost(self) -> bool:
        """Return whether the file, or its write-ahead log, has lost its name."""
        return self._named.find_lost(is_last=True) is not None

    def check(self) -> None:
        """Check that the paths name the files that were opened, and that no other one was copied over the database.

        Raises:
            StorageError: they do not, or one was; the error names the way back.
        """
        lost, change = self._named.find_lost(), self.checkpoints.find_change()
        if lost == self._wal:
            raise StorageError(
                f"the write-ahead log {lost} was deleted, moved away or replaced while the log was open, so nothing"
                f" more is written to it: {CLOSE_IN_ORDER}"
            )
        self._check_content(change if lost is None else "")
        if lost is None:
            return
        if self._is_by_link():
            raise StorageError(
                f"the link {self._path} leads to another file than when the log was opened, so nothing more is"
                " written: to go on with that file, close the log (stop the program), and open it again"
            )
        raise StorageError(f"{self._describe_lost()}, so nothing more is written to it{self._ways_back()}")

    def save(self, connection: sqlite3.Connection) -> str | None:
        """Save what nobody has any longer once the connection that writes is closed.

        Returns:
            What has become of a file that has lost its name, and where its content is; "" where nothing is to be said;
            None where the file has its name.

        Raises:
            StorageError: it cannot be saved. Nothing is closed, so that another call may succeed.
            sqlite3.Error: likewise.
        """
        if self._named.find_lost(is_last=True) == self._path and not self._is_by_link():
            # A reader has lost nothing: it reports a write-ahead log that is left behind alone.
            return self._save_and_describe(connection) if self._is_saved or self._has_left() else ""
        if not self._is_saved or not self._has_nameless_log():
            self.checkpoints.finish(connection)
            return None
        # The last connection moves it, but says nothing where that fails, and is not the last where others go on with
        # another write-ahead log.
        if self._is_alone() and self.checkpoints.move_all(connection):
            return None
        if self.checkpoints.is_changed():
            return None
        saved, path = self._save(connection), shell_path(self._path)
        return (
            f"the write-ahead log {self._wal} was deleted, moved away or replaced while the log was open. All that the"
            f" log held is saved as {saved}: gossiplog sync {path} {shell_path(saved)} adds to {path} what it lacks"
        )

    def close(self, connection: sqlite3.Connection, saved: str | None) -> None:
        """Close the connection that writes, after `save`.

        Args:
            connection: that writes.
            saved: what `save` has returned.

        Raises:
            StorageError: the file has lost its name, or another one was copied over it, and where its content is.
            LossWarning: it was deleted, and nothing is saved, since the log was only read.
        """
        is_gone = saved == "" and file_id(self._path) is None and self._is_unlinked()
        lost = f"{self._describe_lost()}{self._left_behind()}" if is_gone else ""
        self.checkpoints.close(connection)
        if saved:
            raise StorageError(saved)
        if lost:
            warnings.warn(lost, LossWarning, stacklevel=_CALLER)
        self._check_content(self.checkpoints.change if saved is None else "")

    def _save_and_describe(self, connection: sqlite3.Connection) -> str:
        """Save the content of a file that has lost its name, unless it has another one, and return what to do.

        Raises:
            StorageError: it cannot be saved.
        """
        lost = self._describe_lost()
        if not self._is_saved or not self._has_nameless() or self.checkpoints.log.is_cut_off:
            return f"{lost}{self._left_behind()}"
        try:
            saved = self._save(connection)
        except StorageError as error:
            raise StorageError(
                f"{lost}, and what it held cannot be saved: {error}. Put that right, and close the log once more before"
                f" the program ends; otherwise what no replica has is lost{self._left_behind()}"
            ) from error
        path, folder = shell_path(self._path), os.path.dirname(self._database)
        make = "" if os.path.isdir(folder) else f"mkdir -p {shell_path(folder)} && "
        set_aside = f"{move_command(self._path, COPY_SUFFIX)} && " if os.path.lexists(self._path) else ""
        put_back = f"{make}{set_aside}mv {shell_path(saved)} {path}"
        return f"{lost}. All that it held is saved as {saved}: {put_back} puts it back"

    def _check_content(self, change: str) -> None:
        """Check that the write-ahead log was not cut off, and that nothing was copied over the database.

        Args:
            change: how the database has changed, as a clause; "" if it has not.
        """
        if self.checkpoints.log.is_cut_off:
            raise StorageError(
                f"the write-ahead log {self._wal} was cut off while the log was open, so nothing more is written"
                f" to it, and nothing of it is moved into {self._path}. Stop the program (the server), and get what is"
                f" lost from a replica: gossiplog repair {shell_path(self._path)} --from SOURCE"
            )
        if change:
            raise StorageError(
                f"the file {self._path} was written over ({change}) while the log was open, so nothing more is written"
                f" to it, and {self._wal} is kept. {self._describe_ways_back()}"
            )

    def _is_by_link(self) -> bool:
        """Return whether the path is a link that leads elsewhere, and the file has its own name still."""
        # A file that was moved back since a look has its name, too.
        return self._path != self._database and self._named.is_named(self._path, by=self._database)

    def _is_unlinked(self) -> bool:
        """Return whether the file has no name, as far as the system says."""
        status = self._status()
        return status is None or status.st_nlink == 0

    def _status(self) -> os.stat_result | None:
        """Return the status of the file; None where the system does not say it of one without its name."""
        return None if self._file is None else open_status(self._file)

    def _has_nameless(self) -> bool:
        """Return whether the file, or a write-ahead log with content, has no name: what it holds is found by none."""
        return self._is_unlinked() or self._has_nameless_log()

    def _is_alone(self) -> bool:
        """Return whether no other program uses the file with another write-ahead log than the one without a name.

        One that opened the file since has made a log. With the former index, which names pages of the former log, it
        has not succeeded.
        """
        if file_id(self._wal) is None:
            return True
        return not has_content(self._wal) and self._index_file == file_id(self._index) is not None

    def _has_nameless_log(self) -> bool:
        # One that has its name is the usual case, which takes no look at all descriptors.
        if self._wal_file is None or file_id(self._wal) == self._wal_file:
            return False
        status = open_status(self._wal_file)
        return status is not None and status.st_nlink == 0 and status.st_size > 0

    def _describe_lost(self) -> str:
        if file_id(self._path) is not None:
            how = "replaced by another file"
        else:
            status = self._status()
            how = "deleted or moved away" if status is None else "moved away" if status.st_nlink else "deleted"
        return f"the file {self._path} was {how} while the log was open"

    def _how_to_return(self) -> str:
        """Return what to do where the file has another name now."""
        name = "" if self._file is None else open_name(self._file)
        beside = ", with the files beside it" if file_id(self._wal) != self._wal_file else ""
        if file_id(self._path) is None:
            return f": move it back{name and f' from {name}'}{beside and f'{beside},'} to go on"
        return (
            f". The program has the former one open{name and f', which is {name} now'}. Start it (the server) anew to"
            " go on with the file that is there. To go on with the former one, move that file away before, and the"
            f" former one back{beside}"
        )

    def _ways_back(self) -> str:
        """Return what to do while a program has a file open that has lost its name."""
        if not self._has_nameless():
            return self._how_to_return()
        if not self._is_saved:
            return f"{self._left_behind()}. Until this program closes the log, log.backup(PATH) in it makes a copy"
        folder = os.path.dirname(self._database)
        place = f"{self._database}{SAVED_SUFFIX}" if os.path.isdir(folder) else "a file in the temporary folder"
        return (
            ". The program still has all of it: stop it (the server) with Ctrl-C or SIGTERM, not with SIGKILL, and it"
            f" saves all as {place}. Until then gossiplog sync COPY SERVER --topic TOPIC, with the server's ws://"
            " address, gets a copy"
        )

    def _left_behind(self) -> str:
        """Return what to do where only the write-ahead log of a file without a name is left, or nothing."""
        if not self._is_unlinked():
            return self._how_to_return()
        if self._has_left() and file_id(self._path) is not None:
            return f"; {self._wal} is kept. {self._describe_ways_back()}"
        path = shell_path(self._path)
        if self._has_left():
            return f"; {self._wal} is kept: gossiplog repair {path} --from SOURCE, with a replica or a backup"
        return f": restore a backup, or gossiplog sync {path} SOURCE --topic TOPIC gets it from a replica"

    def _has_left(self) -> bool:
        """Return whether the write-ahead log has content, and is not that of another file of the name."""
        return has_content(self._wal) and self._named.is_named(self._wal, by=self._wal)

    def _describe_ways_back(self) -> str:
        count = CommitCount(self._database).acknowledged
        return describe_ways_back(self._database, count, self.checkpoints.file.count)

    def _save(self, connection: sqlite3.Connection) -> str:
        """Copy the content of the file, with its identity, to a free name beside its former one; return that.

        Where that cannot be, as in a folder that is gone or on a full disk, a new folder of the system's temporary one
        takes it. Where another program has saved the same, that file is returned.

        Raises:
            StorageError: neither can be written.
        """
        try:
            return self._save_beside(connection, self._database)
        except StorageError as error:
            try:
                # Imported here, since hardly any log needs it.
                import tempfile

                folder = tempfile.mkdtemp(prefix="gossiplog-")
            except (ImportError, OSError):
                raise error from None
            try:
                return self._save_beside(connection, os.path.join(folder, os.path.basename(self._database)))
            except StorageError:
                os.rmdir(folder)
                raise error from None

    def _save_beside(self, connection: sqlite3.Connection, database: str) -> str:
        """Copy the content to a free name that begins with a path.

        Raises:
            StorageError: it cannot be written, or _MOST_SAVED such names are taken.
        """
        earlier: list[str] = []
        for saved in islice(numbered_names(database, SAVED_SUFFIX), _MOST_SAVED):
            if not _is_taken(saved):
                try:
                    back_up(connection, saved, self.mode, None, is_copy=False)
                except StorageError:
                    # Another program that had the file open may have saved it under this name meanwhile.
                    if not _is_taken(saved):
                        raise
                else:
                    return _keep_one(earlier, saved)
            earlier.append(saved)
        raise StorageError(f"move away {database}{SAVED_SUFFIX} and the files with a number after that name")


def _is_taken(saved: str) -> bool:
    """Return whether no file can be saved under a name."""
    return os.path.lexists(saved) or has_content(wal_of(saved))


def _keep_one(earlier: Iterable[str], saved: str) -> str:
    """Remove a file that was saved, if an earlier one is the same byte for byte; return which is left.

    Of programs that save at once, each compares its file with those of smaller numbers alone: the first one stays.
    """
    for other in earlier:
        with suppress(OSError):
            if os.path.isfile(other) and not has_content(wal_of(other)) and filecmp.cmp(other, saved, shallow=False):
                os.unlink(saved)
                return other
    return saved
