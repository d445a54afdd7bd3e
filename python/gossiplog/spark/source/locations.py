"""The logs that a read names: paths, patterns, folders, URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from gossiplog.errors import NotALog, OptionError, StorageError
from gossiplog.files import may_exist
from gossiplog.spark.folders import is_working_folder
from gossiplog.spark.source import remote
from gossiplog.spark.tasks import over_connect
from gossiplog.spark.url_secrets import check_no_secret
from gossiplog.storage.location import is_url
from gossiplog.storage.postgres.url import PostgresURL, check_nearly, is_postgres_url
from gossiplog.storage.sqlite.files import file_id, file_of, has_content, wal_of
from gossiplog.storage.sqlite.names import log_names
from gossiplog.storage.sqlite.tables import BESIDE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URI = re.compile(r"(file:(?://(?:localhost)?(?=/))?)([^?#]*)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_ALTERNATIVES = 10_000


def locations(paths: Iterable[str], *, recursive: bool = False, name_filter: str | None = None) -> list[str]:
    """Return the locations of logs, each once, in the order of the paths; those of a pattern ascend by name.

    Folders and patterns do not stand for what is kept beside a log: SQLite's own files, the former one after a rebase
    (`a.db.generation-0`), the damaged one after a repair (`a.db.damaged`), what advice sets aside (`.saved`, `.former`,
    `a.db.copy` where there is `a.db`), and what jobs work in (`.partial`, `.staging-…`). Their own paths name them.

    Args:
        paths: of files; folders, which stand for the files in them, as in Spark without those whose names begin with a
            dot or an underscore; patterns as `glob` has them, also with alternatives as in "{a,b}.db", for files, in
            which "**" goes through no links;
            "file:" URIs of any of these (https://sqlite.org/uri.html, as file:///data/*.db?immutable=1); URLs of any of
            these on file systems that are not mounted, as s3://bucket/*.db (`gossiplog.spark.source.remote`); or URLs
            of logs in Postgres.
        recursive: look into the folders in a folder, too, and into those that fit a pattern, but not through links:
            Spark's recursiveFileLookup.
        name_filter: a pattern that the names of files must fit, also of those that are named one by one: Spark's
            pathGlobFilter. None takes all.

    Raises:
        NotALog: a file that is not there, a folder without files, or a pattern of which an alternative fits no file;
            no file of any path fits the filter.
        OptionError: a pattern with more than 10,000 alternatives, or a URL with a password.
        StorageError: a folder that cannot be read, or a path that is not UTF-8, which Spark cannot carry.
    """
    return chosen((location for path in paths for location in matching(path, recursive=recursive)), name_filter)


def chosen(found: Iterable[str], name_filter: str | None) -> list[str]:
    """Return the locations whose files have names that fit a filter, each log once.

    Raises:
        NotALog: none of several fits: the filter is a mistake.
        StorageError: a location that is not UTF-8.
    """
    fits = _filter(name_filter)
    several = [*found]
    fitting = [location for location in several if fits(location)]
    if several and not fitting:
        files = f"{shown(several[0])} has no" if len(several) == 1 else f"none of {len(several):,} files has a"
        raise NotALog(f"{files} name that fits pathGlobFilter, which is {name_filter}")
    return [*distinct(fitting).values()]


def _refuse_folder(error: OSError) -> None:
    raise StorageError(describe_folder(error)) from error


def describe_folder(error: OSError) -> str:
    """Return what is wrong with a folder that cannot be listed."""
    return f"the folder {shown(error.filename)} cannot be read: {error.strerror}"


def matching(path: str, *, recursive: bool = False, on_unread: Callable[[OSError], None] = _refuse_folder) -> list[str]:
    """Return the locations that a path stands for, which may be several names of one log.

    Args:
        path: as `locations` takes it.
        recursive: likewise.
        on_unread: is called for each folder that cannot be listed; by default it raises.

    Raises:
        NotALog: as `locations` does.
        OptionError: likewise.
        StorageError: likewise.
    """
    check_text(path)
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
        if is_folder:
            found = _in_folder(plain, recursive, on_unread)
        else:
            found = _files(inside, path, recursive, on_unread, escaped=True)
        return [f"{start}{quote(match)}{query}" for match in found]
    if os.path.isdir(path):
        return _in_folder(path, recursive, on_unread)
    if may_exist(path):
        return [path]
    if not is_pattern(path):
        raise NotALog(f"there is no log {shown(path)}")
    return _files(path, path, recursive, on_unread)


def distinct(found: Iterable[str]) -> dict[str, str]:
    """Return each log once, by its identity, in the order in which they come.

    A file with several names, as hard links give it, is one log. It has the first of them, unless a write-ahead log
    stands beside another one: without that a part of the log is missing.

    Raises:
        StorageError: a location that is not UTF-8.
    """
    logs: dict[str, str] = {}
    folders: dict[str, str] = {}
    files: dict[tuple[int, int], str] = {}
    for location in found:
        log = _identity(location, folders)
        for text in (location, log):
            check_text(text)
        if log in logs:
            continue
        file = file_id_of(location)
        if file is not None and (former := files.setdefault(file, log)) != log:
            if not _has_wal(location) or _has_wal(logs[former]):
                continue
            del logs[former]
            files[file] = log
        logs[log] = location
    return logs


def _identity(location: str, folders: dict[str, str]) -> str:
    """Return the identity of a location, with the folders that were looked up already."""
    if is_uri(location) or os.path.islink(location):
        return identity(location)
    folder, name = os.path.split(without_password(location))
    if name in ("", ".", ".."):
        return os.path.realpath(location)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)


def file_id_of(location: str) -> tuple[int, int] | None:
    """Return the device and the number of the file that a location names; None where there is none."""
    return None if is_url(location) else file_id(file_of(location))


def _has_wal(location: str) -> bool:
    return has_content(wal_of(file_of(location)))


def check_text(location: str) -> None:
    """Refuse a path that is not UTF-8: Spark has no place for it, and ends a job over all logs in its midst.

    Raises:
        StorageError: it is not.
    """
    try:
        location.encode()
    except UnicodeEncodeError as error:
        raise StorageError(
            f"the path {shown(location)} is not UTF-8, which Spark needs: rename it, or leave it out by a pattern"
        ) from error


def shown(location: str) -> str:
    """Return a location in one line, as errors name it: what ends a line, or is not UTF-8, stands there escaped."""
    text = os.fsencode(location).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


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
        StorageError: it is nearly a URL of Postgres.
    """
    if remote.is_remote(location):
        return remote.canonical(location)
    check_nearly(location)
    if not is_postgres_url(location):
        check_no_secret(location)
        return location
    url = PostgresURL.parse(location)
    if url.has_secret:
        raise OptionError(
            f"the URL of {url} has a password, which Spark would show in plans and on its pages: leave it out, and give"
            " it to the driver and the executors as PGPASSWORD or in a file (?passfile=/path/of/it)"
        )
    return str(url)


def is_missing(location: str) -> bool:
    """Return whether a location names a file that is not there, and not one that this user may not look for."""
    if remote.is_remote(location):
        return not remote.exists(location)
    return not is_url(location) and not may_exist(file_of(location))


def is_uri(location: str) -> bool:
    """Return whether a location is no plain path."""
    return is_url(location) or location.startswith("file:")


def _remote_files(location: str, recursive: bool) -> list[str]:
    """Return the files that a URL of a file system stands for."""
    path = urlsplit(location).path
    patterns = alternatives(path) if is_pattern(path) else [path]
    found: set[str] = set()
    for pattern, files in remote.expand(location, patterns, recursive).items():
        # Files are asked for by the paths that they have without escapes.
        files = [file for file in files if file == unquote(pattern)] or _logs_among(files)
        if not files:
            which = f"{pattern}, an alternative of {location}" if len(patterns) > 1 else location
            raise NotALog(
                f"no file fits the pattern {which}" if is_pattern(path) else f"the folder {which} has no file"
            )
        found.update(files)
    return [remote.url_of(location, file) for file in sorted(found)]


def _logs_among(files: Iterable[str], start: str = "") -> list[str]:
    """Return those of files that may be logs, ascending.

    Args:
        files: paths.
        start: with which all of them begin, and which is not looked at.
    """
    by_folder: dict[str, list[str]] = {}
    for file in files:
        folder, name = os.path.split(file)
        by_folder.setdefault(folder, []).append(name)
    return sorted(
        os.path.join(folder, name)
        for folder, found in by_folder.items()
        if not any(map(is_working_folder, folder.removeprefix(start).split("/")))
        for name in log_names(found)
    )


def is_pattern(text: str) -> bool:
    """Return whether a path that names no file is a pattern."""
    return glob.has_magic(text) or "{" in text


def _in_folder(folder: str, recursive: bool, on_unread: Callable[[OSError], None]) -> list[str]:
    """Return the files in a folder that may be logs.

    Raises:
        NotALog: there are none, and all of it could be listed.
    """
    logs: list[str] = []
    unread: list[OSError] = []
    has_others = False
    for parent, folders, files in os.walk(folder, onerror=unread.append):
        folders[:] = sorted(name for name in folders if _is_shown(name) and not is_working_folder(name))
        has_others = has_others or any(map(_is_shown, files))
        logs += [os.path.join(parent, name) for name in log_names(filter(_is_shown, files))]
        if not recursive:
            break
    for error in unread:
        on_unread(error)
    if not logs and not unread:
        hint = "" if recursive else ": folders in it are not looked into without recursiveFileLookup"
        what = "no log, but what is kept beside one" if has_others else "no file"
        raise NotALog(f"the folder {shown(folder)} has {what}{hint}")
    return sorted(logs)


def _files_in(folder: str, on_unread: Callable[[OSError], None]) -> list[str]:
    try:
        return _in_folder(folder, True, on_unread)
    except NotALog:
        return []


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _files(
    pattern: str, path: str, recursive: bool, on_unread: Callable[[OSError], None], *, escaped: bool = False
) -> list[str]:
    """Return the files that fit a pattern.

    Args:
        pattern: as `glob` has it, with alternatives.
        path: that the user gave.
        recursive: take also the files in folders that fit.
        on_unread: as `matching` takes it.
        escaped: the pattern is of a URI.
    """
    found: set[str] = set()
    patterns = alternatives(pattern)
    for alternative in patterns:
        if escaped:
            # What is escaped in a URI stands for itself.
            alternative = _ESCAPED.sub(lambda match: glob.escape(unquote(match[0])), alternative)
        matches = _globbed(alternative)
        fitting = [match for match in matches if os.path.isfile(match)]
        is_empty = not fitting
        if glob.has_magic(alternative):
            start = re.split(r"[^/]*[*?\[]", alternative, maxsplit=1)[0]
            fitting = _logs_among(_without_companions(fitting), start)
        if recursive:
            fitting += [file for match in matches if os.path.isdir(match) for file in _files_in(match, on_unread)]
        if not fitting:
            has_options = not escaped and re.search(r"\?\w+=", path) is not None
            advice = f": options of SQLite need a URI, as file:{path}" if has_options else ""
            which = shown(f"{alternative}, an alternative of {path}" if len(patterns) > 1 else path)
            what = "file" if is_empty else "log, but what is kept beside one,"
            raise NotALog(f"no {what} fits the pattern {which}{advice}")
        found.update(fitting)
    return sorted(found)


def _without_companions(files: Iterable[str]) -> list[str]:
    """Return files without those that SQLite keeps beside others, whether these fit or not."""
    return [
        file
        for file in files
        if not any(file.endswith(end) and os.path.isfile(file.removesuffix(end)) for end in BESIDE)
    ]


def _globbed(pattern: str) -> list[str]:
    """Return what fits a pattern as `glob` has it, but that "**" goes through no links: those may lead back."""
    found: dict[str, None] = {}
    waiting = [pattern]
    seen = {pattern}
    while waiting:
        parts = waiting.pop().split("/")
        if "**" not in parts:
            found.update(dict.fromkeys(glob.glob("/".join(parts))))
            continue
        at = parts.index("**")
        rest = parts[at + 1 :]
        while rest[:1] == ["**"]:
            rest = rest[1:]
        head = "/".join(parts[:at])
        for folder in _folders_below([head + "/"] if at and not head else glob.glob(head + "/") if head else [""]):
            if rest:
                inside = "/".join([glob.escape(folder) + rest[0], *rest[1:]])
                if inside not in seen:
                    seen.add(inside)
                    waiting.append(inside)
                continue
            with suppress(OSError), os.scandir(folder or ".") as entries:
                found.update({folder + entry.name: None for entry in entries if not entry.name.startswith(".")})
    return [*found]


def _folders_below(folders: Iterable[str]) -> Iterator[str]:
    """Yield folders and those in them, with a slash at their ends, but for hidden ones; "" is the working folder."""
    waiting = [*folders]
    while waiting:
        yield (folder := waiting.pop())
        # What cannot be read fits nothing, as in `glob`.
        with suppress(OSError), os.scandir(folder or ".") as entries:
            waiting += [
                f"{folder}{entry.name}/"
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]


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
