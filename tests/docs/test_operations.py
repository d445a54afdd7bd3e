"""Every block of docs/operations.md runs, and its table has the kinds of lines that the sources write."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gossiplog import RefusedMessage, Signer
from gossiplog import open as open_log
from gossiplog.cli.main import main
from gossiplog.cli.serve import run as serve_run
from gossiplog.net.events import MOST_IN_EVENT
from tests.cli.support import Server
from tests.readme import DOCS, README, blocks, run_steps

PAGE = DOCS / "operations.md"
TIMEOUT = 120
PACKAGE = README.parent / "python" / "gossiplog" / "net"
# How a kind is given: to a RateLimitedLog, to a Telemetry, or to what drops a connection.
_KINDS = re.compile(r'(?:\.note\(|incident\([\w.()"]*,|incident\(\s*[\w.("]+\)\),|_drop\()\s*"([a-z_]+)"')


@pytest.mark.integration
def test_the_blocks(tmp_path: Path) -> None:
    for block in blocks(PAGE):
        match block.language:
            case "toml":
                name = block.text.splitlines()[0].removeprefix("# ")
                (tmp_path / name).write_text(block.text)
            case "console":
                run_steps(block, tmp_path, TIMEOUT)
            case "python":
                compile(block.text, str(PAGE), "exec")
            case language:
                assert language in ("yaml", "ini", "dockerfile")


def test_the_program_that_blocks_an_author(tmp_path: Path) -> None:
    (block,) = (block for block in blocks(PAGE) if block.language == "python")
    program: dict[str, Any] = {"__name__": "program"}
    # Without this module's `annotations`: as the program runs by itself.
    exec(compile(block.text, str(PAGE), "exec", dont_inherit=True), program)
    signer, other = Signer.generate(), Signer.generate()
    program["BLOCKED"].add(other.did)
    with open_log(tmp_path / "hub.db", "notes", apply=program["apply"], signer=signer) as log:
        log.append("mine")
        with pytest.raises(RefusedMessage, match="is blocked"):
            log.append("theirs", signer=other)
        assert [message.payload for message in log.messages()] == ["mine"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit(tmp_path: Path) -> None:
    (block,) = (block for block in blocks(PAGE) if block.language == "ini")
    unit = tmp_path / "gossiplog.service"
    # The program and the user are not on this machine.
    text = block.text.replace("/opt/gossiplog/bin/gossiplog", sys.executable).replace("=gossiplog\n", "=root\n", 2)
    unit.write_text(text)
    run = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert [line for line in run.stderr.splitlines() if "gossiplog.service" in line] == []


def test_the_commands_of_the_unit_and_of_the_container(tmp_path: Path) -> None:
    (unit,) = (block.text for block in blocks(PAGE) if block.language == "ini")
    (arguments,) = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)
    (tmp_path / "hub.toml").write_text('topic = "org.example.notes"\n')
    command = arguments.replace("/etc/gossiplog", str(tmp_path)).split()
    assert main([*command, "--show-config", "--json"]) == 0
    (container,) = (block.text for block in blocks(PAGE) if block.language == "dockerfile")
    (words,) = re.findall(r"^CMD (.*)$", container, re.MULTILINE)
    assert main([*json.loads(words), "--show-config", "--json"]) == 0


@pytest.mark.integration
def test_the_metrics_are_those_that_a_server_exports(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = page[page.index("| metric |") :].partition("\n\n")[0].splitlines()[2:]
    listed = {}
    for name, kind, labels in (row.split("|")[1:4] for row in rows):
        label, *values = re.findall(r"`(\w+)`", labels) or [None]
        listed[name.strip(" `")] = (kind.strip(), label, set(values))
    tls = README.parent / "rust" / "net" / "tests" / "tls"
    certificate = ("--certificate", tls / "localhost.pem", "--private-key", tls / "localhost.key")
    options = ("--topic", "notes", "--hub", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0/ws", "--metrics-port", "0")
    with Server(tmp_path / "hub.db", *options, *certificate) as server:
        text = urllib.request.urlopen(server.ready["metrics"]).read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        pairs = {
            pair for sample in family.samples for pair in sample.labels.items() if pair[0] not in ("le", "version")
        }
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        assert len(labels) <= 1
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, next(iter(labels), None), {value for _, value in pairs})
    assert found == listed


def test_the_events_are_those_of_the_sources() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = page[page.index("| `event` |") :].partition("\n\n")[0].splitlines()[2:]
    listed = {
        name: re.findall(r"`(\w+)`", row.split("|")[3])
        for row in rows
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    source = inspect.getsource(serve_run)
    assert set(re.findall(r'"event": "(\w+)"', source)) == set(listed)
    fields = {name for names in listed.values() for name in names}
    assert {name for name in fields if f'"{name}"' not in source} == set()


def test_the_events_name_as_many_refusals_as_the_table_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"`reason` of the first (\d+)|`reason`, of (\d+) at most", page) == [
        (str(MOST_IN_EVENT), ""),
        ("", str(MOST_IN_EVENT)),
    ]


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
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    rust = "".join(path.read_text(encoding="utf-8") for path in (README.parent / "rust" / "net" / "src").rglob("*.rs"))
    assert {kind for kind in named if f'"{kind}"' not in sources + rust} == set()
    assert set(_KINDS.findall(sources)) | set(re.findall(r'incident\("([a-z_]+)"', rust)) <= named
