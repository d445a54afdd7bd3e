"""Kills what a driver does of `append` and `ingest` at many places, and runs it again; run by test_kill.py.

    python -m tests.integration.kill_staging FOLDER

Spark is not there: its tasks are called by this process, and the driver's part is the one that ships. The steps are
those of kill_rebase.py in the job's own folder. A fork is killed before some of them, at even distances. After each
kill another fork looks at what is there, runs the same again, and compares the log with one that was made without a
kill. Prints JSON: for each job, kills, and how many of them left no log, a part of it (which append alone may), and
the whole.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

import gossiplog
from gossiplog import Signer
from gossiplog.log import arrival_check, audit, pulling  # noqa: F401 - each fork would import them anew
from gossiplog.spark.jobs import ingest as job
from gossiplog.spark.jobs.events import Layout
from gossiplog.spark.source import staging, writer
from gossiplog.spark.source.options import write_options
from tests.integration.kill_rebase import Steps, in_a_fork

_TOPIC = "kill"
_MESSAGES = 60
_KILLS = 22
_MOST_STEPS = 5000
_KILLED = -9


class StepsIn(Steps):
    """Counts steps in one folder alone: not, for one, the files of modules that are imported."""

    def __init__(self, last: int, folder: Path) -> None:
        self._folder = str(folder)
        super().__init__(last)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.mkdir" or (arguments and str(arguments[0]).startswith(self._folder)):
            super()._hear(event, arguments)


def batches(messages: list[tuple[bytes, bytes]]) -> list[pa.RecordBatch]:
    """Return what each of several tasks gets."""
    return [
        pa.record_batch({"key": [key for key, _ in some], "value": [value for _, value in some]})
        for some in (messages[number::7] for number in range(7))
    ]


def append(folder: Path, messages: list[tuple[bytes, bytes]]) -> None:
    """Do what Spark does with a writer."""
    options = write_options({"path": str(folder / "log.db"), "topic": _TOPIC, "report": str(folder / "report")})
    tasks = writer.LogArrowWriter(options, StructType([StructField("value", BinaryType())]))
    tasks.commit([tasks.write(iter([batch])) for batch in batches(messages)])


def ingest(folder: Path, messages: list[tuple[bytes, bytes]]) -> None:
    """Run the job, with messages that are signed already in the place of what Spark makes of events."""

    def make(frame: DataFrame, stage: Any, topic: str, *_: object) -> job.IngestResult:
        for name in ("events", "runs"):
            os.mkdir(stage.path(name))
        Path(stage.path("events"), "plain.parquet").write_text("events as they are")
        runs = [path for batch in batches(messages) for path, _ in staging.sort(stage.path("runs"), [batch])]
        job._insert(runs, len(messages), stage.path("log"), topic)
        return job.IngestResult(len(messages), 0, 1, 1)

    job._make = make
    frame = cast(DataFrame, SimpleNamespace(sparkSession=None))
    job.ingest(frame, str(folder / "log.db"), _TOPIC, Layout("who", "nr"), str(folder), merger="ann")


def look(folder: Path, root: str) -> int:
    """Return how many messages a log has, which are whole histories: all of them where its root is the expected one."""
    if not (folder / "log.db").exists():
        return 0
    with gossiplog.open(folder / "log.db") as log:
        if log.verify().root.hash.hex() == root:
            return _MESSAGES
        if len(log) >= _MESSAGES:
            raise AssertionError("the log has other messages")
        return len(log)


def check(folder: Path, name: str, run: Callable[[Path, Any], None], messages: Any, root: str) -> None:
    """Look at what a kill left, run the job again, and look whether all is there and nothing else."""
    found = 0
    try:
        found = look(folder, root)
    except gossiplog.NotALog:
        if name == "ingest":
            raise
    if name == "ingest" and found not in (0, _MESSAGES):
        raise AssertionError(f"a log of {found} messages was taken for whole")
    report = folder / "report"
    if report.exists():
        if found != _MESSAGES or json.loads((report / "summary.json").read_text())["values"] != _MESSAGES:
            raise AssertionError("a report was taken for whole")
        shutil.rmtree(report)
    if name == "append" or not found:
        run(folder, messages)
    if look(folder, root) != _MESSAGES:
        raise AssertionError("the job makes another log when it runs again")
    beside = {each.name for each in folder.iterdir()} - {"log.db", "log.db-count", "log.db-wal", "log.db-shm", "report"}
    if found != _MESSAGES or name == "append":
        beside = {each for each in beside if not each.startswith("log.db.staging-")}
    else:
        # The job was killed when the log had its name.
        left = {path.name for path in (folder / "log.db.ingest").rglob("*") if not path.is_dir()}
        if "plain.parquet" in left:
            raise AssertionError("the events are left, and no run removes them")
        beside -= {"log.db.ingest"}
    if beside - {"report.partial"} or (folder / "report.partial" / "summary.json").exists():
        raise AssertionError(f"files are left: {sorted(beside)}")
    (folder / "found").write_text(str(found), encoding="ascii")


def kill(folder: Path, name: str, run: Callable[[Path, Any], None], messages: Any, root: str) -> dict[str, int]:
    """Kill a job before many of its steps."""

    def count() -> None:
        (whole := folder / "whole").mkdir(parents=True)
        steps = StepsIn(_MOST_STEPS, whole)
        run(whole, messages)
        (folder / "steps").write_text(str(_MOST_STEPS - steps.left), encoding="ascii")

    if in_a_fork(count):
        raise SystemExit(f"{name} does not come to its end")
    steps = int((folder / "steps").read_text(encoding="ascii"))
    found = {"steps": steps, "kills": 0, "none": 0, "part": 0, "whole": 0}
    for step in sorted({1 + number * steps // _KILLS for number in range(_KILLS)}):
        place = folder / f"step-{step}"
        place.mkdir()

        def attempt(step: int = step, place: Path = place) -> None:
            StepsIn(step, place)
            run(place, messages)

        if (status := in_a_fork(attempt)) != _KILLED:
            raise SystemExit(f"{name} ended with status {status}, step {step}")
        if in_a_fork(lambda place=place: check(place, name, run, messages, root)):
            raise SystemExit(f"{name} was killed before step {step}: {place}")
        left = int((place / "found").read_text(encoding="ascii"))
        found["kills"] += 1
        found["whole" if left == _MESSAGES else "part" if left else "none"] += 1
        shutil.rmtree(place)
    return found


def main(folder: Path) -> None:
    """Kill both jobs."""
    # What pyarrow looks for in what it is given: each fork would import it anew.
    import_module("pandas")
    # Several transactions, and runs that are merged before the log is made.
    writer._SLICE = job._SLICE = 16
    staging._OPEN_RUNS = 3

    def prepare() -> None:
        with gossiplog.open(folder / "made.db", _TOPIC, signer=Signer(b"\1" * 32)) as log:
            log.append_many(range(_MESSAGES))
            made = [(message.id, message.value.hex()) for message in log]
            (folder / "made.json").write_text(json.dumps([made, log.root.hash.hex()]), encoding="ascii")

    if in_a_fork(prepare):
        raise SystemExit("the log was not made")
    made, root = json.loads((folder / "made.json").read_text(encoding="ascii"))
    messages = [(gossiplog.core.decode_id(id), bytes.fromhex(value)) for id, value in made]
    jobs = {"append": append, "ingest": ingest}
    results = {name: kill(folder / name, name, run, messages, root) for name, run in jobs.items()}
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
