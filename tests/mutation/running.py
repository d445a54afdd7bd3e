"""Runs mutants: each in a process of its own, against the tests that cite its rule.

A pytest session collects all tests once. Then each mutant gets a fork of it, which replaces the changed functions
(`swapping`) and runs the tests until one fails. A change that cannot be made so, and one that no test finds, is put to
a new pytest, which imports a copy of the package with the change from PYTHONPATH; the working tree is never changed.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.citations import Rule, cited
from tests.mutation.catalogue import PACKAGE, ROOT, Mutant, source_of
from tests.mutation.swapping import swap

FOLDERS = ("tests/protocol", "tests/pubsub", "tests/sim", "tests/cli")
"""Where the tests are that cite rules."""

_CPU_SECONDS = 60
_MEMORY = 4 * 2**30
# Exit statuses of pytest, which forks have, too: all tests passed, one failed, a source cannot be imported.
_PASSED, _FAILED, _INTERRUPTED = 0, 1, 2
_CRASHED = 99


class Fate(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTESTED = "no test cites the rule"
    BROKEN = "the tests could not be run"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        mutant: which.
        fate: of it.
        by: the test that failed; "" where that is not known.
        seconds: of processor time.
    """

    mutant: Mutant
    fate: Fate
    by: str
    seconds: float


@dataclass(slots=True)
class _Run:
    mutant: Mutant
    slot: int
    fresh: bool
    pipe: int


class Mutation:
    """A plugin of pytest that runs mutants in the place of tests.

    Args:
        mutants: to be run.
        report: takes the outcome of each.
        workers: processes at a time.
    """

    def __init__(self, mutants: Iterable[Mutant], report: Callable[[Outcome], None], workers: int) -> None:
        self._mutants = list(mutants)
        self._report = report
        self._slots = list(range(workers))
        self._running: dict[int, _Run] = {}
        self._spent: dict[Mutant, float] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="gossiplog-mutants-"))
        self._stamps = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants."""
        try:
            self._run(session)
        finally:
            for pid in self._running:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            shutil.rmtree(self._folder)
        return True

    def _run(self, session: pytest.Session) -> None:
        by_rule = _by_rule(session.items)
        # What forks share is not to be copied because a collection counts references in it.
        gc.collect()
        gc.freeze()
        waiting = deque((mutant, False) for mutant in self._mutants)
        while waiting or self._running:
            if waiting and self._slots:
                mutant, fresh = waiting.popleft()
                items = _in_order(by_rule.get(mutant.rule, []), mutant)
                if items:
                    self._start(session, mutant, items, fresh)
                else:
                    self._report(Outcome(mutant, Fate.UNTESTED, "", 0.0))
                continue
            run, fate, by = self._wait()
            if fate is Fate.SURVIVED and not run.fresh:
                waiting.appendleft((run.mutant, True))
            else:
                self._report(Outcome(run.mutant, fate, by, self._spent[run.mutant]))

    def _start(self, session: pytest.Session, mutant: Mutant, items: Sequence[pytest.Item], fresh: bool) -> None:
        slot = self._slots.pop()
        self._stamps += 1
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            self._running[pid] = _Run(mutant, slot, fresh, reading)
            return
        try:
            _limit()
            source = source_of(mutant)
            changed = mutant.apply(source)
            module = sys.modules.get("gossiplog." + mutant.path.removesuffix(".py").replace("/", "."))
            if not fresh and mutant.path.endswith(".py") and module is not None and swap(module, source, changed):
                failed = _run_items(session, items)
                os.write(writing, json.dumps([failed, True]).encode())
                os._exit(_FAILED if failed else _PASSED)
            os.write(writing, json.dumps(["", False]).encode())
            _run_anew(self._copy(slot, mutant, changed), items)
        finally:
            os._exit(_CRASHED)

    def _wait(self) -> tuple[_Run, Fate, str]:
        pid, status, usage = os.wait4(-1, 0)
        run = self._running.pop(pid)
        self._slots.append(run.slot)
        self._spent[run.mutant] = self._spent.get(run.mutant, 0.0) + usage.ru_utime + usage.ru_stime
        with os.fdopen(run.pipe, "rb") as pipe:
            said = pipe.read()
        by, swapped = json.loads(said) if said else ("", True)
        run.fresh |= not swapped
        if os.WIFSIGNALED(status):
            return run, Fate.KILLED, "a limit of time or memory"
        code = os.waitstatus_to_exitcode(status)
        if code in (_FAILED, _INTERRUPTED):
            return run, Fate.KILLED, by
        return run, Fate.SURVIVED if code == _PASSED else Fate.BROKEN, ""

    def _copy(self, slot: int, mutant: Mutant, changed: str) -> Path:
        """A copy of the package with the change; each slot has one, which keeps its compiled modules."""
        copy = self._folder / str(slot)
        package = copy / PACKAGE.name
        if not package.exists():
            shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so"))
            for extension in PACKAGE.glob("*.so"):
                (package / extension.name).symlink_to(extension)
        # What the slot's last mutant changed; this runs in a fork, so only a file remembers it.
        last = copy / "last"
        if last.exists():
            path = last.read_text("utf-8")
            shutil.copy2(PACKAGE / path, package / path)
        last.write_text(mutant.path, "utf-8")
        target = package / mutant.path
        target.write_text(changed, "utf-8")
        # A compiled module is known by its source's time and size.
        os.utime(target, (self._stamps, self._stamps))
        return copy


def _by_rule(items: Iterable[pytest.Item]) -> dict[Rule, list[pytest.Item]]:
    found: dict[Rule, list[pytest.Item]] = {}
    for item in items:
        function: Any = getattr(item, "function", None)
        for rule in cited(function.__doc__ or ""):
            found.setdefault(rule, []).append(item)
    return found


def _in_order(items: Sequence[pytest.Item], mutant: Mutant) -> list[pytest.Item]:
    """Put first what most likely fails, and soon; leave out what takes long, where there is something else."""
    quick = [item for item in items if item.get_closest_marker("integration") is None]
    mirror = f"tests/{mutant.path.rpartition('/')[0]}"
    stem = f"test_{Path(mutant.path).stem}"

    def distance(item: pytest.Item) -> tuple[bool, bool, bool]:
        path = item.path.relative_to(ROOT)
        generated = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        return path.parent.as_posix() != mirror, generated, path.stem != stem

    return sorted(quick or items, key=distance)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


def _run_items(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    """Run tests until one fails; return its name."""
    for item, following in zip(items, (*items[1:], None), strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return ""


def _run_anew(copy: Path, items: Sequence[pytest.Item]) -> None:
    """Become a pytest that imports the package from another place."""
    names = list(dict.fromkeys(item.nodeid for item in items))
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    options = ["-x", "-q", "-p", "no:cacheprovider"]
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *options, *names], environment)


def run(mutants: Sequence[Mutant], report: Callable[[Outcome], None], workers: int) -> float:
    """Run mutants, and return the seconds that it took.

    Raises:
        RuntimeError: the tests cannot be collected.
    """
    begun = time.monotonic()
    options = ["-s", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "quick"]
    os.chdir(ROOT)
    rules = {mutant.rule for mutant in mutants}
    tests = [path for folder in FOLDERS for path in sorted(Path(folder).rglob("test_*.py"))]
    citing = [str(path) for path in tests if cited(path.read_text("utf-8")) & rules]
    said = io.StringIO()
    out, sys.stdout = sys.stdout, said
    try:
        code = pytest.main([*options, *citing], plugins=[Mutation(mutants, report, workers)])
    finally:
        sys.stdout = out
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest ended with {code!r}: {said.getvalue()[-5000:]}")
    return time.monotonic() - begun
