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

import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from gossiplog.cli.help import Command, Group
from gossiplog.cli.output import failure, note, unwrapped
from gossiplog.errors import GossipLogError, RefusedByPeer

FAILED = 1
REFUSED = 3
INTERRUPTED = 130
UNREAD = 141
# Where each command is, below gossiplog.cli. A module is imported when its command is called, or is shown among others:
# to import all takes longer than most commands.
_COMMANDS = {
    "init": "logs:init",
    "keygen": "keys:keygen",
    "append": "messages.command:append",
    "read": "messages.command:read",
    "show": "messages.command:show",
    "graph": "graph:graph",
    "info": "logs:info",
    "verify": "logs:verify",
    "doctor": "doctor:doctor",
    "repair": "repair:repair",
    "recover": "logs:recover",
    "backup": "logs:backup",
    "rebuild": "logs:rebuild",
    "sync": "sync.command:sync",
    "rebase": "rebase:rebase",
    "serve": "serve.command:serve",
    "peers": "peers:peers",
    "network": "network.command:network",
    "dashboard": "dashboard:dashboard",
    "simulate": "simulate:simulate",
    "export": "messages.command:export",
    "import": "messages.import_values:import_values",
    "import-git": "import_git:import_git",
    "demo": "demo:demo",
    "bench": "bench.command:bench",
    "completion": "completion:completion",
    "help": "help:show_help",
    "pipeline": "pipeline.command:app",
}
# Those with a class of their own, which is beside them or in the settings.
_CLASSES = {"serve": "settings:SettingsCommand", "network": "network.command:NetworkCommand"}
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


def _show_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        typer.echo(f"gossiplog {metadata.version('gossiplog')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A signed, append-only log that replicates between machines that do not trust each other."""  # noqa: D401 - it is the program's help text


def build(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """Return the program with some of its commands, by default all."""
    app = typer.Typer(
        name="gossiplog",
        cls=Group,
        epilog="Results are JSON Lines when they are piped, or with --json. The exit status is 1 if a command fails,"
        " and 2 if it is called wrongly.",
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in names:
        found = _imported(_COMMANDS[name])
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, cls=_imported(_CLASSES[name]) if name in _CLASSES else Command)(found)
    return app


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"gossiplog.cli.{module}"), name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: those of the command line, without the program's name; None takes the process's own.

    Returns:
        The exit code, as the module's text says.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not any("postgres" in each.lower() or ":/" in each for each in given):
        return _run(given, lambda text: text)
    from gossiplog.cli.places import warning_of, without_secrets

    if warning := warning_of(given):
        note(warning)
    return _run(given, lambda text: without_secrets(text, given))


def _run(given: Sequence[str], shown: Callable[[str], str]) -> int:
    """Run a command.

    Args:
        given: the arguments.
        shown: takes the secrets among them out of a message.
    """
    try:
        # Not `app()`: it prints errors and exits in its own way.
        command = _command(given[0] if given else "")
        # `gossiplog.__main__` has switched collection off while commands are loaded.
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        code = 0
        try:
            with command.make_context("gossiplog", [*given] or ["--help"]) as context:
                command.invoke(context)
        except typer.Exit as end:
            code = end.exit_code
        sys.stdout.flush()
        return code
    except typer.TyperException as error:
        place = getattr(error, "ctx", None)
        called = "gossiplog" if place is None else place.command_path
        note(f"{shown(_plain(error.format_message()))} ({called} --help says how to call it)")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except RuntimeError as error:
        # `Condition.wait` was interrupted before it had its lock again, which `with` then released in vain.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        return INTERRUPTED
    except BrokenPipeError:
        return UNREAD
    except (GossipLogError, OSError) as error:
        note(shown(failure(error)))
        return REFUSED if isinstance(error, RefusedByPeer) else FAILED
    finally:
        _end_output()


def _end_output() -> None:
    """Write what Python still buffers, or discard it: at exit writing it would fail again, with a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(text: str) -> str:
    """Return the message of an error of the command line without the words of typer's validator of values."""
    text = unwrapped(text)
    for pattern, words in _VALIDATION:
        text = re.sub(pattern, words, text)
    return text


@cache
def _command(name: str = "") -> typer.core.TyperGroup:
    """Build the program with the command of a name, or with all where none has it or it shows others.

    Each is built once a process, since tests call `main` by the thousand.
    """
    if not name:
        return typer.main.get_group(build())
    if name in _SHOWS_OTHERS or name not in _COMMANDS:
        return _command()
    return typer.main.get_group(build([name]))
