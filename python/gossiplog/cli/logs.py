"""A log as a whole: `gossiplog init`, `info`, `verify`, `recover`, `backup`, `rebuild`."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

import gossiplog.log
from gossiplog.cli.options import load_object
from gossiplog.cli.output import (
    Json,
    Output,
    Stopwatch,
    fields_table,
    headed_table,
    note,
    occasional,
    printable,
    steps_of,
)
from gossiplog.cli.places import LogPlace
from gossiplog.errors import (
    ApplicationMismatch,
    CorruptLog,
    GossipLogError,
    MissingParents,
    NotALog,
    StorageError,
    TreeError,
    ValuesRefused,
)
from gossiplog.files import explain_denial
from gossiplog.log import Log
from gossiplog.log.applying import Setup, application
from gossiplog.log.log import replica_of
from gossiplog.reprs import counted, listed, shell_path
from gossiplog.storage.base import PREFIX, ApplyTransaction
from gossiplog.storage.postgres.url import PostgresURL
from gossiplog.storage.sqlite.commit_count import CommitCount, describe_loss
from gossiplog.storage.sqlite.files import formers, has_content, numbered, wal_of
from gossiplog.storage.sqlite.set_aside import SET_ASIDE_SUFFIXES
from gossiplog.storage.sqlite.tables import COMPANIONS, foreign_tables, schema_of_log

_HEADS = 20  # shown on a terminal: the latest
_AUTHORS = 50  # shown on a terminal: those of the most bytes
_REFUSALS = 20  # shown
_TABLES = 5  # of another application, named in a warning
_IN_MEMORY = ":memory:"
_RECOVER = (
    "what it reads of a damaged log are pages of a file. gossiplog repair URL --from SOURCE repairs it, and gossiplog"
    " sync NEW URL gets what can be read into a new log"
)

# Opening it says better what is wrong.
LogPath = Annotated[
    LogPlace,
    typer.Argument(metavar="LOG", help="The log: its file, or its postgresql:// URL.", parser=LogPlace.parse),
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Go on although LOG has lost messages that were acknowledged, as where its write-ahead log was damaged.",
    ),
]
NewTopic = Annotated[str | None, typer.Option(help="The topic of a new log, which is made if LOG does not exist.")]


@contextmanager
def open_log(
    place: LogPlace,
    topic: str | None = None,
    *,
    read_only: bool = False,
    unlocked: bool = False,
    accept_loss: bool = False,
    makes: bool = False,
    say: Callable[[str], None] = note,
) -> Iterator[Log]:
    """Open a log for a block. Errors of a damaged log name it.

    Args:
        place: of the log.
        topic: of a log that is made where there is none; None makes none.
        read_only: write nothing to the file; a log that an earlier version wrote is not upgraded.
        unlocked: the same, and read without a lock where SQLite cannot make one, since the user may not write to the
            folder. The block must not wait for messages.
        accept_loss: open a log that has fewer messages than were acknowledged, too.
        makes: whether the command has an option --topic with which it makes a log.
        say: takes warnings.

    Raises:
        NotALog: there is no log, and no topic to make it with; or the path is SQLite's name for one in memory.
        TopicMismatch: the log has another topic.
        StorageError: it is damaged, or cannot be read, or was written to while it could not be locked.
    """
    read_only = read_only or unlocked
    if isinstance(place.location, PostgresURL):
        with _opened_in_postgres(place, place.location, topic, read_only=read_only, makes=makes, say=say) as log:
            yield log
        return
    path = place.location
    if str(path) == _IN_MEMORY:
        raise NotALog(f"{_IN_MEMORY} is no file: a log in memory would end with the command")
    if path.is_dir():
        raise NotALog(f"{path} is a folder: expected the file of a log")
    check_not_gone(path, accept_loss=accept_loss)
    if not path.exists():
        if topic is None:
            way = (
                "give --topic TOPIC to make one"
                if makes
                else f"gossiplog init {shell_path(path)} --topic TOPIC makes one"
            )
            raise NotALog(f"there is no log {path}: {way}")
        if not path.parent.is_dir():
            raise NotALog(f"cannot make the log {path}: there is no folder {path.parent}")
        if not _may(path.parent, os.W_OK | os.X_OK):
            raise StorageError(
                f"cannot make the log {path} in the folder {path.parent}: {explain_denial(path.parent, 'write to')}"
            )
        database = CommitCount(str(path)).database_name
        kept = [name for suffix in SET_ASIDE_SUFFIXES for name in numbered(database, suffix)]
        if former := [*map(str, formers(wal_of(database))), *kept]:
            say(f"a new log is made: {listed(former, len(former))} may have messages of a former one")
    elif not _may(path, os.R_OK):
        raise StorageError(f"cannot open {path}: {explain_denial(path, 'read')}")
    if topic is None:
        check_not_empty(path)
    others = _other_tables(path) if topic is not None and not read_only else ()
    # Before the look for a writer, who may begin after it.
    before = _stamp(path)
    is_unlocked = unlocked and path.is_file() and not _can_lock(path)
    location = f"{path.absolute().as_uri()}?immutable=1" if is_unlocked else str(path)
    with _opened(place, location, topic, read_only=read_only, accept_loss=accept_loss, say=say) as log:
        if others:
            say(
                f"{path} was a database without a log, with the tables {listed(others, _TABLES)}: a log was made"
                f" beside them, in tables whose names begin with {PREFIX}"
            )
        try:
            yield log
        except (CorruptLog, TreeError) as error:
            if is_unlocked:
                _check_unchanged(path, before)
            raise StorageError(_located(place, error)) from error
    if is_unlocked:
        _check_unchanged(path, before)


@contextmanager
def _opened_in_postgres(
    place: LogPlace, url: PostgresURL, topic: str | None, *, read_only: bool, makes: bool, say: Callable[[str], None]
) -> Iterator[Log]:
    """Open a log in Postgres for a block; arguments are as of `open_log`."""
    try:
        with _opened(place, url, topic, read_only=read_only, say=say) as log:
            yield log
    except NotALog as error:
        text = str(error).removesuffix(": give a topic to make one")
        # Where the schema holds something else, none can be made.
        _, is_none, rest = text.partition(f"holds no log in its schema {url.schema}")
        if is_none and not rest.startswith(", but "):
            text += (
                ": give --topic TOPIC to make one"
                if makes
                else f": gossiplog init {place.argument} --topic TOPIC makes one"
            )
        raise NotALog(text) from error
    except (CorruptLog, TreeError) as error:
        raise StorageError(_located(place, error)) from error


@contextmanager
def _opened(
    place: LogPlace,
    location: str | PostgresURL,
    topic: str | None,
    *,
    read_only: bool,
    accept_loss: bool = False,
    say: Callable[[str], None],
) -> Iterator[Log]:
    """Open a log for a block, whose place has been looked at; arguments are as of `open_log`."""
    with warnings.catch_warnings(record=True, action="always") as caught, occasional("Upgrading the log") as advance:
        try:
            log = gossiplog.log.open(
                location, topic=topic, read_only=read_only, accept_loss=accept_loss, progress=advance
            )
        except NotALog as error:
            # Its advice is to give a topic, which few commands take.
            raise NotALog(str(error).replace(": give a topic to make one in it", "")) from error
        except (CorruptLog, TreeError) as error:
            raise StorageError(_located(place, error)) from error
    for warning in caught:
        say(str(warning.message))
    with log:
        yield log


def check_no_log(place: LogPlace) -> None:
    """Raise StorageError where a schema of Postgres has a log already, or cannot be read."""
    try:
        with open_log(place, read_only=True) as log:
            topic = log.topic
    except NotALog:
        return
    raise StorageError(f"{place} is there already, with the topic {topic}")


def check_not_gone(path: Path, *, accept_loss: bool = False) -> None:
    """Raise StorageError where a log was that is gone, or empty, but for files beside it."""
    try:
        CommitCount(str(path)).check_not_gone(accept_loss=accept_loss)
    except CorruptLog as error:
        raise StorageError(f"{path}: {error}") from error


def _located(place: LogPlace, error: Exception) -> str:
    """Return an error about a log, with the log in the commands that it advises."""
    if isinstance(error, CorruptLog):
        error._locate(place.argument)
    return f"{place}: {error}"


def _can_lock(path: Path) -> bool:
    """Return whether SQLite has, or can make, the files by which it keeps readers apart from writers.

    A program that writes to the log has made them, and readers share them.
    """
    real = path.resolve()
    is_open = any(real.with_name(real.name + companion).exists() for companion in COMPANIONS)
    return is_open or _may(real.parent, os.W_OK | os.X_OK)


def _stamp(path: Path) -> object:
    """Return what changes when a log is written to."""
    if not path.is_file():
        return None
    found, real = path.stat(), path.resolve()
    return found.st_ino, found.st_size, found.st_mtime_ns, wal_of(real).exists()


def _check_unchanged(path: Path, before: object) -> None:
    """Check that a log that was read without a lock still has its stamp.

    Raises:
        StorageError: it was written to.
    """
    if _stamp(path) != before:
        raise StorageError(
            f"{path} was written to while it was read without a lock, since you may not write to its folder: what was"
            " shown may be wrong. Repeat the command"
        )


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def check_not_empty(path: Path) -> None:
    """Raise NotALog for an empty file, with the commands that make a log of it."""
    if _is_empty(path):
        name = shell_path(path)
        raise NotALog(
            f"{path} is empty: gossiplog init {name} --topic TOPIC makes a log of it; where it was one, gossiplog sync"
            f" {name} SOURCE --topic TOPIC gets the log from a replica"
        )


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _other_tables(path: Path) -> Sequence[str]:
    """Return the names of the tables in an SQLite database that has no log yet."""
    if not path.is_file():
        return ()
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return () if schema_of_log(connection) else foreign_tables(connection)
    except sqlite3.Error:
        # Opening the log says what is wrong.
        return ()


def init(
    path: LogPath,
    topic: Annotated[str, typer.Option(help="What the log is about; peers replicate logs of the same topic.")],
    json: Json = False,
) -> None:
    """Make a log."""
    output = Output(json)
    # An empty file is what an attempt leaves that failed, on a full disk for instance: the storage goes on from there.
    if isinstance(path.location, PostgresURL):
        check_no_log(path)
    elif path.location.exists() and not _is_empty(path.location):
        raise StorageError(f"{path} is there already")
    with open_log(path, topic) as log:
        fields = {"path": str(path), "topic": log.topic}
    if output.json:
        output.record(fields)
    else:
        output.show(f"{path} is a log of the topic {topic}")


def info(
    path: LogPath,
    authors: Annotated[
        bool, typer.Option("--authors", help="Show how many messages and bytes each author wrote, the largest first.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what a log holds: topic, messages, heads, root, authors, bytes, and the clock that the next message has."""
    output = Output(json)
    with open_log(path, unlocked=True) as log, steps_of("Counting authors", len(log)) as advance:
        found = log.info(progress=advance)
    by_author = sorted(found.by_author.items(), key=lambda item: (-item[1].bytes, item[0])) if authors else []
    root = {"level": found.root.level, "hash": found.root.hash.hex()}
    rebuild = None
    if found.is_rebuilding:
        # Of a rebuild that has yet to begin, `applied` counts what went into the former tables.
        applied = 0 if found.rebuild_requested else found.applied
        rebuild = {
            "requested": found.rebuild_requested,
            "applied": applied,
            "apply_version": found.apply_version,
        }
    figures = {"messages": found.messages, "clock": found.clock, "authors": found.authors, "bytes": found.bytes}
    if found.generation:
        figures["generation"] = found.generation
    if output.json:
        listed = [{"author": author, "messages": by.messages, "bytes": by.bytes} for author, by in by_author]
        more: dict[str, object] = {"by_author": listed} if authors else {}
        if rebuild is not None:
            more["rebuilding"] = rebuild
        output.record({"topic": found.topic, **figures, "heads": list(found.heads), "root": root, **more})
        return
    table = fields_table()
    table.add_row("topic", printable(found.topic))
    for name, figure in figures.items():
        table.add_row("next clock" if name == "clock" else name, f"{figure:,}")
    if rebuild is not None:
        done = f"{applied:,} of {counted(found.messages, 'message')}"
        if found.rebuild_requested:
            done = "requested; the application begins when it next opens or writes to the log"
        table.add_row("rebuilding", f"the application's tables, version {found.apply_version} of apply: {done}")
    table.add_row("root", f"{root['hash']} at level {root['level']}")
    hidden = len(found.heads) - _HEADS
    table.add_row("heads", "\n".join(found.heads[-_HEADS:]) + (f"\nand {hidden:,} more" if hidden > 0 else ""))
    output.show(table)
    if authors:
        listing = headed_table("author", numbers=["messages", "bytes"])
        for author, by in by_author[:_AUTHORS]:
            listing.add_row(author, f"{by.messages:,}", f"{by.bytes:,}")
        hidden = len(by_author) - _AUTHORS
        output.show("", listing, *([f"and {hidden:,} more"] if hidden > 0 else []))


def verify(path: LogPath, json: Json = False) -> None:
    """Check every message and signature of a log, its tree and its indexes; end with status 1 if anything is wrong."""
    output = Output(json)
    with open_log(path, unlocked=True) as log, steps_of("Verifying", len(log)) as advance, Stopwatch() as watch:
        verified = log.verify(progress=advance)
    if output.json:
        root = {"level": verified.root.level, "hash": verified.root.hash.hex()}
        forks = [{"author": fork.author, "messages": fork.messages, "first": fork.first} for fork in verified.forks]
        more = {"forks": forks} if forks else {}
        output.record({"messages": verified.messages, "root": root, **more, "seconds": round(watch.seconds, 6)})
    else:
        all_messages = counted(verified.messages, "message")
        rate = counted(watch.rate(verified.messages), "message")
        output.show(
            f"{'' if verified.messages == 1 else 'All '}{all_messages}, the tree and the indexes are sound"
            f" ({rate} a second)."
        )
        for fork in verified.forks[:_AUTHORS]:
            output.show(
                f"{fork.author} forked: {counted(fork.messages, 'message does', 'messages do')} not follow the one"
                f" before, first {fork.first[0]} and {fork.first[1]}. Two machines wrote with its key, or a backup was"
                " restored and written to."
            )
        hidden = len(verified.forks) - _AUTHORS
        if hidden > 0:
            output.show(f"{counted(hidden, 'more author', 'more authors')} forked.")


def recover(
    path: LogPath,
    new: Annotated[
        LogPlace,
        typer.Argument(metavar="NEW", help="The new log: a file, or a postgresql:// URL.", parser=LogPlace.parse),
    ],
    accept_loss: AcceptLoss = False,
    json: Json = False,
) -> None:
    """Make a log of the valid messages of a damaged one that no program has open; end with status 1 if any is refused.

    It reads what `repair` reads, also where SQLite cannot read the file, and verifies every message. Messages that are
    whole but descend from damaged ones are counted apart; `refused` lists the first 20 damaged messages. `lost` counts
    acknowledged messages that are gone from the end.
    """
    output = Output(json)
    file = path.file(_RECOVER)
    if not has_content(wal_of(file.resolve())):
        check_not_gone(file)
        check_not_empty(file)
    if isinstance(new.location, PostgresURL):
        check_no_log(new)
    elif new.location.exists() and not _is_empty(new.location):
        raise StorageError(f"{new} is there already")
    with steps_of("Recovering") as advance, Stopwatch() as watch:
        recovered = gossiplog.recover(file, new.location, accept_loss=accept_loss, progress=advance)
    # What only lacks parents is whole: one damaged message has as many descendants as came after it.
    damaged = [refusal for refusal in recovered.refused if not isinstance(refusal[1], MissingParents)]
    descendants = len(recovered.refused) - len(damaged)
    refused = [
        {"sequence": sequence, "id": getattr(error, "id", None), "error": str(error)}
        for sequence, error in (damaged or recovered.refused)[:_REFUSALS]
    ]
    if output.json:
        output.record(
            {
                "log": str(path),
                "new": str(new),
                "inserted": recovered.inserted,
                "duplicates": recovered.duplicates,
                "damaged": len(damaged),
                "descendants": descendants,
                "lost": recovered.lost,
                "refused": refused,
                "seconds": round(watch.seconds, 6),
            }
        )
    else:
        for refusal in refused:
            output.show(printable("sequence {sequence}: {error}".format_map(refusal)))
        output.show(f"{new} holds {counted(recovered.inserted, 'message')} of {path}.")
        if recovered.lost:
            loss = describe_loss(recovered.lost)
            output.show(f"{loss[0].upper()}{loss[1:]}.")
    if refused:
        raise ValuesRefused(
            f"{counted(len(damaged), f'message of {path} is damaged', f'messages of {path} are damaged')}, and"
            f" {counted(descendants, 'lacks parents because it descends', 'lack parents because they descend')} from"
            f" damaged or missing ones; the sound ones are in {new}. Get the lost ones from a peer, a hub or a backup:"
            f" gossiplog sync {new.argument} SOURCE"
        )


def _reporting(setup: Callable[[ApplyTransaction], object]) -> Setup:
    """Return the application's `setup`, whose exceptions end the command with a line in place of a traceback."""

    def run(transaction: ApplyTransaction) -> None:
        try:
            setup(transaction)
        except GossipLogError:
            raise
        except Exception as error:
            raise ApplicationMismatch(
                f"`setup` raised {type(error).__name__}: {error}; the log and the application's tables are as they were"
            ) from error

    return run


def backup(
    path: LogPath,
    target: Annotated[Path, typer.Argument(metavar="TO", help="The file of the copy, which must not exist.")],
    json: Json = False,
) -> None:
    """Copy a log to a new file, with the application's tables, while programs write to it.

    It verifies nothing: damage is copied as well. Run `gossiplog verify TO` before you rely on the copy. Of a log in
    Postgres, TO is what pg_dump writes of its schema, and pg_restore reads.
    """
    output = Output(json)
    with open_log(path, unlocked=True) as log, Stopwatch() as watch, occasional("Copying") as advance:
        messages = log.backup(target, progress=advance)
    size = target.stat().st_size
    restores = isinstance(path.location, PostgresURL)
    if output.json:
        fields = {"log": str(path), "backup": str(target), "messages": messages, "bytes": size}
        output.record(fields | {"seconds": round(watch.seconds, 6)})
    else:
        output.show(f"{target} is a copy of {path}: {counted(messages, 'message')}, {size:,} bytes.")
        if restores:
            output.show(f"pg_restore --dbname=DATABASE {shell_path(target)} makes the log in another database.")
        else:
            output.show(f"Nothing is verified: gossiplog verify {shell_path(target)} checks the copy.")


def rebuild(
    path: LogPath,
    apply: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="The application's `apply`, to run it here.")
    ] = None,
    setup: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="The application's `setup`, which goes with it.")
    ] = None,
    apply_version: Annotated[int, typer.Option(min=1, help="The version of `apply`.")] = 1,
    json: Json = False,
) -> None:
    """Build an application's tables anew from all messages of a log.

    Without --apply, it only requests that: the application runs its `setup` and `apply` when it opens the log again,
    or before it next writes where it has the log open. A rebuild that is interrupted is continued by the next call,
    or by the application.
    """
    output = Output(json)
    if (apply is None) != (setup is None):
        missing = "--apply" if apply is None else "--setup"
        raise typer.BadParameter(f"{missing} is missing: --apply and --setup go together")
    if apply is None and apply_version != 1:
        raise typer.BadParameter("--apply-version is that of --apply, which is missing")
    functions = None
    if apply is not None and setup is not None:
        functions = load_object("--apply", apply)[1], load_object("--setup", setup)[1]
        try:
            application(functions[0], apply_version, functions[1])
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(str(error)) from error
    with open_log(path) as log, Stopwatch() as watch:
        messages = len(log)
        is_due = log.is_rebuilding or apply_version > log.apply_version
        # Without tables there is nothing to request.
        is_requested = functions is None and (is_due or replica_of(log).position().applied > 0)
        if is_requested and not is_due:
            log.rebuild()
    if functions is not None:
        with (
            Stopwatch() as watch,
            occasional("Rebuilding the tables") as advance,
            gossiplog.log.open(
                path.location,
                apply=functions[0],
                setup=_reporting(functions[1]),
                apply_version=apply_version,
                progress=advance,
            ) as log,
        ):
            # Where one is due, it has run as the log was opened.
            if not is_due:
                log.rebuild(progress=advance)
    if output.json:
        done = {"log": str(path), "messages": messages, "rebuilt": functions is not None, "requested": is_requested}
        output.record(done | {"seconds": round(watch.seconds, 6)})
    elif is_requested:
        output.show(f"The application builds its tables anew when it next opens or writes to {path}.")
    elif functions is not None:
        output.show(f"The application's tables are built anew from {counted(messages, 'message')}.")
    if functions is None and not is_requested:
        note(f"no `apply` has run over {path}, so that there are no tables to build anew: nothing is requested")
