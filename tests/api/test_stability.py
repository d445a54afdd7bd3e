"""What docs/stability.md lists is so."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import gossiplog
from gossiplog import errors
from gossiplog.cli.main import _COMMANDS
from gossiplog.net.http.metrics import HEALTH_PATHS
from tests.readme import DOCS, README

TEXT = (DOCS / "stability.md").read_text(encoding="utf-8")
PUBLIC, PROVISIONAL = TEXT.partition("## Provisional")[::2]
PROJECT = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def modules(part: str) -> set[str]:
    """The modules that are named in the first cells of tables."""
    cells = re.findall(r"^\| ([^|]*) \|", part, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(gossiplog(?:\.\w+)?)`", cell)}


def test_public_modules_have_pages_and_the_others_are_provisional() -> None:
    source = (Path(__file__).parent / "names.py").read_text(encoding="utf-8")
    declared = re.search(r"^MODULES = \((.*)\)$", source, re.MULTILINE)
    assert declared is not None
    with_pages = set(re.findall(r'"(.*?)"', declared[1]))
    assert modules(PUBLIC) == with_pages - {"gossiplog.lowlevel"}
    assert modules(PROVISIONAL) >= {"gossiplog.lowlevel", "gossiplog.core"}
    assert not modules(PUBLIC) & modules(PROVISIONAL)
    for name in modules(TEXT):
        importlib.import_module(name)


def test_provisional_commands_are_there() -> None:
    named = set(re.findall(r"`gossiplog ([\w-]+)`", PROVISIONAL.partition("## How")[0]))
    assert named
    assert named <= _COMMANDS.keys()


def test_errors_are_names_of_the_package_where_programs_meet_them() -> None:
    own = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    beyond = own - {*gossiplog.__all__}
    # Of Spark, of columns, of simulations and of commands.
    assert beyond == {
        *(
            "ColumnError",
            "EventsRefused",
            "LimitExceeded",
            "LogChanged",
            "OptionError",
            "ScenarioError",
            "SparkError",
            "ValuesRefused",
        )
    }


def test_health_checks_are_named() -> None:
    assert all(f"`{path}`" in TEXT for path in HEALTH_PATHS)


def test_versions_of_python() -> None:
    (version,) = re.findall(r"^- Python ([\d.]+) and newer", TEXT, re.MULTILINE)
    assert PROJECT["requires-python"] == f">={version}"
    assert f"Python {version}" in README.read_text(encoding="utf-8")


def test_uvicorn_is_held_to_one_minor_release() -> None:
    (line,) = (line for line in PROJECT["optional-dependencies"]["hub"] if line.startswith("uvicorn"))
    low, high = (tuple(map(int, version.split("."))) for version in re.findall(r"\d+\.\d+", line))
    assert (low[0], low[1] + 1) == high


def test_the_readme_links_here() -> None:
    text = README.read_text(encoding="utf-8")
    assert "docs/stability.md" in text
    assert "docs/reference/README.md" in text
