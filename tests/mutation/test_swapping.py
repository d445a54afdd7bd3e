"""Changed code in a running process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.swapping import swap

SOURCE = """
from dataclasses import dataclass

LIMIT = 1


def double(number, times=2):
    return number * times


@dataclass(slots=True)
class Point:
    x: int = 1

    @property
    def next(self):
        return self.x + 1

    @staticmethod
    def zero():
        return 0

    def adder(self):
        return lambda other: self.x + other
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "swapped.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("swapped", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("number * times", "number + times + 7", lambda module: module.double(1)),
        ("self.x + 1", "self.x + 9", lambda module: module.Point().next),
        ("return 0", "# a line more\n        return 10", lambda module: module.Point.zero()),
        ("self.x + other", "self.x + other + 5", lambda module: module.Point().adder()(4)),
    ],
)
def test_functions_are_replaced(module: ModuleType, old: str, new: str, value: Callable[[ModuleType], int]) -> None:
    assert value(module) < 10
    assert swap(module, SOURCE, SOURCE.replace(old, new))
    assert value(module) == 10


@pytest.mark.parametrize(
    ("old", "new"), [("LIMIT = 1", "LIMIT = 2"), ("x: int = 1", "x: int = 2"), ("times=2", "times=3")]
)
def test_what_a_module_does_when_it_is_imported_is_not(module: ModuleType, old: str, new: str) -> None:
    assert not swap(module, SOURCE, SOURCE.replace(old, new))
    assert (module.LIMIT, module.Point().x, module.double(1)) == (1, 1, 2)
