"""Spark's daemon of Python workers with what their tasks need, once, before it forks them.

It is `pyspark.daemon` otherwise: `python -m pyspark_gossiplog.daemon pyspark.worker`. A worker would import all of it
after the fork: most of a second of processor time, for each worker of each kind. Spark imports nothing before it forks,
lest there are threads. Those that Arrow's allocator and NumPy have are made for a fork, and the core has none before
its first call.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

_LIBRARY = ("python", "lib")


def compiled_first(path: Iterable[str]) -> list[str]:
    """Return a path of modules with PySpark's own archives of sources last, where the package is installed, too.

    Spark has them first. Each process would compile what it imports of them; of the package, Python has kept that.

    Args:
        path: as `sys.path`.
    """
    entries = list(path)
    archives = [entry for entry in entries if _is_archive_of_package(Path(entry), entries)]
    return [entry for entry in entries if entry not in archives] + archives


def _is_archive_of_package(entry: Path, path: list[str]) -> bool:
    """Return whether an entry is an archive in a package of PySpark that the path has: they are one release."""
    if entry.suffix != ".zip" or entry.parts[-3:-1] != _LIBRARY:
        return False
    package = entry.parents[2]
    return package.name == "pyspark" and str(package.parent) in path


def main(module: str) -> None:
    """Load what tasks need, and run Spark's daemon until Spark ends it.

    Args:
        module: that a worker runs.
    """
    sys.path[:] = compiled_first(sys.path)
    for name in ("pyarrow.compute", "gossiplog.spark", module):
        import_module(name)
    # A worker collects garbage after each task, and would look at every object of these modules.
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main(sys.argv[1])
