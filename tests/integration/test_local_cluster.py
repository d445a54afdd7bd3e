"""Jobs on executors in processes of their own (`local-cluster`): they share nothing but files with the driver.

One session runs all jobs, in the program below.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import Signer
from tests.integration.local_cluster import MASTER, environment, remove_work, settings
from tests.spark.s3_server import ENVIRONMENT, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TOPIC = "org.example.hubs"

PROGRAM = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from gossiplog import spark
from gossiplog.spark.jobs.analyze_fleet import fleet_tables
from tests.integration.spark_jobs import follow
from tests.spark.killing import killing


def parents(batches):
    import os
    import pyarrow as pa
    for batch in batches:
        yield pa.record_batch({"parent": pa.array([os.getppid()] * len(batch), pa.int64())})


def checked_fleet(running):
    checked = spark.verify_fleet(running, "hubs/*/?.db")
    checked.report.unpersist()
    return checked.logs


if __name__ == "__main__":
    url, master, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    running = spark.session(master, conf=conf)
    Path("application").write_text(running.sparkContext.applicationId)
    found = {}
    found["daemons"] = running.range(0, 8, 1, 8).mapInArrow(parents, "parent long").distinct().count()
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
def found(folder: Path) -> Any:
    """What the program prints."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    variables = os.environ | ENVIRONMENT | environment()
    with serving() as bucket:
        for hub in ("north", "south"):
            bucket.objects[f"{hub}/a.db"] = (folder / "hubs" / hub / "a.db").read_bytes()
        command = [sys.executable, str(program), bucket.url("*/a.db"), MASTER, json.dumps(settings())]
        done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    if (application := folder / "application").exists():
        remove_work(application.read_text())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tasks_run_in_both_executors(found: dict[str, Any]) -> None:
    assert found["daemons"] == 2


def test_read(found: dict[str, Any], folder: Path) -> None:
    messages = {row["log"].split("hubs/")[1]: row["messages"] for row in found["read"]}
    assert messages == {
        f"{hub}/{name}.db": {"north": 307, "south": 305}[hub] for hub in ("north", "south") for name in "ab"
    }
    assert found["remote"] == 612


def test_verify(found: dict[str, Any]) -> None:
    messages, _, defects = found["verify"]
    assert (messages, defects) == (307, {})


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
