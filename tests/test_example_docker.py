"""The compose files of examples/docker, as far as that goes without Docker: their commands run, on loopback."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossiplog
from gossiplog import Signer

FOLDER = Path(__file__).parent.parent / "examples" / "docker"
COMPOSE = sorted(FOLDER.glob("*.yaml"))
PATIENCE = 120


def services(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    return found


def test_there_is_a_file_for_each_topology() -> None:
    assert [path.stem for path in COMPOSE] == ["hub", "mesh", "mixed"]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_services_name_each_other(path: Path) -> None:
    found = services(path)
    for service in found.values():
        assert service.keys() <= {"image", "command", "ports", "depends_on", "restart"}
        named = re.findall(r"(?:ws://|/dns4/)([\w-]+)", " ".join(service["command"]))
        assert set(named) == set(service.get("depends_on", ()))
        assert set(named) <= found.keys()
        # What clients call a hub is a name that it lets them use.
        for name in re.findall(r"ws://([\w-]+)", " ".join(service["command"])):
            assert name in found[name]["command"]


def test_the_image_has_the_program() -> None:
    lines = (FOLDER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    steps = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert steps == ["FROM", "COPY", "RUN", "RUN", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT"]
    assert lines[-1] == 'ENTRYPOINT ["gossiplog"]'


def on_loopback(command: list[str], ports: dict[str, int]) -> list[str]:
    """A service's command, with the names and ports of this machine in place of those of containers."""
    words = []
    for word in command:
        word = re.sub(r"ws://([\w-]+):8000", lambda match: f"ws://127.0.0.1:{ports[match[1] + ' 8000']}", word)
        word = re.sub(r"/dns4/([\w-]+)/tcp/9000", lambda match: f"/ip4/127.0.0.1/tcp/{ports[match[1] + ' 9000']}", word)
        words.append(word)
    return words


@pytest.mark.integration
@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.stem)
def test_the_commands_of_a_file_are_a_network(path: Path, tmp_path: Path, unused_ports: Any) -> None:
    found = services(path)
    ports = {f"{name} {port}": unused_ports() for name in found for port in (8000, 9000)}
    with ExitStack() as stack:
        for name, service in found.items():
            folder = tmp_path / name
            folder.mkdir()
            command = [
                word.replace("0.0.0.0:8000", f"127.0.0.1:{ports[f'{name} 8000']}").replace(
                    "/ip4/0.0.0.0/tcp/9000", f"/ip4/127.0.0.1/tcp/{ports[f'{name} 9000']}"
                )
                for word in on_loopback(service["command"], ports)
            ]
            process = subprocess.Popen(
                [sys.executable, "-m", "gossiplog", *command],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        deadline = time.monotonic() + PATIENCE
        logs = {name: tmp_path / name / "log.db" for name in found}
        while not all(each.exists() for each in logs.values()):
            assert time.monotonic() < deadline, "not all services have made their logs"
            time.sleep(0.1)
        last = list(logs)[-1]
        with gossiplog.open(logs[last], "org.example.network") as log:
            log.append("hello", signer=Signer(bytes(32)))
        opened = [stack.enter_context(gossiplog.open(each, "org.example.network")) for each in logs.values()]
        while [len(log) for log in opened] != [1] * len(opened):
            assert time.monotonic() < deadline, "the message has not come to all logs"
            time.sleep(0.1)


@pytest.fixture
def unused_ports() -> Any:
    """Returns ports that were free a moment ago, each another."""
    import socket

    taken: set[int] = set()

    def find() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port not in taken:
                taken.add(port)
                return port

    return find
