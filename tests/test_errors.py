from __future__ import annotations

import array
import ast
import builtins
import datetime
import decimal
import fractions
import inspect
import math
import pathlib
import pickle
import re
import textwrap
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gossiplog
import gossiplog.types
from gossiplog import core, errors, reference
from gossiplog.errors import CorruptLog, CorruptSource, EncodeError, LogReplaced, LogWentBack
from gossiplog.reprs import shell_path

CORES = pytest.mark.parametrize("implementation", [core, reference], ids=["core", "reference"])
DATE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
VALUES: list[Any] = [
    float("nan"),
    float("-inf"),
    2**64,
    -(2**64) - 1,
    DATE,
    DATE.date(),
    DATE.time(),
    datetime.timedelta(1),
    pd.Timestamp(DATE),
    decimal.Decimal("1.5"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=1),
    pathlib.PurePosixPath("/tmp"),
    {1, 2},
    frozenset("a"),
    range(3),
    (number for number in range(3)),
    deque([1]),
    {"a": 1}.keys(),
    map(str, [1]),
    array.array("i", [1]),
    np.array([1.5]),
    np.int64(1),
    np.float32(1),
    np.bool(True),
    1j,
    pd.Series([1]),
    pd.DataFrame({"a": [1]}),
]


def refusal(implementation: ModuleType, value: Any) -> str:
    with pytest.raises(EncodeError) as caught:
        implementation.cbor_encode({"outer": [value]})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def advice(text: str) -> str:
    return text.partition("; in its place write ")[2]


@CORES
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_to_write_in_place_of_a_value_can_be_written(implementation: ModuleType, value: Any) -> None:
    text = refusal(implementation, value)
    assert text.startswith("$.outer[0]: ")
    replacement = advice(text).removeprefix("None, or ")
    assert implementation.cbor_encode(eval(replacement, {"value": value}))


@CORES
@pytest.mark.parametrize("key", [1, None, 1.5, True, b"\1", DATE, (1, 2)], ids=repr)
def test_what_to_write_in_place_of_a_key_can_be_written(implementation: ModuleType, key: Any) -> None:
    replacement = advice(refusal(implementation, {key: 1}))
    expression = replacement.removeprefix("a list of [key, value] for the map, or ").removesuffix(" for the key")
    assert isinstance(eval(expression, {"key": key}), str)


@CORES
@pytest.mark.parametrize(
    "value",
    [object(), "\ud800", {"__proto__": 1}, {": a value of type set": "\ud800"}, {": nan is no": "\ud800"}],
    ids=["object", "surrogate", "__proto__", "key like a type", "key like a number"],
)
def test_there_is_no_advice_where_none_fits(implementation: ModuleType, value: Any) -> None:
    assert "in its place" not in refusal(implementation, value)


@CORES
@pytest.mark.parametrize(
    ("value", "expected"),
    [({1, 2}, "sorted(value)"), (2**64, "str(value)"), (math.nan, "None, or str(value)"), ("\ud800", "")],
    ids=["set", "integer", "nan", "surrogate"],
)
def test_advice_is_about_the_value_and_not_its_place(implementation: ModuleType, value: Any, expected: str) -> None:
    parts = (
        "a map key of type int: expected str",
        "a value of type date, which is not in the data model",
        "inf is no number that other peers accept",
        "an integer outside -2^64 to 2^64-1",
    )
    for part in parts:
        assert advice(refusal(implementation, {f"x: {part}": value})) == expected


def test_advice_is_given_once() -> None:
    text = refusal(core, DATE)
    assert str(EncodeError(f"payload 1 of 2, from 0: {text}")) == f"payload 1 of 2, from 0: {text}"


def test_damage_names_the_file_in_its_commands_alone() -> None:
    damage = CorruptLog(["LOG is {}"])
    for _ in range(2):
        damage._locate(shell_path("a LOG's {}.db"))
        assert str(damage) == (
            "the log is damaged: LOG is {}; `gossiplog repair 'a LOG'\"'\"'s {}.db' --from SOURCE` repairs it from a"
            " replica, `gossiplog doctor 'a LOG'\"'\"'s {}.db'` says more"
        )
        assert str(damage).endswith(damage.advice)


def test_damage_is_located_where_the_log_is_in_a_file_and_the_advice_is_not_its_own() -> None:
    for damage in (CorruptLog(["a"], advice="; LOG"), CorruptSource(["a"])):
        before = str(damage)
        damage._locate("log.db")
        assert str(damage) == before
    damage = CorruptLog(["a"])
    damage._locate("")
    assert "gossiplog doctor LOG" in str(damage)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (97, "has gone back: it has 97 messages, and this program has seen 1,000. A backup"),
        (1002, "it has 1,002 messages, and this program has seen 1,000, not all of which are among them. A backup"),
    ],
)
def test_a_log_that_went_back(found: int, words: str) -> None:
    error = LogWentBack(found, 1000)
    assert words in str(error)
    # Nothing is to be repaired.
    error._locate("log.db")
    assert "gossiplog repair" not in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.found, copy.known, str(copy)) == (found, 1000, str(error))


def test_a_log_that_was_replaced() -> None:
    error = LogReplaced()
    error._locate("log.db")
    assert str(error) == (
        "the log that was opened is not there any more: another program has rebased, repaired or replaced it: open it"
        " again"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# Between modules of the package, or in its tests and simulations: no caller of a public name meets them.
SIGNALS = {"BrokenInvariant", "JavaScriptError", "SequencesTaken", "TooManyProblems"}


def package_exceptions() -> dict[str, set[str]]:
    """The names of all classes of exceptions in the package, and those of their bases."""
    classes: dict[str, set[str]] = {}
    for path in Path(gossiplog.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {"GossipLogError", "Exception"}
    while more := {name for name, bases in classes.items() if name not in found and bases & found}:
        found |= more
    return {name: classes[name] for name in found - {"Exception"}}


@pytest.mark.slow
def test_names_and_bases_of_errors() -> None:
    """The rule at the head of `gossiplog.errors`."""
    classes = package_exceptions()
    assert {"CorruptLog", "StorageError", "Overloaded", "GitError"} <= set(classes)
    for name, bases in classes.items():
        if "Exception" in bases:
            assert name == "GossipLogError" or name in SIGNALS or name.startswith("_"), f"{name} derives from no error"
        elif name.endswith("Error"):
            assert "GossipLogError" in bases, f"{name} covers an area: it derives from GossipLogError"
        # Private ones are not for programs to catch.
        for base in bases & set(classes) - {"GossipLogError"}:
            assert not name.endswith("Error"), f"{name} is a condition of {base}: without Error"


def public_functions() -> Iterator[tuple[str, Any, str]]:
    """Names, functions, and their docstrings, with that of the class, or of a base where they have none."""
    for module in (gossiplog, gossiplog.types):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield name, value, value.__doc__ or ""
            elif inspect.isclass(value) and value.__module__.startswith("gossiplog"):
                is_called = "Made by" not in (value.__doc__ or "") and " makes it" not in (value.__doc__ or "")
                for part, member in vars(value).items():
                    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                    is_own = str(getattr(function, "__module__", "")).startswith("gossiplog")
                    if (
                        inspect.isfunction(function)
                        and is_own
                        and (part[0] != "_" or (part == "__init__" and is_called))
                    ):
                        inherited = inspect.getdoc(getattr(value, part))
                        yield f"{name}.{part}", function, f"{function.__doc__ or inherited}\n{value.__doc__}"


def raised_by(function: Any) -> set[str]:
    """The classes of exceptions that a function raises itself."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:
        # Made by dataclasses.
        return set()
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    names = {ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in raised}
    return {name for name in names if exception(name) is not None}


def exception(name: str) -> type[BaseException] | None:
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def documented(text: str) -> set[str]:
    """The classes of exceptions in the section `Raises` of a docstring."""
    section = re.search(r"^Raises:(.*?)(?=^\w+:|\Z)", inspect.cleandoc(text), re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\b[A-Z]\w+\b(?=[\w, ]*:)", section[1])) if section else set()


def test_docstrings_name_the_errors_that_are_raised() -> None:
    """A base will do, and storage fails wherever a log is read: its class says so."""
    wrong: list[str] = []
    count = 0
    for name, function, text in public_functions():
        for raised in raised_by(function):
            bases = {
                base.__name__ for base in (exception(raised) or Exception).__mro__ if base not in Exception.__mro__
            }
            if not any(re.search(rf"\b{base}\b", text) for base in bases):
                wrong.append(f"{name} raises {raised}")
            count += 1
        for written in documented(function.__doc__ or ""):
            kind = exception(written)
            if kind is None and re.search(rf"^ *{written}: ", function.__doc__ or "", re.MULTILINE):
                wrong.append(f"{name} says that it raises {written}")
    assert wrong == []
    assert count > 20
