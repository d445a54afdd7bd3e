"""What the log's methods return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic

from gossiplog.core import Node, SignedMessage
from gossiplog.errors import GossipLogError, RefusedMessage
from gossiplog.log.payloads import P
from gossiplog.reprs import counted, frozen, texts_with_commands

# Of an application's exception, those nearest to where it was raised.
_SHOWN_FRAMES = 8


@frozen
class InsertResult:
    """What became of the messages that were to be inserted.

    Attributes:
        inserted: how many are new to the log.
        duplicates: how many were in the log before, or came twice.
        refused: (index, error) of every other one, ascending; the error is InvalidMessage, MissingParents or
            RefusedMessage.
        more_refused: how many others there are that `refused` has no room for (`max_refused` of `Log.insert_many`).

    Examples:
        >>> with gossiplog.open(":memory:", log.topic, signer=alice) as other:
        ...     messages = other.append_many(["one", "two"])
        >>> result = log.insert_many([*messages, messages[0]])
        >>> result.inserted, result.duplicates, result.refused
        (2, 1, ())
    """

    inserted: int
    duplicates: int
    refused: tuple[tuple[int, GossipLogError], ...] = ()
    more_refused: int = 0


@frozen
class PullResult:
    """What a pull brought, and what it cost.

    Attributes:
        inserted: how many messages are new to the log.
        duplicates: how many came that another writer had inserted meanwhile.
        refused: (id, error) of messages that this log's application refuses, and of those that descend from them.
        requests: how many were sent.
        round_trips: how many of them had to wait for the answer to one before, over all streams.
        bytes_sent: to the source.
        bytes_received: from the source.
        streams: how many were opened: one more than the source aborted.

    Examples:
        >>> with gossiplog.open("other.db", log.topic, signer=alice) as other:
        ...     message = other.append("one")
        >>> result = log.pull("other.db")
        >>> result.inserted, result.refused
        (1, ())
    """

    inserted: int = 0
    duplicates: int = 0
    refused: tuple[tuple[str, GossipLogError], ...] = ()
    requests: int = 0
    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    streams: int = 0


@dataclass(frozen=True, slots=True)
class AuthorTotals:
    """How much an author wrote.

    Attributes:
        messages: how many there are, each encoding of a message counted.
        bytes: of their stored values; indexes take more.

    Examples:
        >>> message = log.append("one")
        >>> log.info().by_author[alice.did]
        AuthorTotals(messages=1, bytes=...)
    """

    messages: int
    bytes: int


@frozen
class LogInfo:
    """A log in figures.

    Attributes:
        topic: as `Log.topic`.
        messages: how many there are.
        clock: the next message's.
        heads: ids, ascending.
        root: of the tree.
        authors: how many different ones there are.
        bytes: that the database takes.
        by_author: what each author wrote.
        generation: how often the log was rebased.
        apply_version: the version of the `apply` that wrote the application's tables.
        applied: how many messages `apply` has run over, in the order of their arrival.
        is_rebuilding: whether a rebuild of the application's tables was requested or has not ended.
        rebuild_requested: whether it has yet to begin: `applied` then counts for the tables as they are.

    Examples:
        >>> log.append("one").clock
        1
        >>> info = log.info()
        >>> info.topic, info.messages, info.authors, info.by_author[alice.did].messages
        ('org.example.notes', 1, 1, 1)
    """

    topic: str
    messages: int
    clock: int
    heads: tuple[str, ...]
    root: Node
    authors: int
    bytes: int
    by_author: Mapping[str, AuthorTotals]
    generation: int
    apply_version: int
    applied: int
    is_rebuilding: bool
    rebuild_requested: bool


@frozen
class RebaseResult:
    """What a rebase has changed, or would change.

    Attributes:
        signed: the ids of the messages that were signed anew, old to new, in the order of the old ones.
        dropped: how many messages were dropped.
        kept: how many messages that the target lacks are in the new log as they were.
        messages: in the new log.
        generation: of the log: one more than before, unless nothing has changed.
        former: the path of the former file; None if nothing has changed.
        tables: names of tables in the former file that are not the log's, and that the new one has not.
        same_payload: of messages that were signed anew, the id of one that the target has already by the same author
            with the same payload, by the old ids. The author wrote the same twice, or this log is a copy of one that
            was rebased before.

    Examples:
        >>> first, slip, last = log.append_many(["one", "a slip", "two"])
        >>> log.close()
        >>> hub = gossiplog.open("hub.db", "org.example.notes")
        >>> hub.insert(first)
        True
        >>> result = gossiplog.rebase("notes.db", hub, [slip.id], signer=alice)
        >>> result.dropped, result.kept, len(result.signed), result.generation
        (1, 0, 1, 1)
    """

    signed: Mapping[str, str]
    dropped: int
    kept: int
    messages: int
    generation: int
    former: str | None
    tables: tuple[str, ...] = ()
    same_payload: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@frozen
class Fork:
    """An author of whom two messages are concurrent: neither is an ancestor of the other. Both are valid.

    Attributes:
        author: a did:key.
        messages: how many of its messages do not follow the one of it that arrived here before.
        first: the ids of the first two that are concurrent, in the order of their arrival.

    Examples:
        >>> with gossiplog.open("other.db", log.topic, signer=alice) as other:
        ...     message = other.append("on another machine")
        >>> message = log.append("here")
        >>> log.pull("other.db").inserted
        1
        >>> (fork,) = log.verify().forks
        >>> fork.author == alice.did, fork.messages
        (True, 1)
    """

    author: str
    messages: int
    first: tuple[str, str]


@frozen
class VerifyResult:
    """What a verification found sound.

    Attributes:
        messages: how many.
        root: of the tree that was checked.
        forks: the authors that forked. That makes no log unsound.

    Examples:
        >>> message = log.append("one")
        >>> result = log.verify()
        >>> result.messages, result.root == log.root, result.forks
        (1, True, ())
    """

    messages: int
    root: Node
    forks: tuple[Fork, ...] = ()


@frozen
class RepairResult:
    """What became of a damaged log.

    Attributes:
        messages: how many there are.
        root: of the tree over them.
        damaged: what was wrong, one sentence each; nothing in a sound log, which is left as it is but for the count of
            acknowledged messages beside it.
        fetched: how many messages came from the source.
        moved: how many have another sequence than before.
        notes: what the repair could not restore, and what to do about it, one sentence each.
        former: the path of the damaged file, which no program uses; None where the log was sound.

    Examples:
        >>> message = log.append("one")
        >>> log.close()
        >>> result = gossiplog.repair("notes.db")
        >>> result.damaged, result.fetched, result.former
        ((), 0, None)
    """

    messages: int
    root: Node
    damaged: tuple[str, ...] = ()
    fetched: int = 0
    moved: int = 0
    notes: tuple[str, ...] = texts_with_commands(default=())
    former: str | None = None


@frozen
class RecoverResult:
    """What became of the messages of a damaged log.

    Attributes:
        inserted: how many are new to the other log.
        duplicates: how many that had before, or came twice.
        refused: (sequence, error) of every other one, ascending; the error is InvalidMessage where the message is
            damaged or gone, MissingParents where it descends from such a one.
        lost: how many acknowledged messages the damaged log lacks at its end, as far as the count beside it says.

    Examples:
        >>> messages = log.append_many(["one", "two"])
        >>> log.close()
        >>> gossiplog.recover("notes.db", "recovered.db").lost
        0
    """

    inserted: int
    duplicates: int
    refused: tuple[tuple[int, GossipLogError], ...] = ()
    lost: int = 0


class Arrivals(list[SignedMessage[P]], Generic[P]):
    """Messages in the order of their arrival.

    Attributes:
        cursor: of the last one: `subscribe(after=cursor)` goes on behind it. It is the sequence, and each generation of
            the log, which `gossiplog.rebase` begins, adds 2**48.

    Examples:
        >>> log.append_many(["one", "two"])[-1].clock
        2
        >>> arrivals = next(iter(log.subscribe(after=0)))
        >>> len(arrivals), arrivals.cursor, arrivals[0].payload
        (2, 2, 'one')
    """

    def __init__(self, messages: Iterable[SignedMessage[P]], cursor: int) -> None:
        super().__init__(messages)
        self.cursor = cursor

    def __repr__(self) -> str:
        return f"<Arrivals: {counted(len(self), 'message')}, cursor {self.cursor}>"


def without_frames(error: RefusedMessage) -> None:
    """Drop the tracebacks of an error that is returned: their frames would keep whole batches in memory.

    Where the application raised is kept as a note of its exception.
    """
    error.__traceback__ = None
    rest: list[BaseException | None] = [error.__cause__, error.__context__]
    while rest:
        cause = rest.pop()
        if cause is None or cause.__traceback__ is None:
            continue
        # Imported here: most logs have no error of an application to show.
        import traceback

        # The first frame is the package's own.
        own = traceback.format_tb(cause.__traceback__)[1:][-_SHOWN_FRAMES:]
        if own:
            note = "Raised at:\n" + "".join(own).rstrip()
            # An application may raise the same exception again and again.
            cause.__notes__ = [*(other for other in getattr(cause, "__notes__", []) if other != note), note]
        cause.__traceback__ = None
        rest += [cause.__cause__, cause.__context__]
