"""Groups of tests run in forks, and what happens in these is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.groups import ROOT

pytestmark = pytest.mark.integration

# Files of tests, each a group, and a fixture that notes where it begins and ends.
CONFTEST = """
import os, pathlib, pytest
from tests.workers import Workers

def pytest_configure(config):
    config.pluginmanager.register(Workers(2))

def pytest_collection_modifyitems(items):
    for item in items:
        item.user_properties.append(("group", item.path.stem))

def note(what):
    with pathlib.Path("notes").open("a") as notes:
        print(what, os.getpid(), file=notes)

@pytest.fixture(scope="session", autouse=True)
def session():
    note("session")
    yield
    note("end")

@pytest.fixture(scope="module")
def module(session):
    note("module")
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run files of tests in two workers, in a process group of their own."""

    def run(*files: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
        for number, text in enumerate(files):
            (tmp_path / f"test_{number}.py").write_text(f"import os, signal\n{text}", "utf-8")
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", *options],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    return run


@pytest.fixture
def noted(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the processes that noted something."""

    def noted(what: str) -> list[str]:
        lines = [line.split() for line in (tmp_path / "notes").read_text("utf-8").splitlines()]
        return [process for kind, process in lines if kind == what]

    return noted


def test_a_group_is_run_in_one_process(run: Run, noted: Callable[[str], list[str]]) -> None:
    files = [f"def test_{name}(module): print('said')\ndef test_more(module, tmp_path): ..." for name in "abcde"]
    done = run(*files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("10 passed")
    assert "said" not in done.stdout
    assert len(noted("module")) == len(files)
    assert 1 <= len({*noted("session")}) <= 2
    assert sorted(noted("session")) == sorted(noted("end"))


def test_all_groups_give_way_to_the_first(run: Run, tmp_path: Path) -> None:
    """Also those that the same worker runs after it."""
    done = run(*["def test_priority(): print(os.nice(0), file=open('priorities', 'a'))"] * 6)
    assert done.returncode == 0, done.stdout
    first, *others = sorted(int(line) for line in (tmp_path / "priorities").read_text("utf-8").split())
    assert others == [first + 3] * 5


def test_a_failure_is_reported_with_what_was_printed(run: Run) -> None:
    done = run("def test_wrong():\n    print('as \\udcff said')\n    assert 1 == 2", "def test_right(): ...")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "assert 1 == 2" in done.stdout
    assert "said" in done.stdout
    assert "FAILED test_0.py::test_wrong" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_what_one_worker_prints_is_no_other_s(run: Run) -> None:
    """Nor does a worker take a group before it can run it: each of these tests waits for what the other does."""
    wait = "import pathlib, time\ndef wait(name):\n    while not pathlib.Path(name).exists(): time.sleep(0.01)\n"
    one = "def test_one():\n    print('of one')\n    open('printed', 'x').close()\n    wait('ended')\n    assert False"
    other = "def test_other():\n    wait('printed')\n    print('of the other')\n"
    done = run(wait + one, f"{wait}{other}def test_last(): open('ended', 'x').close()")
    assert "of one" in done.stdout.partition("Captured stdout call")[2], done.stdout
    assert "of the other" not in done.stdout


@pytest.mark.parametrize(
    ("crash", "status"),
    [
        ("os._exit(3)", 3),
        ("os._exit(0)", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGINT)", 0),
        ("raise KeyboardInterrupt", 0),
    ],
)
def test_a_worker_that_ends_in_a_test_ends_the_run(run: Run, crash: str, status: int) -> None:
    done = run(
        f"def test_before(): ...\ndef test_crash(): {crash}\ndef test_after(): assert False", "def test_a(): ..."
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"The worker ended in this test, with exit status {status} " in done.stdout
    assert "FAILED test_0.py::test_crash" in done.stdout


def test_a_worker_that_ends_between_tests_fails_the_run(run: Run) -> None:
    leaving = "import pytest\n@pytest.fixture(autouse=True, scope='module')\ndef leaving():\n    yield\n"
    done = run(f"{leaving}    os._exit(0)\ndef test_last(): ...", *["def test_a(): ..."] * 8)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


def test_the_run_ends_with_the_failures_that_are_asked_for(run: Run, noted: Callable[[str], list[str]]) -> None:
    files = ["def test_wrong(): assert False\n" + "\n".join(f"def test_{n}(): ..." for n in range(200))] * 2
    done = run(*files, options=("-x",))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in done.stdout
    assert sorted(noted("session")) == sorted(noted("end"))


@pytest.mark.parametrize("interrupt", ["os.kill(os.getppid(), signal.SIGINT)", "os.killpg(0, signal.SIGINT)"])
def test_an_interrupted_run_ends_its_fixtures(run: Run, noted: Callable[[str], list[str]], interrupt: str) -> None:
    """By a signal to the first process, and by Ctrl-C, which all processes get."""
    done = run(f"def test_interrupted(): {interrupt}\n" + "\n".join(f"def test_{n}(): ..." for n in range(200)))
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert len(noted("session")) == len(noted("end")) >= 1
