"""Jobs on executors in processes of their own (`local-cluster`): they share nothing but files with the driver.

One session runs all jobs, in the program below. Spark carries the Python environment to the executors, as
docs/pipeline.md has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import Signer
from tests.integration.local_cluster import MASTER, java_variables, remove_work
from tests.spark import java
from tests.spark.s3_server import ENVIRONMENT, serving
from tests.spark.shared import FEW_ROWS, ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TOPIC = "org.example.hubs"

PROGRAM = """
import io, json, os, sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch
from pyspark.sql import SparkSession
from gossiplog import spark
from gossiplog.cli.main import main
from gossiplog.spark.jobs.analyze_fleet import fleet_tables
from tests.integration.spark_jobs import follow
from tests.spark.killing import killing


def pythons(batches):
    import os
    import sys
    import pyarrow as pa
    for batch in batches:
        rows = [{"parent": os.getppid(), "prefix": sys.prefix}] * len(batch)
        yield pa.RecordBatch.from_pylist(rows, pa.schema([("parent", pa.int64()), ("prefix", pa.string())]))


def checked_fleet(running):
    checked = spark.verify_fleet(running, "hubs/*/?.db")
    checked.report.unpersist()
    return checked.logs


if __name__ == "__main__":
    url, options = sys.argv[1], sys.argv[2:]
    found, printed = {}, io.TextIOWrapper(io.BytesIO())
    # The command starts the session, and would stop it.
    with patch.object(SparkSession, "stop"), redirect_stdout(printed):
        found["code"] = main(["pipeline", "verify", "hubs/north/a.db", "--json", *options])
    found["command"] = [json.loads(line) for line in printed.buffer.getvalue().splitlines()]
    running = SparkSession.active()
    found["application"] = running.sparkContext.applicationId
    Path("application").write_text(found["application"])
    workers = running.range(0, 8, 1, 8).mapInArrow(pythons, "parent long, prefix string").distinct()
    found["workers"] = [[row.parent, row.prefix] for row in workers.collect()]
    columns = "log,clock,author,size"
    logs = spark.read(running, "hubs", recursiveFileLookup="true", pathGlobFilter="*.db", columns=columns)
    found["read"] = [asdict(row) for row in spark.summarize(logs)]
    found["remote"] = spark.read(running, url, columns="key").count()
    checked = spark.verify_log(running, "hubs/north/a.db")
    found["verify"] = checked.messages, checked.root.hash.hex(), dict(checked.defects)
    compared = spark.reconcile_fleet(running, "hubs", recursive=True)
    pair = spark.reconcile(running, "hubs/north/a.db", "hubs/south/a.db")
    found["pair"] = [lack.messages - lack.unreadable for lack in pair.lacks]
    repairs = spark.write_fleet_repairs(compared, "repairs")
    found["lacks"] = {row.log: row.lacks.messages for row in compared.logs if row.problem is None}
    found["problems"] = {row.log: row.problem.kind for row in compared.logs if row.problem is not None}
    for log, repair in repairs.items():
        lacking = running.read.parquet(os.path.abspath(repair)).select("value")
        written = spark.write(lacking, log, report=f"report-{os.path.relpath(repair, 'repairs').replace(os.sep, '-')}")
        found.setdefault("written", {})[log] = written.inserted
    found["fleet"] = sorted((each.log, each.messages, dict(each.defects)) for each in checked_fleet(running))
    one = spark.read(running, "hubs/north/a.db")
    found["analyze"] = asdict(spark.analyze(one).totals)
    found["analyses"] = fleet_tables(spark.analyze_fleet(running, "hubs/*/?.db"))["logs"]
    # As `available now`: the tasks write what they verified, the driver merges it.
    stream = running.readStream.format("gossiplog").option("columns", "value").option("maxRows", 200)
    query = stream.load("hubs/*/a.db").writeStream.format("gossiplog")
    query = query.option("topic", "org.example.hubs").option("checkpointLocation", os.path.abspath("checkpoint"))
    follow(query, os.path.abspath("archive.db"))
    # Spark repeats what a worker did that is killed, or an executor.
    found["killed"] = {}
    for victim in ("worker", "executor"):
        with killing(Path("token").absolute(), victim == "executor"):
            again = sorted((each.log, each.messages, dict(each.defects)) for each in checked_fleet(running))
        found["killed"][victim] = [again == found["fleet"], os.path.exists("token")]
    rows = [(("ann", "bob")[n % 2], n) for n in range(50)]
    events = running.createDataFrame(rows, "author string, number long").repartition(4)
    layout = spark.Layout(author="author", sequence="number", payload=("number",))
    found["ingest"] = asdict(spark.ingest(events, "made.db", "org.example.made", layout, "keys", merger="ann"))
    print(json.dumps(found))
    running.stop()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hubs with a log each of two topics, a file that is none, and keys."""
    place = tmp_path_factory.mktemp("cluster")
    signers = [Signer(bytes([number]) * 32) for number in (1, 2)]
    for hub in ("north", "south"):
        (place / "hubs" / hub).mkdir(parents=True)
    for name, topic in (("a", TOPIC), ("b", f"{TOPIC}.b")):
        with (
            gossiplog.open(place / "hubs" / "north" / f"{name}.db", topic) as north,
            gossiplog.open(place / "hubs" / "south" / f"{name}.db", topic) as south,
        ):
            north.append_many(range(300), signer=signers[0])
            south.pull(north)
            north.append_many(range(7), signer=signers[0])
            south.append_many(range(5), signer=signers[1])
    (place / "hubs" / "south" / "notes").write_text("no log")
    (place / "keys").mkdir()
    for author, signer in zip(("ann", "bob"), signers, strict=True):
        signer.save(place / "keys" / f"{author}.key")
    return place


@pytest.fixture(scope="module")
def environment(folder: Path) -> Path:
    """The archive of an environment that is found by its relative path alone. Its packages are those of this one: they
    need not be installed for the test."""
    place = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python3.*/site-packages")
    # Executors import functions of the tests by name.
    (packages / "these.pth").write_text(f"{ROOT / 'python'}\n{ROOT}\n{sysconfig.get_path('purelib')}\n")
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(place, ".")
    return archive


@pytest.fixture(scope="module")
def found(folder: Path, environment: Path) -> Any:
    """What the program prints."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    # No package is found there, so executors need the environment; without it each process of Python compiles PySpark.
    variables = inherited | ENVIRONMENT | java_variables() | {"PYTHONPATH": str(java.CONF)}
    conf = FEW_ROWS | {
        "spark.archives": f"{environment}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.executor.extraJavaOptions": java.archived(),
    }
    options = ["--master", MASTER, *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}"))]
    with gossiplog.open(folder / "hubs" / "north" / "a.db", read_only=True) as log:
        root = log.root.hash.hex()
    with serving() as bucket:
        for hub in ("north", "south"):
            bucket.objects[f"{hub}/a.db"] = (folder / "hubs" / hub / "a.db").read_bytes()
        command = ["environment/bin/python", str(program), bucket.url("*/a.db"), *options]
        done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    if (application := folder / "application").exists():
        remove_work(application.read_text())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"root": root}


def test_tasks_run_in_both_executors(found: dict[str, Any]) -> None:
    assert len(found["workers"]) == 2


def test_the_environment_is_shipped(found: dict[str, Any]) -> None:
    """Both executors run the Python that was carried to them, with which the command's job does what it is to do."""
    (report,) = found["command"]
    assert found["code"] == 0
    assert (report["messages"], report["defects"], report["root"]) == (307, 0, found["root"])
    places = [Path(prefix) for _, prefix in found["workers"]]
    assert {place.parts[-3] for place in places} == {found["application"]}
    assert {place.parts[-2:] for place in places} == {(number, "environment") for number in ("0", "1")}


def test_read(found: dict[str, Any], folder: Path) -> None:
    messages = {row["log"].split("hubs/")[1]: row["messages"] for row in found["read"]}
    assert messages == {
        f"{hub}/{name}.db": {"north": 307, "south": 305}[hub] for hub in ("north", "south") for name in "ab"
    }
    assert found["remote"] == 612


def test_verify(found: dict[str, Any]) -> None:
    messages, root, defects = found["verify"]
    assert (messages, root, defects) == (307, found["root"], {})


def test_verify_a_fleet(found: dict[str, Any]) -> None:
    """After the repairs."""
    expected = {f"hubs/{hub}/{name}.db": 312 for hub in ("north", "south") for name in "ab"}
    assert {log: messages for log, messages, defects in found["fleet"] if not defects} == expected


def test_analyze(found: dict[str, Any]) -> None:
    assert (found["analyze"]["messages"], found["analyze"]["heads"], found["analyze"]["longest_chain"]) == (312, 2, 307)
    assert [(row["messages"], row["longest_chain"], row["problem"]) for row in found["analyses"]] == [
        (312, 307, None)
    ] * 4


def test_a_stream_into_a_log(found: dict[str, Any], folder: Path) -> None:
    with gossiplog.open(folder / "archive.db") as log:
        assert len(log) == 312
        log.verify()


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_what_was_killed_is_repeated(found: dict[str, Any], victim: str) -> None:
    is_same, is_left = found["killed"][victim]
    assert is_same
    assert not is_left


def test_reconcile_and_append(found: dict[str, Any], folder: Path) -> None:
    lacks = {f"hubs/{hub}/{name}.db": {"north": 5, "south": 7}[hub] for hub in ("north", "south") for name in "ab"}
    # By relative paths, which executors have to find from their own folders.
    assert found["lacks"] == found["written"] == lacks
    assert sorted(found["pair"]) == [5, 7]
    assert found["problems"] == {"hubs/south/notes": "no log"}
    for name in "ab":
        roots = []
        for hub in ("north", "south"):
            with gossiplog.open(folder / "hubs" / hub / f"{name}.db") as log:
                assert len(log) == 312
                log.verify()
                roots.append(log.root)
        assert roots[0] == roots[1]


def test_ingest(found: dict[str, Any], folder: Path) -> None:
    assert (found["ingest"]["events"], found["ingest"]["authors"], found["ingest"]["heads"]) == (50, 2, 2)
    with gossiplog.open(folder / "made.db") as log:
        assert len(log) == 51
        log.verify()
