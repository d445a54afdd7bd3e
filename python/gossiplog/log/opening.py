"""Opening a log."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from gossiplog.errors import LossWarning
from gossiplog.log.applying import Apply, Setup, application
from gossiplog.log.callbacks import check_progress
from gossiplog.log.log import Log
from gossiplog.log.payloads import P
from gossiplog.message import check_topic
from gossiplog.signer import Signer
from gossiplog.storage import Storage
from gossiplog.storage.base import Progress, Synchronous
from gossiplog.storage.location import Location, storage_at

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from typing_extensions import TypeForm


@overload
def open(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[Any] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: None = None,
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> Log[Any]: ...
@overload
def open(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[P] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: type[P] | TypeAdapter[P],
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> Log[P]: ...
@overload
def open(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[P] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: TypeForm[P],
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> Log[P]: ...
@overload
def open(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[Any] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: Callable[[Any], object],
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> Log[Any]: ...
def open(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[Any] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: Any = None,
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> Log[Any]:
    """Open a log; make it first where there is none.

    A log that an earlier version wrote is upgraded in place, in one transaction; where its file is read-only, it is
    read as it is. Close programs of earlier versions before: they can no longer use it.

    Args:
        location: the path of an SQLite file, ":memory:" for SQLite in memory, a URL as
            postgresql://me@host/database?schema=notes (`pip install 'gossiplog[postgres]'`), or a storage, as
            `MemoryStorage()`. In a database, or a schema of Postgres, that an application has already, the log gets
            tables of its own, whose names begin with gossiplog_.
        topic: what the log is about; peers replicate logs of the same topic. A log that exists needs none.
        apply: `apply(message, transaction)` runs once for each message, after its parents, in the transaction that
            stores it; if it raises, the message is refused and nothing of it stays. Runs first, before this returns,
            for stored messages that it has not seen. It runs on the thread that appends or inserts, in a pull on a
            worker thread, and never twice at a time. Nothing else can write before it returns; a log in memory cannot
            be read either.
        apply_version: of `apply`, 1 or more: give the next number to an `apply` that writes other rows than before.
            With a higher version than the one that wrote the tables, `setup` runs and then `apply` over all messages
            from the first, in batches, before this returns; a process that opens the log with this version goes on
            where one was interrupted. `Log.info` says whether a rebuild has ended.
        setup: `setup(transaction)` drops the application's tables, where they are there, and makes them. It runs
            before the first message, and before each rebuild, in a transaction with the statements that `apply` has.
        payload: checks payloads, own ones and others', before they are stored: a function that raises to refuse (one
            that returns False refuses, too), or any type that pydantic validates. They run on the thread that appends,
            and for others' messages on worker threads, several at a time where several threads use the log. A type is
            also what payloads are read as, and `append` takes its values: the log is a `Log[Note]` with `payload=Note`.
            What others have stored never changes, and where it is not of the type, `SignedMessage.payload` raises
            InvalidPayload.
        check_others: whether messages of others are checked by `payload`, too. What it refuses of them is not stored,
            nor all that descends from it. With False they come in, and only what is appended here is checked: where
            `payload` is a type, theirs that are not of it raise InvalidPayload when they are read, and `apply` passes
            over those whose InvalidPayload it lets through.
        signer: what `append` signs with when it is given none.
        create: whether a log is made where there is none.
        read_only: whether nothing is written to the log, even if others write to it: none is made, one of an earlier
            version is read without being upgraded, and `append`, `insert` and `pull` raise StorageError.
        synchronous: when SQLite waits for the disk: with "full" an append that returned survives a power cut.
        accept_loss: whether a log is opened that has fewer messages than were acknowledged, as where its write-ahead
            log was damaged: try `gossiplog.repair` first, which reads what follows the damage. What an author appends
            then stands beside what was lost, if that comes back.
        progress: `progress(done, total)` is called with numbers of messages while an upgrade goes through them, and
            while `apply` runs over stored ones.

    Raises:
        NotALog: there is no log and none may be made, or the file is something else.
        NewerSchema: a newer version of this package wrote the log.
        OlderSchema: a version wrote it whose tables are no longer read.
        TopicMismatch: the log has another topic.
        EncodeError: no version of canvas-js accepts the topic.
        RefusedMessage: `apply` raised for a stored message; its exception is the cause.
        ApplicationMismatch: a higher version of `apply` wrote the application's tables; or they have to be built anew,
            because this version is higher, a rebuild was requested or one of them is missing, and `setup` is not given.
        CorruptLog: the log is damaged, or has fewer messages than were acknowledged; or SQLite does not read its
            write-ahead log to the end, no count says whether that is a loss, and the log is only to be read, or no copy
            can be made.
        StorageError: the location is of no known kind, or cannot be opened.
        TypeError: a location that is no path, a topic that is no text, a `payload` of no known kind, or a coroutine or
            generator function, whose body would not run, as `apply`, `setup`, `payload` or `progress`.
        ValueError: `read_only` with `apply`, which writes, or with a storage, which has a setting of its own; a version
            below 1; `setup` or a version without `apply`; `check_others=False` without `payload`.
        Exception: whatever `setup` raises. Nothing has changed then.

    Warns:
        LossWarning: the log has fewer messages than were acknowledged, by how many, and `accept_loss` was given. Or
            SQLite does not read its write-ahead log to the end, and no count says whether that is a loss: where the
            copy of it is.
        TopicWarning: version 0.13.14 of canvas-js refuses the topic.

    Examples:
        >>> with gossiplog.open("tea.db", "org.example.tea", signer=alice) as tea:
        ...     message = tea.append({"text": "The kettle is on."})
        >>> with gossiplog.open("tea.db", read_only=True) as tea:
        ...     print(tea.topic, [message.payload for message in tea])
        org.example.tea [{'text': 'The kettle is on.'}]
    """
    if topic is not None:
        check_topic(topic)
    if read_only and apply is not None:
        raise ValueError("apply writes to the log's database: it cannot be given with read_only")
    if not check_others and payload is None:
        raise ValueError("check_others=False changes what `payload` checks: give `payload`, or leave check_others out")
    check_progress(progress)
    given = application(apply, apply_version, setup)
    storage = storage_at(location, synchronous, read_only=read_only, accept_loss=accept_loss)
    stored = storage.open(topic, create, progress)
    try:
        for loss in storage.losses:
            warnings.warn(loss, LossWarning, stacklevel=2)
        return Log(
            storage,
            stored,
            application=given,
            payload=payload,
            check_others=check_others,
            signer=signer,
            progress=progress,
        )
    except BaseException:
        storage.close()
        raise
