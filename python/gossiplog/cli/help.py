"""The help of commands, as plain text for terminals of 80 columns and more.

The tables that rich makes leave 16 of these columns for the sentences about the options of `gossiplog serve`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class Command(TyperCommand):
    """A command whose help names arguments and values in capitals, not by Python's types."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.metavar is None:
                parameter.metavar = _value(parameter)
            if isinstance(parameter, TyperOption) and parameter.multiple:
                parameter.help = f"{parameter.help} It may be given several times."

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command in its usage; brackets mark those that are optional."""
        arguments = [each for each in self.params if isinstance(each, TyperArgument)]
        return ["[OPTIONS]", *(name(each) if each.required else f"[{name(each)}]" for each in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            if isinstance(parameter, TyperArgument):
                arguments.append((name(parameter), _in_words(record[1])))
            else:
                options.append((record[0], _in_words(record[1])))
        for title, records in (("Arguments", arguments), ("Options", options)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """A group of commands whose help has the first paragraph of each in full."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the commands, and what each does."""
        with formatter.section("Commands"):
            formatter.write_dl([(each, _summary(command)) for each, command in self.commands.items()])


def name(argument: TyperArgument) -> str:
    """Return the name of an argument in help and usage."""
    return str(argument.metavar or argument.name.upper())


def _in_words(text: str) -> str:
    """Return help without typer's notation of ranges."""
    return re.sub(r"(\S+?)<=x<=(\S+?)(?=[];])", r"from \1 to \2", text).replace("x>=", "at least ")


def _value(option: TyperOption) -> str:
    """Return a word for the value of an option, or the values to choose from."""
    kind = option.type_descriptor
    if kind.is_choice:
        return "|".join(str(choice) for choice in kind.choices or ())
    if any(each in (int, float) for each in (kind.annotation, *get_args(kind.annotation))):
        return "NUMBER"
    return "FILE" if kind.is_path else option.name.upper()


def _summary(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


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
