"""`gossiplog network`: what it says of networks that converge, and of those that do not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_type_hints
from urllib.request import Request, urlopen

import anyio
import pytest

import gossiplog
from gossiplog.cli.network import command
from gossiplog.dashboard import recording
from gossiplog.dashboard.events import MOST_RATE, Noted
from gossiplog.dashboard.state import NetworkState
from gossiplog.testnet.browsers import FOLDER_VARIABLE
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import MOST_PEERS, TOPOLOGIES
from tests.cli.support import Program
from tests.integration.javascript import FOLDER, install


@pytest.mark.integration
@pytest.mark.parametrize("topology", ["mesh", "hub", "mixed", "line", "ring"])
def test_a_network_that_converges(program: Program, topology: str, tmp_path: Path) -> None:
    found = program(
        *("network", "--peers", "3", "--topology", topology, "--offline-messages", "4", "--until-converged"),
        *("--messages", "5", "--rate", "100", "--folder", tmp_path),
    ).record
    assert found["converged"] is True
    assert found["messages"] == 17
    assert found["complete_peers"] == 3
    with gossiplog.open(tmp_path / "0.db") as log:
        assert found["roots"] == {log.root.hash.hex(): 3}
    assert 1 <= found["connections"]["least"] <= found["connections"]["most"] <= 2
    assert 0 < found["seconds_to_converge"] < found["seconds"]
    assert found["appended"]["messages"] == 5
    assert 0 < found["appended"]["latency_ms"]["p50"] <= found["appended"]["latency_ms"]["most"]
    assert ("seconds_to_connect" in found) == (topology == "mesh")
    assert ("graph" in found) == (topology == "mesh")
    assert found["times_connected"] >= 4


@pytest.mark.integration
def test_a_network_that_is_parted_and_heals(program: Program) -> None:
    found = program(
        *("network", "--peers", "4", "--topology", "line", "--offline-messages", "2", "--partition", "0.5"),
        *("--processes", "2", "--until-converged"),
    ).record
    assert (found["converged"], found["messages"], found["complete_peers"]) == (True, 8, 4)
    assert found["seconds_to_converge"] >= 0.5


@pytest.mark.integration
def test_a_network_whose_peers_come_and_go(program: Program) -> None:
    found = program(
        *("network", "--peers", "4", "--topology", "hub", "--auto-append", "20", "--churn", "2", "--seconds", "8")
    ).record
    assert found["messages"] > 20
    assert found["times_connected"] > 6


@pytest.mark.integration
def test_a_network_ends_with_ctrl_c(program: Program) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gossiplog", "network", "--peers", "2", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    workers: list[int] = []
    while len(workers) < 2:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        workers = [pid for pid in map(int, text.split()) if b"testnet.worker" in command_of(pid)]
        assert process.poll() is None
        time.sleep(0.02)
    # As a terminal does it: to all of the group.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")
    assert [pid for pid in workers if command_of(pid)] == []


@pytest.mark.integration
def test_browsers_end_with_a_network_that_is_killed(tmp_path: Path) -> None:
    install()
    process = subprocess.Popen(
        [sys.executable, "-m", "gossiplog", "network", "--topology", "hub", "--peers", "2", "--browsers", "1"],
        stdout=subprocess.DEVNULL,
        env=os.environ | {FOLDER_VARIABLE: str(FOLDER), "TMPDIR": str(tmp_path)},
    )
    running: list[int] = []
    # Made once Chromium stands, by a process that will be its parent for long. The path of the folder for temporary
    # files is too long for a socket in it, at which Chromium aborts.
    assert len(str(tmp_path)) > 60
    while not running or not any(tmp_path.glob("gossiplog-browser-*/Default")):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        running = [pid for pid in map(int, children) if b"--remote-debugging-pipe" in command_of(pid)]
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    while any(map(command_of, running)):
        time.sleep(0.05)


@pytest.mark.integration
def test_a_recording_ends_as_the_network_did(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    found = program(
        *("network", "--peers", "3", "--topology", "hub", "--offline-messages", "2", "--messages", "3"),
        *("--until-converged", "--record", path),
    ).record
    assert recording.check(path).title == "3 peers, a hub and its clients"
    state = NetworkState()
    for event in recording.read(path):
        state.apply(event)
    logs = state.snapshot()["peers"].values()
    assert {(log["messages"], log["root"]) for log in logs} == {(9, root) for root in found["roots"]}
    assert sorted(log["kind"] for log in logs) == ["client", "client", "hub"]


@pytest.mark.integration
def test_a_dashboard_shows_the_network_and_commands_it(program: Program) -> None:
    command = (*("network", "--peers", "3", "--topology", "line", "--offline-messages", "2"), "--dashboard", "--json")
    with subprocess.Popen(
        [sys.executable, "-m", "gossiplog", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["dashboard"]
        assert url.startswith("http://127.0.0.1:")
        about = json.loads(urlopen(f"{url}about").read())
        # The page counts the peers itself: more may join.
        assert about["title"] == "line of peers"
        assert "append" in about["commands"]

        with urlopen(f"{url}events") as stream:
            logs = logs_shown(stream)
            shown = next(found for found in logs if [count for count, _ in found.values()] == [6, 6, 6])
            request = Request(f"{url}api/append", json.dumps({"peer": next(iter(shown))}).encode())
            request.add_header("content-type", "application/json")
            assert urlopen(request).status == 204
            shown = next(found for found in logs if [count for count, _ in found.values()] == [7, 7, 7])
            assert len({root for _, root in shown.values()}) == 1
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        # It was to run until then: its report is the result.
        assert (process.returncode, errors) == (0, b"")
        assert json.loads(out)["messages"] == 7


def test_a_dashboard_whose_address_is_taken(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with recording.Recorder(path) as recorder:
        recorder.write([Noted(1.0, "one")])
    before = path.read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = program("network", "--peers", "2", "--topology", "hub", "--dashboard", place, "--record", path)
    assert done.code == 1
    assert done.err.startswith(f"gossiplog: cannot listen at {place}")
    assert "Traceback" not in done.err
    # The earlier recording stays until there is something to record.
    assert path.read_bytes() == before


@pytest.mark.parametrize("host", ["a b", "foo!bar", "ünï"])
def test_a_dashboard_at_what_is_no_host(program: Program, host: str) -> None:
    done = program("network", "--peers", "2", "--topology", "hub", "--seconds", "0", "--dashboard", f"{host}:0")
    assert done.code == 1
    assert done.err.startswith("gossiplog: cannot listen at ")
    assert "Traceback" not in done.err


def test_a_recording_replaces_recordings_alone(program: Program, tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"SQLite format 3\0")
    done = program("network", "--peers", "2", "--topology", "hub", "--record", tmp_path / "log.db")
    assert done.code == 1
    assert "log.db: the file there is no recording" in done.err
    assert (tmp_path / "log.db").read_bytes() == b"SQLite format 3\0"


def test_a_network_goes_on_where_its_recording_cannot(program: Program) -> None:
    done = program("network", "--peers", "2", "--topology", "hub", "--until-converged", "--record", "/dev/full")
    assert done.code == 1
    assert json.loads(done.out)["converged"]
    assert "the recording ends here, and the network goes on: /dev/full: No space left on device" in done.err


@pytest.mark.slow
def test_what_others_may_command_is_said(program: Program) -> None:
    done = program("network", "--peers", "2", "--topology", "hub", "--seconds", "0.1", "--dashboard", "0.0.0.0:0")
    assert done.code == 0
    assert "commands this network: there is no token" in done.err


def logs_shown(stream: Iterable[bytes]) -> Iterator[dict[str, tuple[int, str]]]:
    """The messages and the root of each peer's log, whenever a dashboard's stream has something new of them."""
    found: dict[str, tuple[int, str]] = {}
    for line in stream:
        if not line.startswith(b"data: "):
            continue
        data = json.loads(line.removeprefix(b"data: "))
        if isinstance(data, dict) and "peers" in data:
            found |= {name: (peer["messages"], peer["root"]) for name, peer in data["peers"].items()}
        else:
            events = data if isinstance(data, list) else data["events"]
            found |= {
                event["peer"]: (event["messages"], event["root"]) for event in events if event["event"] == "committed"
            }
        yield dict(found)


def command_of(pid: int) -> bytes:
    """What runs as a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.slow
def test_a_table_on_a_terminal(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    shown = program("network", "--peers", "3", "--offline-messages", "2", "--until-converged", "--messages", "1")
    assert shown.code == 0
    for text in ("3, as a mesh", "one on all peers", "after", "1 message, ", "without the bootstrap", "by bucket"):
        assert text in shown.out


def test_the_limits_of_options_are_those_of_what_they_set() -> None:
    """They are written twice: what says them first takes half a second to load."""
    numbers = {
        name: (annotation.__metadata__[0].min, annotation.__metadata__[0].max)
        for name, annotation in get_type_hints(command.network, include_extras=True).items()
        if hasattr(annotation, "__metadata__")
    }
    assert numbers["auto_append"] == numbers["churn"] == (0, MOST_RATE)
    assert numbers["peers"] == (2, MOST_PEERS)
    assert command._TOPOLOGIES == TOPOLOGIES


@pytest.mark.integration
def test_a_network_that_has_no_time_to_converge(program: Program) -> None:
    failed = program("network", "--peers", "3", "--offline-messages", "9", "--until-converged", "--seconds", "0")
    assert failed.code == 1
    assert "did not converge within 0 s: 0 of 3 logs have all 27 messages" in failed.err
    assert failed.record["converged"] is False
    assert len(failed.record["roots"]) == 3


@pytest.mark.integration
def test_peers_that_have_no_time_to_meet(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connected(network: LocalNetwork, least: int) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(LocalNetwork, "connected", connected)
    failed = program("network", "--peers", "3", "--until-converged", "--seconds", "1")
    assert failed.code == 1
    assert failed.record["converged"] is True
    assert "the logs are equal, but within 1 s not every peer was connected to 2 others" in failed.err


@pytest.mark.integration
def test_appends_that_have_no_time_to_arrive(program: Program) -> None:
    failed = program(
        *("network", "--peers", "2", "--until-converged", "--seconds", "1"),
        *("--messages", "1000", "--rate", "1"),
    )
    assert failed.code == 1
    assert failed.record["converged"] is False


def test_logs_that_are_there_are_left_alone(program: Program, tmp_path: Path) -> None:
    (tmp_path / "1.db").touch()
    failed = program("network", "--peers", "2", "--folder", tmp_path)
    assert failed.code == 1
    assert "1.db is there already: give a folder without logs" in failed.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--topology", "star"), "--topology is 'star': expected one of mesh, hub, mixed, line, ring"),
        (("--topology", "ring", "--peers", "2"), "a ring has 3 peers or more: two are a line"),
        (("--topology", "hub", "--router", "episub"), "a hub pushes messages to its clients, without a router"),
        (("--router", "pigeon"), "--router"),
        (("--messages", "1", "--churn", "1"), "--messages are measured on a network that is left alone"),
        (("--until-converged", "--auto-append", "1"), "may never converge"),
        (("--join-seconds", "inf"), "join within inf s"),
        (("--dashboard", "here"), "--dashboard: 'here' is no address: expected HOST:PORT"),
        (("--peers", "1"), "--peers"),
        (("--rate", "-1"), "--rate"),
    ],
)
def test_what_cannot_be_asked(program: Program, arguments: tuple[str, ...], reason: str) -> None:
    result = program("network", *arguments)
    assert result.code == 2
    assert reason in result.err
