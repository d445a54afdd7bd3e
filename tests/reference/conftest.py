"""The tests of this folder that take `core` hold for both cores."""

import importlib
from types import ModuleType

import pytest


@pytest.fixture(params=["gossiplog._core", "gossiplog.reference"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)
