"""`gossiplog help`: what a command is for and how it is called."""

from __future__ import annotations

from typing import Annotated

import typer


def show_help(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The command, as in: pipeline read.")
    ] = None,
) -> None:
    """Show how a command is called, as its option --help does; without one, list the commands."""
    root = context.find_root()
    with root.command.make_context(root.info_name, [*(command or []), "--help"]) as asked:
        root.command.invoke(asked)
