"""The package's modules import one way: from those above them in this list, never from those below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "python" / "gossiplog"

# CONTRIBUTING.md, "Layout". What shares a line knows nothing of the others in it.
LAYERS = (
    ("errors",),
    ("files", "reprs"),
    ("charts",),
    ("_core", "reference"),
    ("core",),
    ("columns",),
    ("message",),
    ("signer",),
    ("protocol",),
    ("replication",),
    ("pubsub",),
    ("storage",),
    ("log",),
    ("net",),
    ("__init__",),
    ("sim",),
    ("spark",),
    ("bench",),
    ("cli",),
    ("__main__",),
)
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
MODULES = sorted(path for suffix in ("py", "pyi") for path in PACKAGE.rglob(f"*.{suffix}"))


def part_of(path: Path) -> str:
    """The layer's part that a source file belongs to: its top-level module or package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".pyi").removesuffix(".py")


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the part of every import of our own, wherever it stands: no cycle hides in a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module="gossiplog", level=0, names=names):
                modules = [f"gossiplog.{alias.name}" for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case ast.ImportFrom(level=level):
                pytest.fail(f"{path}:{node.lineno}: a relative import, {level} up")
            case _:
                continue
        for module in modules:
            package, _, rest = module.partition(".")
            if package == "gossiplog":
                part = rest.partition(".")[0]
                # `from gossiplog import open`: the package's own names, which its __init__ gathers.
                yield node.lineno, part if part in RANKS else "__init__"


def test_every_module_has_its_place() -> None:
    assert len(MODULES) > 20
    assert {part_of(path) for path in MODULES} <= RANKS.keys()


def test_imports_go_one_way() -> None:
    imports = [(path, line, part) for path in MODULES for line, part in imported_parts(path)]
    assert len(imports) > 50
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {part}"
        for path, line, part in imports
        if part != part_of(path) and RANKS[part] >= RANKS[part_of(path)]
    ]
    assert wrong == []
