"""Which file system a path is on, for every job; folders in which one process works at a time, and those to be made.

A path is of this machine, whatever Spark's default file system is (`fs.defaultFS`), unless it is a URI of another
scheme: that goes where it says. `file:` before a path changes nothing. Executors on other machines must see a folder of
this one under the same path.

A new folder of this machine is filled under another name and renamed when it is complete. Other file systems may have
no rename that is one step (object stores copy), so there it is filled in place, and `_SUCCESS`, written last, says that
it is complete, as in all of Hadoop's.
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gossiplog.errors import OptionError, StorageError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.url_secrets import check_no_secret
from gossiplog.storage.sqlite import names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/))?")
# What Hadoop takes for a pattern, and the sign that makes it stand for itself.
_SPECIAL = re.compile(r"[\\*?\[\]{}]")
_COMPLETE = "_SUCCESS"
_PARQUET = ".parquet"
_LOCK = ".lock"
PARTIAL_SUFFIX = ".partial"
"""How the name of a folder ends while it is filled."""
INGEST_SUFFIX = ".ingest"
"""How the name of the folder ends in which a log is made."""
STAGING = ".staging-"
"""What stands after a log's name in that of a folder for values that are verified and not merged yet."""
# A mode: the process's own mask says who may enter.
_ANYBODY = 0o777


def is_local(path: str) -> bool:
    """Return whether a path is one of this machine, and no URI of another file system.

    Raises:
        OptionError: it is a URI with a secret, as a password.
    """
    if _FILE.match(path) is not None or _SCHEME.match(path) is None:
        return True
    check_no_secret(path)
    return False


def is_working_folder(name: str) -> bool:
    """Return whether a folder has the name of one that a job, a repair or a recovery works in, or was killed in."""
    is_job = name.endswith((PARTIAL_SUFFIX, INGEST_SUFFIX)) or STAGING in name
    return is_job or names.is_working_folder(name)


def local_path(path: str, purpose: str) -> str:
    """Return a path of this machine as the system takes it.

    Args:
        path: plain, or a file: URI, in which nothing is escaped, as in all of Hadoop's.
        purpose: what it is for, in errors.

    Raises:
        OptionError: it is on another file system.
    """
    if not is_local(path):
        raise OptionError(
            f"{path} is on another file system, which cannot be locked: name a path of this machine for {purpose}, one"
            " that the executors see, too"
        )
    return _FILE.sub("", path, count=1)


def write_path(path: str) -> str:
    """Return a path as Spark's writers take it."""
    if not is_local(path):
        return path
    return f"file://{os.path.abspath(_FILE.sub('', path, count=1))}"


def read_path(path: str) -> str:
    """Return a path as Spark's readers take it, which would take its braces and brackets for a pattern."""
    return _SPECIAL.sub(r"\\\g<0>", write_path(path))


def read_pattern(pattern: str) -> str:
    """Return a pattern for paths as Spark's readers take it; where a path of this machine is called so, only that."""
    if not is_local(pattern):
        return pattern
    plain = _FILE.sub("", pattern, count=1)
    if os.path.exists(plain):
        return read_path(plain)
    return f"file://{plain}" if plain.startswith("/") else f"{read_path('')}/{plain}"


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A folder that a block fills.

    Attributes:
        path: where it is filled.
    """

    path: str
    _remote: _Remote | None

    def write_parquet(self, frame: DataFrame, name: str = "", *, partition_by: Sequence[str] = ()) -> None:
        """Write a frame as Parquet, to a folder of this name in it, or to the folder itself.

        Args:
            frame: what is written.
            name: of the folder; "" is the folder itself.
            partition_by: columns for each of whose values there is a folder in that one, called `column=value`; the
                frame has a row.

        Raises:
            StorageError: the executors have written to other machines.
            GossipLogError: what computing the frame raises.
        """
        path = os.path.join(self.path, name) if name else self.path
        with worker_errors():
            # The folder itself is there already.
            writer = frame.write.mode("append")
            if self._remote is not None and not name:
                # What comes after this frame would be missed by who takes the folder for complete.
                writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            (writer.partitionBy(*partition_by) if partition_by else writer).parquet(write_path(path))
        if self._remote is None and not _is_written(path):
            raise StorageError(
                f"Spark's executors wrote nothing to {path} on this machine: name a folder that all machines share"
                " under one path, or a URI such as hdfs:/folder"
            )

    def write_text(self, name: str, text: str) -> None:
        """Write a text to a file of this name in it.

        Raises:
            OSError: it cannot be written.
            SparkError: the same, on another file system.
        """
        if self._remote is not None:
            self._remote.write(name, text.encode())
            return
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(text)


@contextmanager
def filling(folder: str, purpose: str, session: SparkSession | None) -> Iterator[NewFolder]:
    """Provide a new folder, on whichever file system, for a block to fill.

    Args:
        folder: to be made.
        purpose: what it is for, in errors.
        session: of Spark, which knows other file systems; None where there is none in this process.

    Raises:
        OptionError: something is at `folder` already, or it cannot be made there.
        StorageError: as `building`.
        OSError: it cannot be written.
        SparkError: the same, on another file system.
    """
    if is_local(folder):
        with building(local_path(folder, purpose), purpose) as partial:
            yield NewFolder(partial, None)
        return
    remote = _Remote(session, folder, purpose)
    remote.check_new()
    yield NewFolder(folder, remote)
    remote.write(_COMPLETE, b"")


def write_parquet(frame: DataFrame, folder: str) -> DataFrame:
    """Write a frame to a new folder, and return what is there, so that nothing is computed twice.

    Raises:
        OptionError: something is there already.
        StorageError: as `building`, or the executors have written to other machines.
        GossipLogError: what computing the frame raises.
    """
    if is_local(folder):
        with filling(folder, PARQUET_FILES, frame.sparkSession) as new:
            new.write_parquet(frame)
    else:
        # Spark does all of it: an error where something is there, files that appear when all are complete, _SUCCESS.
        with worker_errors():
            frame.write.parquet(folder)
    return read_back(frame, folder)


def write_back(frame: DataFrame, folder: str) -> DataFrame:
    """Compute a frame to a new folder in one of a job's own, and return what is there.

    Raises:
        StorageError: the executors have written to other machines.
    """
    frame.write.parquet(write_path(folder))
    if not _is_written(folder):
        raise StorageError(
            f"Spark's executors wrote nothing to {folder} on this machine: name a place that all machines share under"
            " one path"
        )
    return read_back(frame, folder)


def parquet_files(folder: str) -> list[str]:
    """Return the paths of the Parquet files in a folder of this machine."""
    return glob.glob(f"{glob.escape(folder)}/*{_PARQUET}")


def _is_written(folder: str) -> bool:
    """Return whether executors have written to a folder of this machine: at least one file, with the columns."""
    return any(file.endswith(_PARQUET) for _, _, files in os.walk(folder) for file in files)


def read_back(frame: DataFrame, folder: str) -> DataFrame:
    """Return a frame that was written to a folder."""
    # Without the schema Spark starts a job to look for it.
    return frame.sparkSession.read.schema(frame.schema).parquet(read_path(folder))


PARQUET_FILES = "the Parquet files"
"""What a folder of `write_parquet` is for, in errors."""


class _Remote:
    """A folder on another file system, through the classes of Hadoop that Spark's own driver has.

    Args:
        session: of Spark.
        folder: a URI.
        purpose: what it is for, in errors.

    Raises:
        OptionError: the session has no driver in this process.
    """

    def __init__(self, session: Any, folder: str, purpose: str) -> None:
        # A session of Spark Connect has no such attribute, and no other call that writes a single file.
        java: Any = getattr(session, "_jvm", None)
        if java is None:
            raise OptionError(
                f"{folder} is on another file system, which no session of Spark Connect reaches: name a folder of this"
                f" machine for {purpose}"
            )
        self._folder = folder
        self._purpose = purpose
        self._path_of = java.org.apache.hadoop.fs.Path
        with worker_errors():
            configuration = session._jsparkSession.sessionState().newHadoopConf()
            self._files = self._path_of(folder).getFileSystem(configuration)

    def check_new(self) -> None:
        """Check that nothing is there.

        Raises:
            OptionError: something is.
        """
        with worker_errors():
            if not self._files.exists(self._path_of(self._folder)):
                return
            is_complete = self._files.exists(self._path_of(f"{self._folder}/{_COMPLETE}"))
        if is_complete:
            raise OptionError(f"{self._folder} is there already: name a new folder for {self._purpose}")
        raise OptionError(
            f"{self._folder} is there already, without {_COMPLETE}, which a job writes last: remove it if no job fills"
            f" it now, or name a new folder for {self._purpose}"
        )

    def write(self, name: str, content: bytes) -> None:
        """Write a new file."""
        with worker_errors():
            stream = self._files.create(self._path_of(f"{self._folder}/{name}"), False)
            try:
                stream.write(content)
            finally:
                stream.close()


@contextmanager
def locked(folder: str, mode: int = 0o755, *, staging: bool = False) -> Iterator[None]:
    """Lock a folder for a block, so that this process alone works in it; make it where there is none.

    Args:
        folder: its path.
        mode: who may enter it, if it is made.
        staging: refuse a folder that is there, unless such a block has left it (`check_staging`).

    Raises:
        StorageError: another process is at it, it cannot be made, or it is refused.
    """
    try:
        try:
            os.makedirs(folder, mode, exist_ok=not staging)
        except FileExistsError:
            if not staging:
                raise
            check_staging(folder, mode)
        path = os.path.join(folder, _LOCK)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror}") from error
    try:
        # Released by the system when the process ends, in whichever way.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that held it may have removed it, and another one made it anew: then this one's lock keeps nobody
        # away.
        if not _is_at(path, lock):
            raise BlockingIOError
    except BlockingIOError as error:
        os.close(lock)
        raise StorageError(f"another process works in {folder}: run one at a time") from error
    try:
        yield
    finally:
        os.close(lock)


def _is_at(path: str, descriptor: int) -> bool:
    """Return whether an open file still has a name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_locked(folder: str) -> None:
    """Remove a folder in which this process alone works, unless others have put something into it."""
    # Fails where another process begins to work in it.
    with suppress(OSError):
        if os.listdir(folder) == [_LOCK]:
            os.unlink(os.path.join(folder, _LOCK))
            os.rmdir(folder)


def check_staging(folder: str, mode: int) -> None:
    """Check that a folder, if it is there, was left by a job of this user's that was killed.

    What lies in it is removed, and may be taken as verified.

    Args:
        folder: its path.
        mode: with which jobs make it.

    Raises:
        StorageError: it is something else, or others may enter it.
    """
    try:
        status = os.lstat(folder)
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        reason = "is no folder"
    elif status.st_uid != os.geteuid():
        reason = "belongs to another user"
    elif stat.S_IMODE(status.st_mode) & 0o777 & ~mode:
        reason = "is open to other users"
    elif (names := os.listdir(folder)) and _LOCK not in names:
        reason = f"has files, but no {_LOCK}, which a job makes first"
    else:
        return
    raise StorageError(
        f"a job works in {folder}, which is there already and {reason}: move it away, or remove it if nobody needs it"
    )


@contextmanager
def building(folder: str, purpose: str) -> Iterator[str]:
    """Provide a new folder for a block to fill, under another name until the block ends without an error.

    Args:
        folder: to be made.
        purpose: what it is for, in errors.

    Yields:
        The path of the folder in the block, a new name in `folder` with ".partial" after it. That is removed when the
        block ends, and with it what a process that was killed has left. Tasks of such a process may run for a moment
        longer, and know another name.

    Raises:
        OptionError: something is at `folder` already, or it cannot be made there.
        StorageError: what is at the other path was not left by such a process, or one still works there.
        OSError: it cannot be written.
    """
    check_building(folder, purpose)
    partial = _partial(folder)
    with locked(partial, _ANYBODY, staging=True):
        try:
            _clear(partial)
            made = os.path.join(partial, uuid.uuid4().hex)
            os.mkdir(made)
            yield made
            os.rename(made, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_building(folder: str, purpose: str) -> None:
    """Check that `building` or `filling` can begin, so that nobody waits for what then has no place.

    Of another file system nothing is known before Spark runs.

    Raises:
        OptionError: as `check_new`.
        StorageError: as `building`, but for a process that works there.
    """
    if is_local(folder):
        path = local_path(folder, purpose)
        check_new(path, purpose)
        check_staging(_partial(path), _ANYBODY)


def _partial(folder: str) -> str:
    return f"{folder.rstrip('/')}{PARTIAL_SUFFIX}"


def _clear(folder: str) -> None:
    """Remove all but the lock."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != _LOCK:
                os.unlink(entry.path)


def check_new(folder: str, purpose: str) -> None:
    """Check that a folder can be made.

    Args:
        folder: its path.
        purpose: what it is for, in errors.

    Raises:
        OptionError: something is there already, or it cannot be made there.
    """
    if os.path.lexists(folder):
        raise OptionError(f"{folder} is there already: name a new folder for {purpose}")
    parent = os.path.dirname(os.path.abspath(folder))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise OptionError(f"{folder} cannot be made, because {parent} is no folder: name a new folder for {purpose}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OptionError(
            f"{folder} cannot be made, because {parent} cannot be written: name a new folder for {purpose}"
        )
