"""How each Python process begins that Spark starts in a local session of ours: with PySpark's compiled files first.

Spark starts its own daemons for what plans, reads and writes a source, and a process for each stream: it takes no name
of ours for these, as it does for `pyspark_gossiplog.daemon`. Each would compile what it imports of PySpark's archive.
The daemons load what the processes need that they fork, as ours does.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path


def _begin() -> None:
    # Another Python may lack this package: a program that a task runs has the same variables.
    with suppress(ImportError):
        sys.path[:] = import_module("pyspark_gossiplog.paths").compiled_first(sys.path)
    folder = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    # The user's own, or the system's, is hidden by this one.
    this = sys.modules.pop(__name__)
    try:
        import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = this
    match sys.orig_argv:
        case [*_, "-m", "pyspark.daemon", module]:
            with suppress(ImportError):
                import_module("pyspark_gossiplog.preloading").preload(module)


if __name__ == "sitecustomize":
    _begin()
