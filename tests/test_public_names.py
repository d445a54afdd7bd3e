"""What public signatures name can be imported from `gossiplog`, `gossiplog.core`, `.errors` or `.lowlevel`."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gossiplog
from gossiplog import core, errors, lowlevel
from tests.api.kinds import LOW_LEVEL, MADE_BY_USERS

PUBLIC = {*gossiplog.__all__, *core.__all__, *lowlevel.__all__} | {
    name for name in vars(errors) if not name.startswith("_")
}
CLASSES = sorted(name for name in gossiplog.__all__ if inspect.isclass(getattr(gossiplog, name)))
FUNCTIONS = sorted(name for name in gossiplog.__all__ if inspect.isfunction(getattr(gossiplog, name)))


@functools.cache
def own_names(module: ModuleType) -> dict[str, str]:
    """The names that a module has of this package, with the modules that they come from."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(source), names=names) if source.partition(".")[0] == "gossiplog":
                found |= {alias.asname or alias.name: source for alias in names}
            case ast.ClassDef(name=name):
                found[name] = module.__name__
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                found[name] = module.__name__
    return found


def annotations(value: object) -> Iterator[str]:
    """The annotations of what a function takes and returns, or of a class's attributes, as text."""
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(value) if callable(value) else value
    yield from (text for text in getattr(value, "__annotations__", {}).values() if isinstance(text, str))


def public_parts(kind: type) -> Iterator[tuple[str, object]]:
    """A class, its constructor, and its public methods and properties, those of its bases in this package included."""
    for base in kind.__mro__:
        if base.__module__.startswith("gossiplog") and base.__module__ != "gossiplog._core":
            yield base.__name__, base
            for name, value in vars(base).items():
                is_public = not name.startswith("_") and kind.__name__ not in LOW_LEVEL
                if is_public or (name == "__init__" and kind.__name__ in MADE_BY_USERS):
                    yield f"{base.__name__}.{name}", getattr(value, "__func__", value)


def strangers(value: object, module: ModuleType) -> set[str]:
    """The names of this package in the annotations of something that nobody can import."""
    found = set()
    for text in annotations(value):
        tree = ast.parse(text, mode="eval")
        qualified = {
            node.value.id: node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in own_names(module):
                is_variable = isinstance(getattr(module, node.id, None), typing.TypeVar)
                name = qualified.get(node.id, node.id)
                if name not in PUBLIC and not is_variable:
                    found.add(name)
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_what_classes_take_and_return(name: str) -> None:
    kind = getattr(gossiplog, name)
    wrong = {}
    for part, value in public_parts(kind):
        owner = next(base for base in kind.__mro__ if base.__name__ == part.partition(".")[0])
        if found := strangers(value, importlib.import_module(owner.__module__)):
            wrong[part] = found
    assert wrong == {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_functions_take_and_return(name: str) -> None:
    function = getattr(gossiplog, name)
    assert strangers(function, importlib.import_module(function.__module__)) == set()


@functools.cache
def aliases(module: ModuleType) -> dict[str, ast.expr]:
    """The aliases of types that a module defines, with what they stand for."""
    found = {}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"), value=ast.expr() as value
            ):
                found[name] = value
    return found


def aliased(name: str, module: ModuleType = gossiplog) -> tuple[ast.expr, ModuleType] | None:
    """What a name stands for, and the module that says so; None if it is no alias of types."""
    if not str(module.__file__).endswith(".py"):
        return None
    if name in aliases(module):
        return aliases(module)[name], module
    source = own_names(module).get(name)
    return None if source in (None, module.__name__) else aliased(name, importlib.import_module(source))


ALIASES = sorted(name for name in gossiplog.__all__ if aliased(name) is not None)


def test_the_aliases_are_found() -> None:
    assert {"Address", "Apply", "Event", "Location", "Progress", "RouterName", "Tokens"} <= {*ALIASES, *CLASSES}
    assert {"Event", "Location", "Progress"} <= {*ALIASES}


@pytest.mark.parametrize("name", ALIASES)
def test_what_aliases_stand_for(name: str) -> None:
    found = aliased(name)
    assert found is not None
    value, module = found
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in own_names(module)}
    unknown = {each for each in names if not isinstance(getattr(module, each, None), typing.TypeVar)}
    assert unknown - PUBLIC == set()
