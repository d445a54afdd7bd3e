"""The program `gossiplog`: its commands, its errors and its exit codes.

0    done; of `serve`: after Ctrl-C or SIGTERM, which end it
1    the command failed: one line on stderr says why
2    it was called wrongly
3    `sync`: the hub or the peer refuses messages of the log; one line on stderr says which, why, and what to run
129  SIGHUP, for instance from a closed terminal (128 + SIGHUP; not `serve`)
130  Ctrl-C (128 + SIGINT; not `serve`)
141  who read the output stopped reading, as `head` does (128 + SIGPIPE)
143  SIGTERM (128 + SIGTERM; not `serve`)

Ctrl-C, SIGHUP and SIGTERM all close connections and remove temporary files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Annotated

import typer

from gossiplog.cli import completion, demo, help, keys, logs, peers, simulate
from gossiplog.cli.bench.command import bench
from gossiplog.cli.dashboard import dashboard
from gossiplog.cli.doctor import doctor
from gossiplog.cli.graph import graph
from gossiplog.cli.help import Command, Group
from gossiplog.cli.import_git import import_git
from gossiplog.cli.messages.command import append, export, read, show
from gossiplog.cli.messages.import_values import import_values
from gossiplog.cli.network.command import NetworkCommand, network
from gossiplog.cli.output import failure, note, unwrapped
from gossiplog.cli.pipeline.command import app as pipeline
from gossiplog.cli.rebase import rebase
from gossiplog.cli.repair import repair
from gossiplog.cli.serve.command import serve
from gossiplog.cli.settings import SettingsCommand
from gossiplog.cli.sync.command import sync
from gossiplog.errors import GossipLogError, RefusedByPeer

FAILED = 1
REFUSED = 3
INTERRUPTED = 130
UNREAD = 141
# Commands that need all others.
_SHOWS_OTHERS = ("help", "completion")
# What typer's validator, pydantic, says of values, and what that means.
_VALIDATION = (
    (r"Input should be a valid integer(, unable to parse string as an integer)?", "expected a whole number"),
    (r"Input should be a valid number(, unable to parse string as a number)?", "expected a number"),
    (r"Input should be greater than or equal to (\S+)", r"expected \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"expected \1 or less"),
    (r"Value error, (.*) is not one of (.*)\.", r"\1 is not one of \2"),
)

app = typer.Typer(
    name="gossiplog",
    cls=Group,
    epilog="Results are JSON Lines when they are piped, or with --json. The exit status is 1 if a command fails, and 2"
    " if it is called wrongly.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        typer.echo(f"gossiplog {metadata.version('gossiplog')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A signed, append-only log that replicates between machines that do not trust each other."""  # noqa: D401 - it is the program's help text


app.command("init", cls=Command)(logs.init)
app.command("keygen", cls=Command)(keys.keygen)
app.command("append", cls=Command)(append)
app.command("read", cls=Command)(read)
app.command("show", cls=Command)(show)
app.command("graph", cls=Command)(graph)
app.command("info", cls=Command)(logs.info)
app.command("verify", cls=Command)(logs.verify)
app.command("doctor", cls=Command)(doctor)
app.command("repair", cls=Command)(repair)
app.command("recover", cls=Command)(logs.recover)
app.command("backup", cls=Command)(logs.backup)
app.command("rebuild", cls=Command)(logs.rebuild)
app.command("sync", cls=Command)(sync)
app.command("rebase", cls=Command)(rebase)
app.command("serve", cls=SettingsCommand)(serve)
app.command("peers", cls=Command)(peers.peers)
app.command("network", cls=NetworkCommand)(network)
app.command("dashboard", cls=Command)(dashboard)
app.command("simulate", cls=Command)(simulate.simulate)
app.command("export", cls=Command)(export)
app.command("import", cls=Command)(import_values)
app.command("import-git", cls=Command)(import_git)
app.add_typer(pipeline, name="pipeline")
app.command("demo", cls=Command)(demo.demo)
app.command("bench", cls=Command)(bench)
app.command("completion", cls=Command)(completion.completion)
app.command("help", cls=Command)(help.show_help)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: those of the command line, without the program's name; None takes the process's own.

    Returns:
        The exit code, as the module's text says.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not `app()`: it prints errors and exits in its own way.
        command = _command(given[0] if given else "")
        with command.make_context("gossiplog", given or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        place = getattr(error, "ctx", None)
        called = "gossiplog" if place is None else place.command_path
        note(f"{_plain(error.format_message())} ({called} --help says how to call it)")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except RuntimeError as error:
        # `Condition.wait` was interrupted before it had its lock again, which `with` then released in vain.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        return INTERRUPTED
    except BrokenPipeError:
        # What Python still holds would be written at exit, and fail again, aloud.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (GossipLogError, OSError) as error:
        note(failure(error))
        return REFUSED if isinstance(error, RefusedByPeer) else FAILED
    return 0


def _plain(text: str) -> str:
    """Return the message of an error of the command line without the words of typer's validator of values."""
    text = unwrapped(text)
    for pattern, words in _VALIDATION:
        text = re.sub(pattern, words, text)
    return text


@cache
def _command(name: str = "") -> typer.core.TyperGroup:
    """Build the program with the command of a name, or with all where none has it or it shows others.

    All take 40 ms, longer than most of them; each is built once a process, since tests call `main` by the thousand.
    """
    if not name:
        return typer.main.get_group(app)
    chosen = copy(app)
    chosen.registered_commands = [each for each in app.registered_commands if each.name == name]
    chosen.registered_groups = [each for each in app.registered_groups if each.name == name]
    if name in _SHOWS_OTHERS or not (chosen.registered_commands or chosen.registered_groups):
        return _command()
    return typer.main.get_group(chosen)
