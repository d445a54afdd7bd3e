"""`gossiplog rebase`: the way back for a log with messages that a hub or a peer refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from gossiplog.cli.keys import load_signer
from gossiplog.cli.logs import LogPath
from gossiplog.cli.output import Json, Output, Stopwatch, note, printable, steps_of
from gossiplog.cli.sync.command import CaFile, TokenFile, check_source
from gossiplog.errors import RebaseError
from gossiplog.log.rebasing import RebasedMessage, RebaseOutcome, rebase_command
from gossiplog.message import ID_LENGTH
from gossiplog.reprs import counted, listed
from gossiplog.signer import Signer, default_key_path
from gossiplog.storage.postgres.url import is_postgres_url

_ROWS = 100
"""Of the plan, shown on a terminal."""
_NAMED = 20
"""Messages that a line names."""


def rebase(
    path: LogPath,
    onto: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="The log to rebase onto: its file or postgresql:// URL, a hub's ws:// address, or a peer's multiaddr,"
            " /ip4/… or /dns4/….",
        ),
    ],
    drop: Annotated[list[str] | None, typer.Option(metavar="ID", help="Leave this message out.")] = None,
    drop_descendants: Annotated[
        bool,
        typer.Option(
            "--drop-descendants", help="Drop what other authors have written on top of dropped messages, too."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would become of each message, and change nothing.")
    ] = False,
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the old and the new id of each message that is signed anew, as JSON Lines."
        ),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Also sign the messages of the author whose key is in this file.",
        ),
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    json: Json = False,
) -> None:
    """Sign your messages that TARGET lacks anew on top of it, without some that it refuses.

    A hub or a peer that refuses a message takes nothing that descends from it. Sync names the message, and the command
    to run here. The new log takes the place of LOG in one step, and the former file is kept as LOG.generation-N. Close
    all programs that have LOG open first. Peers that hold the dropped messages bring them back when they sync with LOG.
    Of several copies of LOG rebase one, and replace the others by it: each rebase signs the messages once more.
    """
    # It takes half a second to load, which other commands should not wait for.
    from gossiplog.net import maintenance

    output = Output(json)
    target = check_source("--onto", onto, path, token_file=token_file, ca_file=ca_file)
    for id in drop or ():
        if len(id) != ID_LENGTH:
            raise typer.BadParameter(
                f"--drop takes the whole id, {ID_LENGTH} characters; gossiplog show"
                f" {path.argument} {shlex.quote(id)} prints it"
            )
    signers = [Signer.load(file) for file in key or ()]
    # Do not make a key of one's own where others are given.
    if not signers or default_key_path().exists():
        signers.append(load_signer(None))
    options = [part for file in key or () for part in ("--key", str(file))]
    options += _path_options(token_file=token_file, ca_file=ca_file)
    rows: list[RebasedMessage] = []
    with ExitStack() as stack:
        lines = None if mapping is None or dry_run else stack.enter_context(_MappingFile(mapping))

        def note_rebased(rebased: RebasedMessage) -> None:
            if dry_run and output.json:
                output.record(_fields(rebased))
            elif dry_run and len(rows) <= _ROWS:
                rows.append(rebased)
            if lines is not None and rebased.outcome is RebaseOutcome.SIGNED:
                lines.write(rebased)

        watch = stack.enter_context(Stopwatch())
        try:
            with steps_of(f"{path} ← {target}") as advance:
                result = maintenance.rebase(
                    path.location,
                    onto,
                    drop or (),
                    signer=signers,
                    drop_descendants=drop_descendants,
                    dry_run=dry_run,
                    token_file=token_file,
                    ca_file=ca_file,
                    on_rebased=note_rebased,
                    progress=advance,
                )
        except RebaseError as error:
            if not error.authors:
                raise
            options += [*_path_options(mapping=mapping), "--drop-descendants"]
            command = rebase_command(path.argument, target, drop or (), options)
            raise RebaseError(f"{error}. To drop these as well: {command}", error.ids, error.authors) from error
    summary = {
        "log": str(path),
        "onto": target,
        "signed": len(result.signed),
        "dropped": result.dropped,
        "kept": result.kept,
        "messages": result.messages,
        "generation": result.generation,
        "former": result.former,
        "tables": list(result.tables),
        "same_payload": len(result.same_payload),
        "dry_run": dry_run,
        "seconds": round(watch.seconds, 6),
    }
    if output.json:
        output.record(summary)
    else:
        _show(output, rows, summary)
    if result.former is not None and result.dropped:
        note("peers that hold the dropped messages bring them back when they sync with this log")
    if result.same_payload:
        # What a rebase has signed anew is left out by a second one.
        ids = [old if dry_run else result.signed[old] for old in result.same_payload]
        options += ["--drop-descendants"] if drop_descendants else []
        command = rebase_command(path.argument, target, [*(drop or () if dry_run else ()), *ids], options)
        note(_doubles(result.same_payload, target, command))
    if result.tables:
        shown = ", ".join(map(printable, result.tables))
        note(f"tables of an application stay in {result.former}: {shown}; its `apply` fills new ones at the next open")


def _path_options(**paths: Path | None) -> list[str]:
    return [part for name, path in paths.items() if path for part in (f"--{name.replace('_', '-')}", str(path))]


def _doubles(same_payload: Mapping[str, str], onto: str, command: str) -> str:
    """Return what to say of messages that the target may have been signed anew before."""
    pairs = [f"{old} (there {found})" for old, found in same_payload.items()]
    text = (
        f"{counted(len(same_payload), 'message')} signed anew with the author and the payload of a message that {onto}"
        f" has already: {listed(pairs, _NAMED)}. If this log is a copy of one that was rebased before, they would be"
        " there twice: before you sync,"
    )
    return f"{text} replace it by that log" if len(pairs) > _NAMED else f"{text} leave them out: {command}"


class _MappingFile:
    """A file of old and new ids, which is there in the end only if the rebase was done.

    Args:
        path: of the file, which must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> _MappingFile:
        self._file = self._path.open("x", encoding="utf-8", buffering=1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._file.close()
        if kind is not None:
            self._path.unlink(missing_ok=True)

    def write(self, rebased: RebasedMessage) -> None:
        """Write a line."""
        print(json.dumps({"old": rebased.old.id, "new": rebased.new}), file=self._file)


def _fields(rebased: RebasedMessage) -> dict[str, Any]:
    return {
        "outcome": rebased.outcome.value,
        "old": rebased.old.id,
        "new": rebased.new,
        "author": rebased.old.author,
        "parents": list(rebased.parents),
        "same_payload": rebased.same_payload,
    }


def _show(output: Output, rows: list[RebasedMessage], summary: dict[str, Any]) -> None:
    # Lines and no table, which would split ids to fit the terminal.
    width = max(len(outcome.value) for outcome in RebaseOutcome)
    for rebased in rows[:_ROWS]:
        output.show(f"{rebased.outcome.value:{width}}  {rebased.old.id}  {rebased.new or ''}".rstrip())
    if len(rows) > _ROWS:
        output.show("and more")
    would = "would be " if summary["dry_run"] else ""
    signed = counted(summary["signed"], "message")
    output.show(f"{signed} {would}signed anew, {summary['dropped']:,} {would}dropped, {summary['kept']:,} {would}kept.")
    if summary["former"]:
        former = "log" if is_postgres_url(summary["former"]) else "file"
        output.show(
            printable(
                f"{summary['log']} has {counted(summary['messages'], 'message')}, and is of generation"
                f" {summary['generation']}. The former {former} is {summary['former']}."
            )
        )
    elif not summary["dry_run"]:
        output.show(
            "Nothing has changed: no message is dropped, and what the target lacks of yours is on top of it already."
        )
