"""The logs that a read names: paths, patterns, folders, URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from gossiplog.errors import CorruptLog, LogReplaced, NotALog, OptionError, StorageError
from gossiplog.spark.source import remote
from gossiplog.spark.tasks import over_connect
from gossiplog.storage import Storage
from gossiplog.storage.location import is_url, storage_at
from gossiplog.storage.postgres.url import PostgresURL, check_nearly, is_postgres_url
from gossiplog.storage.sqlite.files import file_of
from gossiplog.storage.sqlite.tables import BESIDE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URI = re.compile(r"(file:(?://(?:localhost)?(?=/))?)([^?#]*)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_ALTERNATIVES = 10_000


def locations(paths: Iterable[str], *, recursive: bool = False, name_filter: str | None = None) -> list[str]:
    """Return the locations of logs, each once, in the order of the paths; those of a pattern ascend by name.

    Args:
        paths: of files; folders, which stand for the files in them, as in Spark without those whose names begin with a
            dot or an underscore; patterns as `glob` has them, also with alternatives as in "{a,b}.db", for files;
            "file:" URIs of any of these (https://sqlite.org/uri.html, as file:///data/*.db?immutable=1); URLs of any of
            these on file systems that are not mounted, as s3://bucket/*.db (`gossiplog.spark.source.remote`); or URLs
            of logs in Postgres.
        recursive: look into the folders in a folder, too, and into those that fit a pattern, but not through links:
            Spark's recursiveFileLookup.
        name_filter: a pattern that the names of files must fit, also of those that are named one by one: Spark's
            pathGlobFilter. None takes all.

    Raises:
        NotALog: a file that is not there, a folder without files, or a pattern of which an alternative fits no file;
            a path of which no file fits the filter.
        OptionError: a pattern with more than 10,000 alternatives, or a URL with a password.
        StorageError: a folder that cannot be read.
    """
    fits = _filter(name_filter)
    found: dict[str, str] = {}
    for path in paths:
        fitting = [location for location in _matching(path, recursive) if fits(location)]
        if not fitting:
            raise NotALog(f"no file of {path} has a name that fits pathGlobFilter, which is {name_filter}")
        for location in fitting:
            found.setdefault(identity(location), location)
    return list(found.values())


def _filter(pattern: str | None) -> Callable[[str], bool]:
    """Return what says whether the name of a location's file fits a pattern. What is in Postgres has no file."""
    if pattern is None:
        return lambda location: True
    # Hadoop's patterns negate a class with either sign.
    parts = [part.replace("[^", "[!") for part in alternatives(pattern)]

    def fits(location: str) -> bool:
        if is_url(location) and not remote.is_remote(location):
            return True
        path = unquote(urlsplit(location).path) if remote.is_remote(location) else file_of(location)
        name = os.path.basename(path)
        return any(fnmatchcase(name, part) for part in parts)

    return fits


def check_logs(
    paths: Iterable[str], topic: str | None = None, *, recursive: bool = False, name_filter: str | None = None
) -> dict[str, str | None]:
    """Check that each log can be opened, and return the topics by the locations.

    Of a log on a file system that is not mounted, only its file is looked for, and the topic is None: to open it takes
    a copy.

    Args:
        paths: as `locations` takes them.
        topic: that each log must have; None takes any.
        recursive: as `locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: as `locations`.
        TopicMismatch: a log has another topic.
        StorageError: a log is not there, or cannot be read.
    """
    topics: dict[str, str | None] = {}
    for location in locations(paths, recursive=recursive, name_filter=name_filter):
        if remote.is_remote(location):
            remote.size_of(location)
            topics[location] = None
            continue
        with opened(location, topic) as (_, topics[location]):
            pass
    return topics


def identity(location: str) -> str:
    """Return the one location among those of the same log that does not depend on links or the working folder."""
    location = without_password(location)
    return location if is_uri(location) else os.path.realpath(location)


def anchored(path: str) -> str:
    """Return what names the same logs in every working folder: a path or a pattern with its folder.

    Args:
        path: as `locations` takes it.
    """
    if remote.is_remote(path) or path.startswith(("/", "{/")):
        return path
    if uri := _URI.fullmatch(path):
        start, inside, query = uri.groups()
        return path if inside.startswith(("/", "{/")) else f"{start}{quote(os.getcwd())}/{inside}{query}"
    if is_url(path):
        return path
    # The folder stands for itself, also where the path is a pattern.
    is_one = os.path.lexists(path) or not is_pattern(path)
    return os.path.join(os.getcwd() if is_one else glob.escape(os.getcwd()), path)


def anchored_for(session: SparkSession, paths: Iterable[str]) -> list[str]:
    """Return paths as a session's tasks, or its server, may be given them.

    Over Spark Connect the server has a working folder of its own.
    """
    return [anchored(path) for path in paths] if over_connect(session) else [*paths]


def without_password(location: str) -> str:
    """Return a location as it may be shown: a URL in one form for all ways to write it.

    Raises:
        OptionError: it is a URL with a password. Spark shows the options of a read in its plans and on its pages, and
            keeps both in its history.
    """
    if remote.is_remote(location):
        return remote.canonical(location)
    check_nearly(location)
    if not is_postgres_url(location):
        return location
    url = PostgresURL.parse(location)
    if url.has_secret:
        raise OptionError(
            f"the URL of {url} has a password, which Spark would show in plans and on its pages: leave it out, and give"
            " it to the driver and the executors as PGPASSWORD or in a file (?passfile=/path/of/it)"
        )
    return str(url)


def is_missing(location: str) -> bool:
    """Return whether a location names a file that is not there."""
    if remote.is_remote(location):
        return not remote.exists(location)
    return not is_url(location) and not os.path.exists(file_of(location))


def is_uri(location: str) -> bool:
    """Return whether a location is no plain path."""
    return is_url(location) or location.startswith("file:")


def _matching(path: str, recursive: bool) -> list[str]:
    if remote.is_remote(path):
        return _remote_files(path, recursive)
    path = without_password(path)
    if is_url(path):
        return [path]
    if uri := _URI.fullmatch(path):
        start, inside, query = uri.groups()
        plain = unquote(inside)
        if os.path.isfile(plain) or not (os.path.isdir(plain) or is_pattern(inside)):
            return [path]
        is_folder = os.path.isdir(plain)
        found = _in_folder(plain, recursive) if is_folder else _files(inside, path, recursive, escaped=True)
        return [f"{start}{quote(match)}{query}" for match in found]
    if os.path.isdir(path):
        return _in_folder(path, recursive)
    if os.path.exists(path):
        return [path]
    if not is_pattern(path):
        raise NotALog(f"there is no log {path}")
    return _files(path, path, recursive)


def _remote_files(location: str, recursive: bool) -> list[str]:
    """Return the files that a URL of a file system stands for."""
    path = urlsplit(location).path
    patterns = alternatives(path) if is_pattern(path) else [path]
    found: set[str] = set()
    for pattern, files in remote.expand(location, patterns, recursive).items():
        if not files:
            which = f"{pattern}, an alternative of {location}" if len(patterns) > 1 else location
            raise NotALog(
                f"no file fits the pattern {which}" if is_pattern(path) else f"the folder {which} has no file"
            )
        found.update(files)
    return [remote.url_of(location, file) for file in _without_companions(found)]


def _without_companions(files: Iterable[str]) -> list[str]:
    """Return files, ascending, without those that SQLite keeps beside others of them."""
    among = {*files}
    return sorted(among - {f"{file}{companion}" for file in among for companion in BESIDE})


def is_pattern(text: str) -> bool:
    """Return whether a path that names no file is a pattern."""
    return glob.has_magic(text) or "{" in text


def _in_folder(folder: str, recursive: bool) -> list[str]:
    """Return the files in a folder that may be logs.

    Raises:
        NotALog: there are none.
        StorageError: it, or a folder in it, cannot be read.
    """
    logs: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=_refuse_folder):
        folders[:] = sorted(filter(_is_shown, folders)) if recursive else ()
        logs += [os.path.join(parent, name) for name in log_names(files)]
    if not logs:
        hint = "" if recursive else ": folders in it are not looked into without recursiveFileLookup"
        raise NotALog(f"the folder {folder} has no file{hint}")
    return sorted(logs)


def log_names(files: Iterable[str]) -> list[str]:
    """Return those of the names of a folder's files that may be logs.

    Hidden ones are none, nor is what SQLite keeps beside a log.
    """
    return _without_companions(filter(_is_shown, files))


def _files_in(folder: str) -> list[str]:
    try:
        return _in_folder(folder, recursive=True)
    except NotALog:
        return []


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _refuse_folder(error: OSError) -> None:
    raise StorageError(f"the folder {error.filename} cannot be read: {error.strerror}") from error


def _files(pattern: str, path: str, recursive: bool, *, escaped: bool = False) -> list[str]:
    """Return the files that fit a pattern.

    Args:
        pattern: as `glob` has it, with alternatives.
        path: that the user gave.
        recursive: take also the files in folders that fit.
        escaped: the pattern is of a URI.
    """
    found: set[str] = set()
    patterns = alternatives(pattern)
    for alternative in patterns:
        if escaped:
            # What is escaped in a URI stands for itself.
            alternative = _ESCAPED.sub(lambda match: glob.escape(unquote(match[0])), alternative)
        matches = glob.glob(alternative, recursive=True)
        fitting = [match for match in matches if os.path.isfile(match)]
        if recursive:
            fitting += [file for match in matches if os.path.isdir(match) for file in _files_in(match)]
        if not fitting:
            has_options = not escaped and re.search(r"\?\w+=", path) is not None
            advice = f": options of SQLite need a URI, as file:{path}" if has_options else ""
            which = f"{alternative}, an alternative of {path}" if len(patterns) > 1 else path
            raise NotALog(f"no file fits the pattern {which}{advice}")
        found.update(fitting)
    return _without_companions(found)


def alternatives(pattern: str) -> list[str]:
    """Return the patterns without braces that one with braces stands for, as in Spark.

    "{a,b{c,d}}" stands for "a", "bc" and "bd".

    Args:
        pattern: a brace without its other one stands for itself.

    Raises:
        OptionError: more than 10,000 patterns.
    """
    finished: list[str] = []
    # What stands before the next braces, and what has them.
    waiting = [("", pattern)]
    while waiting:
        before, rest = waiting.pop()
        if (braces := _braces(rest)) is None:
            finished.append(before + rest)
        else:
            start, parts, after = braces
            waiting += [(before + start, part + after) for part in reversed(parts)]
        if len(finished) + len(waiting) > _ALTERNATIVES:
            raise OptionError(f"the pattern {pattern[:200]} has more than {_ALTERNATIVES:,} alternatives: use *")
    return finished


def _braces(pattern: str) -> tuple[str, list[str], str] | None:
    """Return the first braces that are closed: what comes before them, the parts in them, what comes after."""
    opened_at: list[tuple[int, list[int]]] = []
    closed: dict[int, list[int]] = {}
    for at, character in enumerate(pattern):
        if character == "{":
            opened_at.append((at, []))
        elif character == "," and opened_at:
            opened_at[-1][1].append(at)
        elif character == "}" and opened_at:
            start, commas = opened_at.pop()
            closed[start] = [start, *commas, at]
    if not closed:
        return None
    edges = closed[min(closed)]
    parts = [pattern[left + 1 : right] for left, right in pairwise(edges)]
    return pattern[: edges[0]], parts, pattern[edges[-1] + 1 :]


@contextmanager
def opened(location: str, topic: str | None = None) -> Iterator[tuple[Storage, str]]:
    """Open a log's storage for a block that reads it, which gets it with its topic.

    Args:
        location: of the log. One on a file system that is not mounted is copied as a whole for each block.
        topic: what it must have; None takes any.

    Raises:
        StorageError: what opening or reading it raises, with the location.
    """
    location = without_password(location)
    copied = remote.copied(location) if remote.is_remote(location) else nullcontext(location)
    with copied as place:
        storage = storage_at(place, read_only=True)
        try:
            yield storage, storage.open(topic, create=False)
        except LogReplaced as error:
            # No damage, and nothing to repair.
            raise StorageError(
                f"{location} was rebased, repaired or replaced by another program while it was read: run the job again"
            ) from error
        except CorruptLog as error:
            # A read may have many logs: its message says only what is wrong. Some name the log themselves.
            named = (problem.replace(place, location) for problem in error.problems)
            problems = [problem if location in problem else f"{location}: {problem}" for problem in named]
            raise CorruptLog(problems) from error
        except StorageError as error:
            # Nobody knows a copy, which is gone when the error is read.
            error.args = tuple(part.replace(place, location) if isinstance(part, str) else part for part in error.args)
            raise
        finally:
            storage.close()
