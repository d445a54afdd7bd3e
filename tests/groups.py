"""Which tests run in one process, how long each of these groups takes, and what `make check` runs.

A group is a test file, so that what a module's fixtures build is built once; or what several files share: a process,
or a simulation that is run once. Each test of the files in SPLIT is a group of its own.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPORTED = 10
# Cases of one test that `make check` runs.
QUICK_CASES = 3

SHARED = ("browser", "javascript", "spark")
SIMULATED = ("tests/docs/test_simulator", "tests/sim/routers/test_named")
SPLIT = ("tests/integration/test_simulation",)

# The longest groups, in the order in which they start: what starts last decides when a run ends. Those that wait for
# most of their time are among them, so that others use the cores meanwhile.
START_ORDER = (
    "spark",
    "javascript",
    "browser",
    "tests/integration/test_local_cluster",
    "tests/test_readme",
    "tests/sim/whole/test_run",
    "tests/rot/test_sample",
    "tests/integration/test_cluster",
    "tests/log/test_repair",
    "tests/integration/test_kill",
    # Twelve groups, which use a core all the time.
    "tests/integration/test_simulation",
    "tests/storage/sqlite/test_hostile_columns",
    "tests/testnet/test_network",
    "tests/typing/test_programs",
    "tests/docs/test_hub",
    "tests/storage/postgres/test_replacement",
    "tests/types/test_objects",
    "tests/integration/test_faults",
    "run-5",
    "tests/net/test_peer_faults",
    "tests/docs/test_simulator",
    "run-6",
    "tests/net/test_attacks",
    "tests/integration/test_wheel",
    "tests/docs/test_postgres",
    "tests/cli/network/test_command",
    "tests/log/test_view",
    "tests/log/test_reading",
)


def group_of(item: pytest.Item) -> str:
    """Return the group of a test: the process or simulation that it shares, or its file."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    taken = {*getattr(item, "fixturenames", ()), *(value for value in parameters.values() if isinstance(value, str))}
    for shared in SHARED:
        if shared in taken:
            return shared
    file = _name(item.path)
    if file in SIMULATED and "name" in parameters:
        # Its variants, as run-4-late, are compared with it.
        return "-".join(str(parameters["name"]).split("-")[:2])
    return f"{file}::{item.name}" if file in SPLIT else file


@cache
def _name(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def rank(group: str) -> int:
    """Return where a group stands in the order of starts."""
    group = group.split("::")[0]
    return START_ORDER.index(group) if group in START_ORDER else len(START_ORDER)


def sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return at most QUICK_CASES cases of each test: the same in every run, and in every process of one."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.split("[", 1)[0]].append(item)
    return {
        item
        for name, found in cases.items()
        for item in (random.Random(name).sample(found, QUICK_CASES) if len(found) > QUICK_CASES else found)
    }


class Groups:
    """A plugin that finds the groups of tests, starts the longest first, and reports the slowest."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._cases: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.user_properties.append(("group", group_of(item)))
        items.sort(key=lambda item: rank(dict(item.user_properties)["group"]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        group = dict(report.user_properties)["group"].split("::")[0]
        self._seconds[group] += report.duration
        self._cases[group] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._seconds) <= REPORTED:
            return
        terminalreporter.section(f"the {REPORTED} slowest of {len(self._seconds)} groups")
        for group, seconds in self._seconds.most_common(REPORTED):
            terminalreporter.line(f"{seconds:8.1f} s {self._cases[group]:6} cases  {group}")
