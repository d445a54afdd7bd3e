"""Every block of docs/operations.md runs, and its table has the kinds of lines that the sources write."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gossiplog.cli.main import main
from tests.readme import DOCS, README, blocks, fits, run_command, steps

PAGE = DOCS / "operations.md"
TIMEOUT = 120
PACKAGE = README.parent / "python" / "gossiplog" / "net"
# How a kind is given: to an Incidents, to a Record, or to what drops a connection.
_KINDS = re.compile(r'(?:\.note\(|incident\([\w.()"]*,|incident\(\s*[\w.("]+\)\),|_drop\()\s*"([a-z_]+)"')


def test_the_blocks(tmp_path: Path) -> None:
    for block in blocks(PAGE):
        match block.language:
            case "toml":
                name = block.text.splitlines()[0].removeprefix("# ")
                (tmp_path / name).write_text(block.text)
            case "console":
                for command, expected in steps(block):
                    assert fits(expected, run_command(command, tmp_path, TIMEOUT)), command
            case language:
                assert language == "yaml"


def test_the_pod(tmp_path: Path) -> None:
    (block,) = (block for block in blocks(PAGE) if block.language == "yaml")
    pod = yaml.safe_load(block.text)
    (container,) = pod["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for mount in mounts:
        (tmp_path / mount[1:]).mkdir()
    arguments = [f"{tmp_path}{text}" if text.startswith("/") else text for text in container["args"]]
    assert {f"/{text.split('/')[1]}" for text in container["args"] if text.startswith("/")} == mounts
    assert main([*arguments, "--show-config", "--json"]) == 0
    ports = {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")}
    assert ports == {8000}


def test_the_kinds_of_lines_are_those_of_the_sources() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("| kind |") :].partition("\n\n")[0]
    named = {kind for row in table.splitlines()[2:] for kind in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py"))
    rust = "".join(path.read_text(encoding="utf-8") for path in (README.parent / "rust" / "net" / "src").rglob("*.rs"))
    assert {kind for kind in named if f'"{kind}"' not in sources + rust} == set()
    assert set(_KINDS.findall(sources)) | set(re.findall(r'incident\("([a-z_]+)"', rust)) <= named
