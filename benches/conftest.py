"""What the benchmarks share: work and floor in turns, the logs that they run on, and the table of results.

A figure is the median of three runs, each directly after one of its floor. Results gather in `.bench/results.json`;
the table in RESULTS.md is written from there after each run, so that single benchmarks can be repeated.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import data

import gossiplog

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benches" / "RESULTS.md"
STORE = data.FOLDER / "results.json"
ROUNDS = 3
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


@dataclass
class Comparison:
    """Runs work and floor in turns, and keeps what came out.

    Attributes:
        work: seconds of each run of the work.
        floor: seconds of each run of its floor.
    """

    benchmark: Any
    work: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    def run(
        self, work: Callable[..., object], floor: Callable[[], float], prepare: Callable[[], tuple[object, ...]] = tuple
    ) -> None:
        """Three times: the floor, what the work needs (not counted), the work.

        Args:
            work: called with what `prepare` returned.
            floor: returns its seconds.
            prepare: what comes before each run of the work.
        """

        def setup() -> tuple[tuple[object, ...], dict[str, object]]:
            self.floor.append(floor())
            return prepare(), {}

        def timed(*arguments: object) -> None:
            start = time.perf_counter()
            work(*arguments)
            self.work.append(time.perf_counter() - start)

        self.benchmark.pedantic(timed, setup=setup, rounds=ROUNDS)

    @property
    def seconds(self) -> float:
        """The median of the work."""
        return statistics.median(self.work)

    @property
    def floor_seconds(self) -> float:
        """The median of the floor."""
        return statistics.median(self.floor)

    @property
    def ratio(self) -> float:
        """The median of the work over that of the floor, run by run."""
        return statistics.median(work / floor for work, floor in zip(self.work, self.floor, strict=True))


@pytest.fixture
def compare(benchmark: Any) -> Comparison:
    return Comparison(benchmark)


@pytest.fixture(scope="session")
def bare() -> Callable[..., float]:
    """Runs a floor of `benches/floors` and returns its seconds."""
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "gossiplog-floors"], cwd=ROOT, check=True)
    program = ROOT / "target" / "release" / "gossiplog-floors"

    def run(*arguments: object) -> float:
        command = [str(program), *map(str, arguments)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--messages", type=int, default=1_000_000, help="how many messages the large logs have")


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--messages"))


@pytest.fixture(scope="session")
def mixed(size: int) -> list[bytes]:
    return data.history("mixed", size)


class Logs:
    """Logs in files, made once and copied for who changes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def path(self) -> Path:
        """Where a new log may be made."""
        self._count += 1
        return self._folder / f"{self._count}.db"

    def full(self, name: str, values: list[bytes]) -> Path:
        """A log of these values that nobody may change."""
        path = data.FOLDER / f"{name}-{len(values)}.db"
        if not path.exists():
            partial = self.path()
            with gossiplog.open(partial, topic=data.TOPIC) as log:
                log.insert_many(values)
            shutil.move(partial, path)
        return path

    def copy(self, original: Path) -> Path:
        """A copy of a log, to be changed; earlier copies are removed."""
        for old in self._folder.glob("*.db*"):
            old.unlink()
        path = self.path()
        subprocess.run(["cp", "--reflink=auto", original, path], check=True)
        return path


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    yield Logs(tmp_path)
    shutil.rmtree(tmp_path)


@dataclass(frozen=True)
class Row:
    work: str
    must: str
    reached: str
    met: bool
    detail: str


class Results:
    """The rows measured in this session."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def add(self, work: str, must: str, reached: str, met: bool, detail: str = "") -> None:
        """Adds a row, and prints it."""
        self.rows[work] = Row(work, must, reached, met, detail)
        print(f"\n{work}: {reached} (must: {must}){'' if met else '  NOT MET'}; {detail}")


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Iterator[Results]:
    gathered = Results()
    yield gathered
    if int(request.config.getoption("--messages")) == 1_000_000 and gathered.rows:
        write_results(gathered.rows)


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return f"{os.cpu_count()} cores of {model}, {platform.system()}, Python {platform.python_version()}"


def write_results(rows: dict[str, Row]) -> None:
    """Merges rows into the stored ones, and writes the table between the markers of RESULTS.md."""
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    today = datetime.date.today().isoformat()
    stored |= {row.work: {**row.__dict__, "date": today, "machine": machine()} for row in rows.values()}
    STORE.write_text(json.dumps(stored, indent=1))
    lines = ["| work | must reach | reached | met | in figures | measured |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row['work']} | {row['must']} | {row['reached']} | {'yes' if row['met'] else '**no**'} | {row['detail']} |"
        f" {row['date']} |"
        for row in stored.values()
    ]
    machines = "; ".join(sorted({row["machine"] for row in stored.values()}))
    text = RESULTS.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join([BEGIN, "", f"Machine: {machines}.", "", *lines, "", END])
    RESULTS.write_text(before + table + after)
