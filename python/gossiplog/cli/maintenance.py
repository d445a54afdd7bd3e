"""What a log needs from time to time: `gossiplog backup`, `gossiplog rebuild`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import gossiplog.log
from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import Json, Output, Stopwatch, occasional
from gossiplog.reprs import counted


def load_object(option: str, text: str) -> Any:
    """Return what a module has under a name.

    Args:
        option: that gives it, in errors.
        text: as MODULE:NAME; modules are looked for in the working folder, too.

    Raises:
        typer.BadParameter: no such module, or nothing of that name in it.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{option} {text}: expected MODULE:NAME")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise typer.BadParameter(f"{option} {text}: {error}") from error
    if not hasattr(module, name):
        raise typer.BadParameter(f"{option} {text}: the module {module_name} has no {name}")
    return getattr(module, name)


def backup(
    path: LogPath,
    target: Annotated[Path, typer.Argument(metavar="TO", help="The file of the copy, which must not exist.")],
    json: Json = False,
) -> None:
    """Copy a log to a new file, with the application's tables, while programs write to it."""
    output = Output(json)
    with open_log(path, unlocked=True) as log, Stopwatch() as watch, occasional("Copying") as advance:
        messages = log.backup(target, advance)
    size = target.stat().st_size
    if output.json:
        fields = {"log": str(path), "backup": str(target), "messages": messages, "bytes": size}
        output.record(fields | {"seconds": round(watch.seconds, 6)})
    else:
        output.show(f"{target} is a copy of {path}: {counted(messages, 'message')}, {size:,} bytes.")


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
        functions = load_object("--apply", apply), load_object("--setup", setup)
    with open_log(path) as log, Stopwatch() as watch:
        messages = len(log)
        is_due = log.is_rebuilding or apply_version > log.apply_version
        if functions is None and not is_due:
            log.rebuild()
    if functions is not None:
        with (
            Stopwatch() as watch,
            occasional("Rebuilding the tables") as advance,
            gossiplog.log.open(
                path, apply=functions[0], setup=functions[1], apply_version=apply_version, progress=advance
            ) as log,
        ):
            # Where one is due, it has run as the log was opened.
            if not is_due:
                log.rebuild(advance)
    if output.json:
        done = {"log": str(path), "messages": messages, "rebuilt": functions is not None}
        output.record(done | {"seconds": round(watch.seconds, 6)})
    elif functions is None:
        output.show(f"The application builds its tables anew when it next opens or writes to {path}.")
    else:
        output.show(f"The application's tables are built anew from {counted(messages, 'message')}.")
