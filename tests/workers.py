"""Runs groups of tests in processes that are forks of one, which has imported and collected all tests.

Importing and collecting takes seconds of processor time, which pytest-xdist spends in each of its processes. A worker
takes one group after the other, from a pipe that has their numbers, and sends reports through a pipe of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_NUMBER_LENGTH = 4
# Seconds that workers have to end what their fixtures started, where the run ends early.
_GRACE = 10
_INTERRUPT = [signal.SIGINT]
# By how much groups give way to the first one, the longest. Its tests follow one another, so they cannot use a core
# that is idle at the end: with no more than its share it took 1,138 s of a run of 1,226.
_GIVING_WAY = 3


class Workers:
    """A plugin that has forks run the tests.

    Args:
        count: how many forks.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run groups in the order in which their first tests were collected."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        groups: dict[str, list[int]] = {}
        for index, item in enumerate(session.items):
            groups.setdefault(dict(item.user_properties)["group"], []).append(index)
        queue, numbers = os.pipe()
        with os.fdopen(numbers, "wb") as writing:
            writing.write(b"".join(number.to_bytes(_NUMBER_LENGTH, "big") for number in range(len(groups))))
        manager: Any = session.config.pluginmanager
        manager.getplugin("terminalreporter").showfspath = False
        # The forks' folders are in it, and it is removed once.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        running: dict[Connection, BaseProcess] = {}
        fork = multiprocessing.get_context("fork")
        try:
            # A worker whose start was interrupted would be waited for by nobody.
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
            try:
                for number in range(self._count):
                    reading, sending = fork.Pipe(duplex=False)
                    arguments = (session, number, [*groups.values()], queue, sending, [*running, reading])
                    running[reading] = fork.Process(target=_work, args=arguments)
                    running[reading].start()
                    sending.close()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
            _report(session, dict(running))
        finally:
            os.close(queue)
            # What reports to nobody ends.
            for reading in running:
                reading.close()
            for worker in running.values():
                worker.join(_GRACE)
                worker.kill()
        return True


def _report(session: pytest.Session, running: dict[Connection, BaseProcess]) -> None:
    """Report what workers send until all have ended.

    Raises:
        Failed: a worker ended in a test, or tests were not run.
    """
    hook = session.config.hook
    unended = set(range(len(session.items)))
    current: dict[Connection, int] = {}
    while running:
        for reading in wait([*running]):
            assert isinstance(reading, Connection)
            try:
                message = reading.recv()
            except EOFError:
                message = None
                running[reading].join()
            match message:
                case int(index):
                    current[reading] = index
                    continue
                case dict(data):
                    report = hook.pytest_report_from_serializable(config=session.config, data=data)
                    if report.when == "teardown":
                        unended.discard(current[reading])
                case None:
                    status = running.pop(reading).exitcode
                    index = current.get(reading, 0)
                    # Also `os._exit(0)` and KeyboardInterrupt in a test end a worker.
                    if not status and not (reading in current and index in unended):
                        continue
                    session.shouldfail = f"a worker ended with exit status {status}"
                    item = session.items[index]
                    report = pytest.TestReport(
                        nodeid=item.nodeid,
                        location=item.location,
                        keywords={},
                        outcome="failed",
                        longrepr=f"The worker ended in this test, with exit status {status} (-N: by the signal N).",
                        when="call",
                        user_properties=item.user_properties,
                    )
            hook.pytest_runtest_logreport(report=report)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    if unended:
        raise session.Failed(f"{len(unended)} tests were not run")


class _Sending:
    """A plugin that sends the reports of tests, in place of the hooks that would print them.

    Args:
        sending: where to.
    """

    def __init__(self, sending: Connection) -> None:
        self._sending = sending

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            self._sending.send(item.config.hook.pytest_report_to_serializable(config=item.config, report=report))
        return True


def _work(
    session: pytest.Session,
    number: int,
    groups: Sequence[Sequence[int]],
    queue: int,
    sending: Connection,
    others: Sequence[Connection],
) -> None:
    """Run groups until none is left."""
    for reading in others:
        # Open ends would keep this process going where the first one has ended.
        reading.close()
    config: Any = session.config
    # Forks would write what they capture into the same files.
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory
    factory._basetemp = factory.mktemp(f"worker-{number}", numbered=False)
    config.pluginmanager.register(_Sending(sending))
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
        indices = _taken(groups, queue)
        index = next(indices, None)
        while index is not None:
            sending.send(index)
            following = _Following(session.items, indices)
            config.hook.pytest_runtest_protocol(item=session.items[index], nextitem=following)
            index = following.index
    except (BrokenPipeError, KeyboardInterrupt):
        session._setupstate.teardown_exact(None)


class _Following:
    """Stands for the next test, which is asked for when fixtures are torn down: a group is not taken before."""

    def __init__(self, items: Sequence[pytest.Item], indices: Iterator[int]) -> None:
        self._items = items
        self._indices = indices

    @cached_property
    def index(self) -> int | None:
        return next(self._indices, None)

    def listchain(self) -> Sequence[Any]:
        return [] if self.index is None else self._items[self.index].listchain()


def _taken(groups: Sequence[Sequence[int]], queue: int) -> Iterator[int]:
    """Yield the indices of the tests of one group after the other."""
    gives_way = False
    while number := os.read(queue, _NUMBER_LENGTH):
        group = int.from_bytes(number, "big")
        if group > 0 and not gives_way:
            os.nice(_GIVING_WAY)
            gives_way = True
        yield from groups[group]
