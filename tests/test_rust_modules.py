"""Modules of the Rust crates import one way, never in a circle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

RUST = Path(__file__).parent.parent / "rust"
CRATES = ("core", "net", "python")


def sources(crate: str) -> dict[str, str]:
    """The text of each module by its path in the crate, without its tests and comments."""
    folder = RUST / crate / "src"
    found = {}
    for path in sorted(folder.rglob("*.rs")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts != ("lib",):
            text = path.read_text("utf-8").split("#[cfg(test)]\nmod tests")[0]
            found["::".join(parts[:-1] if parts[-1] == "mod" else parts)] = re.sub(r"//.*", "", text)
    return found


def paths(module: str, text: str) -> Iterator[str]:
    """The paths in the crate that a module names, each name of `use crate::a::{b, c::d}` by itself."""
    for found in re.finditer(r"\b(crate|super)::([\w:]+)(\{[^;]*?\})?", text):
        base = module.split("::")[:-1] if found[1] == "super" else []
        prefix = "::".join([*base, found[2].rstrip(":")])
        yield prefix
        if found[3] and found[2].endswith("::"):
            yield from (f"{prefix}::{name}" for name in re.findall(r"[{,]\s*(\w+(?:::\w+)*)", found[3]))
    for child in re.findall(r"\bmod (\w+);", text):
        if re.search(rf"\b{child}::", text):
            yield f"{module}::{child}"


def module_of(path: str, modules: Iterable[str]) -> str | None:
    """The module that a path is in: the longest that it begins with."""
    return max((module for module in modules if f"{path}::".startswith(f"{module}::")), key=len, default=None)


@pytest.mark.parametrize("crate", CRATES)
def test_modules_do_not_import_in_a_circle(crate: str) -> None:
    texts = sources(crate)
    graph: dict[str, set[str]] = {module: set() for module in texts}
    for module, text in texts.items():
        for found in (module_of(path, texts) for path in paths(module, text)):
            # A folder's modules have what its `mod.rs` defines, and it has them.
            if found is not None and not f"{module}::".startswith(f"{found}::"):
                graph[module].add(found)
    assert any(graph.values())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


def test_circles_are_found() -> None:
    text = "use crate::a::{B, c::D};\nuse super::e;\nmod f;\nuse f::G;"
    assert sorted(set(paths("mesh", text))) == ["a", "a::B", "a::c::D", "e", "mesh::f"]
    assert module_of("a::c::D", ["a", "a::c", "a::cd"]) == "a::c"
