"""`gossiplog doctor`: what is wrong with a log, and what to run."""

from __future__ import annotations

import glob
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gossiplog.cli.doctor_postgres import find_in_postgres
from gossiplog.cli.findings import SOURCE, Finding, Severity, find_contents
from gossiplog.cli.logs import LogPath
from gossiplog.cli.output import Json, Output, printable
from gossiplog.errors import CorruptLog, NotALog, StorageError
from gossiplog.files import explain_denial
from gossiplog.log.reassembly import find_repair_source
from gossiplog.log.remains import count_lacking, count_set_aside
from gossiplog.reprs import counted, shell_path
from gossiplog.storage.base import SCHEMA
from gossiplog.storage.sqlite import salvage
from gossiplog.storage.sqlite.commit_count import COPY_FROM_SERVER, CommitCount, describe_former, repair_command
from gossiplog.storage.sqlite.database_file import is_other_identity, read_identity_and_count
from gossiplog.storage.sqlite.files import (
    COPY_SUFFIX,
    DAMAGED_SUFFIX,
    SAVED_SUFFIX,
    check_files,
    formers,
    free_name,
    has_content,
    numbered,
    wal_of,
)
from gossiplog.storage.sqlite.pages import HEADER, is_writable, page_size
from gossiplog.storage.sqlite.replacement import is_open_elsewhere
from gossiplog.storage.sqlite.set_aside import find_set_aside
from gossiplog.storage.sqlite.storage import SQLiteStorage
from gossiplog.storage.sqlite.tables import MARKED_READ_ONLY
from gossiplog.storage.sqlite.write_ahead_log import describe_unread, unread_commits

# By the pattern of the names of files beside a log, what they are.
_LEFT = {
    "{}.rebasing*": "is of a rebase that was killed, unless one is running",
    "{}.keeping": "is of a repair or a rebase that was killed, unless one is running",
    ".{}.*.partial*": "is of a backup that was killed, unless one is running",
    ".{}-wal.*.partial": "is a copy of the write-ahead log, of an opening that was killed, unless one is running",
}
# By how their names end, what files are that are set aside.
_SET_ASIDE = {
    SAVED_SUFFIX: "has what a program had open whose file was deleted or replaced",
    COPY_SUFFIX: "is a file that an earlier step has set aside",
    DAMAGED_SUFFIX: "is the file before a repair",
}
# SQLite moves the write-ahead log into the file from four megabytes on; what keeps it from that is a reader.
_LARGE_LOG = 64 * 2**20


def doctor(
    path: LogPath,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not verify the messages, which takes the longest.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what is wrong with a log and what to run; end with status 1 if something is wrong.

    It looks at permissions, leftovers, disk space, the write-ahead log, the schema, all messages and indexes, and
    whether an application is behind; of a log in Postgres, at the server and the role's rights. It changes nothing.
    """
    output = Output(json)
    location = path.location
    findings = [*(_findings(location, quick) if isinstance(location, Path) else find_in_postgres(location, quick))]
    is_sound = all(finding.severity is not Severity.WRONG for finding in findings)
    if isinstance(location, Path):
        findings += _set_aside(location, is_sound)
    if output.json:
        for finding in findings:
            output.record({**asdict(finding), "severity": finding.severity.value})
    else:
        # Lines and no table, which would cut commands and names of files to fit the terminal.
        width = max(len(finding.about) for finding in findings)
        for finding in findings:
            output.show(f"{finding.about:{width}}  {finding.severity.value:5}  {printable(finding.finding)}")
            if finding.run:
                output.show(f"    {printable(finding.run)}")
    if any(finding.severity is Severity.WRONG for finding in findings):
        raise typer.Exit(1)


def _findings(path: Path, quick: bool) -> Iterator[Finding]:
    """Yield what is found. The log is opened last: SQLite drops what follows damage in a write-ahead log."""
    try:
        check_files(str(path))
        CommitCount(str(path)).check_not_gone()
    except CorruptLog as error:
        yield Finding("damage", Severity.WRONG, f"{'; '.join(error.problems)}{error.advice}", error.run)
        return
    except NotALog:
        raise
    except StorageError as error:
        yield Finding("files", Severity.WRONG, str(error))
        return
    if not path.is_file():
        raise NotALog(f"there is no log {path}{describe_former(str(path))}")
    yield from _permissions(path)
    if quick:
        # Otherwise the verification finds it.
        yield from _header(path)
    yield from _leftovers(path)
    if (what := _remnant(path)) and not wal_of(path.resolve()).exists():
        if (way := CommitCount(str(path)).find_way_back()) is not None:
            yield Finding("damage", Severity.WRONG, f"{what}. {way.described}", way.command)
            return
        # The file is left as it is, unless it is empty: it may be none of a log.
        new = "NEW" if path.stat().st_size else shell_path(path)
        run = f"gossiplog sync {new} SOURCE --topic TOPIC"
        yield Finding("damage", Severity.WRONG, f"{what}: a replica has what was in it", run)
        return
    yield _disk_space(path)
    open_elsewhere = is_open_elsewhere(path)
    held, advice = CommitCount(str(path)).describe_holders()
    yield _programs(open_elsewhere, held and f"{held}. {advice}")
    yield from _count(path)
    wal = _write_ahead_log(path, bool(open_elsewhere), held, quick)
    yield wal
    if wal.severity is Severity.WRONG or not os.access(path, os.R_OK):
        return
    for former in formers(wal_of(path.resolve())):
        yield from _former_log(path, former)
    yield from _contents(path, quick)


def _permissions(path: Path) -> Iterator[Finding]:
    if not os.access(path, os.R_OK):
        yield Finding("permissions", Severity.WRONG, f"it cannot be read: {explain_denial(path, 'read')}")
        return
    for place, what in ((path, "the log"), (path.resolve().parent, "its folder")):
        mode = os.W_OK if place is path else os.W_OK | os.X_OK
        if not os.access(place, mode):
            denial = explain_denial(place, "write to")
            yield Finding("permissions", Severity.NOTE, f"{what} can only be read: {denial}")
            return
    yield Finding("permissions", Severity.FINE, "it can be read and written")


def _header(path: Path) -> Iterator[Finding]:
    if not os.access(path, os.R_OK):
        return
    with path.open("rb") as file:
        if not is_writable(file.read(HEADER)):
            yield Finding("damage", Severity.WRONG, MARKED_READ_ONLY, f"gossiplog repair {shell_path(path)}")


def _remnant(path: Path) -> str:
    """Return what is left of a file that has not even the first rows of a log, "" where it may have some."""
    size = path.stat().st_size
    if size == 0:
        return "the file is empty"
    if not os.access(path, os.R_OK):
        return ""
    with path.open("rb") as file:
        header = file.read(HEADER)
    # The first page has the names of the tables. One that counts no other is that of a database without any.
    if size < page_size(header) or (size == page_size(header) and int.from_bytes(header[28:32]) > 1):
        return "the file was cut off near its beginning, or is no database"
    return ""


def _leftovers(path: Path) -> Iterator[Finding]:
    place = path.resolve()
    for folder in salvage.leftovers(place):
        finding = f"a repair or a recovery that was killed has left {folder}"
        yield Finding("leftovers", Severity.NOTE, finding, f"rm -r {shell_path(folder)}")
    for kind, what in _LEFT.items():
        for left in sorted(place.parent.glob(kind.format(glob.escape(place.name)))):
            yield Finding("leftovers", Severity.NOTE, f"{left} {what}", f"rm {shell_path(left)}")
    for kept in sorted(place.parent.glob(f"{glob.escape(place.name)}.generation-*")):
        # Not its companions, such as LOG.generation-0-count.
        if kept.name.rpartition("-")[2].isdecimal():
            finding = f"{kept} is the file before a rebase: remove it when you no longer need it"
            yield Finding("leftovers", Severity.NOTE, finding, f"rm {shell_path(kept)}")


def _set_aside(path: Path, is_sound: bool) -> Iterator[Finding]:
    """Yield what is set aside beside a log. What is removed, and from where the log gets messages, depends on it.

    Args:
        path: of the log's file.
        is_sound: whether nothing is wrong with the log: otherwise the way back is named with that.
    """
    name = CommitCount(str(path)).database_name
    sound = {aside.path: aside for aside in find_set_aside(name)}
    for suffix, what in _SET_ASIDE.items():
        for place in numbered(name, suffix):
            finding, run = f"{place} {what}", f"rm {shell_path(place)}"
            aside = sound.get(place)
            if aside is not None:
                finding += f", and holds {counted(aside.count, 'message')}"
            if not is_sound:
                yield Finding("leftovers", Severity.NOTE, f"{finding}: keep it until the log is sound")
                continue
            lacks: int | None = 0
            # What is not sound has been examined by the step that set it aside.
            with suppress(sqlite3.Error):
                lacks = 0 if aside is None else count_lacking(path, aside.path)
            if lacks is None:
                yield Finding("leftovers", Severity.NOTE, f"{finding}, of another topic")
            elif lacks:
                run = f"gossiplog sync {shell_path(path)} {shell_path(place)}"
                yield Finding("leftovers", Severity.NOTE, f"{finding}, {lacks:,} of which the log lacks", run)
            else:
                has = ", all of which the log has" if aside is not None else ""
                yield Finding("leftovers", Severity.NOTE, f"{finding}{has}: remove it when you no longer need it", run)


def _disk_space(path: Path) -> Finding:
    free, size = shutil.disk_usage(path.resolve().parent).free, path.stat().st_size
    finding = f"{free:,} bytes ({free / 1e9:,.1f} GB) are free"
    # A repair has the log three times, with its write-ahead log four times.
    if free < 4 * size:
        return Finding("disk space", Severity.NOTE, f"{finding}: a repair may need {4 * size:,}")
    return Finding("disk space", Severity.FINE, finding)


def _programs(open_elsewhere: bool | None, held: str) -> Finding:
    if held:
        return Finding("programs", Severity.WRONG, f"the file was replaced, and {held}", COPY_FROM_SERVER)
    if open_elsewhere is None:
        return Finding("programs", Severity.NOTE, "whether a program has it open only its owner can find out")
    if open_elsewhere:
        return Finding("programs", Severity.NOTE, "a program has it open: end it before you repair or rebase the log")
    return Finding("programs", Severity.FINE, "no program has it open")


def _write_ahead_log(path: Path, open_elsewhere: bool, held: str, quick: bool) -> Finding:
    log = wal_of(path.resolve())
    size = log.stat().st_size if log.exists() else 0
    count = CommitCount(str(path))
    if replacement := count.find_replacement():
        run = repair_command(count.database_name, count.count_without(str(log)) or 0)
        if held:
            run = COPY_FROM_SERVER
        return Finding("write-ahead log", Severity.WRONG, replacement, run)
    if foreign := count.find_foreign_log():
        run = COPY_FROM_SERVER if held else count.set_log_aside
        return Finding("write-ahead log", Severity.WRONG, foreign, run)
    if not open_elsewhere and (lost := unread_commits(log)):
        finding = f"{describe_unread(log, lost)}, and a repair reads them{SOURCE if quick else ''}"
        return Finding("write-ahead log", Severity.WRONG, finding, _repair(path, quick))
    if size > _LARGE_LOG:
        finding = f"it has {size:,} bytes: a program that reads for a long time keeps SQLite from emptying it"
        return Finding("write-ahead log", Severity.NOTE, finding)
    return Finding("write-ahead log", Severity.FINE, f"{size:,} bytes")


def _former_log(path: Path, former: Path) -> Iterator[Finding]:
    """Yield what a write-ahead log has that an earlier step has set aside."""
    name = CommitCount(str(path)).database_name
    wal, log, copy = wal_of(path.resolve()), shell_path(name), shell_path(free_name(name, COPY_SUFFIX))
    found, back = f"{former} is the write-ahead log of a former file", f"mv {shell_path(former)} {shell_path(wal)}"
    # Another may be in its place, or SQLite would mix the two.
    can_return = not has_content(wal)
    try:
        lacks, follow = count_set_aside(path, former)
    except (OSError, sqlite3.Error, StorageError, UnicodeError):
        finding = f"{found}, and may have messages that are lost here: keep it until the log is repaired"
        is_own = can_return and CommitCount(str(path)).count_without(str(former)) is not None
        yield Finding("leftovers", Severity.NOTE, finding, f"{back} && gossiplog doctor {log}" if is_own else "")
        return
    if not lacks:
        finding = f"{found}, and has no message that the log lacks: remove it when you no longer need it"
        yield Finding("leftovers", Severity.NOTE, finding, f"rm {shell_path(former)}")
        return
    found += f", and has {counted(lacks, 'message')} that the log lacks"
    if follow == lacks and can_return:
        run = f"mv {log} {copy} && {back} && gossiplog repair {log} --from {copy}"
        yield Finding("leftovers", Severity.NOTE, f"{found}: a repair adds them", run)
        return
    if follow < lacks:
        found += f"; {counted(lacks - follow, 'descends', 'descend')} from lost ones"
    yield Finding("leftovers", Severity.NOTE, f"{found}; a replica may have them", f"gossiplog sync {log} SOURCE")


def _count(path: Path) -> Iterator[Finding]:
    """Yield what keeps the count of acknowledged messages from telling whether any are lost."""
    count, found = CommitCount(str(path)), read_identity_and_count(str(path.resolve()))
    if not os.path.exists(count.path) or found is None:
        return
    if count.find_replacement():
        # It is that of the write-ahead log.
        return
    acknowledged, log = count.read(), shell_path(path)
    run = f"gossiplog sync {log} SOURCE && gossiplog repair {log}"
    unknown = (
        "so whether acknowledged messages are lost is not known; a replica may have them. A repair, or the next append,"
        " sets it"
    )
    if acknowledged is None:
        yield Finding("count", Severity.NOTE, f"{count.name} is damaged, {unknown}", run)
    elif is_other_identity(acknowledged[0], found[0]):
        finding = f"{count.name} is of another file, as after a backup was restored, {unknown}"
        yield Finding("count", Severity.NOTE, finding, run)


def _contents(path: Path, quick: bool) -> Iterator[Finding]:
    # SQLite may remove the write-ahead log of what is no database.
    wal = wal_of(path.resolve())
    has_count = os.path.exists(CommitCount(str(path)).path)
    is_log = has_count or any(salvage.has_traces(each) for each in (path, wal) if each.is_file())
    try:
        yield from find_contents(path, "schema", _schema(path), lambda: _repair(path, quick), quick=quick)
    except NotALog as error:
        # Of a stranger's file there is nothing to repair.
        yield Finding("damage", Severity.WRONG, error.problem, _repair(path, quick) if is_log else "")


def _schema(path: Path) -> Iterator[Finding]:
    storage = SQLiteStorage(path, read_only=True)
    storage.open(None, create=False)
    try:
        schema = storage.schema
    finally:
        storage.close()
    if schema < SCHEMA:
        finding = f"schema {schema} of an earlier version: the next program that writes to it upgrades it to {SCHEMA}"
        yield Finding("schema", Severity.NOTE, finding)
    else:
        yield Finding("schema", Severity.FINE, f"schema {schema}")


def _repair(path: Path, quick: bool = True) -> str:
    """Return the command that repairs a log.

    Args:
        path: the log's file.
        quick: whether to name a source without looking whether one is needed.
    """
    if quick:
        aside = next(iter(find_set_aside(CommitCount(str(path)).database_name)), None)
        source = "SOURCE" if aside is None else aside.path
    else:
        source = find_repair_source(path)
    return f"gossiplog repair {shell_path(path)}{f' --from {shell_path(source)}' if source else ''}"
