from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from gossiplog.cli.main import _command
from tests.cli.support import Program


@pytest.mark.parametrize("command", [[], ["read"], ["pipeline"], ["pipeline", "read"]], ids=" ".join)
def test_help_is_what_the_option_says(program: Program, command: list[str]) -> None:
    result = program("help", *command)
    assert (result.code, result.err) == (0, "")
    assert result == program(*command, "--help")
    assert f"Usage: gossiplog {' '.join(command)}".rstrip() in result.out


def test_help_of_what_there_is_not(program: Program) -> None:
    for command in (["frobnicate"], ["pipeline", "frobnicate"]):
        result = program("help", *command)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("gossiplog: No such command 'frobnicate'.")


def parameters() -> list[tuple[str, str]]:
    """All arguments and options of all commands, and what their help says."""
    found = []
    waiting: list[tuple[Any, str]] = [(_command(), "gossiplog")]
    while waiting:
        command, path = waiting.pop()
        found += [(f"{path} {each.name}", getattr(each, "help", None) or "") for each in command.params]
        if isinstance(command, typer.core.TyperGroup):
            waiting += [(each, f"{path} {name}") for name, each in command.commands.items()]
    return found


def test_the_help_of_every_parameter_is_a_sentence_by_itself() -> None:
    """It is read beside one name, not after the help of the option before it."""
    found = parameters()
    assert len(found) > 150
    fragment = re.compile(r"(?![A-Z`]).*|.*[^.]|(How many|Of|That|To|So|Over|At a|For|Whose|Their|Its)\b.*", re.DOTALL)
    assert [(name, text) for name, text in found if fragment.fullmatch(text)] == []
