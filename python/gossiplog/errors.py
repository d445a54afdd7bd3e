"""Every exception of the package. The Rust core imports them from here.

A message says what was wrong, where, and what was expected or is to be done. Attributes carry the same facts for
programs.

A name that ends with `Error` covers an area (`StorageError`, `NetworkError`) or a kind of input (`DecodeError`,
`KeyFileError`), and derives from `GossipLogError` alone. A single condition that programs handle says what is wrong
with what, without `Error`: `CorruptLog`, `InvalidMessage`, `ConnectionLost`. It derives from its area's error where
there is one, and else from `GossipLogError`.

A program's mistakes are no conditions, and raise what those of Python's functions raise: TypeError, ValueError and
IndexError for arguments, RuntimeError for a call at the wrong time. An address or a file beside a log (of TLS, of a
recording) raises OSError. What an area's error says of input is a ValueError, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from gossiplog.replacements import replacement_for
from gossiplog.reprs import counted, listed

Cause: TypeAlias = Literal[
    "local",
    "remote",
    "violation",
    "token",
    "topic",
    "refused",
    "unavailable",
    "transport",
    "overload",
    "internal",
]
"""Who or what ended a connection, or kept it from being made: see `ConnectionLost`."""

REPAIR_ADVICE = "`gossiplog repair {} --from SOURCE` repairs it from a replica, `gossiplog doctor {}` says more"
"""The ways on from a damaged log, whose name, or LOG, takes the place of {}."""


class GossipLogError(Exception):
    """The base of every error that this package raises on purpose.

    Examples:
        >>> try:
        ...     log.append({"tags": {"a", "b"}})
        ... except gossiplog.GossipLogError as error:
        ...     print(error)
        $.tags: a value of type set cannot be encoded; ...; in its place write sorted(value)
    """


class DecodeError(GossipLogError, ValueError):
    """Bytes or text that cannot be decoded.

    Attributes:
        reason: what was wrong.
        offset: where, in bytes from the start of the input; None where no single place is to blame.

    Examples:
        >>> try:
        ...     log.get("no id")
        ... except gossiplog.DecodeError as error:
        ...     print(error.reason)
        an id has 32 ASCII characters, this has 5 bytes
    """

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset


class EncodeError(GossipLogError, ValueError):
    """A value that cannot be written, or that other peers would read as something else.

    Its text says what to write in its place, for the types that programs have most often: dates as text, sets as lists.

    Examples:
        >>> try:
        ...     log.append({"tags": {"a", "b"}})
        ... except gossiplog.EncodeError as error:
        ...     print(error)
        $.tags: a value of type set cannot be encoded; ...; in its place write sorted(value)
    """

    def __init__(self, reason: str) -> None:
        replacement = replacement_for(reason)
        super().__init__(f"{reason}; in its place write {replacement}" if replacement else reason)


class InvalidMessage(GossipLogError, ValueError):
    """A message that every peer refuses, whatever its log holds.

    Attributes:
        reason: what was wrong.
        id: the message's id, or None where the value is too broken to have one.

    Examples:
        >>> message = log.append("one")
        >>> forged = message.value.replace(b"one", b"two")
        >>> try:
        ...     log.insert(forged)
        ... except gossiplog.InvalidMessage as error:
        ...     print(error.reason)
        the Ed25519 signature does not hold over the message in dag-cbor
    """

    def __init__(self, reason: str, id: str | None = None) -> None:
        super().__init__(reason if id is None else f"message {id}: {reason}")
        self.reason = reason
        self.id = id


class MissingParents(GossipLogError):
    """A message whose parents are not all in the log yet. It may be inserted after them.

    Attributes:
        id: the message's id.
        parents: the ids of the parents that are missing.

    Examples:
        >>> with gossiplog.open(":memory:", log.topic, signer=alice) as other:
        ...     first, second = other.append_many(["one", "two"])
        >>> try:
        ...     log.insert(second)
        ... except gossiplog.MissingParents as error:
        ...     print(error.parents == (first.id,))
        True
    """

    def __init__(self, id: str, parents: Sequence[str]) -> None:
        noun = "parent" if len(parents) == 1 else "parents"
        what = "it" if len(parents) == 1 else "them"
        super().__init__(f"message {id}: not in the log: {noun} {listed(parents, 3)}; insert {what} first")
        self.id = id
        self.parents: tuple[str, ...] = tuple(parents)


class RefusedMessage(GossipLogError):
    """A valid message that this log's own application refuses. No peer is to blame for it.

    The application's exception is the `__cause__`.

    Attributes:
        id: the message's id, or None for a payload that was refused before it was signed.

    Examples:
        >>> def payload(value):
        ...     if not isinstance(value, str):
        ...         raise TypeError("expected a text")
        >>> with gossiplog.open(":memory:", "org.example.notes", payload=payload, signer=alice) as notes:
        ...     try:
        ...         notes.append(12)
        ...     except gossiplog.RefusedMessage as error:
        ...         print(repr(error.__cause__))
        TypeError('expected a text')
    """

    def __init__(self, reason: str, id: str | None = None) -> None:
        super().__init__(reason if id is None else f"message {id}: {reason}")
        self.reason = reason
        self.id = id


class InvalidPayload(GossipLogError, ValueError):
    """A stored payload that the type for this log's payloads cannot read: `SignedMessage.payload` raises it.

    Another program stored it without the type, or the type has changed since. The message and its `raw_payload` can be
    read as always. The exception of the type's validation is the `__cause__`.

    Attributes:
        reason: what the validation says.
        id: the message's id.

    Examples:
        >>> message = log.append("no number")
        >>> with gossiplog.open("notes.db", payload=int, read_only=True) as numbers:
        ...     message = numbers.get(message.id)
        ...     try:
        ...         message.payload
        ...     except gossiplog.InvalidPayload as error:
        ...         print(message.raw_payload)
        no number
    """

    def __init__(self, reason: str, id: str) -> None:
        super().__init__(
            f"message {id}: its payload is not of the log's type: {reason.rstrip('.')}. It is in the log all the same:"
            " message.raw_payload has its payload as it is stored"
        )
        self.reason = reason
        self.id = id

    def __reduce__(self) -> tuple[type[InvalidPayload], tuple[str, str]]:
        return type(self), (self.reason, self.id)


class UnknownMessage(GossipLogError, KeyError):
    """An id that is not in the log.

    Attributes:
        id: the id asked for.

    Examples:
        >>> with gossiplog.open(":memory:", log.topic, signer=alice) as other:
        ...     elsewhere = other.append("one")
        >>> try:
        ...     log.get(elsewhere.id)
        ... except gossiplog.UnknownMessage as error:
        ...     print(error.id == elsewhere.id)
        True
    """

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"message {self.id} is not in the log"


class RebaseError(GossipLogError, ValueError):
    """A log that cannot be rebased as asked.

    Attributes:
        ids: of the messages that prevent it.
        authors: of these messages, where they are others' and descend from dropped ones: their keys would sign them.

    Examples:
        >>> message = log.append("one")
        >>> log.close()
        >>> with gossiplog.open("hub.db", "org.example.notes") as hub:
        ...     hub.insert(message)
        ...     try:
        ...         gossiplog.rebase("notes.db", hub, [message.id], signer=alice)
        ...     except gossiplog.RebaseError as error:
        ...         print(error.ids == (message.id,))
        True
        True
    """

    def __init__(self, reason: str, ids: Sequence[str] = (), authors: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.ids: tuple[str, ...] = tuple(ids)
        self.authors: tuple[str, ...] = tuple(authors)


class LimitExceeded(GossipLogError):
    """An answer that would cost more than the limits of who was asked allow.

    Examples:
        >>> from gossiplog.errors import LimitExceeded
        >>> issubclass(LimitExceeded, gossiplog.GossipLogError)
        True
    """


class TreeError(GossipLogError, ValueError):
    """A prolly tree was given entries or rows that no tree can hold.

    Examples:
        >>> from gossiplog.core import Tree
        >>> tree = Tree().insert([(bytes(20), bytes(16))])
        >>> try:
        ...     tree.insert([(bytes(20), bytes(range(16)))])
        ... except gossiplog.TreeError:
        ...     print("a key has one value")
        a key has one value
    """


class ColumnError(GossipLogError, ValueError):
    """Arrow arrays of another type or length than was asked for, damaged ones, or too much for one array.

    Examples:
        >>> import pyarrow
        >>> from gossiplog import columns
        >>> from gossiplog.errors import ColumnError
        >>> try:
        ...     columns.decode(pyarrow.array(["text"]), "org.example.notes")
        ... except ColumnError as error:
        ...     print(error)
        the array has the type Utf8, expected Binary, LargeBinary or FixedSizeBinary
    """


class StorageError(GossipLogError):
    """The database cannot be read or written: a full disk, a read-only file, a lock that was not released.

    Examples:
        >>> try:
        ...     gossiplog.open("no/such/folder/notes.db", "org.example.notes")
        ... except gossiplog.StorageError as error:
        ...     print(error)
        cannot open no/such/folder/notes.db: there is no folder no/such/folder; make it first
    """


class NotALog(StorageError):
    """The file or database is not a log of this package, or there is none.

    Attributes:
        problem: what is wrong, without the advice by which the message ends.

    Examples:
        >>> try:
        ...     gossiplog.open("missing.db", create=False)
        ... except gossiplog.NotALog as error:
        ...     print(error)
        there is no log missing.db: give a topic to make one
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem + advice)
        self.problem = problem


class NewerSchema(StorageError):
    """The log was written by a newer version of this package.

    Examples:
        >>> import sqlite3
        >>> log.close()
        >>> with sqlite3.connect("notes.db") as database:
        ...     cursor = database.execute("UPDATE gossiplog_meta SET value = 99 WHERE name = 'schema'")
        ...
        >>> try:
        ...     log = gossiplog.open("notes.db")
        ... except gossiplog.NewerSchema:
        ...     print("update gossiplog")
        update gossiplog
    """


class OlderSchema(StorageError):
    """The log was written by an older version of this package, whose tables are no longer read.

    Examples:
        >>> import sqlite3
        >>> log.close()
        >>> with sqlite3.connect("notes.db") as database:
        ...     cursor = database.execute("UPDATE gossiplog_meta SET value = 1 WHERE name = 'schema'")
        ...
        >>> try:
        ...     log = gossiplog.open("notes.db")
        ... except gossiplog.OlderSchema:
        ...     print("read it with an earlier gossiplog")
        read it with an earlier gossiplog
    """


class TopicMismatch(StorageError, ValueError):
    """The log belongs to another topic.

    Examples:
        >>> try:
        ...     gossiplog.open("notes.db", "org.example.other")
        ... except gossiplog.TopicMismatch as error:
        ...     print(error)
        notes.db is a log of the topic 'org.example.notes', not 'org.example.other': ...
    """


class ApplicationMismatch(StorageError):
    """The application's `apply`, its version or its `setup` does not fit the tables that were written.

    Examples:
        >>> def apply(message, transaction):
        ...     pass
        >>> gossiplog.open("tables.db", "org.example.notes", apply=apply, apply_version=2).close()
        >>> try:
        ...     gossiplog.open("tables.db", apply=apply, apply_version=1)
        ... except gossiplog.ApplicationMismatch as error:
        ...     print(error)
        the application's tables were written by version 2 of `apply`, this is version 1: run the newer program. ...
    """


class CursorOutdated(StorageError, ValueError):
    """A cursor of another generation of a log: the log was rebased since, so that its sequences are other messages'.

    Attributes:
        found: the generation of the cursor.
        expected: that of the log.

    Examples:
        >>> slip = log.append("a slip")
        >>> cursor = next(iter(log.subscribe(after=0))).cursor
        >>> log.close()
        >>> with gossiplog.open("hub.db", "org.example.notes") as hub:
        ...     result = gossiplog.rebase("notes.db", hub, [slip.id], signer=alice)
        >>> with gossiplog.open("notes.db") as log:
        ...     try:
        ...         next(iter(log.subscribe(after=cursor)))
        ...     except gossiplog.CursorOutdated as error:
        ...         print(error.found, error.expected)
        0 1
    """

    def __init__(self, reason: str, found: int, expected: int) -> None:
        super().__init__(reason)
        self.found = found
        self.expected = expected


class CorruptLog(StorageError):
    """What the database holds contradicts itself.

    Attributes:
        problems: what was found, one sentence each.
        advice: how its message ends.
        run: the command that is the first way back, "" where the advice is general.

    Examples:
        >>> import sqlite3
        >>> message = log.append("one")
        >>> log.close()
        >>> with sqlite3.connect("notes.db") as database:
        ...     cursor = database.execute("UPDATE gossiplog_messages SET value = x'00'")
        ...
        >>> database.close()
        >>> try:
        ...     with gossiplog.open("notes.db") as log:
        ...         log.get(message.id)
        ... except gossiplog.CorruptLog as error:
        ...     print(len(error.problems) > 0, "repair" in error.advice)
        True True
    """

    _subject = "the log"
    _state = "is damaged"
    _advice = f"; {REPAIR_ADVICE}"

    def __init__(self, problems: Sequence[str], *, advice: str | None = None, run: str = "") -> None:
        self.run: str = run
        self.advice: str = self._advice.replace("{}", "LOG") if advice is None else advice
        self._may_locate = advice is None
        self._shown = f"{self._subject} {self._state}: {listed(problems, 5, separator='; ')}"
        super().__init__(self._shown + self.advice)
        self.problems: tuple[str, ...] = tuple(problems)

    def _locate(self, log: str) -> None:
        """Name the log in the commands that the error advises; leave advice of its own.

        Args:
            log: as `Storage.argument` has it; "" changes nothing.
        """
        if log and self._may_locate:
            self.advice = self._advice.replace("{}", log)
            self.args = (self._shown + self.advice,)


class CorruptSource(CorruptLog):
    """The log that a pull reads from is damaged; the one that is pulled into is not to blame.

    Examples:
        >>> import sqlite3
        >>> message = log.append("one")
        >>> log.close()
        >>> with sqlite3.connect("notes.db") as database:
        ...     cursor = database.execute("UPDATE gossiplog_messages SET value = x'00'")
        ...
        >>> database.close()
        >>> with gossiplog.open("copy.db", "org.example.notes") as copy:
        ...     try:
        ...         copy.pull("notes.db")
        ...     except gossiplog.CorruptSource as error:
        ...         print(error.problems[0].startswith("the stored message"), len(copy))
        True 0
    """

    _subject = "the source's log"
    _advice = ""


class LogWentBack(CorruptLog):
    """The log has fewer messages than this program has seen, or others in their place: an earlier state is back.

    A standby that lacked the last commits was promoted, or a backup restored. What the database holds may be sound, and
    what it lacks in replicas: a log that is opened anew goes on from there, and takes it back from them.

    Attributes:
        found: how many messages the log has now.
        known: how many this program has seen.

    Examples:
        >>> message = log.append("one")
        >>> try:
        ...     next(log.subscribe(after=5))
        ... except gossiplog.LogWentBack as error:
        ...     print(error.known - error.found, "messages are gone")
        4 messages are gone
    """

    _state = "has gone back"
    _advice = (
        ". A backup or a server without the last commits took its place: open the log again to go on from there, and"
        " replicas that connect bring back what they hold"
    )

    def __init__(self, found: int, known: int) -> None:
        text = f"it has {counted(found, 'message')}, and this program has seen {known:,}"
        super().__init__([text if found < known else f"{text}, not all of which are among them"])
        self.found = found
        self.known = known

    def __reduce__(self) -> tuple[type[LogWentBack], tuple[int, int]]:
        return type(self), (self.found, self.known)


class LogReplaced(CorruptLog):
    """Another log is in the place of the one that was opened: it was rebased or repaired, or is somebody else's.

    Nothing is damaged. Whoever opens the log again has the one that is there now.

    Examples:
        >>> try:
        ...     raise gossiplog.LogReplaced
        ... except gossiplog.LogReplaced as error:
        ...     print("open the log again:", error)
        open the log again: ...
    """

    _state = "that was opened is not there any more"
    _advice = ": open it again"

    def __init__(self) -> None:
        super().__init__(["another program has rebased, repaired or replaced it"])

    def __reduce__(self) -> tuple[type[LogReplaced], tuple[()]]:
        return type(self), ()


class LogClosed(StorageError):
    """The log was closed before the call.

    Examples:
        >>> log.close()
        >>> try:
        ...     log.append("too late")
        ... except gossiplog.LogClosed as error:
        ...     print(error)
        the log notes.db is closed: open it again
    """


class ProtocolError(GossipLogError):
    """A peer broke the rules of a protocol. The driver of the protocol drops that peer.

    Examples:
        >>> other = gossiplog.open("other.db", log.topic)
        >>> try:
        ...     print(log.pull(other).inserted)
        ... except gossiplog.ProtocolError as error:
        ...     print("it broke a rule:", error)
        0
    """


class NetworkError(GossipLogError):
    """The network cannot do what was asked.

    An address is none, a limit is reached, or the network was stopped.

    Examples:
        >>> async def main():
        ...     async with gossiplog.connect(log, "ws://127.0.0.1:1", reconnect=False) as client:
        ...         try:
        ...             await client.synced()
        ...         except gossiplog.NetworkError as error:
        ...             print("offline:", error)
        >>> anyio.run(main)
        offline: ...
    """


class ConnectionLost(NetworkError):
    """The connection has ended, or could not be made.

    A server that answers and does not let this side in:

    - "token": it asks for a token, or for another one (HTTP status 401);
    - "topic": it is a hub of another topic;
    - "unavailable": it cannot serve this side now, and may later (408, 429 and 500 to 599);
    - "refused": another refusal, such as of an unknown host name (403), or there is no hub (404); in a mesh, another
      peer than the address says.

    Otherwise:

    - "local": this side ended it;
    - "remote": the peer ended it, in order;
    - "violation": the peer broke the rules of a protocol, and is to blame;
    - "transport": the bytes stopped coming, or never came;
    - "overload": this side keeps too much in memory for its peers together;
    - "internal": a defect of this package.

    Attributes:
        cause: one of these.
        reason: what happened.
        status: the HTTP status of the answer; None where there was no such answer.

    Examples:
        >>> async def main():
        ...     async with gossiplog.connect(log, "ws://127.0.0.1:1", reconnect=False) as client:
        ...         try:
        ...             await client.synced()
        ...         except gossiplog.ConnectionLost as error:
        ...             print(error.cause)
        >>> anyio.run(main)
        transport
    """

    def __init__(self, cause: Cause, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.status = status


class StreamRefused(NetworkError):
    """The peer did not agree to a new stream: it does not offer the protocol, or did not answer in time.

    Attributes:
        cause: as that of `ConnectionLost`: "refused" where the peer does not offer the protocol.

    Examples:
        >>> try:
        ...     raise gossiplog.StreamRefused("refused", "the peer does not offer the protocol")
        ... except gossiplog.NetworkError as error:
        ...     print(error.cause)
        refused
    """

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


class StreamReset(NetworkError):
    """The stream was given up before its end: what was sent may not have arrived, and no more will come.

    Examples:
        >>> try:
        ...     raise gossiplog.StreamReset("the stream was reset")
        ... except gossiplog.NetworkError as error:
        ...     print("given up:", error)
        given up: the stream was reset
    """


class RefusedByPeer(NetworkError):
    """A peer refuses messages of this log, so that it takes nothing that descends from them either.

    Attributes:
        peer: which; a hub's address, or a peer's id.
        refused: (id, reason) of those that it names. The reasons are the peer's own words.
        more: how many others it refuses.
        command: the way back, for a shell: it signs the messages that descend from the refused ones anew. "" where the
            log is in no file.

    Examples:
        >>> message = log.append("a slip")
        >>> error = gossiplog.RefusedByPeer("ws://hub.example.org", [(message.id, "no text")])
        >>> dict(error.refused) == {message.id: "no text"}, error.command
        (True, '')
    """

    def __init__(self, peer: str, refused: Sequence[tuple[str, str]], more: int = 0, command: str = "") -> None:
        # Another's words, which are not to be taken for this side's.
        texts = [f'message {id}: "{reason.replace(chr(34), chr(39))}"' for id, reason in refused]
        count = len(refused) + more
        found, them = ("a message", "it") if count == 1 else (f"{count:,} messages", "them")
        way = f". To go on without what it refuses: {command}" if command else ""
        super().__init__(
            f"{peer} refuses {found} of this log, and so lacks what descends from {them}:"
            f" {listed(texts, 5, separator='; ', count=count)}{way}"
        )
        self.peer = peer
        self.refused: tuple[tuple[str, str], ...] = tuple(refused)
        self.more = more
        self.command = command


class LogChanged(StorageError):
    """Another log is in the place of the one that a job on Spark reads: what was read is of neither.

    Examples:
        >>> from gossiplog.errors import LogChanged
        >>> issubclass(LogChanged, gossiplog.StorageError)
        True
    """


class OptionError(GossipLogError, ValueError):
    """An option, path or expression that a job on Spark refuses before it writes, as a new folder that exists already.

    Examples:
        >>> from gossiplog.errors import OptionError
        >>> issubclass(OptionError, ValueError)
        True
    """


class ValuesRefused(GossipLogError):
    """Some of the stored values that were to be added to a log were refused. The others are in the log.

    Examples:
        >>> from gossiplog.errors import ValuesRefused
        >>> issubclass(ValuesRefused, gossiplog.GossipLogError)
        True
    """


class ScenarioError(GossipLogError, ValueError):
    """A simulation that cannot be: says which value of it, and what was expected.

    Examples:
        >>> from gossiplog.errors import ScenarioError
        >>> from gossiplog.sim.routers.plan import Churn
        >>> try:
        ...     Churn(rate=0)
        ... except ScenarioError as error:
        ...     print(error)
        churn's rate is 0: expected more than 0 failures a second
    """


class SparkError(GossipLogError):
    """Spark cannot run here, or gave up a job; its own exception is the `__cause__`.

    Examples:
        >>> from gossiplog.errors import SparkError
        >>> issubclass(SparkError, gossiplog.GossipLogError)
        True
    """


class EventsRefused(GossipLogError, ValueError):
    """Events that cannot become a log.

    Attributes:
        problems: what is wrong, and with which event, one sentence each.
        complete: whether these are all.

    Examples:
        >>> from gossiplog.errors import EventsRefused
        >>> issubclass(EventsRefused, ValueError)
        True
    """

    def __init__(self, problems: Sequence[str], *, complete: bool = True) -> None:
        super().__init__(f"no log was made: {'; '.join(problems)}{'' if complete else '; and more'}")
        self.problems: tuple[str, ...] = tuple(problems)
        self.complete = complete


class KeyFileError(GossipLogError):
    """A key file that is missing, damaged or readable by others.

    Examples:
        >>> try:
        ...     gossiplog.Signer.load("missing.key")
        ... except gossiplog.KeyFileError as error:
        ...     print(error)
        cannot read the key file missing.key: No such file or directory
    """


class LossWarning(UserWarning):
    """A log was opened without messages that were acknowledged, since `accept_loss` was given, or may have been.

    The latter where SQLite does not read a write-ahead log to its end, and no count says whether that is a loss; the
    text names the copy that was made of it. Or a log was closed that was only read, and whose file was deleted.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     gossiplog.open("notes.db", accept_loss=True).close()
        ...
        >>> [str(each.message) for each in caught if issubclass(each.category, gossiplog.LossWarning)]
        []
    """


class BlockingCallWarning(RuntimeWarning):
    """A call of a Log that waits for a disk, a server or messages, on the thread of an event loop.

    Once in a process for each method. Logs in memory, which wait for neither, are only warned of where a subscription
    waits. Functions that are given to `on_event` and `on_message` may call what they like.

    Examples:
        >>> import warnings
        >>> async def main():
        ...     with warnings.catch_warnings(record=True) as caught:
        ...         warnings.simplefilter("always")
        ...         log.append("one")
        ...     print([each.category.__name__ for each in caught])
        >>> anyio.run(main)
        ['BlockingCallWarning']
    """


class TopicWarning(UserWarning):
    """A topic that peers of version 0.13.14 of canvas-js refuse; those at its repository's head take it.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     gossiplog.open(":memory:", "org:example:notes").close()
        >>> [warning.category.__name__ for warning in caught]
        ['TopicWarning']
    """
