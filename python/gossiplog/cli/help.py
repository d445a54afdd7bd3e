"""`gossiplog help`: the help of commands."""

from __future__ import annotations

from typing import Annotated

import typer


def show_help(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND...", help="The command, such as: pipeline read.")
    ] = None,
) -> None:
    """Show the help of a command, as its option --help does; without a command, list the commands."""
    root = context.find_root()
    with root.command.make_context(root.info_name, [*(command or []), "--help"]) as asked:
        root.command.invoke(asked)
