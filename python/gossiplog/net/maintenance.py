"""Repair and rebase of a log's file with another log, which is in a file, at a hub, or at a peer of a mesh."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from gossiplog.log import Log
from gossiplog.log.asynchronous.log import AsyncLog
from gossiplog.log.blocking import calling_back, warn_of_whole_log
from gossiplog.log.callbacks import check_progress
from gossiplog.log.rebasing import RebasedMessage, rebase_file
from gossiplog.log.repair import repair_log
from gossiplog.log.results import RebaseResult, RepairResult
from gossiplog.net.arguments import check_callbacks, check_source
from gossiplog.net.fetching import fetch_from
from gossiplog.signer import Signer, check_signer
from gossiplog.storage.base import Progress
from gossiplog.storage.location import Location


def repair(
    location: Location,
    source: AsyncLog | Log | Location | None = None,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> RepairResult:
    """Repair a log that no program has open.

    Messages keep their sequences, the cursor of `apply` its place and the application's tables what is sound of them.
    Where tables that `apply` writes to lack rows, or its cursor is lost, it requests a rebuild (`Log.rebuild`). The
    damaged file is kept beside the log; of a log in Postgres, what could be read, in the schema `SCHEMA_damaged`.

    Args:
        location: the path of the log's file, or its URL in Postgres.
        source: a replica that has what is damaged: a Log or AsyncLog, the path of its file, its URL in Postgres, a
            hub's URL (`ws://`, `wss://`) or a peer's multiaddr. None repairs what follows from the messages alone. From
            a hub or a peer it is fetched by an event loop of this call's own: call it on a worker thread where another
            one runs.
        token: the text of the hub's bearer token, if it asks for one.
        token_file: the file that has it, instead of `token`.
        ca_file: a PEM file of certificate authorities to trust beside the platform's.
        accept_loss: whether to go on without messages that are lost here and in the source. Those that others descend
            from are never accepted: `recover` makes a log without them.
        progress: `progress(done, total)` is called with numbers of messages.

    Returns:
        What was damaged, and what became of it. A sound log is left as it is, and the count of acknowledged messages
        beside it is set where that is damaged or of another file.

    Raises:
        CorruptLog: the source lacks messages that the log has lost; `problems` names or counts them, and the text says
            how many are left without them. Or the file was deleted or replaced, and a program has the former one open.
            The log is as it was.
        TopicMismatch: the source is a log or a file of another topic.
        ValueError: the source begins with http:// or https://.
        TypeError: a source that is none of these, or a `progress` that cannot be called so.
        RuntimeError: an event loop runs on this thread, and the source is a hub or a peer. Nothing has changed.
        NotALog: there is no log; or only its count is left, and the source, a hub or a peer, is asked by topic.
        StorageError: another program has the log open, or a file cannot be read or written.
        KeyFileError: the token's file is missing, holds no token, or is open to others than its owner.
        NetworkError: the source cannot be reached, or sends nothing for a minute; ConnectionLost with the cause "topic"
            where a hub or a peer serves another topic.
        ProtocolError: the source broke a rule of the protocols.

    Examples:
        >>> message = log.append("one")
        >>> log.backup("backup.db")
        1
        >>> log.close()
        >>> result = gossiplog.repair("notes.db", "backup.db")
        >>> result.messages, result.damaged
        (1, ())
    """
    check_progress(progress)
    source = None if source is None else check_source("source", source)
    warn_of_whole_log("gossiplog.repair")
    fetch = fetch_from(source, token, token_file, ca_file)
    with calling_back():
        return repair_log(location, fetch or source, accept_loss=accept_loss, progress=progress)


def rebase(
    location: Location,
    onto: AsyncLog | Log | Location,
    drop: Iterable[str] = (),
    *,
    signer: Signer | Sequence[Signer],
    drop_descendants: bool = False,
    dry_run: bool = False,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    on_rebased: Callable[[RebasedMessage], object] | None = None,
    progress: Progress | None = None,
) -> RebaseResult:
    """Sign anew, on top of another log, what its own authors have written to a log and the other one lacks.

    This is the way back for a log with messages that a hub or a peer refuses: they are dropped, and what descends from
    them is signed anew, with other ids. The new log takes the place of the file in one step, with a generation that is
    1 higher; the former file is kept beside it, as `LOG.generation-N`. Whenever the process ends, one of the two is
    there, whole. Cursors of the former generation raise CursorOutdated, and `apply` runs anew for all messages when the
    log is opened.

    Peers that hold the dropped messages bring them back when they sync with the log. Nobody may have the file open.

    Args:
        location: the path of the log's file, or its URL in Postgres: there the former log is kept in a schema beside
            it, `SCHEMA_generation_N`, to which an application's tables go with it. The role has to own both.
        onto: the other log, the target: a Log or AsyncLog, the path of its file, its URL in Postgres, a hub's URL (`ws://`,
            `wss://`) or a peer's multiaddr. All of its messages are copied into the new log. From a hub or a peer they
            are fetched by an event loop of this call's own: call it on a worker thread where another one runs.
        drop: ids of messages to leave out, of any author.
        signer: of the messages that are signed anew; several, where several of the log's authors are to be. Messages
            of other authors stay as they are, and so does what they descend from.
        drop_descendants: whether to drop what other authors have written on top of dropped messages, too.
        dry_run: whether everything stays as it is; the result then says what would become of it.
        token: the text of the hub's bearer token, if it asks for one.
        token_file: the file that has it, instead of `token`.
        ca_file: a PEM file of certificate authorities to trust beside the platform's.
        on_rebased: is called with what becomes of each message that the target lacks, parents first.
        progress: `progress(done, total)` is called with numbers of the messages that the target lacks.

    Raises:
        RebaseError: the target has a message that is to be dropped, or other authors have written on top of one; its
            `ids` say which.
        DecodeError: text that is no id.
        ValueError: the target begins with http:// or https://.
        TypeError: a target that is none of these, an `on_rebased` or a `progress` that cannot be called so, or a signer
            that is no Signer.
        RuntimeError: an event loop runs on this thread, and the target is a hub or a peer. Nothing has changed.
        UnknownMessage: a message to drop is not in the log.
        NotALog: there is no such file, or it holds no log.
        TopicMismatch: the target is a log or a file of another topic.
        StorageError: the file is open elsewhere, or cannot be written, or is the target's own.
        CorruptLog: the log or the target is damaged; or the log's file was deleted or replaced, and a program has the
            former one open.
        KeyFileError: the token's file is missing, holds no token, or is open to others than its owner.
        NetworkError: the target cannot be reached, or sends nothing for a minute; ConnectionLost with the cause "topic"
            where a hub or a peer serves another topic.
        ProtocolError: the target broke a rule of the protocols.

    Examples:
        >>> first, slip, last = log.append_many(["one", "a slip", "two"])
        >>> log.close()
        >>> hub = gossiplog.open("hub.db", "org.example.notes")
        >>> hub.insert(first)
        True
        >>> gossiplog.rebase("notes.db", hub, [slip.id], signer=alice).dropped
        1
        >>> with gossiplog.open("notes.db") as log:
        ...     print([message.payload for message in log])
        ['one', 'two']
    """
    check_callbacks(on_rebased=on_rebased)
    check_progress(progress)
    onto = check_source("onto", onto)
    warn_of_whole_log("gossiplog.rebase")
    signers = [signer] if isinstance(signer, Signer) else list(signer)
    for each in signers:
        check_signer(each)
    with calling_back():
        return rebase_file(
            location,
            fetch_from(onto, token, token_file, ca_file) or (lambda log: log.pull(onto)),
            drop,
            signers,
            drop_descendants=drop_descendants,
            dry_run=dry_run,
            on_rebased=on_rebased,
            progress=progress,
        )
