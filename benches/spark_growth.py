"""Each job of the pipeline over logs from 100,000 messages to ten million, and from ten logs to ten thousand.

    .venv/bin/python -m benches.fleet FOLDER
    .venv/bin/python -m benches.spark_growth run FOLDER [--jobs verify root] [--most 1000000] [--only-missing]
    .venv/bin/python -m benches.spark_growth write

`run` runs commands, `gossiplog pipeline JOB … --driver-memory 1g`, and keeps what the newest of each took in
`growth.json` beside this file, in which null is what was not kept of the first ones.
`write` writes the tables into RESULTS.md, and the plots beside docs/pipeline.md. Java runs as users have it, cold: a
command begins with the start of Spark, whose part is the row of one small log.

With `--master 'local-cluster[1,2,2048]'` an executor is a process of its own, so that the driver's memory is its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches import measured
from benches.data import FOLDER
from benches.fleet import HUBS, LACKING, LARGE, MESSAGES
from benches.measured import Measured, Tasks
from benches.pages import DOCS, head, line, rewrite
from gossiplog import charts

STORE = Path(__file__).parent / "growth.json"
RESULTS = Path(__file__).parent / "RESULTS.md"
PLOTS = DOCS / "pipeline"
FLEETS = {10: "0000.db", 100: "000?.db", 1000: "00??.db", 10_000: "*.db"}
"""The logs of a fleet by their number: a pattern of their names in each hub."""
LOCAL, CLUSTER = "local[2]", "local-cluster[1,2,2048]"
JOBS = ("verify", "root", "read", "reconcile", "analyze")
START = "start"
"""The row of `root` over one log of 1,000 messages."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run.

    Attributes:
        job: of the pipeline, or `START`.
        kind: "log" or "fleet".
        size: messages of the log, or logs of the fleet.
        master: where Spark ran.
        measured: what it took.
        date: when.
        commit: of the sources.
        alone: whether nothing else ran on the machine, so that its seconds say something.
    """

    job: str
    kind: str
    size: int
    master: str
    measured: Measured
    date: str
    commit: str
    alone: bool

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return self.size if self.kind == "log" else self.size * MESSAGES

    @property
    def logs(self) -> int:
        """How many logs there are."""
        return 1 if self.kind == "log" else self.size

    @property
    def what(self) -> str:
        """The logs, for a reader."""
        return f"one log of {self.size:,}" if self.kind == "log" else f"{self.size:,} logs of {MESSAGES:,}"

    @property
    def name(self) -> str:
        """By which it is kept: a newer run takes its place."""
        return f"{self.job} {self.kind} {self.size} {self.master}"


def arguments(job: str, kind: str, size: int, folder: Path) -> list[str]:
    """Return the job and its logs, as the command takes them."""
    if job == START:
        return ["root", str(folder / "fleet" / "hub-0" / "0000.db")]
    if kind == "fleet":
        return [job, str(folder / "fleet" / "hub-*" / FLEETS[size])]
    names = ("large", "replica") if job == "reconcile" else ("large",)
    return [job, *(str(folder / f"{name}-{size}.db") for name in names)]


def check(job: str, kind: str, size: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Hold what a command printed against what the logs were made of.

    Raises:
        KeyError: it is of another form.
        ValueError: it is something else.
    """
    topics = max(size // HUBS, 1)
    lacking = LACKING * -(-topics // 10)
    logs = [row for row in rows if "log" in row]
    if job == "reconcile":
        found = sum(row["lacks"]["messages"] for row in logs)
        expected = lacking if kind == "fleet" else LACKING
    elif job == "analyze" and kind == "log":
        found, expected = logs[0]["totals"]["messages"], size
    else:
        found = sum(row["messages"] for row in logs)
        expected = {"log": size, "fleet": size * MESSAGES - lacking}[kind] if job != START else MESSAGES
    if found != expected:
        raise ValueError(f"{job} of {kind} {size}: {found} where {expected} were made")


def run(folder: Path, job: str, kind: str, size: int, master: str, *, alone: bool, limit: float | None = None) -> Row:
    """Run a job once.

    Args:
        folder: with the logs.
        job: of the pipeline, or `START`.
        kind: "log" or "fleet".
        size: messages of the log, or logs of the fleet.
        master: where Spark runs.
        alone: whether nothing else runs on the machine.
        limit: seconds after which it is stopped.

    Raises:
        RuntimeError: the command failed, or was stopped.
        ValueError: it printed something else than the logs have.
    """
    found, printed = measured.run(arguments(job, kind, size, folder), master, limit=limit)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    row = Row(job, kind, size, master, found, datetime.date.today().isoformat(), commit.strip(), alone)
    try:
        check(job, kind, size, printed)
    except (KeyError, ValueError) as error:
        # A run may take long: what it took is not lost where the check itself is wrong.
        FOLDER.mkdir(exist_ok=True)
        kept = FOLDER / f"refused-{row.name.replace(' ', '-')}.json"
        kept.write_text(json.dumps({"row": asdict(row), "printed": printed}, indent=1))
        raise ValueError(f"{row.name}: {error}; its figures are in {kept}") from error
    return row


def stored() -> dict[str, Row]:
    """Return the runs so far, by name."""
    kept = json.loads(STORE.read_text()) if STORE.exists() else {}
    rows = {}
    for name, fields in kept.items():
        took = _with_nan(fields["measured"])
        rows[name] = Row(**fields | {"measured": Measured(**took | {"tasks": Tasks(**_with_nan(took["tasks"]))})})
    return rows


def _with_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: math.nan if figure is None else figure for name, figure in figures.items()}


def _without_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures as JSON can have them, which has no NaN."""
    plain: dict[str, Any] = {}
    for name, figure in figures.items():
        if isinstance(figure, dict):
            figure = _without_nan(figure)
        plain[name] = None if isinstance(figure, float) and math.isnan(figure) else figure
    return plain


def keep(row: Row) -> None:
    """Keep a run, in the place of the last one like it."""
    rows = stored() | {row.name: row}
    # A run is a line.
    plain = {name: _without_nan(asdict(rows[name])) for name in sorted(rows)}
    lines = (f"{json.dumps(name)}: {json.dumps(fields, allow_nan=False)}" for name, fields in plain.items())
    STORE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def run_all(chosen: argparse.Namespace) -> None:
    """Run what was asked for, the smallest first."""
    sizes = [("log", size, size) for size in LARGE] + [("fleet", size, size * MESSAGES) for size in FLEETS]
    wanted = [
        (messages, job, kind, size)
        for kind, size, messages in sizes
        for job in chosen.jobs
        if chosen.least <= messages <= chosen.most and kind in chosen.kinds
    ]
    if chosen.start:
        wanted.append((MESSAGES, START, "log", MESSAGES))
    kept = stored()
    for _, job, kind, size in sorted(wanted, key=lambda each: each[0]):
        before = kept.get(f"{job} {kind} {size} {chosen.master}")
        if chosen.only_missing and before is not None and (before.alone or not chosen.alone):
            continue
        limit = None
        if chosen.until is not None:
            end = datetime.datetime.combine(datetime.date.today(), chosen.until)
            limit = (end - datetime.datetime.now()).total_seconds()
            if limit <= 0:
                print(f"it is {chosen.until}: {job} {kind} {size} is not run", flush=True)
                continue
        try:
            row = run(chosen.folder, job, kind, size, chosen.master, alone=chosen.alone, limit=limit)
        except (RuntimeError, ValueError) as error:
            print(f"{job} {kind} {size}: {error}", flush=True)
            continue
        keep(row)
        print(f"{datetime.datetime.now():%H:%M:%S}", f"{row.measured.seconds:.1f} s", *cells(row), flush=True)


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
    took, tasks = row.measured, row.measured.tasks
    return [
        row.job,
        row.what,
        f"{took.seconds:,.1f}" if row.alone else "",
        f"{took.processor:,.1f}",
        f"{took.java_heap:,}",
        f"{took.java_rss:,}",
        f"{took.driver_rss:,}",
        f"{tasks.count:,}",
        f"{tasks.largest_collect / 1e6:.2f}",
        f"{tasks.shuffled / 1e6:,.2f}",
        f"{took.load:.1f}",
    ]


_TITLES = (
    "seconds",
    "processor seconds",
    "Java's heap after a collection, MB",
    "Java's memory, MB",
    "the command's memory, MB",
    "tasks",
    "largest collect, MB",
    "shuffled, MB",
    "load before",
)


def driver_cells(row: Row) -> list[str]:
    """Return a row of the table of the driver apart from executors."""
    took, tasks = row.measured, row.measured.tasks
    return [
        row.job,
        row.what,
        f"{took.processor:,.1f}",
        f"{took.driver_processor + took.java_processor:,.1f}",
        f"{took.java_heap:,}",
        f"{took.java_rss:,}",
        f"{took.driver_rss:,}",
        # 0 where no process of an executor was seen.
        f"{took.executor_rss:,}" if took.executor_rss else "",
        f"{tasks.count:,}",
        f"{tasks.largest_collect / 1e6:.2f}",
        f"{tasks.shuffled / 1e6:,.2f}",
        f"{took.load:.1f}",
    ]


_DRIVER_TITLES = (
    "processor seconds",
    "the driver's",
    "its heap after a collection, MB",
    "its Java's memory, MB",
    "the command's memory, MB",
    "an executor's Java, MB",
    "tasks",
    "largest collect, MB",
    "shuffled, MB",
    "load before",
)


def write() -> None:
    """Write the table and the plots."""
    rows = stored()
    order = {job: number for number, job in enumerate((START, *JOBS))}
    ordered = sorted(rows.values(), key=lambda row: (order[row.job], row.kind != "log", row.size))
    local, cluster = ([row for row in ordered if row.master == master] for master in (LOCAL, CLUSTER))
    table = head(["job", "over"], list(_TITLES))
    table += [line(*cells(row)) for row in local]
    apart = head(["job", "over"], list(_DRIVER_TITLES))
    apart += [line(*driver_cells(row)) for row in cluster]
    rewrite(RESULTS, {"growth": table, "driver": apart})
    PLOTS.mkdir(exist_ok=True)
    for name, chart in plots(local).items():
        (PLOTS / f"{name}.svg").write_text(charts.standalone(charts.svg(chart)))


def plots(rows: Iterable[Row]) -> dict[str, charts.Chart]:
    """Return the plots by the names of their files."""
    found = {(row.job, row.kind, row.size): row.measured for row in rows}
    start = found[START, "log", MESSAGES].processor

    def processor(took: Measured, messages: int) -> float:
        return max(took.processor - start, 0) / messages * 1e6

    def memory(took: Measured, messages: int) -> float:
        return took.java_heap + took.driver_rss

    drawn: dict[str, charts.Chart] = {}
    labels = [f"{size:,}" for size in LARGE]
    for name, title, y, of in (
        ("processor", "Processor time a message, without the start of Spark", "microseconds a message", processor),
        ("memory", "Java's heap after collections and the command's memory", "MB", memory),
    ):
        series: list[charts.Series] = []
        for job in JOBS:
            for kind, what in (("log", "one log"), ("fleet", "logs of 1,000")):
                keys = [(job, kind, size if kind == "log" else size // MESSAGES) for size in LARGE]
                # What was not run at each size has no line.
                if all(key in found for key in keys):
                    values = [of(found[key], size) for key, size in zip(keys, LARGE, strict=True)]
                    series.append(charts.Series(f"{job}, {what}", values))
        title = f"{title}, by the number of messages of all logs"
        drawn[name] = charts.Chart(title, "messages of all logs", y, tuple(series), labels=labels)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="run jobs")
    running.add_argument("folder", type=Path, help="that benches.fleet filled")
    running.add_argument("--jobs", nargs="*", choices=JOBS, default=JOBS)
    running.add_argument("--kinds", nargs="*", choices=("log", "fleet"), default=("log", "fleet"))
    running.add_argument("--least", type=int, default=0, help="messages")
    running.add_argument("--most", type=int, default=LARGE[-1], help="messages")
    running.add_argument("--master", default=LOCAL)
    running.add_argument("--start", action="store_true", help="run the row of one small log, too")
    running.add_argument("--only-missing", action="store_true", help="pass over what was run before")
    running.add_argument("--alone", action="store_true", help="nothing else runs here: the seconds count, too")
    running.add_argument("--until", type=datetime.time.fromisoformat, help="HH:MM:SS, when what runs is stopped")
    running.set_defaults(run=run_all)
    writing = commands.add_parser("write", help="write the table and the plots")
    writing.set_defaults(run=lambda _: write())
    chosen = parser.parse_args()
    chosen.run(chosen)


if __name__ == "__main__":
    main()
