"""What is left of a log in a damaged database: its sound messages, where they stood, and what it said of itself."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gossiplog import core
from gossiplog.errors import CorruptLog, GossipLogError, InvalidMessage, NotALog, StorageError, TopicMismatch
from gossiplog.message import key_of
from gossiplog.reprs import frozen
from gossiplog.storage.base import Progress
from gossiplog.storage.location import named_by
from gossiplog.storage.postgres.url import PostgresURL
from gossiplog.storage.sqlite import salvage, write_ahead_log
from gossiplog.storage.sqlite.commit_count import CommitCount, is_missing
from gossiplog.storage.sqlite.files import check_files, distrust, has_content, wal_of
from gossiplog.storage.sqlite.meta import new_meta, stored_identity
from gossiplog.storage.sqlite.tables import TABLES, TableStatement, foreign_objects

_PAGE = 1024
# What a message takes in a file at least: its signature, its author's did:key and its leaf.
_LEAST_BYTES = 150
# Looked at for the topic.
_LOOKED_AT = 64


@frozen
class Remains:
    """What is left of a log.

    Attributes:
        topic: of its messages.
        meta: its rows of `gossiplog_meta`, by name.
        rows: by the keys of the sound messages, the rows that hold them.
        order: the keys of all messages that are known, in the order in which they arrived.
        places: by key, the sequence that the message had.
        hashes: the leaf hashes of messages that are lost, by the keys that their leaves have.
        last: the last sequence that a message is known to have had.
        unsound: by sequence, what is wrong with the message that is stored there.
        unknown: how many messages were lost of which not even the key is left.
        indexed: how many messages there were if the index counted right: the count may be damaged, too.
        incomplete: whether there may have been others.
        missing_pages: of the file, which may have held others.
        tables: whether there are others' tables in the database.
        acknowledged: how many messages there were at least, 0 where that is not known.
    """

    topic: str
    meta: Mapping[str, Any]
    rows: Mapping[bytes, int]
    order: Sequence[bytes]
    places: Mapping[bytes, int]
    hashes: Mapping[bytes, bytes]
    last: int
    unsound: Mapping[int, InvalidMessage]
    unknown: int
    indexed: int
    incomplete: bool
    missing_pages: int
    tables: bool
    acknowledged: int

    @property
    def has_all(self) -> bool:
        """Whether every message is sound, so that a repair needs no source."""
        count = len(self.rows)
        is_whole = count == len(self.order) == self.last >= self.acknowledged
        is_hidden = self.incomplete and not self.acknowledged
        return is_whole and not (self.unsound or self.unknown or is_hidden)


def find_damaged(location: str | os.PathLike[str], *, has_source: bool = False) -> Path:
    """Return the resolved path of a log's file, which may be damaged, or gone but for what stands beside it.

    Args:
        location: of the log.
        has_source: whether another log has its messages, so that it may also be gone but for its count.

    Raises:
        NotALog: there is no file.
        StorageError: its write-ahead log is no file; or the log is in Postgres.
        CorruptLog: its write-ahead log belongs to another file; or the file is gone, and there is none; or a program
            has the former file open.
    """
    text = named_by(location)
    if isinstance(text, PostgresURL):
        raise StorageError(
            f"{text} is in Postgres, where no log has a file of its own: gossiplog.repair takes it, and what can be"
            " read of it comes into another log by Log.pull"
        )
    check_files(text)
    path = Path(text).resolve()
    count = CommitCount(str(path))
    count.check_not_held()
    if not has_content(wal_of(path)) and not (has_source and count.acknowledged):
        count.check_not_gone()
        if not path.is_file():
            raise NotALog(f"there is no log {text}")
    count.check_database()
    return path


@contextmanager
def open_remains(
    path: Path, copy: Path, topic: str | None, progress: Progress | None
) -> Iterator[tuple[sqlite3.Connection, Remains, salvage.Salvage]]:
    """Provide a database in which every table of a damaged log can be read, and what is left of the log there.

    Args:
        path: the log's file.
        copy: of its file, with what was committed to its write-ahead log. It may be changed, and a file is made beside.
        topic: of the source, None where there is none.
        progress: `progress(done, total)` is called with numbers of messages.

    Raises:
        TopicMismatch: the messages have another topic than the source.
        NotALog: no message is left, nor the topic.
        sqlite3.Error: the disk failed.
    """
    salvaged = salvage.read_all(copy, copy.parent)
    acknowledged, _ = count_messages(path, salvaged.path)
    with closing(connect(salvaged.path)) as base:
        yield base, read_remains(base, salvaged, topic, acknowledged=acknowledged, progress=progress), salvaged


def read_remains(
    base: sqlite3.Connection,
    salvaged: salvage.Salvage,
    topic: str | None,
    *,
    acknowledged: int,
    progress: Progress | None = None,
) -> Remains:
    """Read what is left of a log in a database; see `open_remains`.

    Args:
        base: the database, in which every table can be read.
        salvaged: how it was made.
        topic: of the source, None where there is none.
        acknowledged: how many messages there were at least.
        progress: `progress(done, total)` is called with numbers of messages.
    """
    return _Reading(base, topic, progress).read(salvaged, acknowledged)


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Return a connection to a database that may be damaged or a stranger's; the mode is SQLite's."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None)
    distrust(connection)
    # Replace what is not UTF-8 instead of raising: a damaged text then matches no expected one.
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def count_messages(path: Path, copy: Path) -> tuple[int, int]:
    """Return how many messages of a log were acknowledged, 0 where that is not known, and how many are in its copy."""
    found = CommitCount(str(path)).read()
    try:
        # One that may write would move the write-ahead log into the file as it is closed.
        with closing(connect(copy, "ro")) as connection:
            (there,) = connection.execute("SELECT coalesce(max(seq), 0) FROM gossiplog_messages").fetchone()
            is_own = found is not None and found[0] == stored_identity(connection)
    # The driver cannot read what SQLite says of a schema whose text is damaged.
    except (sqlite3.Error, UnicodeDecodeError, CorruptLog):
        # What is gone held as many; a damaged file may be another one.
        return found[1] if found is not None and is_missing(path) else 0, 0
    return found[1] if found is not None and is_own else 0, there


def examine_remains(path: Path) -> Remains | None:
    """Return what is left of a damaged log; None where nothing is, or there is no room for a copy.

    It reads a copy, in the folder for temporary files, as a repair does.
    """
    if not path.stat().st_size:
        # SQLite would delete its write-ahead log.
        return None
    try:
        with _copied(path.resolve()) as copy, open_remains(path, copy, None, None) as (_, remains, _):
            return remains
    except (OSError, sqlite3.Error, GossipLogError, UnicodeError):
        return None


def count_set_aside(path: Path, wal: Path) -> tuple[int, int]:
    """Return how many messages a sound log lacks of those that a former write-ahead log has.

    Args:
        path: of the log's file.
        wal: of the write-ahead log, which was set aside under another name.

    Returns:
        How many it lacks, and of how many of these it has all ancestors, or gets them with these.
    """
    with tempfile.TemporaryDirectory(prefix="gossiplog-") as name:
        # A repair that finds no file beside a write-ahead log reads the same.
        alone = Path(name) / "alone.db"
        alone.touch()
        shutil.copyfile(wal, wal_of(alone))
        with closing(connect(path, "ro")) as connection:
            known = {key for (key,) in connection.execute("SELECT key FROM gossiplog_leaves")}
        try:
            with _copied(alone) as copy, open_remains(alone, copy, None, None) as (base, remains, _):
                keys = sorted(remains.rows.keys() - known)
                messages = core.read_batch([*SoundValues(base, remains.rows).in_order(keys)], remains.topic)
        except NotALog:
            return 0, 0
    lacks = len(keys)
    # Keys begin with the clock: parents come before their children.
    for key, message in zip(keys, messages, strict=True):
        if not isinstance(message, InvalidMessage) and known.issuperset(map(key_of, message.parents)):
            known.add(key)
    return lacks, len(known.intersection(keys))


def count_lacking(path: Path, other: str) -> int | None:
    """Return how many messages of a sound log another one lacks; None where one has not the other's topic.

    Args:
        path: of the file of the other one.
        other: the path of the sound log's file.

    Raises:
        sqlite3.Error: one cannot be read.
    """
    keys, topics = [], []
    for each, mode in ((path, "ro"), (Path(other), "ro&immutable=1")):
        with closing(connect(each, mode)) as connection:
            keys.append({key for (key,) in connection.execute("SELECT key FROM gossiplog_leaves")})
            topics += connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'topic'").fetchall()
    return len(keys[1] - keys[0]) if len({*topics}) == 1 else None


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Provide a copy of a database, with what was committed to its write-ahead log, that may be changed."""
    with tempfile.TemporaryDirectory(prefix="gossiplog-") as name, path.open("rb") as file:
        copy = Path(name) / "copy.db"
        write_ahead_log.copy_with_log(file.fileno(), path, copy)
        yield copy


def is_own_schema(path: Path) -> bool:
    """Return whether the number of a log's schema alone is wrong, where that is another version's."""
    try:
        with closing(connect(path)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM gossiplog_meta")}
    except sqlite3.Error:
        return True
    # Another schema has other tables, or says more of itself.
    return names >= {*new_meta(), "topic"}


class SoundValues:
    """The sound messages of a database by their keys, wherever they stand in it.

    Args:
        base: the database.
        rows: by key.
    """

    def __init__(self, base: sqlite3.Connection, rows: Mapping[bytes, int]) -> None:
        self._base = base
        self._rows = rows

    def of(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those of the keys that are sound."""
        wanted = [(self._rows[key], key) for key in keys if key in self._rows]
        marks = ",".join("?" * len(wanted))
        rows = dict(
            self._base.execute(
                f"SELECT rowid, CAST(value AS BLOB) FROM gossiplog_messages WHERE rowid IN ({marks})",
                [row for row, _ in wanted],
            )
        )
        return {key: rows[row] for row, key in wanted}

    def all(self) -> Iterator[bytes]:
        """Yield all values."""
        yield from self.in_order(sorted(self._rows, key=self._rows.__getitem__))

    def in_order(self, keys: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the values of keys that are sound."""
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            values = self.of(page)
            yield from (values[key] for key in page)


class _Reading:
    """Reads what is left of a log in a database; `read_remains` has the arguments."""

    def __init__(self, base: sqlite3.Connection, topic: str | None, progress: Progress | None) -> None:
        self._base = base
        self._source_topic = topic
        self._progress = progress
        # By the keys of the sound messages, the sequences that their rows have; and the rows.
        self._found: dict[bytes, int] = {}
        self._rows: dict[bytes, int] = {}
        self._unsound: dict[int, InvalidMessage] = {}

    def read(self, salvaged: salvage.Salvage, acknowledged: int) -> Remains:
        """Read it."""
        incomplete = bool(salvaged.problems)
        tables = bool(foreign_objects(self._base))
        if not self._has("gossiplog_messages", "seq", "value"):
            incomplete = True
            self._base.execute("DROP TABLE IF EXISTS gossiplog_messages")
            self._base.execute(next(sql for sql in TABLES if TableStatement.of(sql).name == "gossiplog_messages"))
        meta: dict[str, Any] = {}
        if self._has("gossiplog_meta", "name", "value"):
            meta = dict(self._base.execute("SELECT name, value FROM gossiplog_meta"))
        topic = self._topic(meta.get("topic"), acknowledged)
        again = self._read_values(topic)
        hashes = self._named_by_hash({(key, sequence): hash for key, sequence, hash in self._leaves()})
        leaves = [*hashes]
        # Behind so many there is no message: a damaged sequence may be any number.
        limit = len(self._found) + len(leaves) + _PAGE
        slots, displaced = self._arrange(leaves, again, limit)
        unsound = {
            sequence: error
            for sequence, error in self._unsound.items()
            if sequence <= limit and slots.get(sequence) not in self._found
        }
        rows = sorted([*slots.items(), *displaced])
        # What the index covers was there, unless no file of this size holds so many.
        indexed = meta.get("indexed", 0)
        is_likely = incomplete and isinstance(indexed, int) and indexed <= salvaged.size // _LEAST_BYTES
        return Remains(
            topic=topic,
            meta=meta,
            rows=self._rows,
            order=[key for _, key in rows],
            places={key: sequence for sequence, key in rows},
            hashes={key: hashes[key, sequence] for sequence, key in rows if key not in self._rows},
            last=max([*slots, *unsound], default=0),
            unsound=unsound,
            unknown=max(acknowledged, len(rows), max(slots, default=0)) - len(rows),
            indexed=indexed if is_likely else 0,
            incomplete=incomplete,
            missing_pages=salvaged.missing_pages,
            tables=tables,
            acknowledged=acknowledged,
        )

    def _has(self, table: str, *columns: str) -> bool:
        found = {name for _, name, *_ in self._base.execute(f"PRAGMA table_info({salvage.quoted(table)})")}
        return found.issuperset(columns)

    def _topic(self, stored: object, acknowledged: int) -> str:
        """Return the topic that the messages have, the stored one or the source's where none is left."""
        seen: dict[str, int] = defaultdict(int)
        rows = self._base.execute("SELECT CAST(value AS BLOB) FROM gossiplog_messages LIMIT ?", (_LOOKED_AT,))
        for (value,) in rows:
            try:
                topic = core.cbor_decode(value)[1]
            except (GossipLogError, LookupError, TypeError):
                continue
            if isinstance(topic, str):
                seen[topic] += 1
        if seen:
            topic = max(seen, key=seen.__getitem__)
            if self._source_topic not in (None, topic):
                raise TopicMismatch(f"the source has the topic {self._source_topic!r}, the log's messages {topic!r}")
            return topic
        # The file of another program is none of a log that had messages.
        if stored is None and (self._source_topic is None or not acknowledged):
            raise NotALog(
                "nothing of a log is left in the file, nor its topic: gossiplog sync NEW SOURCE --topic TOPIC gets one"
                " from a replica, and NEW is a source for a repair"
            )
        topic = stored if self._source_topic is None else self._source_topic
        if not isinstance(topic, str):
            raise NotALog(
                "the file has no messages, and its topic is damaged: gossiplog init NEW --topic TOPIC makes a new log"
            )
        return topic

    def _read_values(self, topic: str) -> Mapping[bytes, Sequence[int]]:
        """Find the sound values; return the keys that stand in several rows, with their sequences."""
        again: dict[bytes, list[int]] = {}
        found = self._found
        last, done = -(2**63), 0
        # An index may have another number of rows than the table.
        (total,) = self._base.execute("SELECT count(*) FROM gossiplog_messages NOT INDEXED").fetchone()
        while rows := self._base.execute(
            "SELECT rowid, CAST(seq AS INTEGER), CAST(value AS BLOB) FROM gossiplog_messages WHERE rowid > ?"
            " ORDER BY rowid LIMIT ?",
            (last, _PAGE),
        ).fetchall():
            batch = core.verify_batch([value or b"" for _, _, value in rows], topic)
            invalid = dict(batch.invalid)
            for index, (key, (row, sequence, _)) in enumerate(zip(batch.keys, rows, strict=True)):
                if sequence < 1:
                    continue
                if index in invalid:
                    self._unsound.setdefault(sequence, invalid[index])
                elif key in found:
                    again.setdefault(key, [found[key]]).append(sequence)
                else:
                    found[key] = sequence
                    self._rows[key] = row
            last = rows[-1][0]
            done += len(rows)
            if self._progress is not None:
                self._progress(done, total)
        return again

    def _leaves(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield the keys that the leaves have, with their sequences and hashes."""
        if not self._has("gossiplog_leaves", "key", "hash", "seq"):
            return
        rows = self._base.execute("SELECT key, seq, CAST(hash AS BLOB) FROM gossiplog_leaves")
        for key, sequence, hash in rows:
            if isinstance(key, bytes) and len(key) == core.KEY_LENGTH and isinstance(sequence, int) and sequence > 0:
                yield key, sequence, hash or b""

    def _named_by_hash(self, hashes: Mapping[tuple[bytes, int], bytes]) -> Mapping[tuple[bytes, int], bytes]:
        """Return the hashes of leaves with sound messages' keys in the place of damaged ones.

        A damaged key is no sound message's; the hash says which of those without a leaf it was.

        Args:
            hashes: by the keys and the sequences of the leaves.
        """
        known = {key for key, _ in hashes}
        if known <= self._found.keys():
            return hashes
        values, others = SoundValues(self._base, self._rows), [key for key in self._found if key not in known]
        names = {
            core.leaf_hash(key, value): key
            for start in range(0, len(others), _PAGE)
            for key, value in values.of(others[start : start + _PAGE]).items()
        }
        return {
            (key if key in self._found else names.get(hash, key), sequence): hash
            for (key, sequence), hash in hashes.items()
        }

    def _arrange(
        self, leaves: Collection[tuple[bytes, int]], again: Mapping[bytes, Sequence[int]], limit: int
    ) -> tuple[Mapping[int, bytes], Sequence[tuple[int, bytes]]]:
        """Find out which message had which sequence; return that, and the sound ones whose places others have.

        A sound value is right where it stands unless its leaf, which no other contradicts, says otherwise; a lost one
        is known by its leaf alone.
        """
        found = self._found
        by_sequence: dict[int, list[bytes]] = defaultdict(list)
        times = Counter(key for key, _ in leaves)
        for key, sequence in leaves:
            if sequence <= limit and (times[key] == 1 or found.get(key, sequence) == sequence):
                by_sequence[sequence].append(key)
        slots: dict[int, bytes] = {}
        last = max((sequence for sequence in found.values() if sequence <= limit), default=0)
        for sequence, keys in by_sequence.items():
            sound = [key for key in keys if key in found]
            if sequence <= last and len(sound) == 1:
                slots[sequence] = sound[0]
        placed = set(slots.values())
        for key, sequences in again.items():
            if key not in placed and slots.setdefault(min(sequences), key) == key:
                placed.add(key)
        displaced = []
        for key, sequence in found.items():
            if key not in placed and (sequence > limit or slots.setdefault(sequence, key) != key):
                displaced.append((sequence, key))
        lost: set[bytes] = set()
        for sequence, keys in by_sequence.items():
            if sequence not in slots and len(keys) == 1 and keys[0] not in found and keys[0] not in lost:
                lost.add(keys[0])
                slots[sequence] = keys[0]
        return slots, displaced
