"""Tests that share a process or a simulation are in one group, and the longest groups start first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.groups import QUICK_CASES, REPORTED, ROOT, SHARED, SIMULATED, SPLIT, START_ORDER, Groups, group_of, sample
from tests.simulations import RUNS


class Case(pytest.Item):
    """A collected case of a test."""

    def runtest(self) -> None: ...


def item(file: str, *fixtures: str, name: str = "test", **parameters: Any) -> Any:
    """Return a stand-in for a collected test."""
    test = SimpleNamespace(
        path=ROOT / file,
        name=name,
        fixturenames=fixtures,
        user_properties=[],
    )
    if parameters:
        test.callspec = SimpleNamespace(params=parameters)
    return test


@pytest.mark.parametrize(
    ("test", "group"),
    [
        (item("tests/test_signer.py"), "tests/test_signer"),
        (item("tests/spark/jobs/test_root.py", "tmp_path", "spark"), "spark"),
        (item("tests/integration/test_mesh.py", "javascript", "start"), "javascript"),
        (item("tests/integration/test_mesh.py", "javascript", hub="asyncio", client="browser"), "browser"),
        (item("tests/sim/routers/test_named.py", seed=1), "tests/sim/routers/test_named"),
        (item("tests/integration/test_simulation.py", name="test[20]"), "tests/integration/test_simulation::test[20]"),
    ],
)
def test_group(test: Any, group: str) -> None:
    assert group_of(test) == group


@pytest.mark.parametrize(("run", "group"), [("run-4", "run-4"), ("run-4-late", "run-4"), ("run-6-lag", "run-6")])
def test_variants_of_a_run_are_in_its_group(run: str, group: str) -> None:
    for file in ("tests/sim/routers/test_named.py", "tests/docs/test_simulator.py"):
        test = item(file)
        test.callspec = SimpleNamespace(params={"name": run})
        assert group_of(test) == group


def test_the_longest_start_first() -> None:
    tests = [item("tests/test_signer.py"), item("tests/a.py", "javascript"), item("tests/b.py", "spark")]
    Groups().pytest_collection_modifyitems(tests)
    assert [dict(test.user_properties)["group"] for test in tests] == ["spark", "javascript", "tests/test_signer"]
    assert START_ORDER[0] == "spark"


def test_the_files_that_are_named_are_there() -> None:
    runs = {"-".join(name.split("-")[:2]) for name in RUNS}
    named = [name for name in (*START_ORDER, *SIMULATED, *SPLIT) if name not in SHARED and name not in runs]
    assert [name for name in named if not (ROOT / f"{name}.py").is_file()] == []


def test_a_sample_has_some_cases_of_each_test(request: pytest.FixtureRequest) -> None:
    def collected(*names: str) -> list[pytest.Item]:
        return [Case.from_parent(request.session, name=name) for name in names]

    many, few = collected(*(f"test_many[{n}]" for n in range(100))), collected("test_few[0]", "test_few[1]", "test_one")
    kept = sample([*many, *few])
    assert kept >= {*few}
    assert len(kept & {*many}) == QUICK_CASES
    assert kept == sample([*many, *few])
    # A step through the cases would meet one value of an inner parameter alone.
    assert len({many.index(item) % 3 for item in kept & {*many}}) > 1


def test_the_slowest_are_reported() -> None:
    groups, lines = Groups(), []
    for number in range(REPORTED + 1):
        for when in ("setup", "call", "teardown"):
            properties = [("group", f"file-{number}::test[{when}]")]
            groups.pytest_runtest_logreport(
                SimpleNamespace(user_properties=properties, duration=number, when=when)  # type: ignore[arg-type]
            )
    groups.pytest_terminal_summary(SimpleNamespace(section=lines.append, line=lines.append))  # type: ignore[arg-type]
    assert lines[0] == "the 10 slowest of 11 groups"
    assert lines[1].split() == ["30.0", "s", "1", "cases", "file-10"]
    assert len(lines) == 1 + REPORTED
