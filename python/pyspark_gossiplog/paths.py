"""Where Spark's processes of Python import PySpark from."""

from __future__ import annotations

from collections.abc import Iterable
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
    # Spark and Python may name the folder differently, where a link leads to it.
    site_packages = package.parent.resolve()
    return package.name == "pyspark" and any(Path(folder).resolve() == site_packages for folder in path)
