"""The messages of a damaged log, written anew in the order of arrival: what is sound of it, the rest from a source."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count as count_up
from pathlib import Path
from typing import Any

from gossiplog import core
from gossiplog.errors import CorruptLog, CorruptSource, InvalidMessage, StorageError
from gossiplog.log.log import Log, replica_of
from gossiplog.log.remains import Remains, SoundValues, examine_remains
from gossiplog.log.replica import Replica
from gossiplog.message import key_of
from gossiplog.reprs import counted, shell_path
from gossiplog.storage import Storage
from gossiplog.storage.base import MAX_INTEGER, REBUILD_REQUESTED, parse_tables
from gossiplog.storage.location import Location, is_url, storage_at
from gossiplog.storage.postgres.url import is_postgres_url
from gossiplog.storage.sqlite.commit_count import describe_former, describe_left
from gossiplog.storage.sqlite.meta import format_origins, new_meta, parse_identity, parse_origins
from gossiplog.storage.sqlite.set_aside import SetAside, find_set_aside

_PAGE = 1024


@contextmanager
def open_source(source: Log | Location) -> Iterator[ReplicaValues]:
    """Provide a log, or that of a file or a URL, as a source.

    Raises:
        CorruptSource: it is too damaged to be read.
        StorageError: it is no log, or cannot be read.
    """
    if isinstance(source, Log):
        yield ReplicaValues(replica_of(source).snapshot().storage, source.topic)
        return
    if isinstance(source, str) and is_url(source) and not is_postgres_url(source):
        raise StorageError(f"{source} is no log's file, hub (ws://, wss://) or peer (a multiaddr)")
    storage = storage_at(source, read_only=True)
    try:
        topic = storage.open(None, create=False)
    except CorruptLog as error:
        raise CorruptSource(error.problems) from error
    try:
        yield ReplicaValues(storage, topic)
    finally:
        storage.close()


class ReplicaValues:
    """A log that has what another one lost. What is damaged in it counts as missing.

    Attributes:
        damaged: keys of messages that were asked for and are damaged in it.
    """

    def __init__(self, storage: Storage, topic: str) -> None:
        self.topic = topic
        self.damaged: set[bytes] = set()
        self._storage = storage

    @property
    def file(self) -> Path | None:
        """The path of its file; None where it is in none."""
        return self._storage.file

    def of(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those of the keys that it has."""
        values: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _PAGE):
            some = keys[start : start + _PAGE]
            try:
                values |= self._read(some)
            except CorruptLog:
                for key in some:
                    try:
                        values |= self._read([key])
                    except CorruptLog:
                        self.damaged.add(key)
        verdicts = core.verify_batch([*values.values()], self.topic)
        sound = {
            key: value
            for (key, value), verdict in zip(values.items(), verdicts, strict=True)
            if not isinstance(verdict, InvalidMessage) and verdict.key == key
        }
        self.damaged |= values.keys() - sound.keys()
        return sound

    def keys_by_hash(self, lost: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Find lost messages by their leaf hashes; return their keys by the damaged keys.

        Args:
            lost: leaf hashes by keys, some of which may be damaged.
        """
        with _raising_corrupt_source(), self._storage.reader() as reader:
            leaves = reader.leaves(b"", None, MAX_INTEGER)
        by_hash = {lost[key]: key for key in lost.keys() - {key for key, _ in leaves}}
        return {by_hash[hash]: key for key, hash in leaves if hash in by_hash and len(key) == core.KEY_LENGTH}

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._storage.reader() as reader:
            # Whatever the count: that of a damaged source may be damaged, too.
            return reader.values(keys, MAX_INTEGER)

    def all_keys(self) -> list[bytes]:
        """Return all keys, ascending: parents come before their children.

        Raises:
            CorruptSource: they cannot be read.
        """
        with (
            _raising_corrupt_source(),
            self._storage.reader() as reader,
            reader.scan(("key",), b"", None, MAX_INTEGER) as rows,
        ):
            return [key for (key,) in rows if len(key) == core.KEY_LENGTH]


@contextmanager
def _raising_corrupt_source() -> Iterator[None]:
    try:
        yield
    except CorruptLog as error:
        raise CorruptSource(error.problems) from error


def find_source_beside(
    path: Path, topic: str, known: Collection[bytes], lost: Collection[bytes] = (), *, except_for: Path | None = None
) -> SetAside | None:
    """Return the log, of those set aside beside a damaged one, that has the most of what it lost; None if none has any.

    Args:
        path: of the damaged log's file.
        topic: of its messages.
        known: the keys of its sound messages.
        lost: the keys of those that are lost; empty where they are not known.
        except_for: the file of a source that lacks them.
    """
    best, most = None, 0
    for aside in find_set_aside(str(path)):
        if except_for is not None and os.path.samefile(except_for, aside.path):
            continue
        try:
            # SQLite would leave files beside it otherwise.
            with open_source(f"{Path(aside.path).absolute().as_uri()}?immutable=1") as source:
                found = {*source.all_keys()}.difference(known) if source.topic == topic else set()
        except StorageError:
            continue
        count = len(found.intersection(lost) if lost else found)
        if count > most:
            best, most = aside, count
    return best


def find_repair_source(path: Path) -> str:
    """Return the source that a repair needs: "" if none, the path of a log that is set aside beside it, or "SOURCE"."""
    place = path.resolve()
    remains = examine_remains(path)
    if remains is not None and remains.has_all:
        return ""
    if remains is None:
        aside = next(iter(find_set_aside(str(place))), None)
    else:
        lost = () if remains.unknown or remains.incomplete else {*remains.order}.difference(remains.rows)
        aside = find_source_beside(place, remains.topic, remains.rows, lost)
    return "SOURCE" if aside is None else aside.path


class Reassembly:
    """Writes a log's messages anew, in the order in which they arrived, or nearest to it.

    Args:
        own: the log's own sound values.
        source: that has the others, if there is one.
        remains: what could be read of the damaged log.
        path: of the log, for errors.
        accept_loss: whether messages may be lost that no other descends from.

    Attributes:
        fetched: how many messages came from the source.
        moved: how many have another sequence than before.
        notes: what the user should know.
    """

    def __init__(
        self, own: SoundValues, source: ReplicaValues | None, remains: Remains, path: Path, *, accept_loss: bool
    ) -> None:
        self.fetched = 0
        self.moved = 0
        self.notes: list[str] = []
        self._own = own
        self._source = source
        self._remains = remains
        self._path = path
        self._accept_loss = accept_loss
        self._places = dict(remains.places)
        self._written: dict[bytes, int] = {}
        # Messages whose parents come later, by the first parent that is missing.
        self._waiting: dict[bytes, list[tuple[bytes, bytes, tuple[bytes, ...]]]] = defaultdict(list)
        self._lost: set[bytes] = set()
        # What is lost beside these, in words.
        self._losses: list[str] = []
        self._run: list[tuple[bytes, bytes]] = []

    def run(self, replica: Replica) -> None:
        """Write the messages into the log of a replica.

        Raises:
            CorruptLog: some are nowhere.
        """
        self._log = replica
        order = self._renamed(self._with_source(self._remains.order))
        for start in range(0, len(order), _PAGE):
            self._take(order[start : start + _PAGE])
        self._fetch_ancestors()
        self._flush()
        waiting = {key for rows in self._waiting.values() for key, _, _ in rows}
        # Those that others descend from.
        missing = self._waiting.keys() - waiting
        problems = [*self._losses]
        problems += [f"message {core.encode_id(key)} {self._where(key)}" for key in sorted({*missing, *self._lost})]
        if problems and (missing or not self._accept_loss):
            lost = () if self._losses else {*missing, *self._lost}
            advice = self._advice({*self._written, *waiting}, lost, is_needed=bool(missing))
            raise CorruptLog(problems, advice=advice)
        self.notes += [f"{problem}, as was accepted" for problem in problems]
        places = self._places
        self.moved = sum(places[key] != sequence for key, sequence in self._written.items() if key in places)
        if self.moved:
            self.notes.append(
                f"{counted(self.moved, 'message has', 'messages have')} another sequence than before: cursors after the"
                " first of them name other messages"
            )

    def _where(self, key: bytes) -> str:
        """Return what has become of a lost message."""
        if self._source is None:
            return "is lost here"
        is_damaged = key in self._source.damaged
        return "is lost here, and damaged in the source" if is_damaged else "is neither here nor in the source"

    def _advice(self, known: Collection[bytes], lost: Collection[bytes], *, is_needed: bool) -> str:
        """Return how an error about lost messages ends: the way back that loses nothing comes first.

        Args:
            known: the keys of the messages that are not.
            lost: those of lost ones; empty where they are not known.
            is_needed: whether others descend from what is lost.
        """
        path, acknowledged = shell_path(self._path), self._remains.acknowledged
        missing = "No replica was named" if self._source is None else "Name another replica"
        file = None if self._source is None else self._source.file
        aside = find_source_beside(self._path, self._log.topic, known, lost, except_for=file)
        beside = ""
        if aside is not None:
            beside = f" {aside.describe()}: gossiplog repair {path} --from {shell_path(aside.path)}."
        former = describe_former(str(self._path))
        advice = (
            f"; the log is as it was.{beside} {missing}: gossiplog repair {path} --from SOURCE takes what is lost from"
            " a file, a hub or a peer"
        )
        left = describe_left(len(self._written), acknowledged)
        if not self._written and self._source is None:
            return f"{advice}. Without one, no log can be made of what is left{former}"
        advice += ". Only if none has it: "
        if not is_needed:
            given = "" if self._source is None else " --from SOURCE"
            return (
                f"{advice}gossiplog repair {path}{given} --accept-loss goes on with {left} (in programs"
                f" accept_loss=True){former}"
            )
        # As `recover` does, which refuses to lose the last ones without it.
        accepted = " --accept-loss" if acknowledged > self._remains.last else ""
        recover = f"{advice}gossiplog recover {path} NEW{accepted} makes a log"
        without = "without these and what descends from them"
        if self._source is None:
            return f"{recover} of {left}, {without}{former}"
        return (
            f"{recover} of what is left here, {without}, and gossiplog sync NEW SOURCE adds what the source has{former}"
        )

    def _with_source(self, order: Sequence[bytes]) -> Sequence[bytes]:
        """Return the order with messages of the source in the places of those that are unknown."""
        remains = self._remains
        unknown = max(remains.unknown, remains.indexed - len(order))
        if self._source is None and remains.incomplete:
            self._check_hidden(unknown)
        if not unknown and (self._source is None or not remains.incomplete):
            return order
        known = set(order)
        others = [] if self._source is None else [key for key in self._source.all_keys() if key not in known]
        # Where there is a source, the count of the index alone says of no message that it is lost: it may be damaged.
        lost = (unknown if self._source is None else remains.unknown) - len(others)
        if lost > 0:
            where = "" if self._source is None else " here and in the source"
            are = counted(lost, "message is", "messages are")
            ids = "its id is" if lost == 1 else "their ids are"
            self._losses.append(f"{are} lost{where}, and not even {ids} left")
        elif unknown > len(others):
            self._note_hidden()
        places = self._places
        taken = set(places.values())
        gaps = (sequence for sequence in count_up(1) if sequence not in taken)
        found, rest = others[:unknown], others[unknown:]
        places.update(zip(found, gaps, strict=False))
        return [*sorted(places, key=places.__getitem__), *rest]

    def _renamed(self, order: Sequence[bytes]) -> Sequence[bytes]:
        """Return the order with the source's keys in the place of those that no message has.

        Where a leaf's key is damaged and its message is lost, its hash says which message it was.
        """
        hashes = self._remains.hashes
        if self._source is None or not hashes:
            return order
        names = self._source.keys_by_hash(hashes)
        for former, key in names.items():
            self._places[key] = self._places.pop(former)
        return [names.get(key, key) for key in order]

    def _check_hidden(self, unknown: int) -> None:
        """Note that messages may be lost of which nothing is left, and of which no replica was named.

        Args:
            unknown: how many are lost by what counts them.
        """
        remains = self._remains
        # Where so many are known to be lost, their number is named.
        if remains.missing_pages and not unknown:
            pages = counted(remains.missing_pages, "page of the file is", "pages of the file are")
            self._losses.append(f"{pages} missing at its end, and the messages that were there are lost")
        elif not remains.order and not unknown:
            self._losses.append("no message is left in the file")
        self._note_hidden()

    def _note_hidden(self) -> None:
        self.notes.append(
            "the file is damaged in a way that may hide messages:"
            f" gossiplog sync {shell_path(self._path)} REPLICA brings what it lacks"
        )

    def _take(self, keys: Sequence[bytes]) -> None:
        values = self._values(keys)
        for key in keys:
            if key not in values:
                self._lost.add(key)
        batch = core.read_batch([*values.values()], self._log.topic)
        for (key, value), message in zip(values.items(), batch, strict=True):
            if isinstance(message, InvalidMessage):
                self._lost.add(key)
                continue
            self._place(key, value, tuple(map(key_of, message.parents)))

    def _values(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        own = self._own.of(keys)
        missing = [key for key in keys if key not in own]
        if not missing or self._source is None:
            return own
        fetched = self._source.of(missing)
        self.fetched += len(fetched)
        return {key: value for key in keys if (value := own.get(key) or fetched.get(key)) is not None}

    def _place(self, key: bytes, value: bytes, parents: tuple[bytes, ...]) -> None:
        """Write a message, and those that waited for it; or have it wait for a parent."""
        ready = deque([(key, value, parents)])
        while ready:
            row = ready.popleft()
            missing = next((parent for parent in row[2] if parent not in self._written), None)
            if missing is not None:
                self._waiting[missing].append(row)
                continue
            if row[0] in self._written:
                continue
            self._written[row[0]] = len(self._written) + 1
            if self._run and (row[0] <= self._run[-1][0] or len(self._run) == _PAGE):
                self._flush()
            self._run.append(row[:2])
            ready.extend(self._waiting.pop(row[0], ()))

    def _flush(self) -> None:
        """Write messages whose keys ascend: within a batch, that is the order in which they get their sequences."""
        if not self._run:
            return
        log = self._log
        log.insert(log.check(log.verify([value for _, value in self._run], signed=True)))
        self._run = []

    def _fetch_ancestors(self) -> None:
        """Get parents that no message of the log was known by."""
        asked: set[bytes] = set()
        while self._source is not None and (missing := [key for key in sorted(self._waiting) if key not in asked]):
            asked.update(missing)
            values = self._source.of(missing)
            self.fetched += len(values)
            for key, message in zip(values, core.read_batch([*values.values()], self._log.topic), strict=True):
                if not isinstance(message, InvalidMessage):
                    self._place(key, values[key], tuple(map(key_of, message.parents)))

    def meta(self, lost_tables: Collection[str] | None) -> dict[str, Any]:
        """Return the rows of `gossiplog_meta` that the log had, for the sequences that its messages have now.

        They request a rebuild of the application's tables where rows of these are lost, or what is stored of them.

        Args:
            lost_tables: the names of tables that lack rows, None where any may.
        """
        stored, count = self._remains.meta, len(self._written)
        tables = parse_tables(stored.get("tables"))
        least = {"generation": 0, "apply_version": 1, "rebuild": REBUILD_REQUESTED}
        meta = {
            name: stored[name]
            for name, default in new_meta().items()
            # The new file has an identity of its own: it may have fewer messages than were acknowledged.
            if name != "identity"
            and type(stored.get(name)) is type(default)
            and (name not in least or least[name] <= stored[name])
            and (name != "rebuild" or stored[name] <= count)
            and (name != "setup" or stored[name] in (0, 1))
            and (name != "tables" or tables is not None)
        }
        if (origins := self._origins()) is not None:
            meta["origins"] = origins
        applied, last = stored.get("applied"), max(self._places.values(), default=0)
        if not isinstance(applied, int) or not 0 <= applied <= last:
            if not self._remains.tables:
                return meta | {"applied": 0}
            return meta | {"applied": count} | self._request_rebuild("how far `apply` has run is lost")
        places = self._places
        before = [sequence for key, sequence in self._written.items() if places.get(key, last + 1) <= applied]
        meta["applied"] = min(count, max(before, default=0))
        if before and max(before) != len(before):
            return meta | self._request_rebuild("`apply` may have run for other messages")
        if applied and tables is None and "tables" in stored:
            return meta | self._request_rebuild("which tables `apply` has written to is lost")
        if applied and _are_written_by_apply(lost_tables, tables):
            return meta | self._request_rebuild("`apply` has written to tables that lack rows")
        return meta

    def _origins(self) -> str | None:
        """Return what to store of the former file as an origin; None where it does not say what it is."""
        stored, places = self._remains.meta, self._places
        if (identity := parse_identity(stored.get("identity"))) is None:
            return None
        moved = (sequence for key, sequence in self._written.items() if places.get(key) != sequence)
        last = next(moved, len(self._written) + 1) - 1
        return format_origins(parse_origins(stored.get("origins")), identity, last)

    def _request_rebuild(self, why: str) -> dict[str, Any]:
        self.notes.append(
            f"{why}: a rebuild of the application's tables is requested, which begins when the application opens the"
            f" log (gossiplog doctor {shell_path(self._path)} names the command that runs it)"
        )
        return {"rebuild": REBUILD_REQUESTED}


def _are_written_by_apply(lost: Collection[str] | None, tables: frozenset[str] | None) -> bool:
    """Return whether some of the tables that lack rows may be among those that `apply` has written to.

    Args:
        lost: the names of the former, None where any may be.
        tables: the names of the latter; none where an earlier version did not store them.
    """
    return lost is None or (bool(lost) and (not tables or not tables.isdisjoint(lost)))
