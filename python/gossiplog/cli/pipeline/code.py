"""Functions and types of the user's own, named on the command line as MODULE:NAME."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer


def load_object(option: str, text: str) -> Any:
    """Return what a module has under a name. Spark's workers get the module as it is here: they need not have its file.

    Args:
        option: that gives it, in errors.
        text: as MODULE:NAME; modules are looked for in the working folder, too.

    Raises:
        typer.BadParameter: no such module, or nothing of that name in it.
    """
    from pyspark import cloudpickle

    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{option} {text}: expected MODULE:NAME")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise typer.BadParameter(f"{option} {text}: {error}") from error
    if not hasattr(module, name):
        raise typer.BadParameter(f"{option} {text}: the module {module_name} has no {name}")
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return getattr(module, name)
