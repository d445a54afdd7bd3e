"""What the benchmarks share: how pytest-benchmark repeats them, the floors in Rust, and the table of results.

A figure is the median of three runs, each directly after one of its floor. Results gather in `.bench/results.json`;
the table in RESULTS.md is written from there after each run, so that single benchmarks can be repeated.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import data

from benches.pages import head, line, rewrite
from gossiplog.cli.bench.stage import ROUNDS, Logs, Prepare, Result, Stage, Turns

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benches" / "RESULTS.md"
STORE = data.FOLDER / "results.json"


class BareRust:
    """The floors of `benches/floors`."""

    def __init__(self) -> None:
        subprocess.run(
            ["cargo", "build", "--release", "--quiet", "--package", "gossiplog-floors"], cwd=ROOT, check=True
        )

    def signatures(self, count: int, authors: int, signed: int, stored: int) -> float:
        return self._run("signatures", count, authors, signed, stored)

    def leaves(self, count: int, key: int, value: int) -> float:
        return self._run("leaves", count, key, value)

    @staticmethod
    def _run(*arguments: object) -> float:
        command = [str(ROOT / "target" / "release" / "gossiplog-floors"), *map(str, arguments)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="session")
def bare_rust() -> BareRust:
    return BareRust()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--messages", type=int, default=1_000_000, help="how many messages the large logs have")


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--messages"))


@pytest.fixture(scope="session")
def history() -> Callable[[str, int], list[bytes]]:
    # Two: the large logs' and what follows it.
    return functools.lru_cache(maxsize=2)(data.history)


@pytest.fixture
def stage(
    benchmark: Any, size: int, history: Callable[[str, int], list[bytes]], bare_rust: BareRust, tmp_path: Path
) -> Iterator[Stage]:
    def repeat(work: Callable[..., None], prepare: Prepare) -> None:
        benchmark.pedantic(work, setup=lambda: (prepare(), {}), rounds=ROUNDS)

    data.FOLDER.mkdir(exist_ok=True)
    yield Stage(size, history, Logs(tmp_path, data.FOLDER), Turns(repeat), bare_rust)
    shutil.rmtree(tmp_path)


class Results:
    """The results of this session."""

    def __init__(self) -> None:
        self.rows: dict[str, Result] = {}

    def add(self, result: Result) -> None:
        """Adds a result, and prints it."""
        self.rows[result.work] = result
        met = "" if result.met else "  NOT MET"
        print(f"\n{result.work}: {result.reached} (must: {result.must}){met}; {result.detail}")


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Iterator[Results]:
    gathered = Results()
    yield gathered
    if int(request.config.getoption("--messages")) >= 1_000_000 and gathered.rows:
        write_results(gathered.rows)


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return f"{os.cpu_count()} cores of {model}, {platform.system()}, Python {platform.python_version()}"


def write_results(rows: dict[str, Result]) -> None:
    """Merges rows into the stored ones, and writes the table into RESULTS.md."""
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    today = datetime.date.today().isoformat()
    stored |= {row.work: {**dataclasses.asdict(row), "date": today, "machine": machine()} for row in rows.values()}
    STORE.write_text(json.dumps(stored, indent=1))
    lines = head(["work", "must reach", "reached", "met", "in figures", "measured"], [])
    for row in stored.values():
        met = "yes" if row["met"] else "**no**"
        lines.append(line(row["work"], row["must"], row["reached"], met, row["detail"], row["date"]))
    machines = "; ".join(sorted({row["machine"] for row in stored.values()}))
    rewrite(RESULTS, {"results": [f"Machine: {machines}.", "", *lines]})
