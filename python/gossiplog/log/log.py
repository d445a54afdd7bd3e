"""The log as its users see it: a blocking object, safe for several threads, like a database connection."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from gossiplog import core
from gossiplog.checks import check_integer
from gossiplog.errors import (
    CorruptLog,
    CorruptSource,
    LogClosed,
    StorageError,
    TopicMismatch,
    UnknownMessage,
)
from gossiplog.log.appending import AppendRequest, append_some, check_payloads, prepare_run
from gossiplog.log.applying import Application, Applier
from gossiplog.log.blocking import is_on_event_loop, warn_on_event_loop, warning_of_many
from gossiplog.log.callbacks import check_progress
from gossiplog.log.following import CommitNotifier, Subscription, check_subscription
from gossiplog.log.heads import Heads
from gossiplog.log.paging import Source, all_messages, bounds, by_author, check_limit, messages_between, total_by_author
from gossiplog.log.past import Past, Prefix
from gossiplog.log.payloads import P, payload_rules
from gossiplog.log.reading import (
    check_newest,
    ids_of_sequences,
    locating_damage,
    raising_corrupt_log,
    read,
    read_message,
    rows_of_sequences,
)
from gossiplog.log.replica import Replica
from gossiplog.log.results import InsertResult, LogInfo, PullResult, VerifyResult
from gossiplog.log.state import States
from gossiplog.log.view import LogView
from gossiplog.log.walks import child_sequences, ids_of_children, walk_back, walk_forward
from gossiplog.log.writing import MOST_SIGNED, Run, Writer
from gossiplog.message import SignedMessage, ids_of, key_asked_for, key_of
from gossiplog.signer import Signer, check_signer
from gossiplog.storage import Storage
from gossiplog.storage.base import MAX_INTEGER, REBUILD_REQUESTED, Progress, Reader
from gossiplog.storage.location import Location, storage_at
from gossiplog.storage.postgres.url import PostgresURL, check_is_file
from gossiplog.storage.sqlite.files import text_path

if TYPE_CHECKING:
    from gossiplog.protocol.sync import SyncServerConfig

_Result = TypeVar("_Result")
_PAGE = 256
_HUB = re.compile(r"(?:ws|http)s?://", re.IGNORECASE)
_OPEN_ASYNC = "async with gossiplog.open_async(...) as log"


class Log(Generic[P]):
    """A replicated append-only log of signed messages. Made by `gossiplog.open`.

    It is generic in the type of its payloads: opened with `payload=Note`, it is a `Log[Note]`. Without a type, payloads
    are values of the IPLD data model, and type checkers take them for Any.

    Every method may be called from any thread, and other processes may use the same SQLite file. After `close` every
    call but `close` raises LogClosed; a database that fails raises StorageError.

    Attributes:
        topic: what it is about: peers replicate logs of the same topic.
        signer: what `append` signs with when it is given none.

    Examples:
        >>> first = log.append({"text": "The kettle is on."})
        >>> log.append_many([{"text": "Milk?"}, {"text": "Sugar?"}])[-1].clock
        3
        >>> [message.payload["text"] for message in log.messages(after=first.id)]
        ['Milk?', 'Sugar?']
        >>> len(log), first.id in log, log.is_ancestor(first.id, log.heads[0])
        (3, True, True)
        >>> with gossiplog.open(":memory:", log.topic) as copy:
        ...     print(copy.pull(log).inserted, copy.root == log.root)
        3 True
    """

    def __init__(
        self,
        storage: Storage,
        topic: str,
        *,
        application: Application | None = None,
        payload: Any = None,
        check_others: bool = True,
        signer: Signer | None = None,
        progress: Progress | None = None,
    ) -> None:
        if signer is not None:
            check_signer(signer)
        self.topic = topic
        self.signer = signer
        self._storage = storage
        self._is_closed = False
        self._payloads = payload_rules(payload, check_others=check_others)
        self._application = application
        # For a disk, or a server; a log that no other process finds is in memory.
        self._waits = bool(storage.argument)
        self._begin(progress)

    def _begin(self, progress: Progress | None) -> None:
        """Take up the log as it is stored."""
        storage, topic = self._storage, self.topic
        self._states = States(storage, topic)
        self._notifier = CommitNotifier(storage, topic, self._states.position, self._payloads)
        self._applier = Applier(storage, topic, self._application, self._payloads, self._states.sequences)
        self._writer = Writer(storage, self._states, topic, self._applier, self._notifier.committed)
        self._source = Source(storage, topic, self._states, self._payloads)
        self._replica = Replica(storage, self._states, topic, self._payloads, self._writer, self._notifier)
        self._applier.open(progress)

    def _warn(self, name: str) -> None:
        """Warn where a call that waits is about to hold up an event loop."""
        if self._waits and is_on_event_loop():
            warn_on_event_loop(f"Log.{name}", f"`await log.{name}(...)`", stacklevel=4)

    # Writing

    def append(self, payload: P, *, signer: Signer | None = None, codec: str = "dag-cbor") -> SignedMessage[P]:
        """Sign a message that follows all heads of the log, and store it. When this returns, it is on disk.

        Args:
            payload: a value of the IPLD data model; in a log with a type for its payloads, one of this type as well.
            signer: None takes the log's.
            codec: "dag-cbor" or "dag-json": in which the bytes are that are signed.

        Raises:
            EncodeError: a payload that other peers would refuse or change, that is too long for them, or that the log's
                type for payloads would read as another value.
            RefusedMessage: the application's check or `apply` refuses the message, or `apply` a stored one that it had
                not seen; its exception is the cause.
            ValueError: neither the call nor the log has a signer.
            TypeError: a signer that is no Signer, such as a path, or a codec that is no text.
        """
        self._warn("append")
        return self._append([payload], signer, codec)[0]

    def append_many(
        self, payloads: Iterable[P], *, signer: Signer | None = None, codec: str = "dag-cbor"
    ) -> list[SignedMessage[P]]:
        """Sign messages, each of which follows the one before, and store them.

        Many messages take several transactions. All payloads are checked before the first is stored, so an
        EncodeError comes late, and leaves those of earlier transactions stored, only for a message that gets too long
        because others wrote meanwhile, so that it follows several heads instead of one. It says which payload cannot be
        encoded, and the place in it.

        Args:
            payloads: values of the IPLD data model; in a log with a type for its payloads, of this type as well.
            signer: None takes the log's.
            codec: "dag-cbor" or "dag-json": in which the bytes are that are signed.

        Raises:
            EncodeError, ValueError: as `append`.
            RefusedMessage: as `append`; those of earlier transactions stay.
            TypeError: as `append`, and for one payload in place of several: a dict, str or bytes.
        """
        self._warn("append_many")
        return self._append(check_payloads(payloads), signer, codec)

    def _append(self, wanted: Sequence[P], signer: Signer | None, codec: str) -> list[SignedMessage[P]]:
        run = self._prepared(wanted, signer, codec)
        messages: list[SignedMessage] = []
        while len(messages) < len(wanted):
            part = run.payloads[len(messages) : len(messages) + MOST_SIGNED]
            messages += self._writer.append([run._replace(payloads=part)])
        return self._payloads.all_typed(messages)

    def _append_some(self, requests: Sequence[AppendRequest]) -> None:
        """Append what several callers wait for, each `append_many` of its own: what one transaction has time for.

        Args:
            requests: none of which has ended; they have the messages, or the errors, afterwards.
        """
        append_some(self._writer, self._prepared, requests)
        for request in requests:
            if request.has_ended:
                request.messages = self._payloads.all_typed(request.messages)

    def _prepared(
        self, wanted: Sequence[Any], signer: Signer | None, codec: str, start: int = 0, count: int | None = None
    ) -> Run:
        return prepare_run(wanted, signer or self.signer, codec, self.topic, self._payloads, start, count)

    def insert(self, message: SignedMessage | bytes) -> bool:
        """Verify a message and store it.

        Args:
            message: as another log has it, or its stored value.

        Returns:
            Whether it is new to the log.

        Raises:
            InvalidMessage: every peer refuses it.
            MissingParents: its parents are not all in the log.
            RefusedMessage: this log's application refuses it, or `apply` a stored one that it had not seen; the
                application's exception is the cause.
        """
        self._warn("insert")
        result = self._insert_many([message], None)
        for _, error in result.refused:
            raise error
        return result.inserted == 1

    def insert_many(self, messages: Iterable[SignedMessage | bytes], *, max_refused: int | None = None) -> InsertResult:
        """Verify messages, in any order, and store those that are valid and whose parents are in the log or here.

        Args:
            messages: or their stored values. They are taken in chunks, each of which is stored in one transaction.
                While one is stored, the `payload` check runs over the next on a worker thread.
            max_refused: how many errors of refused messages are returned, those found first: others' messages may be
                wrong without end, and an error takes a kilobyte of memory. One that names many missing parents counts
                as several. None returns all.

        Raises:
            RefusedMessage: `apply` raised for a stored message that it had not seen; its exception is the cause.
            TypeError: something that is neither a message nor bytes; messages before it may be inserted. Or a
                `max_refused` that is no integer.
            ValueError: a `max_refused` below 0.
        """
        check_limit(max_refused, "a max_refused")
        self._warn("insert_many")
        return self._insert_many(messages, max_refused)

    def _insert_many(self, messages: Iterable[SignedMessage | bytes], max_refused: int | None) -> InsertResult:
        # Here, because those who only read and append would wait for the modules of its threads and files.
        from gossiplog.log.insertion import insert_many

        return insert_many(self._replica, messages, max_refused=max_refused)

    def pull(self, source: Log[Any] | Location, *, sync_server: SyncServerConfig | None = None) -> PullResult:
        """Get what another log that this machine can open has and this one lacks, by the sync protocol.

        `apply` and the `payload` check run on worker threads meanwhile, each on one.

        Args:
            source: the log to pull from, or its file or its URL in Postgres, which is opened read-only: it is not made,
                and not upgraded. It may be written to meanwhile, and pull from this one.
            sync_server: limits of the sync streams that the source serves.

        Raises:
            TopicMismatch: the logs have different topics.
            NotALog: there is no such file, or it holds no log.
            CorruptSource: the source is damaged. What came before is in the log; nothing where the damage is among the
                last messages, which the source has yet to index.
            CorruptLog: this log is damaged.
            ProtocolError: what the source holds breaks the rules of the protocol. What came before is in the log.
            RefusedMessage: `apply` raised for a stored message that it had not seen; its exception is the cause.
            StorageError: a source that is no log's file or URL, such as a hub's URL, or cannot be opened.
            TypeError: a source that is none of these.
        """
        self._warn("pull")
        return self._pull(source, sync_server, None)

    def _pull(
        self, source: Log[Any] | Location, sync_server: SyncServerConfig | None, stop: Callable[[], object] | None
    ) -> PullResult:
        """Pull; `stop` is called before each request to the source, and what it raises ends the pull."""
        # Here, because those who only read and append would wait for protobuf.
        from gossiplog.log.pulling import pull
        from gossiplog.log.serving import LogServer

        if not isinstance(source, Log):
            with _reading(source) as opened:
                return self._pull(opened, sync_server, stop)
        if source.topic != self.topic:
            raise TopicMismatch(f"cannot pull from a log of the topic {source.topic!r} into one of {self.topic!r}")
        with locating_damage(self._storage), raising_corrupt_log:
            return pull(self._replica, lambda: LogServer(source._replica.snapshot, sync_server), stop)

    # Reading

    def get(self, id: str) -> SignedMessage[P]:
        """Return the message with an id.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: it is not in the log.
        """
        key = key_of(id)
        # Whatever the count: one statement, which needs no transaction.
        found = read(self._storage, lambda reader: read_message(reader, self.topic, key, MAX_INTEGER), single=True)
        if found is None:
            raise self._replica.unknown(id)
        return self._payloads.typed(found)

    def content_id(self, id: str) -> str:
        """Return the id that all encodings of a message have in common: that of the canonical one.

        `apply` and the tables that it fills see one encoding of each message, and others' messages may name any of them
        as a parent. Within `apply`, use the transaction's `content_id`.

        Args:
            id: of any encoding of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the log.
        """
        # As the message says: a stored row may have rotted.
        return self.get(id).content_id

    def __contains__(self, id: object) -> bool:
        """Return whether a message is in the log, given as its id or itself.

        Args:
            id: of a message, or a SignedMessage.
        """
        key = key_asked_for(id)
        keys = [] if key is None else [key]
        is_found = read(self._storage, lambda reader: bool(reader.sequences(keys)))
        if not is_found:
            self._replica.snapshot().check_absent(keys)
        return is_found

    def __len__(self) -> int:
        """Return how many messages there are.

        Raises:
            CorruptLog: the last message has another sequence than its leaf.
        """
        return read(self._storage, self._count)

    def _count(self, reader: Reader) -> int:
        count = self._states.position(reader).count
        # It is the last row's sequence, which may be damaged; a known one was checked.
        if count != self._states.count:
            check_newest(reader, self.topic)
        return count

    def __bool__(self) -> bool:
        """Return True, also for an empty log."""
        return True

    def __iter__(self) -> Iterator[SignedMessage[P]]:
        """All messages in the order of their ids."""
        return self.messages()

    def __aiter__(self) -> NoReturn:
        raise TypeError(f"the messages of a Log come by `for`; for `async for` there is an AsyncLog: {_OPEN_ASYNC}")

    def messages(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        author: str | None = None,
    ) -> Iterator[SignedMessage[P]]:
        """Return the messages in the order of their ids: after their parents, as of the time of the call.

        They are read in pages, so that the log may be written to while they are taken.

        Args:
            after: only messages with larger ids.
            before: only messages with smaller ids.
            reverse: from the largest id down.
            limit: at most so many.
            author: only messages that are signed by this `did:key`. There is no index by author: all messages of the
                range are read, up to the last that is wanted.

        Raises:
            DecodeError: text that is no id.
            ValueError: a limit below 0, or an author that is no `did:key`.
        """
        check_limit(limit)
        by = by_author(author)
        if (after, before, limit) == (None, None, None):
            return by(self._many(all_messages(self._source, reverse, self._replica.count()), "messages"))
        most = limit if author is None else None
        read = messages_between(self._source, bounds(after, before), reverse, most, self._replica.snapshot())
        found = by(self._many(read, "messages"))
        return found if author is None else islice(found, limit)

    def _many(self, messages: Iterator[SignedMessage[P]], name: str) -> Iterator[SignedMessage[P]]:
        """Return messages that are read as they are taken, with a warning where these are many on an event loop."""
        return warning_of_many(messages, f"Log.{name}") if self._waits else messages

    def count(self, *, after: str | None = None, before: str | None = None) -> int:
        """Return how many messages have ids in a range. None of them is read.

        Args:
            after: only messages with larger ids.
            before: only messages with smaller ids.

        Raises:
            DecodeError: text that is no id.
        """
        between = bounds(after, before)

        def number(reader: Reader) -> int:
            return self._count(reader) if between == (None, None) else reader.number(*between, reader.position().count)

        return read(self._storage, number)

    def subscribe(self, *, after: int | None = None, batch_size: int = _PAGE) -> Subscription[P]:
        """Follow the log: return an iterator over lists of messages as they arrive, until it or the log is closed.

        It waits when there are none: commits of this process wake it at once, as do those of others where the database
        announces them (Postgres); otherwise they are noticed within half a second.

        Args:
            after: a cursor, as lists have it; 0 is the start of the log, None its end now.
            batch_size: the most messages in a list.

        Raises:
            CursorOutdated: the log was rebased since it gave the cursor, so that its messages are others.
            LogClosed: the log is closed. Closed later, it ends the subscription.
            LogWentBack: the log has fewer messages than the cursor says; raised by the iterator where that happens
                later.
            StorageError: raised by the iterator once all messages have come, where the file of the log was deleted,
                moved away, replaced or written over.
            TypeError: an id as the cursor.
            ValueError: a cursor below 0, a batch below 1, or one of them larger than a log can be.
        """
        check_subscription(after, batch_size)
        self._check_open()
        return Subscription(self._notifier, self._notifier.start(after), batch_size)

    @property
    def heads(self) -> tuple[str, ...]:
        """The ids, ascending, of the messages that no other names as a parent."""
        return ids_of(key for key, _ in self._heads())

    @property
    def clock(self) -> int:
        """The next message's clock: 1 + the largest in the log, 1 in an empty one."""
        heads = self._heads()
        with raising_corrupt_log:
            # Nothing follows a message with the largest clock, so it is a head.
            return 1 + max((core.decode_clock(key)[0] for key, _ in heads.unique.last(1)), default=0)

    def _heads(self) -> Heads:
        return read(self._storage, lambda reader: self._states.heads(reader, self._states.position(reader)))

    @property
    def root(self) -> core.Node:
        """The root of the tree: equal in two logs exactly when they hold the same messages."""
        return self._states.current().tree.root

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether one message is a proper ancestor of another.

        Args:
            ancestor: the id of the message that may come before.
            descendant: the id of the other.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: one of them is not in the log.
        """
        keys = [key_of(ancestor), key_of(descendant)]

        def search(reader: Reader) -> bool:
            upper, lower = self._sequences(reader, keys)
            return core.is_ancestor(upper, lower, reader.links)

        return self._read(search)

    def frontier(self, id: str, clock: int) -> tuple[str, ...]:
        """Return the ids, ascending, of the latest ancestors of a message at or before a clock.

        No other ancestor at or before the clock follows them: they are the maximal ones.

        Args:
            id: of the message whose ancestors are meant.
            clock: the largest that these may have.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the log.
            ValueError: a clock below 0, or above the largest that a message can have.
            TypeError: a clock that is no integer.
        """
        check_integer("a clock", clock)
        if not 0 <= clock <= core.MAX_CLOCK:
            raise ValueError(f"a clock of {clock}: expected 0 to {core.MAX_CLOCK}")

        key = key_of(id)

        def search(reader: Reader) -> tuple[str, ...]:
            (sequence,) = self._sequences(reader, [key])
            return self._ids(reader, core.frontier(sequence, clock, reader.links))

        return self._read(search)

    def children(self, id: str, *, limit: int | None = None) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages that name this one as a parent.

        Args:
            id: of the message.
            limit: the most ids, since anybody can give a message any number of children: those that arrived first. None
                returns all.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the log.
            ValueError: a limit below 0.
            TypeError: a limit that is no integer.
        """
        check_limit(limit)
        key = key_of(id)

        def look_up(reader: Reader) -> tuple[str, ...]:
            (sequence,) = self._sequences(reader, [key])
            children = child_sequences(reader, self._source, key, sequence)
            return ids_of_children(reader, self._source, id, children[:limit])

        return self._read(look_up)

    def ancestors(self, id: str) -> Iterator[SignedMessage[P]]:
        """Return the messages that a message follows, directly or not, each once and descending by id.

        They are read as they are taken, with a page of those before; what is kept in memory is the ids of the parents
        that are yet to come.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the log.
        """
        return self._many(walk_back(self._source, map(key_of, self.get(id).parents)), "ancestors")

    def descendants(self, id: str) -> Iterator[SignedMessage[P]]:
        """Return the messages that follow a message, directly or not, each once and ascending by id.

        They are those of the time of the call, and are read as they are taken, with a page of those behind; what is
        kept in memory is the ids of the children that are yet to come.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the log.
        """
        key = key_of(id)
        (sequence,) = self._read(lambda reader: self._sequences(reader, [key]))
        return self._many(walk_forward(self._source, key, sequence, self._replica.count()), "descendants")

    def at(self, point: int | str | Iterable[str]) -> LogView[P]:
        """Return a read-only view of what some messages had seen, or of the log as it was earlier.

        Args:
            point: the id of a message, or ids of several: the view has these and all their ancestors, whatever else
                had arrived by then. Or a cursor, as lists of `subscribe` have it: the view has the messages that had
                arrived by then; without a rebase it is their number.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: a message is not in the log.
            CursorOutdated: the log was rebased since it gave the cursor, so that its messages are others.
            LogWentBack: the log has fewer messages than the cursor says.
            ValueError: a cursor below 0, or larger than a log can be.
            TypeError: nothing of these, such as a message: give its id.
        """
        self._check_open()
        if isinstance(point, int) and not isinstance(point, bool):
            return LogView(self, self._source, Prefix(self._source, self._notifier.sequence_of(point)))
        if isinstance(point, bool) or not isinstance(point, Iterable):
            found = type(point).__name__
            raise TypeError(f"expected the id of a message, as message.id, several ids, or a cursor, not {found}")
        keys = [key_of(id) for id in ([point] if isinstance(point, str) else point)]
        sequences = self._read(lambda reader: self._sequences(reader, keys))
        return LogView(self, self._source, Past(self._source, self._replica, sequences))

    def _check_open(self) -> None:
        """Raise LogClosed for what would else notice it later: the start of a log is not looked up."""
        if self._is_closed:
            raise LogClosed(f"the log {self._storage.place} is closed: open it again")

    def _read(self, call: Callable[[Reader], _Result]) -> _Result:
        """Read; raise UnknownMessage only if the tree confirms it."""
        try:
            return self._source.read(call)
        except UnknownMessage as error:
            raise self._replica.unknown(error.id) from None

    def _sequences(self, reader: Reader, keys: Sequence[bytes]) -> list[int]:
        found = self._states.sequences.of(reader, keys)
        for key in keys:
            if key not in found:
                raise UnknownMessage(core.encode_id(key))
        return [found[key] for key in keys]

    def _ids(self, reader: Reader, sequences: Sequence[int]) -> tuple[str, ...]:
        return ids_of_sequences(reader, self.topic, rows_of_sequences(reader, sequences))

    # The log as a whole

    def info(self, *, progress: Progress | None = None) -> LogInfo:
        """Return the log in figures. Counting what its authors wrote reads every message.

        Args:
            progress: `progress(done, total)` is called with numbers of messages.
        """
        check_progress(progress)
        self._warn("info")
        state = self._states.current()
        position = self._replica.position()
        written = total_by_author(self._source, state.count, progress)
        return LogInfo(
            topic=self.topic,
            messages=state.count,
            clock=self.clock,
            heads=self.heads,
            root=state.tree.root,
            authors=len(written),
            bytes=self._storage.size(),
            by_author=MappingProxyType(written),
            generation=position.generation,
            apply_version=position.apply_version,
            applied=position.applied,
            is_rebuilding=position.is_rebuilding,
            rebuild_requested=position.rebuild == REBUILD_REQUESTED,
        )

    def verify(self, *, progress: Progress | None = None) -> VerifyResult:
        """Check everything that is stored: every message and its signature, all indexes, the tree.

        Args:
            progress: `progress(done, total)` is called with numbers of messages.

        Returns:
            What was found sound, and which authors forked, which is no damage.

        Raises:
            CorruptLog: something is wrong; it lists what. `gossiplog.repair` takes sound values from a replica.
        """
        check_progress(progress)
        self._warn("verify")
        # Here, because it imports the reference implementation.
        from gossiplog.log.audit import Audit

        return Audit(self._storage, self.topic, self._states.newest, progress).run()

    def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Copy the log to a new file, with the application's tables. Others may write to it meanwhile.

        The copy is the log as it was at one moment. It gets its name when it is whole and on the disk. Nothing is
        verified, so that damage is copied as well: `verify` of the copy finds it.

        Args:
            path: of the new file.
            progress: `progress(done, total)` is called with numbers of pages.

        Returns:
            The number of messages in the copy.

        Raises:
            StorageError: there is a file of the name, or it cannot be written; or the log is a MemoryStorage.
        """
        check_progress(progress)
        self._warn("backup")
        target = text_path(path)
        check_is_file(target)
        return self._storage.backup(target, progress)

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Build the application's tables anew: run `setup`, and then `apply` over all messages from the first.

        It runs in batches, each in a transaction, between which others may write, and readers see tables that are not
        complete; `info` says so. Where it is interrupted, the next call of any process that has the log open with the
        same `apply_version` goes on.

        On a log that was opened without `apply`, it only requests the rebuild: the next process that opens the log
        with `apply` runs it, and those that have it open with `apply` do before they write.

        Args:
            progress: `progress(done, total)` is called with numbers of messages.

        Raises:
            ApplicationMismatch: the log was opened with `apply`, but without `setup`. Nothing has changed.
            RefusedMessage: `apply` raised for a stored message; its exception is the cause.
            StorageError: the log is read-only.
            Exception: whatever `setup` raises. The rebuild stays requested.
        """
        check_progress(progress)
        self._warn("rebuild")
        self._applier.rebuild(progress)

    @property
    def is_rebuilding(self) -> bool:
        """Whether a rebuild of the application's tables was requested or has not ended."""
        return self._replica.position().is_rebuilding

    @property
    def apply_version(self) -> int:
        """The version of the `apply` that has written the application's tables; 1 where none has."""
        return self._replica.position().apply_version

    def close(self) -> None:
        """End the use of the log, and every subscription; a second call does nothing.

        Raises:
            StorageError: a transaction of another thread has not ended within 30 seconds, as where `apply` hangs. The
                log is closed to all others; another call waits again. Or the file was deleted, moved away, replaced or
                written over while the log was open: the error says where the content is, and is raised once all is
                closed. Where its content cannot be saved, as on a full disk, it is closed to all others alone, so that
                another call, after there is room, saves it.
        """
        self._is_closed = True
        try:
            self._storage.close()
        finally:
            self._notifier.closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aenter__(self) -> NoReturn:
        raise TypeError(f"a Log is a blocking context; for `async with` there is an AsyncLog: {_OPEN_ASYNC}")

    def __aexit__(self, *error: object) -> None:
        """Do nothing: `async with` looks this up before it calls `__aenter__`."""

    def __repr__(self) -> str:
        return f"<Log {self.topic!r} in {self._storage.place}{', closed' if self._is_closed else ''}>"


def replica_of(log: Log[Any]) -> Replica:
    """Return a log as networks, jobs and commands use it. Applications have no need for it, so that it is no method.

    Args:
        log: that is open.

    Examples:
        >>> from gossiplog.lowlevel import replica_of
        >>> message = log.append("one")
        >>> replica_of(log).snapshot().state.count
        1
    """
    return log._replica


@contextmanager
def _reading(location: Location) -> Iterator[Log]:
    """Open a log for the time of a block, without writing to it."""
    if not isinstance(location, str | os.PathLike | PostgresURL):
        found = type(location).__name__
        raise TypeError(f"pull takes a Log, such as `blocking` of an AsyncLog, or the path or URL of one, not {found}")
    if isinstance(location, str) and (hub := _HUB.match(location)):
        raise StorageError(
            f"{hub[0]} is no file: gossiplog sync LOG SOURCE --topic TOPIC gets a hub's log, gossiplog.connect in a"
            " program"
        )
    storage = storage_at(location, read_only=True)
    try:
        topic = storage.open(None, create=False)
        log = Log(storage, topic)
    except CorruptLog as error:
        storage.close()
        raise CorruptSource(error.problems) from error
    except BaseException:
        storage.close()
        raise
    with log:
        yield log
