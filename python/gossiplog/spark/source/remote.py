"""Logs in files of systems that are not mounted: S3, Google Cloud Storage, Azure, HDFS, and those of fsspec.

SQLite reads files of this machine, so whoever reads such a log copies its file to a scratch folder, and opens the copy
as one that nobody writes to. The copy is one whole state of the log: its write-ahead log, in which SQLite keeps what it
has not moved into the file yet, must be empty, and the file the same before and after it was copied.

Arrow reads the file systems (pyarrow.fs), so that a task needs no Java for it; but for HDFS, whose library brings its
own.
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import fs

from gossiplog.errors import NotALog, OptionError, StorageError
from gossiplog.reprs import counted
from gossiplog.spark.url_secrets import check_no_secret

SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Of the file systems that Arrow knows; of those of fsspec it is fsspec+NAME. Hadoop calls S3 s3a."""
FSSPEC = "fsspec+"

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_MOST_FILES = 1_000_000
_CHUNK = 2**23
# A write-ahead log without a transaction (https://sqlite.org/fileformat2.html, "WAL File Format").
_WAL_HEADER = 32
_SHOWN = 300
_SCRATCH = "gossiplog-copy-"
# Whose owner is dead is known by its lock, which the system releases.
_LOCK = ".lock"
_FileSystem: TypeAlias = Any


def is_remote(location: str) -> bool:
    """Return whether a location is the URL of a file, a folder or a pattern on a file system that is not mounted."""
    found = _URL.match(location)
    return found is not None and (found[1].lower() in SCHEMES or found[1].lower().startswith(FSSPEC))


def canonical(location: str) -> str:
    """Return the same URL in the one form for all ways to write it.

    Raises:
        OptionError: it has a password or another secret, which Spark would show.
    """
    place = _Place.parse(location)
    return place.url(unquote(place.path))


@dataclass(frozen=True, slots=True)
class _Place:
    """A URL in its parts; the path as it is written, escapes and patterns included."""

    scheme: str
    authority: str
    path: str
    query: str

    @classmethod
    def parse(cls, location: str) -> _Place:
        found = _URL.fullmatch(location)
        assert found is not None, location
        scheme, authority, path, query = found.groups()
        check_no_secret(location)
        scheme = scheme.lower()
        return cls("s3" if scheme == "s3a" else scheme, authority, path, query)

    def url(self, path: str) -> str:
        """Return the URL of another path in the same file system."""
        return f"{self.scheme}://{self.authority}{quote(path)}{self.query}"

    def resolve(self, path: str) -> tuple[_FileSystem, str]:
        """Return the file system, and a path as it has it.

        Raises:
            StorageError: it is not there, or a package for it is missing.
        """
        with _reading(self.url(unquote(self.path))):
            system, root = _connected(f"{self.scheme}://{self.authority}{'' if self.authority else '/'}{self.query}")
        return system, f"{root.rstrip('/')}{path}"


@lru_cache(maxsize=16)
def _connected(root: str) -> tuple[_FileSystem, str]:
    system, path = fs.FileSystem.from_uri(root)
    return system, path


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """Raise what Arrow raises in a block as an error of ours, with the location."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotALog(f"there is no log {location}") from error
    except (OSError, pa.ArrowException, ImportError, ValueError) as error:
        text = str(error).strip() or type(error).__name__
        raise StorageError(f"cannot read {location}: {text.splitlines()[0][:_SHOWN]}") from error


def exists(location: str) -> bool:
    """Return whether there is a file.

    Raises:
        StorageError: its file system cannot be asked.
    """
    (info,) = _infos(location, "")
    return info.type is fs.FileType.File


def size_of(location: str) -> int:
    """Return the size of a log's file, in bytes, without copying it.

    Raises:
        NotALog: there is no file.
        StorageError: its file system cannot be asked.
    """
    return int(_whole_file(location).size)


def _infos(location: str, *suffixes: str) -> list[Any]:
    place = _Place.parse(location)
    system, path = place.resolve(unquote(place.path))
    with _reading(location):
        return list(system.get_file_info([path + suffix for suffix in suffixes]))


def _whole_file(location: str) -> Any:
    """Return what a file system says of a log's file.

    Raises:
        NotALog: there is no file.
        StorageError: the file does not have all of the log.
    """
    database, wal, journal = _infos(location, "", "-wal", "-journal")
    if database.type is not fs.FileType.File:
        raise NotALog(f"there is no log {location}")
    for companion, suffix, least in ((wal, "-wal", _WAL_HEADER), (journal, "-journal", 0)):
        if companion.type is fs.FileType.File and (companion.size or 0) > least:
            raise StorageError(
                f"cannot read {location}: not all of the log is in this file, but some in the one with {suffix} after"
                f" its name ({counted(companion.size, 'byte')}). Where the log is written, run `gossiplog backup LOG"
                " COPY`, which makes one file of it, and put that file here, without a -wal or -journal beside it"
            )
    return database


@contextmanager
def copied(location: str) -> Iterator[str]:
    """Copy a log's file to a scratch folder for a block.

    Yields:
        The copy as a "file:" URI for SQLite. It is removed however the block ends. What a process leaves that is
        killed, the next one removes that copies a log to the same folder.

    Raises:
        NotALog: there is no file.
        StorageError: the file does not have all of the log, changed while it was copied, does not fit into the scratch
            folder, or cannot be read.
    """
    base = _scratch()
    _remove_abandoned(base)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=base) as folder, _owned(folder):
        target = os.path.join(folder, "log.db")
        _copy(location, target)
        yield f"{Path(target).as_uri()}?immutable=1"


def mounted(location: str) -> AbstractContextManager[str]:
    """Return a context with a location that can be opened again and again: of a log that is not mounted, a copy.

    Raises:
        StorageError: as `copied` does.
    """
    return copied(location) if is_remote(location) else nullcontext(location)


def _scratch() -> str:
    """Return one of the scratch folders that Spark gives to executors, or the system's."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(folder)]
    return folders[os.getpid() % len(folders)] if folders else tempfile.gettempdir()


@contextmanager
def _owned(folder: str) -> Iterator[None]:
    """Hold the lock of a scratch folder for a block."""
    lock = os.open(f"{folder}/{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # A lock is there when it is held: before, nobody could tell the folder from one whose owner is dead.
        os.rename(f"{folder}/{_LOCK}.new", f"{folder}/{_LOCK}")
        yield
    finally:
        os.close(lock)


def _remove_abandoned(base: str) -> None:
    """Remove the copies of processes of this user that were killed."""
    with os.scandir(base) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(_SCRATCH)]
    for folder in found:
        # Gone meanwhile, in use, or not ours to remove.
        with suppress(OSError):
            if os.lstat(folder).st_uid != os.geteuid():
                continue
            lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _copy(location: str, target: str) -> None:
    place = _Place.parse(location)
    system, path = place.resolve(unquote(place.path))
    before = _whole_file(location)
    free = shutil.disk_usage(os.path.dirname(target)).free
    if before.size > free:
        raise StorageError(
            f"cannot copy {location}, of {counted(before.size, 'byte')}, to the scratch folder"
            f" {os.path.dirname(target)}, which has {free:,} left: name a larger one as spark.local.dir, or mount the"
            " file system, and name the log by its path"
        )
    with _reading(location):
        stream = system.open_input_stream(path)
    copied = 0
    with stream, _writing(location, target), open(target, "xb") as file:
        with _reading(location):
            tag = _tag(stream)
        while True:
            with _reading(location):
                chunk = stream.read(_CHUNK)
            copied += len(chunk)
            # What grows without end must not fill the disk.
            if not chunk or copied > before.size:
                break
            file.write(chunk)
    after = _whole_file(location)
    with _reading(location), system.open_input_stream(path) as again:
        is_same = _tag(again) == tag
    if copied != before.size or not is_same or (after.size, after.mtime_ns) != (before.size, before.mtime_ns):
        raise StorageError(
            f"cannot read {location}: it changed while it was copied. Run the job again, and put new states of a log"
            " there under another name, or while no job reads it"
        )


@contextmanager
def _writing(location: str, target: str) -> Iterator[None]:
    """Raise what goes wrong with a copy in a block, as where a disk is full by now, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot copy {location} to the scratch folder {os.path.dirname(target)}: {error.strerror}"
        ) from error


def _tag(stream: Any) -> object:
    """Return what an object store says of the content that a stream reads; None where it says nothing."""
    metadata = {_text(name).lower(): _text(value) for name, value in (stream.metadata() or {}).items()}
    return metadata.get("etag")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def expand(location: str, alternatives: Iterable[str], recursive: bool) -> dict[str, list[str]]:
    """Return the files that a URL stands for, by the alternatives of its pattern.

    Args:
        location: of a file, a folder or a pattern.
        alternatives: the paths that its path stands for, without braces; they may be patterns as `glob` has them.
        recursive: look into the folders in a folder, and into those that fit a pattern.

    Returns:
        Paths in the file system, as `url_of` takes them. None for a pattern that no file fits, and a folder without
        files.

    Raises:
        NotALog: a path that is no pattern and names nothing.
        OptionError: more than a million files.
        StorageError: the file system cannot be asked.
    """
    place = _Place.parse(location)
    found = {}
    for alternative in alternatives:
        is_pattern = glob.has_magic(alternative)
        parts = [part for part in alternative.split("/") if part]
        infos = list(_fitting(place, location, parts))
        if not infos and not is_pattern:
            raise NotALog(f"there is no log {location}")
        files = [info.path for info in infos if info.type is fs.FileType.File]
        folders = [info.path for info in infos if info.type is fs.FileType.Directory]
        for folder in folders if recursive or not is_pattern else ():
            files += [info.path for info in _listed(place, location, folder, recursive) if _is_file(info)]
        _, root = place.resolve("")
        found[alternative] = [path.removeprefix(root) for path in files]
    return found


def url_of(location: str, path: str) -> str:
    """Return the URL of a path in the file system of a location."""
    return _Place.parse(location).url(path)


def _fitting(place: _Place, location: str, parts: list[str]) -> Iterator[Any]:
    """Yield the files and folders that a pattern fits, part by part."""
    system, root = place.resolve("")
    if not parts:
        with _reading(location):
            yield from system.get_file_info([root])
    folders = [root]
    for number, part in enumerate(parts, 1):
        is_last = number == len(parts)
        if not glob.has_magic(part):
            folders = [f"{folder}/{unquote(part)}" for folder in folders]
            if is_last:
                with _reading(location):
                    infos = system.get_file_info(folders)
                yield from (info for info in infos if info.type is not fs.FileType.NotFound)
            continue
        if part == "**":
            below = [info for folder in folders for info in _listed(place, location, folder, recursive=True)]
            if is_last:
                yield from filter(_is_file, below)
            folders += [info.path for info in below if not _is_file(info)]
            continue
        # What is escaped in a URL stands for itself.
        pattern = _ESCAPED.sub(lambda match: glob.escape(unquote(match[0])), part)
        inside = (info for folder in folders for info in _listed(place, location, folder, recursive=False))
        matches = [info for info in inside if fnmatchcase(info.base_name, pattern)]
        if is_last:
            yield from matches
        folders = [info.path for info in matches if not _is_file(info)]


def _listed(place: _Place, location: str, folder: str, recursive: bool) -> list[Any]:
    """Return what is in a folder, hidden files and folders left out; nothing where it is not there."""
    system, _ = place.resolve("")
    with _reading(location):
        infos = system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=recursive))
    if len(infos) > _MOST_FILES:
        raise OptionError(f"{location} stands for more than {_MOST_FILES:,} files: name folders in it")
    shown = (info for info in infos if not _is_hidden(info.path.removeprefix(folder)))
    return sorted(shown, key=lambda info: str(info.path))


def _is_file(info: Any) -> bool:
    return info.type is fs.FileType.File


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
