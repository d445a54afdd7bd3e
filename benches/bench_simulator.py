"""Simulated networks of routers: how many events a second of one core, and how much memory a node takes.

Each run has a process of its own, so that its memory is its own. Seconds are those of the processor: one core does it
all, and the rest of the machine may have other things to do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import pytest
from conftest import Results

from gossiplog.cli.bench.stage import ROUNDS, Result

PROGRAM = """
import json, re, sys, time
from pathlib import Path
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.kinds import kind_named
from gossiplog.sim.routers.simulation import Simulation

def memory(name):
    # Not getrusage: its peak begins with that of the process that started this one.
    return 1024 * int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

router, nodes, messages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
before, start = memory("VmRSS"), time.process_time()
# One publisher, ten messages a second: some 750,000 events among 1,000 nodes.
run = Simulation(kind_named(router), Plan(nodes=nodes, messages=messages, message_delay=0.1, fanout=1, seed=1))
run.run()
seconds, peak = time.process_time() - start, memory("VmHWM")
assert run.summary().deliver == nodes * messages
print(json.dumps({"seconds": seconds, "events": run.kernel.events, "peak": peak, "own": peak - before}))
"""
MESSAGES = 100


def measure(router: str, nodes: int) -> dict[str, float]:
    command = [sys.executable, "-c", PROGRAM, router, str(nodes), str(MESSAGES)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def report(results: Results, router: str, nodes: int, rounds: int, seconds: float, gigabytes: float | None) -> None:
    turns = [measure(router, nodes) for _ in range(rounds)]
    found = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    met = found["seconds"] < seconds and (gigabytes is None or found["peak"] < gigabytes * 1e9)
    memory = f"; {found['peak'] / 1e6:,.0f} MB" if gigabytes is not None else ""
    results.add(
        Result(
            f"simulator: {router}, {nodes:,} nodes x {MESSAGES} messages, ten a second",
            f"{seconds:g} s of one core" + (f", {gigabytes:g} GB" if gigabytes is not None else ""),
            f"{found['seconds']:.1f} s{memory}",
            met,
            found["seconds"],
            None,
            f"{found['events']:,.0f} events, {found['events'] / found['seconds']:,.0f}/s;"
            f" {found['own'] / nodes:,.0f} bytes a node",
        )
    )


@pytest.mark.parametrize("router", ["simsub", "gossipsub"])
def test_a_thousand_nodes(router: str, results: Results) -> None:
    report(results, router, 1000, ROUNDS, 5.0, None)


def test_ten_thousand_nodes(results: Results) -> None:
    report(results, "simsub", 10_000, 1, 90.0, 4.0)
