"""One command on Spark, measured from outside: its time, the processor time of all its processes, the driver's memory.

Processor time is that of a control group of Linux, which needs root: PySpark's daemon does not wait for its workers, so
that their time is lost to their parents. What Spark says of its tasks comes from its event log.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MB = 2**20
_LOOK_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")
_GROUPS = Path("/sys/fs/cgroup")
# "GC(12) Pause Young (Normal) (G1 Evacuation Pause) 250M->80M(1024M) 5.4ms"
_COLLECTED = re.compile(r"Pause .* \d+M->(\d+)M\(\d+M\)")


@dataclass(frozen=True, slots=True)
class Tasks:
    """What Spark's event log says.

    Attributes:
        count: of tasks.
        seconds: of all tasks together, as long as they ran.
        busy_seconds: in which at least one ran.
        longest: seconds of the longest task.
        largest_collect: bytes of the results of all tasks of that one of Spark's jobs whose results were largest; they
            reach the driver.
        shuffled: bytes that were written for shuffles.
    """

    count: int
    seconds: float
    busy_seconds: float
    longest: float
    largest_collect: int
    shuffled: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a command.

    Attributes:
        seconds: from its start to its end.
        processor: seconds of all processes.
        driver_processor: of these, the seconds of the command's own process.
        java_processor: of these, the seconds of Java's: the driver, and of `local[…]` the executors' part in Java.
        driver_rss: the most memory of the command's own process, in MB.
        java_rss: the most memory of that Java, in MB.
        java_heap: the most of its heap that was in use after a collection, in MB.
        tasks: of Spark.
        load: the machine's, averaged over a minute, as the command began.
        executor_rss: the most memory of one executor's Java, in MB; 0 of `local[…]`, where it is the driver's.
    """

    seconds: float
    processor: float
    driver_processor: float
    java_processor: float
    driver_rss: int
    java_rss: int
    java_heap: int
    tasks: Tasks
    load: float
    executor_rss: int = 0


def run(
    arguments: Sequence[str], master: str, memory: str = "1g", limit: float | None = None
) -> tuple[Measured, list[dict[str, Any]]]:
    """Run `gossiplog pipeline`, and return what it took and the rows that it printed.

    Args:
        arguments: the job, its logs and its options.
        master: where Spark runs.
        memory: of the driver.
        limit: seconds after which it is stopped.

    Raises:
        RuntimeError: the command failed, or was stopped.
    """
    with control_group() as group, tempfile.TemporaryDirectory(prefix="gossiplog-measured-") as folder:
        command = [sys.executable, "-m", "gossiplog", "pipeline", *arguments, "--json", "--master", master]
        command += ["--driver-memory", memory]
        for setting in ("enabled=true", f"dir=file://{folder}", "rolling.enabled=false", "compress=false"):
            command += ["--conf", f"spark.eventLog.{setting}"]
        environment = os.environ | {"JDK_JAVA_OPTIONS": f"-Xlog:gc:file={folder}/collections-%p.log"}
        load, begun = os.getloadavg()[0], time.monotonic()
        with Path(folder, "out").open("w+") as out, Path(folder, "err").open("w+") as err:
            process = subprocess.Popen(group.joined(command), stdout=out, stderr=err, env=environment)
            peaks = _Peaks(process.pid)
            while process.poll() is None:
                peaks.look()
                if limit is not None and time.monotonic() - begun > limit:
                    group.kill()
                    raise RuntimeError(f"stopped after {limit:.0f} s")
                time.sleep(_LOOK_SECONDS)
            seconds = time.monotonic() - begun
            group.wait()
            out.seek(0)
            err.seek(0)
            if process.returncode:
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {err.read()[-3000:]}")
            rows = [json.loads(line) for line in out]
        (events,) = (path for path in Path(folder).iterdir() if path.name.startswith(("local-", "app-")))
        with events.open() as lines:
            tasks = read_events(map(json.loads, lines))
        collections = Path(folder, f"collections-{peaks.java}.log").read_text().splitlines()
        after = [int(found[1]) for found in map(_COLLECTED.search, collections) if found]
        measured = Measured(
            seconds=round(seconds, 2),
            processor=round(group.seconds(), 2),
            driver_processor=peaks.driver_seconds,
            java_processor=peaks.java_seconds,
            driver_rss=peaks.driver_rss // 1024,
            java_rss=peaks.java_rss // 1024,
            java_heap=max(after, default=0),
            tasks=tasks,
            load=round(load, 1),
            executor_rss=peaks.executor_rss // 1024,
        )
    return measured, rows


class ControlGroup:
    """Processes whose time is counted, with all that they start.

    Args:
        folder: of the group.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def joined(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def wait(self) -> None:
        """Wait for Java and Python workers that are about to end."""
        while (self._folder / "cgroup.procs").read_text():
            time.sleep(0.05)

    def kill(self) -> None:
        """End all processes, of a command that this one gave up."""
        while processes := (self._folder / "cgroup.procs").read_text().split():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            time.sleep(0.05)

    def seconds(self) -> float:
        """Return the processor time of all processes so far."""
        first = self._folder / "cpuacct.usage"
        if first.exists():
            return int(first.read_text()) / 1e9
        usage = dict(line.split() for line in (self._folder / "cpu.stat").read_text().splitlines())
        return int(usage["usage_usec"]) / 1e6


@contextmanager
def control_group() -> Iterator[ControlGroup]:
    """Make a group for a block, in the first version of Linux's control groups or in the second.

    Raises:
        OSError: this process may not.
    """
    accounting = _GROUPS / "cpuacct"
    folder = (accounting if accounting.is_dir() else _GROUPS) / f"gossiplog-measured-{os.getpid()}"
    folder.mkdir()
    group = ControlGroup(folder)
    try:
        yield group
    finally:
        group.kill()
        folder.rmdir()


class _Peaks:
    """The memory and processor time of the command's own process, of its Java and of executors, as of the last look."""

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self.java: int | None = None
        self.driver_rss = self.java_rss = self.executor_rss = 0
        self.driver_seconds = self.java_seconds = 0.0

    def look(self) -> None:
        """Look at all; the kernel keeps the peaks of memory."""
        if self.java is None:
            self.java = next(_java_of(self._driver, b"org.apache.spark.deploy.SparkSubmit"), None)
        self.driver_rss, self.driver_seconds = _usage(self._driver, self.driver_rss, self.driver_seconds)
        if self.java is not None:
            self.java_rss, self.java_seconds = _usage(self.java, self.java_rss, self.java_seconds)
            for executor in _java_of(self.java, b"org.apache.spark.executor.CoarseGrainedExecutorBackend"):
                self.executor_rss = max(self.executor_rss, _usage(executor, 0, 0.0)[0])


def _java_of(parent: int, main: bytes) -> Iterator[int]:
    """Yield the Java processes that a process has started, with a class: not one that is asked for its version."""
    try:
        children = [
            int(child)
            for thread in Path(f"/proc/{parent}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
        for child in children:
            is_java = os.readlink(f"/proc/{child}/exe").endswith("java")
            if is_java and main in Path(f"/proc/{child}/cmdline").read_bytes():
                yield child
    except OSError:
        # One of them has ended meanwhile.
        pass


def _usage(process: int, rss: int, seconds: float) -> tuple[int, float]:
    """Return the peak memory in kB and the processor time of a process, or what is given where it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return rss, seconds
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    if found is None:
        return rss, seconds
    return int(found[1]), (int(fields[11]) + int(fields[12])) / _TICKS


def read_events(events: Iterable[Mapping[str, Any]]) -> Tasks:
    """Return what an event log of Spark says of the tasks."""
    job_of: dict[int, int] = {}
    collected: dict[int, int] = defaultdict(int)
    spans: list[tuple[int, int]] = []
    seconds, shuffled = 0.0, 0
    for event in events:
        if event["Event"] == "SparkListenerJobStart":
            job_of |= dict.fromkeys(event["Stage IDs"], event["Job ID"])
        elif event["Event"] == "SparkListenerTaskEnd":
            info, figures = event["Task Info"], event.get("Task Metrics") or {}
            spans.append((info["Launch Time"], info["Finish Time"]))
            seconds += (info["Finish Time"] - info["Launch Time"]) / 1000
            shuffled += figures.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
            if event["Task Type"] == "ResultTask":
                collected[job_of.get(event["Stage ID"], -1)] += figures.get("Result Size", 0)
    return Tasks(
        count=len(spans),
        seconds=round(seconds, 2),
        busy_seconds=round(sum(end - start for start, end in _merged(spans)) / 1000, 2),
        longest=max((end - start for start, end in spans), default=0) / 1000,
        largest_collect=max(collected.values(), default=0),
        shuffled=shuffled,
    )


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans that do not overlap and cover the same time."""
    current: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if current is None or start > current[1]:
            if current is not None:
                yield current
            current = start, end
        else:
            current = current[0], max(current[1], end)
    if current is not None:
        yield current
