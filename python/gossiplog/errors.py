"""Every exception of the package. The Rust core imports them from here.

A message says what was wrong, where, and what was expected. Attributes carry the same facts for programs.

A name that ends with `Error` covers an area (`StorageError`, `NetworkError`) or a kind of input (`DecodeError`,
`KeyFileError`). A single condition that programs handle says what is wrong with what, without `Error`: `CorruptLog`,
`InvalidMessage`, `ConnectionLost`. The conditions of an area derive from its error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from gossiplog.reprs import counted, listed

CORE = "gossiplog._core"
"""The compiled core's module, as `ImportError.name` has it."""

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


class GossipLogError(Exception):
    """The base of every error that this package raises on purpose."""


class DecodeError(GossipLogError, ValueError):
    """Bytes or text that cannot be decoded.

    Attributes:
        reason: what was wrong.
        offset: where, in bytes from the start of the input; None where no single place is to blame.
    """

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset


_NUMPY = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 128)),
    "bool",
    "bool_",
)
# By the name of the type, without its module.
_REPLACEMENTS = {
    **dict.fromkeys(("datetime", "date", "time", "Timestamp"), "value.isoformat()"),
    "timedelta": "value.total_seconds()",
    **dict.fromkeys(("Decimal", "Fraction", "UUID"), "str(value)"),
    **dict.fromkeys(("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"), "str(value)"),
    **dict.fromkeys(("set", "frozenset"), "sorted(value)"),
    **dict.fromkeys(("range", "generator", "deque", "dict_keys", "dict_values", "dict_items", "map"), "list(value)"),
    **dict.fromkeys(("array", "ndarray", "Series"), "value.tolist()"),
    **dict.fromkeys(_NUMPY, "value.item()"),
    "complex": "[value.real, value.imag]",
    "DataFrame": 'value.to_dict("records")',
}
_KEY_REPLACEMENTS = {
    "bytes": "key.hex()",
    "tuple": 'a list of [key, value] for the map, or ",".join(map(str, key)) for the key',
}
# How both cores end what they say of a value. Its place comes before, with keys that may be any text.
_KEY_TYPE = re.compile(r": a map key must be a string, this is of type (\w+)\Z")
_VALUE_TYPE = re.compile(r": a value of type (?:\S+\.)?(\w+) cannot be encoded; use [\w, ]+\Z")
_NO_NUMBER = " is no number that other peers accept"
_NO_INTEGER = ": an integer must be from -2^64 to 2^64 - 1"


class EncodeError(GossipLogError, ValueError):
    """A value that cannot be written, or that other peers would read as something else.

    Its text says what to write in its place, for the types that programs have most often: dates as text, sets as lists.
    """

    def __init__(self, reason: str) -> None:
        replacement = _replacement(reason)
        super().__init__(f"{reason}; in its place write {replacement}" if replacement else reason)


def _replacement(reason: str) -> str:
    if found := _KEY_TYPE.search(reason):
        return _KEY_REPLACEMENTS.get(found[1], "str(key)")
    if found := _VALUE_TYPE.search(reason):
        return _REPLACEMENTS.get(found[1], "")
    if reason.endswith(_NO_NUMBER):
        return "None, or str(value)"
    return "str(value)" if reason.endswith(_NO_INTEGER) else ""


class InvalidMessage(GossipLogError, ValueError):
    """A message that every peer refuses, whatever its log holds.

    Attributes:
        reason: what was wrong.
        id: the message's id, or None where the value is too broken to have one.
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
    """

    def __init__(self, id: str, parents: Sequence[str]) -> None:
        noun = "parent" if len(parents) == 1 else "parents"
        super().__init__(f"message {id}: not in the log: {noun} {listed(parents, 3)}")
        self.id = id
        self.parents = tuple(parents)


class RefusedMessage(GossipLogError):
    """A valid message that this log's own application refuses. No peer is to blame for it.

    The application's exception is the `__cause__`.

    Attributes:
        id: the message's id, or None for a payload that was refused before it was signed.
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
    """

    def __init__(self, reason: str, ids: Sequence[str] = (), authors: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.ids = tuple(ids)
        self.authors = tuple(authors)


class LimitExceeded(GossipLogError):
    """An answer that would cost more than the limits of who was asked allow."""


class TreeError(GossipLogError, ValueError):
    """A prolly tree was given entries or rows that no tree can hold."""


class ColumnError(GossipLogError, ValueError):
    """Arrow arrays of another type or length than was asked for, damaged ones, or too much for one array."""


class StorageError(GossipLogError):
    """The database cannot be read or written: a full disk, a read-only file, a lock that was not released."""


class NotALog(StorageError):
    """The file or database is not a log of this package, or there is none.

    Attributes:
        problem: what is wrong, without the advice by which the message ends.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem + advice)
        self.problem = problem


class NewerSchema(StorageError):
    """The log was written by a newer version of this package."""


class OlderSchema(StorageError):
    """The log was written by an older version of this package, whose tables are no longer read."""


class TopicMismatch(StorageError, ValueError):
    """The log belongs to another topic."""


class ApplicationMismatch(StorageError):
    """The application's `apply`, its version or its `setup` does not fit the tables that were written."""


class CursorOutdated(StorageError, ValueError):
    """A cursor of another generation of a log: the log was rebased since, so that its sequences are other messages'.

    Attributes:
        found: the generation of the cursor.
        expected: that of the log.
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
    """

    _subject = "the log"
    _state = "is damaged"
    _advice = "; `gossiplog repair {} --from SOURCE` repairs it from a replica, `gossiplog doctor {}` says more"

    def __init__(self, problems: Sequence[str], *, advice: str | None = None, run: str = "") -> None:
        self.run = run
        self.advice = self._advice.replace("{}", "LOG") if advice is None else advice
        self._may_locate = advice is None
        self._shown = f"{self._subject} {self._state}: {listed(problems, 5, separator='; ')}"
        super().__init__(self._shown + self.advice)
        self.problems = tuple(problems)

    def locate(self, log: str) -> None:
        """Name the log in the commands that the error advises; leave advice of its own.

        Args:
            log: as `Storage.argument` has it; "" changes nothing.
        """
        if log and self._may_locate:
            self.advice = self._advice.replace("{}", log)
            self.args = (self._shown + self.advice,)


class CorruptSource(CorruptLog):
    """The log that a pull reads from is damaged; the one that is pulled into is not to blame."""

    _subject = "the source's log"
    _advice = ""


class LogWentBack(CorruptLog):
    """The log has fewer messages than this program has seen, or others in their place: an earlier state is back.

    A standby that lacked the last commits was promoted, or a backup restored. What the database holds may be sound, and
    what it lacks in replicas: a log that is opened anew goes on from there, and takes it back from them.

    Attributes:
        found: how many messages the log has now.
        known: how many this program has seen.
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
    """

    _state = "that was opened is not there any more"
    _advice = ": open it again"

    def __init__(self) -> None:
        super().__init__(["another program has rebased, repaired or replaced it"])

    def __reduce__(self) -> tuple[type[LogReplaced], tuple[()]]:
        return type(self), ()


class LogClosed(StorageError):
    """The log was closed before the call."""


class ProtocolError(GossipLogError):
    """A peer broke the rules of a protocol. The driver of the protocol drops that peer."""


class NetworkError(GossipLogError):
    """The network cannot do what was asked.

    An address is none, a limit is reached, or the network was stopped.
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
    """

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


class StreamReset(NetworkError):
    """The stream was given up before its end: what was sent may not have arrived, and no more will come."""


class RefusedByPeer(NetworkError):
    """A peer refuses messages of this log, so that it takes nothing that descends from them either.

    Attributes:
        peer: which; a hub's address, or a peer's id.
        refused: (id, reason) of those that it names. The reasons are the peer's own words.
        more: how many others it refuses.
        command: the way back, for a shell: it signs the messages that descend from the refused ones anew. "" where the
            log is in no file.
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
        self.refused = tuple(refused)
        self.more = more
        self.command = command


class OptionError(GossipLogError, ValueError):
    """An option of the data source for Spark that there is not, or a value that it cannot have."""


class ValuesRefused(GossipLogError):
    """Some of the stored values that were to be added to a log were refused. The others are in the log."""


class ScenarioError(GossipLogError, ValueError):
    """A simulation that cannot be: says which value of it, and what was expected."""


class SparkError(GossipLogError):
    """Spark cannot run here, or gave up a job; its own exception is the `__cause__`."""


class EventsRefused(GossipLogError, ValueError):
    """Events that cannot become a log.

    Attributes:
        problems: what is wrong, and with which event, one sentence each.
        complete: whether these are all.
    """

    def __init__(self, problems: Sequence[str], *, complete: bool = True) -> None:
        super().__init__(f"no log was made: {'; '.join(problems)}{'' if complete else '; and more'}")
        self.problems = tuple(problems)
        self.complete = complete


class KeyFileError(GossipLogError):
    """A key file that is missing, damaged or readable by others."""


class LossWarning(UserWarning):
    """A log was opened without messages that were acknowledged, since `accept_loss` was given, or may have been.

    The latter where SQLite does not read a write-ahead log to its end, and no count says whether that is a loss; the
    text names the copy that was made of it. Or a log was closed that was only read, and whose file was deleted.
    """


class BlockingCallWarning(RuntimeWarning):
    """A call of a Log that waits for a disk, a server or messages, on the thread of an event loop.

    Once in a process for each method. Logs in memory, which wait for neither, are only warned of where a subscription
    waits. Functions that are given to `on_event` and `on_message` may call what they like.
    """


class TopicWarning(UserWarning):
    """A topic that peers of version 0.13.14 of canvas-js refuse; those at its repository's head take it."""


def explain_core(error: ImportError) -> ImportError:
    """Return an error that says why the compiled core cannot be used, and which command is the way back.

    Args:
        error: of an import from CORE.
    """
    # A module whose import fails is not among them: then only a name in it is missing.
    compiled = sys.modules.get(CORE)
    if compiled is None and isinstance(error, ModuleNotFoundError):
        return ImportError(
            "gossiplog's compiled core is missing: install a wheel with `pip install gossiplog`, or build it in a"
            " checkout with `make setup`; GOSSIPLOG_CORE=python runs the slow reference implementation instead"
        )
    # Neither is needed where all is well, and both take a while to load.
    import tomllib
    from importlib import metadata

    manifest = Path(__file__).parents[2] / "Cargo.toml"
    if manifest.is_file():
        version = tomllib.loads(manifest.read_text(encoding="utf-8"))["workspace"]["package"]["version"]
        command = "make setup"
    else:
        version = metadata.version("gossiplog")
        command = "pip install --force-reinstall gossiplog"
    if compiled is None:
        return ImportError(f"gossiplog's compiled core cannot be loaded: {error}; `{command}` replaces it")
    core_version = getattr(compiled, "__version__", "an earlier version")
    return ImportError(
        f"gossiplog's compiled core is outdated: it is {core_version}, and the Python sources are {version}: {error};"
        f" `{command}` replaces it"
    )
