"""A file beside a database with the number of messages that were acknowledged: PATH-count.

SQLite ends the recovery of a write-ahead log at the first frame that is damaged, and takes what follows for the rest of
an earlier log: messages that `append` has returned are gone then, without an error. The count says they were there.

It is written after each commit that waits for the disk, and not flushed: after a power cut it may be that of an
earlier commit, or none, but never that of a commit which is not on disk. Two processes that commit at once may write
their counts in the other order; then it is one commit behind until the next.

The first 28 bytes are the count's: the identity of the database (16 bytes, `identity` of gossiplog_meta), the count
(8 bytes, the largest byte first), and the CRC-32 of both (4 bytes). Anything else is ignored and overwritten, as the
count of another database that had the name before.

The other 20 record the write-ahead log: its salts (8 bytes), the number of messages in the database without it
(8 bytes), and the CRC-32 of the identity and both (4 bytes). While the log has these salts, SQLite
only moves pages from it into the database. So a file with another identity or with fewer messages is not the one that
the log was written for, as a backup that was put in its place: SQLite would mix the pages of the two.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from contextlib import suppress

from gossiplog.errors import CorruptLog
from gossiplog.reprs import counted, last_counted, listed, shell_path
from gossiplog.storage.sqlite.database_file import (
    OTHER_IDENTITY,
    describe_fewer_if_sound,
    find_contradiction,
    is_consistent,
    is_other_identity,
    read_identity_and_count,
)
from gossiplog.storage.sqlite.files import (
    COPY_SUFFIX,
    FORMER_SUFFIX,
    SAVED_SUFFIX,
    formers,
    free_name,
    has_content,
    holders,
    how_to_keep,
    move_command,
    numbered,
    wal_of,
)
from gossiplog.storage.sqlite.pages import SMALLEST_PAGE
from gossiplog.storage.sqlite.set_aside import SetAside, WayBack, examine, find_set_aside, find_way_back

COUNT_SUFFIX = "-count"
"""How the file's name ends; it begins with that of the database, after links."""
COPY_FROM_SERVER = "gossiplog sync COPY SERVER --topic TOPIC"
"""The command that gets what a server has of a file that was deleted or replaced."""

_COUNTED = struct.Struct(">16sQ")
_CHECKED = struct.Struct(">16sQI")
_WAL_RECORD = struct.Struct(">8sQ")
_CHECKED_WAL_RECORD = struct.Struct(">8sQI")
_MOST_HOLDERS = 5
# Where a write-ahead log has its salts (https://sqlite.org/fileformat2.html, "WAL File Format").
_SALTS_AT, _SALTS = 16, 8
# A link, or a pipe that nobody reads, may be a stranger's.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def is_missing(database: str | os.PathLike[str]) -> bool:
    """Return whether a database is gone, or too short to hold anything: SQLite makes a new one in its place."""
    try:
        return os.path.getsize(database) < SMALLEST_PAGE
    except OSError:
        return True


def describe_loss(lost: int, place: str = "") -> str:
    """Return a clause: "the last 2 acknowledged messages of log.db are lost"."""
    of = f" of {place}" if place else ""
    return f"the {last_counted(lost, 'acknowledged message')}{of} {'is' if lost == 1 else 'are'} lost"


def describe_left(left: int, acknowledged: int) -> str:
    """Return what a way back leads to: "3 of the 5 acknowledged messages".

    Args:
        left: how many messages the log has then.
        acknowledged: how many were; 0 where that is not known.
    """
    return f"{left:,} of the {acknowledged:,} acknowledged messages" if acknowledged else counted(left, "message")


def describe_former(path: str) -> str:
    """Return a sentence about what earlier steps have set aside beside a database; "" where nothing is.

    Args:
        path: of the database; it may be a link.
    """
    count = CommitCount(path)
    name = count.database_name
    if not os.path.exists(name) or not os.path.getsize(name):
        way = count.find_way_back()
        return "" if way is None else f". {way.described}"
    if found := [str(wal) for wal in formers(wal_of(name)) if has_content(str(wal))]:
        return (
            f". {listed(found, len(found))}, which an earlier step has set aside, may have messages that are missing"
            f" here: gossiplog doctor {shell_path(path)} says how many"
        )
    return ""


def repair_command(path: str, before: int) -> str:
    """Return the command that brings back a database from its write-ahead log, and from what has the rest.

    The write-ahead log has all that came after it began. So a file that took the place of the database, or is set
    aside, has the rest if it holds no fewer messages than there were then; otherwise a replica may.

    Args:
        path: of the database, beside which its files are.
        before: how many messages it held without its write-ahead log.
    """
    held, _ = examine(os.path.realpath(path))
    aside = _find_rest(path, max(before, (held or 0) + 1))
    return _command_without(path, held, before) if aside is None else _command_with(path, aside)


def describe_ways_back(path: str, acknowledged: int, before: int) -> str:
    """Return, in sentences, what to do where another file is in the place of a database, beside its write-ahead log.

    Args:
        path: of the database, beside which its files are.
        acknowledged: how many messages were; 0 where that is not known.
        before: how many of them the database held without its write-ahead log.
    """
    log = shell_path(path)
    ways = "Stop the program that has the log open (the server), if one has, and put the former file back."
    if (aside := _find_rest(path, before)) is not None:
        ways = f"{ways} {aside.describe()}: {_command_with(path, aside)} brings back what it has."
    ways = f"{ways} Or get"
    which = f"of the {acknowledged:,} acknowledged messages" if acknowledged else "messages"
    held, is_damaged = examine(os.path.realpath(path))
    if is_damaged:
        return (
            f"{ways} the messages of a replica, and those that it lacks of what is left here: gossiplog repair {log}"
            f" --from SOURCE. Without a replica, gossiplog recover {log} NEW says how many {which} are left, and"
            " changes nothing here"
        )
    if held is not None and held >= before:
        return (
            f"{ways} from the file that is there what the write-ahead log lacks: {_command_without(path, held, before)}"
        )
    ways = f"{ways} the messages of a replica, and of the write-ahead log those that it lacks:"
    ways = f"{ways} {_command_without(path, held, before)}. Without a replica,"
    if held is None:
        return f"{ways} {move_command(path, COPY_SUFFIX)} && gossiplog recover {log} NEW says how many {which} are left"
    return (
        f"{ways} {move_command(wal_of(path), FORMER_SUFFIX)} && gossiplog repair {log} --accept-loss goes on with"
        f" {describe_left(held, acknowledged)}, those of the file that is there"
    )


def _find_rest(path: str, before: int) -> SetAside | None:
    """Return the log with the most messages that is set aside and has what a write-ahead log lacks."""
    return next((aside for aside in find_set_aside(path) if aside.count >= before), None)


def _command_without(path: str, held: int | None, before: int) -> str:
    """Return the command that repairs a database from the file in its place, of `held` messages, or from a replica."""
    log, copy = shell_path(path), shell_path(free_name(path, COPY_SUFFIX))
    has_rest = held is not None and held >= before
    return f"mv {log} {copy} && gossiplog repair {log} --from {copy if has_rest else 'SOURCE'}"


def _command_with(path: str, aside: SetAside) -> str:
    """Return the command that brings back a database, in whose place another is, with what is set aside."""
    acknowledged, log = CommitCount(path).read(), shell_path(path)
    if acknowledged is not None and aside.identity == acknowledged[0] and aside.count >= acknowledged[1]:
        return f"{move_command(path, COPY_SUFFIX)} && mv {shell_path(aside.path)} {log}"
    return f"{move_command(path, COPY_SUFFIX)} && gossiplog repair {log} --from {shell_path(aside.path)}"


class CommitCount:
    """The count of one database, for one thread at a time.

    Args:
        database: the path of the file.
    """

    def __init__(self, database: str) -> None:
        self._database = os.path.realpath(database)
        self.database_name = self._database if os.path.islink(database) else database
        """How texts name the database: as the caller did, unless its files stand beside another name."""
        self._descriptor: int | None = None
        # Of the write-ahead log; and what was recorded of it at the last commit.
        self._wal: int | None = None
        self._wal_record = b""

    @property
    def path(self) -> str:
        """The path of the count's file."""
        return self._database + COUNT_SUFFIX

    def read(self) -> tuple[bytes, int] | None:
        """Return the identity of a database, and how many of its messages were acknowledged; None where none is."""
        found = _read(self.path, _CHECKED.size, 0)
        if len(found) != _CHECKED.size:
            return None
        identity, count, check = _CHECKED.unpack(found)
        return (identity, count) if check == zlib.crc32(found[: _COUNTED.size]) else None

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged; 0 where that is not known."""
        found = self.read()
        return 0 if found is None else found[1]

    @property
    def name(self) -> str:
        """How texts name the count's file."""
        return self.database_name + COUNT_SUFFIX

    @property
    def _wal_path(self) -> str:
        return str(wal_of(self._database))

    def find_way_back(self) -> WayBack | None:
        """Return how the database comes back that is gone, empty or cut off near its beginning."""
        acknowledged = self.read()
        return find_way_back(self.database_name, b"" if acknowledged is None else acknowledged[0])

    def check_not_gone(self, *, accept_loss: bool = False) -> int:
        """Refuse what would make a database anew in the place of one that had messages.

        SQLite deletes the write-ahead log of a file that is empty, or that it makes.

        Args:
            accept_loss: whether messages may be lost that are not in the write-ahead log either.

        Returns:
            How many are.

        Raises:
            CorruptLog: the file is gone, or shorter than a page, and a program has it open or has saved its content,
                or there is its write-ahead log, or its count has messages.
        """
        if not is_missing(self._database):
            return 0
        path, count = shell_path(self.database_name), self.acknowledged
        what = self._describe_missing()
        self._check_not_saved(what)
        says, way = f"{self.name} says that a log with {counted(count, 'message')} was there", None
        if count or has_content(self._wal_path):
            way = self.find_way_back()
        first = "" if way is None else f"{way.described}. Or "
        if has_content(self._wal_path):
            raise CorruptLog(
                [f"{what}, and {self.database_name}-wal has what was written last{f'; {says}' if count else ''}"],
                advice=(
                    f"; {first}put the file back, which goes with its write-ahead log, or get its messages from a"
                    " replica or a backup, and from the write-ahead log what these lack:"
                    f" gossiplog repair {path} --from SOURCE."
                    f" Without a source, gossiplog recover {path} NEW says how many the write-ahead log has with all"
                    " their ancestors"
                ),
                run=f"gossiplog repair {path} --from SOURCE" if way is None else way.command,
            )
        if count and not accept_loss:
            # A missing file alone may be one that somebody moved.
            moved = f". If the file was moved on purpose, move {self.name} with it"
            raise CorruptLog(
                [f"{what}, and {says}"],
                advice=(
                    f"; {first}put the file or a backup back, or get its messages from a replica:"
                    f" gossiplog repair {path} --from SOURCE"
                    f"{'' if first else '. Without one, no log can be made of what is left'}"
                    f"{'' if os.path.exists(self._database) else moved}"
                ),
                run=f"gossiplog repair {path} --from SOURCE" if way is None else way.command,
            )
        return count

    def _describe_missing(self) -> str:
        """Return a clause that says that the file is gone, or what is there in its place."""
        if not os.path.exists(self._database):
            return f"{self.database_name} is gone"
        return f"{self.database_name} {'is empty or cut off' if is_missing(self._database) else 'was replaced'}"

    def describe_holders(self) -> tuple[str, str]:
        """Find the processes that have the former file open, where it was deleted or replaced.

        Returns:
            A clause that names them, and sentences about what to do; both "" where there are none.
        """
        found = holders(self._database)
        if not found:
            return "", ""
        shown = listed([str(process) for process in found], _MOST_HOLDERS)
        who = f"process {shown} has" if len(found) == 1 else f"the processes {shown} have"
        return f"{who} the former file open", how_to_keep(self._database, found)

    def check_not_held(self) -> None:
        """Refuse what would make a database anew, or write beside it, while a program has the former file open.

        Raises:
            CorruptLog: one has; the error names the way on.
        """
        held, advice = self.describe_holders()
        if held:
            raise CorruptLog(
                [f"{self._describe_missing()}, and {held}"],
                advice=f". {advice}",
                run=COPY_FROM_SERVER,
            )

    def _check_not_saved(self, what: str) -> None:
        """Refuse what would make a database anew while a program has the former one, or where one has saved it.

        Args:
            what: a clause that says that the file is gone.
        """
        # A program that has a database open has some of these, unless they were deleted as well.
        if any(map(os.path.exists, (self._wal_path, f"{self._database}-shm", self.path))):
            self.check_not_held()
        if saved := numbered(self.database_name, SAVED_SUFFIX):
            way, names = self.find_way_back(), listed(saved, len(saved))
            put_back = f"mv {shell_path(saved[0])} {shell_path(self.database_name)}"
            raise CorruptLog(
                [f"{what}, and a program that had it open has saved what it held as {names}"],
                advice=(
                    f"; {f'{put_back} puts it back' if way is None else way.described}. To make another log of the"
                    f" name, move {names} away"
                ),
                run=put_back if way is None else way.command,
            )

    def check_database(self) -> None:
        """Refuse a database beside a write-ahead log that was not written for it.

        Raises:
            CorruptLog: the database took the place of another one; or the write-ahead log did.
        """
        if problem := self.find_replacement() or self.find_foreign_log():
            raise CorruptLog([problem], advice="")

    def find_replacement(self) -> str:
        """Return how the database differs from the one that its write-ahead log was written for, "" if it is that.

        Call it before SQLite opens both: opening may copy pages from one into the other.
        """
        found, count_without_wal = self.read(), self.count_without(self._wal_path)
        if found is None or count_without_wal is None:
            return ""
        actual = read_identity_and_count(self._database)
        if actual is None:
            return ""
        # Damage, and pages that are being moved at this moment, may look alike.
        if is_other_identity(actual[0], found[0]):
            difference = OTHER_IDENTITY if is_consistent(self._database) else ""
        else:
            difference = describe_fewer_if_sound(self._database, count_without_wal)
        if not difference:
            return ""
        problem = (
            f"{self.database_name} was replaced, and {self.database_name}-wal belongs to the file that was there"
            f" before: {difference}"
        )
        held, advice = self.describe_holders()
        if held:
            return f"{problem}; {held}. {advice}"
        return f"{problem}. {describe_ways_back(self.database_name, found[1], count_without_wal)}"

    def find_foreign_log(self) -> str:
        """Return what shows that the write-ahead log was not written for the database, "" if nothing does.

        Call it before SQLite opens both, as `find_replacement`, which knows more where the count has recorded the
        write-ahead log.
        """
        if self.count_without(self._wal_path) is not None or not (clause := find_contradiction(self._database)):
            return ""
        problem = f"{self.database_name}-wal was not written for {self.database_name}: {clause}"
        held, advice = self.describe_holders()
        if held:
            return f"{problem}; {held}. {advice}"
        return (
            f"{problem}. Where the file is the right one, {self.set_log_aside} opens it with what it holds. Where it is"
            " a backup or an older copy, move both away, put the former file back, and its write-ahead log with it"
        )

    @property
    def set_log_aside(self) -> str:
        """The command that sets the write-ahead log aside, which a look at the rest follows."""
        aside = move_command(wal_of(self.database_name), FORMER_SUFFIX)
        return f"{aside} && gossiplog doctor {shell_path(self.database_name)}"

    def count_without(self, wal: str) -> int | None:
        """Return how many messages the database had without a write-ahead log; None unless it was written for that.

        Args:
            wal: the path of the write-ahead log.
        """
        found, record = self.read(), _read(self.path, _CHECKED_WAL_RECORD.size, _CHECKED.size)
        if found is None or len(record) != _CHECKED_WAL_RECORD.size:
            return None
        salts, count, check = _CHECKED_WAL_RECORD.unpack(record)
        is_intact = check == zlib.crc32(found[0] + record[: _WAL_RECORD.size])
        return int(count) if is_intact and salts == _read(wal, _SALTS, _SALTS_AT) else None

    def write(self, identity: bytes, count: int) -> None:
        """Write the count. An append that is on disk does not fail because this does: then the count is behind."""
        if self._descriptor is None:
            self._descriptor = self._open()
        with suppress(OSError):
            record = _COUNTED.pack(identity, count)
            record += zlib.crc32(record).to_bytes(4)
            os.pwrite(self._descriptor, record + self._record_wal(identity), 0)

    def close(self) -> None:
        """Close the files; `write` opens them again."""
        for descriptor in (self._descriptor, self._wal):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._wal = None
        self._wal_record = b""

    def _record_wal(self, identity: bytes) -> bytes:
        """Return the record of the write-ahead log, b"" where there is none."""
        try:
            if self._wal is None:
                self._wal = os.open(self._wal_path, os.O_RDONLY | _FLAGS)
            salts = os.pread(self._wal, _SALTS, _SALTS_AT)
        except OSError:
            return b""
        if not self._wal_record.startswith(salts) or not salts:
            actual = read_identity_and_count(self._database)
            record = _WAL_RECORD.pack(salts, (actual and actual[1]) or 0)
            self._wal_record = record + zlib.crc32(identity + record).to_bytes(4)
        return self._wal_record

    def _open(self) -> int:
        """Return a descriptor of the file, made with the mode and the owner of the database; -1 where there is none."""
        try:
            database = os.stat(self._database)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        except OSError:
            return -1
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            return -1
        # As SQLite does for its own files: other users of the database are users of this.
        with suppress(OSError):
            if stat.S_IMODE(found.st_mode) != stat.S_IMODE(database.st_mode):
                os.fchmod(descriptor, stat.S_IMODE(database.st_mode))
            if os.geteuid() == 0 and (found.st_uid, found.st_gid) != (database.st_uid, database.st_gid):
                os.fchown(descriptor, database.st_uid, database.st_gid)
        return descriptor


def _read(path: str, size: int, offset: int) -> bytes:
    """Return bytes of a file, fewer where it ends, b"" where it is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(descriptor, size, offset) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
