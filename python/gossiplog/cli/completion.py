"""`gossiplog completion`: scripts with which shells complete commands and options.

A script contains all names, so that no process is started to complete them. Other words are completed as files.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import typer

_BASH = """\
_gossiplog() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" at="" names="" index
    for (( index = 1; index < COMP_CWORD; index++ )); do
        case "$at ${{COMP_WORDS[index]}}" in
            {commands}) at="${{at:+$at }}${{COMP_WORDS[index]}}" ;;
        esac
    done
    case "$at:$word" in
{cases}
    esac
    COMPREPLY=( $(compgen -W "$names" -- "$word") )
}}
complete -o bashdefault -o default -F _gossiplog gossiplog
"""

_ZSH = """\
#compdef gossiplog
_gossiplog() {{
    local at="" index
    local -a names kind
    for (( index = 2; index < CURRENT; index++ )); do
        case "$at ${{words[index]}}" in
            {commands}) at="${{at:+$at }}${{words[index]}}" ;;
        esac
    done
    case "$at:${{words[CURRENT]}}" in
{cases}
    esac
    if (( ${{#names}} )); then
        # As options they would not be offered before a hyphen.
        [[ ${{words[CURRENT]}} == -* ]] && kind=(-o)
        _describe $kind gossiplog names
    else
        _files
    fi
}}
compdef _gossiplog gossiplog
"""

_FISH = """\
function __gossiplog_at
    set -l at ""
    for word in (commandline -opc)[2..-1]
        if contains -- (string trim -- "$at $word") {commands}
            set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv[1]"
end
{cases}
"""


@dataclass(frozen=True, slots=True)
class _Option:
    names: tuple[str, ...]
    help: str
    has_value: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """What may follow a command, a group or the program.

    Attributes:
        at: its name, with that of its group before it; "" for the program.
        commands: its commands, or other words, with their help.
        options: its options.
    """

    at: str
    commands: dict[str, str]
    options: list[_Option]


def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell to write the script for.")],
) -> None:
    """Write a script with which a shell completes the commands and options of gossiplog.

    For bash, add eval "$(gossiplog completion bash)" to ~/.bashrc; for zsh, eval "$(gossiplog completion zsh)" to
    ~/.zshrc, after compinit; for fish, run gossiplog completion fish > ~/.config/fish/completions/gossiplog.fish.
    """
    if shell not in _WRITERS:
        raise typer.BadParameter(f"there is no completion for {shell!r}: expected one of {', '.join(_WRITERS)}")
    typer.echo(_WRITERS[shell](list(_places(context.find_root().command, ""))), nl=False)


class _Command(Protocol):
    """The attributes of commands and groups that are used here: typer names no common type."""

    hidden: bool

    @property
    def params(self) -> Sequence[object]: ...

    def get_short_help_str(self, limit: int = ...) -> str: ...


def _places(command: _Command, at: str) -> Iterator[_Place]:
    """Yield a command, and the commands in it if it is a group."""
    within: Mapping[str, _Command] = command.commands if isinstance(command, typer.core.TyperGroup) else {}
    helps = {name: each.get_short_help_str(limit=100) for name, each in within.items() if not each.hidden}
    options = [
        _Option((*each.opts, *each.secondary_opts), each.help or "", not each.is_flag)
        for each in command.params
        if isinstance(each, typer.core.TyperOption) and not each.hidden
    ]
    options.append(_Option(("-h", "--help"), "Show this message and exit.", has_value=False))
    if at == "completion":
        yield _Place(at, {shell: f"Complete in {shell}." for shell in _WRITERS}, options)
    else:
        yield _Place(at, helps, options)
    for name in helps:
        yield from _places(within[name], f"{at} {name}".strip())


def _write_bash(places: list[_Place]) -> str:
    cases = []
    for place in places:
        options = " ".join(name for option in place.options for name in option.names)
        cases.append(f'        {_quoted(place.at)}:-*) names="{options}" ;;')
        if place.commands:
            cases.append(f'        {_quoted(place.at)}:*) names="{" ".join(place.commands)}" ;;')
    return _BASH.format(commands=_patterns(places), cases="\n".join(cases))


def _write_zsh(places: list[_Place]) -> str:
    cases = []
    for place in places:
        options = [(name, option.help) for option in place.options for name in option.names]
        cases.append(f"        {_quoted(place.at)}:-*) names=({_described(options)}) ;;")
        if place.commands:
            cases.append(f"        {_quoted(place.at)}:*) names=({_described(list(place.commands.items()))}) ;;")
    return _ZSH.format(commands=_patterns(places), cases="\n".join(cases))


def _described(names: list[tuple[str, str]]) -> str:
    return " ".join(shlex.quote(f"{name}:{help}") for name, help in names)


def _write_fish(places: list[_Place]) -> str:
    cases = []
    for place in places:
        start = f"complete -c gossiplog -n {_fish(f'__gossiplog_at {_fish(place.at)}')}"
        cases += [f"{start} -f -a {name} -d {_fish(help)}" for name, help in place.commands.items()]
        for option in place.options:
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
            value = " -r" if option.has_value else ""
            cases.append(f"{start} {' '.join(names)}{value} -d {_fish(option.help)}")
    return _FISH.format(commands=" ".join(map(_fish, _commands(places))), cases="\n".join(cases))


def _commands(places: list[_Place]) -> list[str]:
    return [place.at for place in places if place.at]


def _patterns(places: list[_Place]) -> str:
    """Return a pattern of all commands, each after its group and a space."""
    return "|".join(_quoted(at if " " in at else f" {at}") for at in _commands(places))


def _quoted(text: str) -> str:
    return f'"{text}"'


def _fish(text: str) -> str:
    # https://fishshell.com/docs/current/language.html#quotes
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WRITERS: dict[str, Callable[[list[_Place]], str]] = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
