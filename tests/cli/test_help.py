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


def commands() -> list[tuple[list[str], Any]]:
    """All commands and groups, each with the words that call it."""
    found: list[tuple[list[str], Any]] = []
    waiting: list[tuple[list[str], Any]] = [([], _command())]
    while waiting:
        words, command = waiting.pop()
        found.append((words, command))
        if isinstance(command, typer.core.TyperGroup):
            waiting += [([*words, name], each) for name, each in command.commands.items()]
    return found


def parameters() -> list[tuple[str, str]]:
    """All arguments and options of all commands, and what their help says."""
    return [
        (f"gossiplog {' '.join(words)} {each.name}", getattr(each, "help", None) or "")
        for words, command in commands()
        for each in command.params
    ]


def test_help_fits_into_80_columns(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut off, values and ranges are in words, and what is there may be typed as it is."""
    monkeypatch.setenv("COLUMNS", "80")
    for words, _ in commands():
        text = program(*words, "--help").out
        assert max(map(len, text.splitlines())) <= 80, words
        assert [
            line for line in text.splitlines() if re.search(r"<|>=|…$|[a-z]\.\.\.$", line) and "eval" not in line
        ] == []
        usage = text.split("\n\n")[0]
        assert re.fullmatch(
            r"Usage: gossiplog( [a-z-]+)* \[OPTIONS\]( [][A-Z.|]+| bash\|zsh\|fish)*", " ".join(usage.split())
        )


def test_the_help_of_every_parameter_is_a_sentence_by_itself() -> None:
    """It is read beside one name, not after the help of the option before it."""
    found = parameters()
    assert len(found) > 150
    fragment = re.compile(r"(?![A-Z`]).*|.*[^.]|(How many|Of|That|To|So|Over|At a|For|Whose|Their|Its)\b.*", re.DOTALL)
    assert [(name, text) for name, text in found if fragment.fullmatch(text)] == []


def test_options_and_arguments_say_what_they_take() -> None:
    """Their values have names in capitals, or are listed; switches have none."""
    for words, command in commands():
        for each in command.params:
            if isinstance(each, typer.core.TyperOption) and (each.is_flag or each.name == "help"):
                continue
            assert each.metavar, (words, each.name)
            assert re.fullmatch(r"\[?[A-Z][][A-Z:|=.,]*|[a-z0-9]+(\|[a-z0-9]+)+", each.metavar), (words, each.name)


def test_one_thing_has_one_word() -> None:
    """In help texts: what the field calls it, the same everywhere."""
    words = (
        "where it is to be made",
        "is there already",
        "standard in",
        "database",
        "director(y|ies)",
        "twin",
        "told of",
    )
    wrong = re.compile(rf"\b({'|'.join(words)})\b")
    assert [(name, text) for name, text in parameters() if wrong.search(text)] == []
