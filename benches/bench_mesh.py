"""Meshes of real peers on loopback, all in one process, beside bare gossipsub of rust-libp2p between as many nodes.

A latency is the time from the call of `append`, or of publishing, until a peer is notified of the message: ours is
verified and stored at each peer that it passes, the floor's is passed on as it is.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import data
import pytest
from conftest import ROOT, Results
from network import Process

import gossiplog
from gossiplog.cli.bench.stage import ROUNDS, Logs, Result
from gossiplog.net.peer import Peer, driver_of
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan

PEERS = 10
RATE = 50.0
SECONDS = 10
MESSAGE_BYTES = 300
# For grafts, after the peers are connected.
FORMING = 6.0
FLOOD, BURST = 10_000, 100


@pytest.fixture(scope="session")
def bare_gossip() -> Path:
    """The floor's program: a crate of its own, which takes minutes to compile the first time."""
    folder = ROOT / "benches" / "peers" / "gossip"
    target = ROOT / "target" / "gossip"
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=folder, env=environment, check=True)
    return target / "release" / "bare-gossip"


def floor(program: Path, messages: int, rate: float, connections: float) -> dict[str, float]:
    """Return what bare gossipsub takes between nodes with as many connections: a mesh sends a copy over nearly each."""
    neighbours = min(2 * round(connections / 2), PEERS - 2)
    command = [program, str(PEERS), str(messages), str(rate), str(neighbours)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["deliveries"] == found["expected"]
    return found


async def _deliver(plan: NetworkPlan, messages: int, rate: float, burst: int = 1) -> tuple[list[float], float, float]:
    """Return the latencies, the seconds that all took, and the connections of a peer."""
    async with LocalNetwork(plan) as network:
        await network.connected(3)
        await anyio.sleep(FORMING)
        start = time.monotonic()
        latencies = sorted(await network.flow(messages, rate, burst))
        seconds = time.monotonic() - start
        await network.converged()
        assert list(network.roots.values()) == [PEERS]
        connections = statistics.mean(len(others) for others in network.graph.values())
    return latencies, seconds, connections


def at(share: float, latencies: Sequence[float]) -> float:
    return latencies[int(share * len(latencies))]


@pytest.mark.parametrize(("durable", "most"), [(False, 2), (True, 4)], ids=["memory", "durable"])
def test_latency(durable: bool, most: float, bare_gossip: Path, results: Results, tmp_path: Path) -> None:
    rounds: list[dict[str, float]] = []
    for number in range(ROUNDS):
        folder = None
        if durable:
            folder = tmp_path / str(number)
            folder.mkdir()
        plan = NetworkPlan(PEERS, message_bytes=MESSAGE_BYTES, folder=folder)
        latencies, _, connections = anyio.run(_deliver, plan, int(RATE * SECONDS), RATE)
        bare = floor(bare_gossip, int(RATE * SECONDS), RATE, connections)
        rounds.append(
            {name: at(share, latencies) / bare[name] for name, share in (("p50", 0.5), ("p95", 0.95))}
            | {"seconds": at(0.5, latencies), "late": at(0.95, latencies)}
            | {"bare": bare["p50"], "bare late": bare["p95"], "connections": connections}
        )
    found = {name: statistics.median(turn[name] for turn in rounds) for name in rounds[0]}
    kept = "on disk" if durable else "in memory"
    results.add(
        Result(
            f"mesh: {PEERS} peers, {RATE:.0f} messages/s of {MESSAGE_BYTES} bytes, logs {kept}",
            f"p50 and p95 within {most} x bare rust-libp2p gossipsub",
            f"{found['p50']:.1f}x and {found['p95']:.1f}x",
            max(found["p50"], found["p95"]) <= most,
            found["seconds"],
            found["bare"],
            f"p50 {1000 * found['seconds']:.2f} ms beside {1000 * found['bare']:.2f} ms,"
            f" p95 {1000 * found['late']:.2f} ms beside {1000 * found['bare late']:.2f} ms; {found['connections']:.1f}"
            " connections a peer",
        )
    )


def _flow(folder: Path | None) -> tuple[list[float], float, float]:
    """Return latencies between peers in a process each, the seconds of processor time that each took for a message,
    and the connections of a peer."""
    messages = int(RATE * SECONDS)
    with ExitStack() as stack:
        peers: list[Process] = []
        for number in range(PEERS):
            path = "-" if folder is None else str(folder / f"{number}.db")
            peers.append(stack.enter_context(Process("peer", path, number, *(peer.url for peer in peers[:1]))))
        _all(peers, "connected", least=3)
        time.sleep(FORMING)
        before = sum(used["cpu"] for used in _all(peers, "usage"))
        start = time.monotonic() + 0.5
        for number, peer in enumerate(peers):
            times = [start + turn / RATE for turn in range(number, messages, PEERS)]
            peer.tell("flow", times=times, size=MESSAGE_BYTES)
        for peer in peers:
            peer.answer()
        told = _all(peers, "notified", count=messages)
        seconds = sum(used["cpu"] for used in _all(peers, "usage")) - before
    assert len({each["root"] for each in told}) == 1
    latencies = [
        other["told"][id] - begun
        for each in told
        for id, begun in each["begun"].items()
        for other in told
        if other is not each
    ]
    connections = statistics.mean(each["connections"] for each in told)
    return sorted(latencies), seconds / messages / PEERS, connections


def _all(peers: Sequence[Process], command: str, **arguments: object) -> list[Any]:
    for peer in peers:
        peer.tell(command, **arguments)
    return [peer.answer() for peer in peers]


@pytest.mark.parametrize(("durable", "most"), [(False, 2), (True, 4)], ids=["memory", "durable"])
def test_latency_of_processes(durable: bool, most: float, bare_gossip: Path, results: Results, tmp_path: Path) -> None:
    latencies, processor, connections = _flow(tmp_path if durable else None)
    bare = floor(bare_gossip, int(RATE * SECONDS), RATE, connections)
    p50, p95 = at(0.5, latencies), at(0.95, latencies)
    kept = "on disk" if durable else "in memory"
    results.add(
        Result(
            f"mesh: {PEERS} peers in a process each, {RATE:.0f} messages/s of {MESSAGE_BYTES} bytes, logs {kept}",
            f"p50 and p95 within {most} x bare rust-libp2p gossipsub, all in one process",
            f"{p50 / bare['p50']:.1f}x and {p95 / bare['p95']:.1f}x",
            p50 <= most * bare["p50"] and p95 <= most * bare["p95"],
            p50,
            bare["p50"],
            f"p50 {1000 * p50:.2f} ms beside {1000 * bare['p50']:.2f} ms, p95 {1000 * p95:.2f} ms beside"
            f" {1000 * bare['p95']:.2f} ms; {1e6 * processor:.0f} us of processor time for each message and peer",
        )
    )


def test_rate(results: Results, bare_gossip: Path) -> None:
    plan = NetworkPlan(PEERS, message_bytes=MESSAGE_BYTES)
    latencies, seconds, connections = anyio.run(_deliver, plan, FLOOD, 0.0, BURST)
    bare = floor(bare_gossip, FLOOD, 2000, connections)
    rate = FLOOD / seconds
    results.add(
        Result(
            f"mesh: {FLOOD:,} messages in bursts of {BURST} as fast as they can be appended, {PEERS} peers, in memory",
            "1,000 messages/s verified and stored on all, one root at the end",
            f"{rate:,.0f}/s",
            rate >= 1000,
            seconds,
            bare["seconds"],
            f"median latency {at(0.5, latencies):.2f} s; bare gossipsub at 2,000/s: {1000 * bare['p50']:.1f} ms",
        )
    )


async def _join(plan: NetworkPlan) -> dict[str, float]:
    async with LocalNetwork(plan) as network:
        await network.connected(3)
        connected = anyio.current_time() - network.started
        await network.converged()
        converged = anyio.current_time() - network.started
        # By then, all know each other well enough.
        probes = [max(await network.flow(1, 1)) for _ in range(5)]
        return {"connected": connected, "converged": converged, "appended": max(probes)}


def test_many_peers(results: Results) -> None:
    found = anyio.run(_join, NetworkPlan(64, offline_messages=20))
    results.add(
        Result(
            "mesh: 64 peers that know a bootstrap without a log, each with 20 messages of its own",
            "each connected to several within 30 s, one root within 60 s, then an append everywhere within 1 s",
            f"{found['connected']:.1f} s, {found['converged']:.1f} s, {found['appended']:.2f} s",
            found["connected"] <= 30 and found["converged"] <= 60 and found["appended"] <= 1,
            found["converged"],
            None,
            "3 connections or more; the slowest peer of the slowest of 5 appends; in a process for each core",
        )
    )


async def _serve(source: Path, target: Path) -> tuple[float, int]:
    with gossiplog.open(source) as there, gossiplog.open(target, topic=there.topic) as here:
        async with Peer(there) as server, Peer(here, listen=()) as joiner:
            start = time.monotonic()
            await joiner.dial(server.addresses[0])
            while len(here) < len(there):
                await driver_of(joiner).committed()
            seconds = time.monotonic() - start
            assert here.root == there.root
            return seconds, len(here)


def test_join(results: Results, size: int, history: Callable[[str, int], list[bytes]], tmp_path: Path) -> None:
    source = Logs(tmp_path, data.FOLDER).full("mixed", history("mixed", size))
    seconds, messages = anyio.run(_serve, source, tmp_path / "here.db")
    results.add(
        Result(
            f"mesh: a peer joins, and takes a log of {messages:,} messages from another",
            "served, one root",
            f"{seconds:.0f} s",
            True,
            seconds,
            None,
            f"{messages / seconds:,.0f} messages/s, both on disk, in one process",
        )
    )
