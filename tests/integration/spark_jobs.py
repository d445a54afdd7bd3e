"""The jobs of Spark that kill_jobs.py kills, each with its result in a form that can be compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import gossiplog
from gossiplog import Signer, spark
from gossiplog.errors import NotALog
from gossiplog.spark.folders import write_parquet
from gossiplog.spark.jobs import analyze_fleet, components, report
from gossiplog.spark.jobs.verify import FleetVerifyResult, VerifyResult
from tests.spark.conftest import TOPIC, make_replicas
from tests.spark.in_tasks import last_and_count

OUTPUT = "output"
"""The name of the folder or of the log that a job makes."""
JAVA = "java"
"""The name of the folder in which a Java process works that is killed with its driver."""
_REPLICAS = ("one", "two", "three")
_MERGER = "ann"
# Of a query, on a machine that is too busy.
_STARTS = 5
# Files of an open log, which stay beside it.
_BESIDE_LOG = ("-shm", "-wal", "-count")
# What a report says of the time at which it was made.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?")


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        run: does it in a folder with logs, and returns what can be compared.
        resumes: it goes on with what a run has left that was killed, which may be a part of its result.
        in_java: Java goes on with it when its Python is gone.
    """

    run: Callable[[SparkSession, Path], Any]
    resumes: bool = False
    in_java: bool = False


def prepare(folder: Path, common: int) -> None:
    """Make replicas, a log of another topic with a replica, one that is damaged, and keys.

    Args:
        folder: to be made.
        common: how many messages the replicas have in common.
    """
    logs, keys = folder / "logs", folder / "keys"
    logs.mkdir(parents=True)
    keys.mkdir()
    make_replicas(logs, common)
    with gossiplog.open(logs / "alone.db", f"{TOPIC}.alone", signer=Signer(b"\7" * 32)) as log:
        log.append_many(range(common // 8))
    with sqlite3.connect(logs / "alone.db") as database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    database.close()
    for number, author in enumerate((_MERGER, "bob", "eve"), 1):
        Signer(bytes([number]) * 32).save(keys / f"{author}.key")


def _read(session: SparkSession, folder: Path) -> Any:
    frame = spark.read(session, f"{folder}/logs/*.db", columns="log,clock,author,size")
    # What a task of a read is killed in.
    passed = frame.mapInArrow(lambda batches: batches, frame.schema)
    return [asdict(row) for row in spark.summarize(write_parquet(passed, str(folder / OUTPUT)))]


def _logs(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("logs/*.db"))


def _verify(session: SparkSession, folder: Path) -> Any:
    found = spark.verify_log(session, f"{folder}/logs/alone.db")
    _write_defects(found, folder)
    assert found.messages
    return [found.messages, found.root.hash.hex(), dict(found.defects)]


def _verify_fleet(session: SparkSession, folder: Path) -> Any:
    found = spark.verify_fleet(session, *_logs(folder))
    _write_defects(found, folder)
    assert all(each.messages for each in found.logs)
    return sorted((each.log, each.messages, dict(each.defects), str(each.problem)) for each in found.logs)


def _write_defects(found: VerifyResult | FleetVerifyResult, folder: Path) -> None:
    write_parquet(found.report, str(folder / OUTPUT))
    found.report.unpersist()


def _root(session: SparkSession, folder: Path) -> Any:
    frame = spark.read(session, f"{folder}/logs/one.db", columns="key,value")
    found = spark.root(frame, ascending=True)
    assert found.entries
    return [found.entries, found.node.hash.hex()]


def _fleet_roots(session: SparkSession, folder: Path) -> Any:
    found = spark.fleet_roots(session, *_logs(folder))
    assert all(each.messages for each in found)
    return sorted((each.log, each.node.hash.hex() if each.node else str(each.problem)) for each in found)


def _reconcile(session: SparkSession, folder: Path) -> Any:
    found = spark.reconcile(session, *(f"{folder}/logs/{name}.db" for name in _REPLICAS))
    spark.write_repairs(found, str(folder / OUTPUT))
    return [found.union, found.shared, [asdict(lack) for lack in found.lacks]]


def _reconcile_fleet(session: SparkSession, folder: Path) -> Any:
    found = spark.reconcile_fleet(session, f"{folder}/logs")
    written = spark.write_fleet_repairs(found, str(folder / OUTPUT))
    return [asdict(found.summary), sorted((row.log, row.lacks.messages) for row in found.logs), sorted(written)]


def _analyze(session: SparkSession, folder: Path) -> Any:
    frame = spark.read(session, f"{folder}/logs/one.db")
    found = spark.analyze(frame.mapInArrow(lambda batches: batches, frame.schema))
    spark.write_report(found, str(folder / OUTPUT), "one.db")
    return report.tables(found)


def _analyze_fleet(session: SparkSession, folder: Path) -> Any:
    found = spark.analyze_fleet(session, f"{folder}/logs")
    spark.write_fleet_analysis(found, str(folder / OUTPUT))
    return analyze_fleet.fleet_tables(found)


def _components(session: SparkSession, folder: Path) -> Any:
    """Components, in the staging folder that `ingest` has for them and clears before."""
    components._FEW = 4
    shutil.rmtree(folder / "staging", ignore_errors=True)
    edges = (
        session.range(40)
        .selectExpr("id as a", "id - id % 10 as b")
        .mapInArrow(lambda batches: batches, "a bigint, b bigint")
    )
    found = components.components(edges, str(folder / "staging")).collect()
    shutil.rmtree(folder / "staging")
    return sorted((row.node, row.component) for row in found)


def _ingest(session: SparkSession, folder: Path) -> Any:
    # Components take rounds.
    components._FEW = 4
    events = session.range(0, 300, 1, 4).selectExpr(
        "element_at(array('ann', 'bob', 'eve'), cast(id % 3 + 1 as int)) AS author",
        "id AS number",
        "cast(id AS string) AS id",
        "cast(if(id % 20 IN (0, 1), null, id - 2) AS string) AS parent",
    )
    layout = spark.Layout(author="author", sequence="number", id="id", parents="array(parent)", payload=("number",))
    log, keys = str(folder / OUTPUT), str(folder / "keys")
    return asdict(spark.ingest(events, log, f"{TOPIC}.made", layout, keys, merger=_MERGER))


def _append(session: SparkSession, folder: Path) -> Any:
    frame = spark.read(session, f"{folder}/logs/{{one,two}}.db", columns="value").repartition(4)
    with spark.worker_errors():
        frame.write.format("gossiplog").mode("append").options(path=_output(folder), topic=TOPIC).save()
    return contents(folder / OUTPUT)


def _materialize(session: SparkSession, folder: Path) -> Any:
    """A state that is made, and continued: the messages that come last belong between former ones."""
    recipe = spark.Recipe(spark.FunctionFold(last_and_count), key="author")
    growing = folder / "logs" / "growing.db"
    for replica in ("three", "one"):
        with gossiplog.open(growing, TOPIC) as log:
            log.pull(folder / "logs" / f"{replica}.db")
        spark.materialize(session, str(growing), str(folder / OUTPUT), recipe)
    state = spark.read_state(session, str(folder / OUTPUT), recipe.fold)
    return sorted([row.key, row.value] for row in state.collect())


def _stream_out(session: SparkSession, folder: Path) -> Any:
    # Two micro-batches and more.
    rows = session.readStream.format("gossiplog").option("columns", "log,id,size").option("maxRows", 1000)
    loaded = rows.load(f"{folder}/logs/{{one,two,three}}.db")
    with spark.worker_errors():
        query = loaded.writeStream.format("parquet").option("checkpointLocation", _checkpoint(folder))
        follow(query, _output(folder))
        found = session.read.parquet(_output(folder)).groupBy("log")
        figures = found.agg(F.count("*").alias("rows"), F.sum("size").alias("size"), F.sum(F.hash("id")).alias("ids"))
        return sorted([row.log, row.rows, row.size, row.ids] for row in figures.collect())


def _stream_in(session: SparkSession, folder: Path) -> Any:
    rows = session.readStream.format("gossiplog").option("columns", "value").option("maxRows", 1000)
    with spark.worker_errors():
        query = rows.load(f"{folder}/logs/{{one,two,three}}.db").writeStream.format("gossiplog")
        query = query.option("topic", TOPIC).option("checkpointLocation", _checkpoint(folder))
        follow(query, _output(folder))
    return contents(folder / OUTPUT)


def follow(query: DataStreamWriter, target: str) -> None:
    """Take what there is. Spark ends a query whose Python process takes ten seconds to start, on a busy machine."""
    for attempt in range(_STARTS):
        try:
            query.trigger(availableNow=True).start(target).awaitTermination()
            return
        except StreamingQueryException as error:
            if attempt == _STARTS - 1 or "failed to connect back" not in str(error):
                raise


def _output(folder: Path) -> str:
    """Return the path for Spark's own calls, whose working folder is another one."""
    return os.path.abspath(folder / OUTPUT)


def _checkpoint(folder: Path) -> str:
    return os.path.abspath(folder / "checkpoint")


JOBS: Mapping[str, Job] = {
    "read": Job(_read),
    "verify": Job(_verify),
    "verify_fleet": Job(_verify_fleet),
    "root": Job(_root),
    "fleet_roots": Job(_fleet_roots),
    "reconcile": Job(_reconcile),
    "reconcile_fleet": Job(_reconcile_fleet),
    "analyze": Job(_analyze),
    "analyze_fleet": Job(_analyze_fleet),
    "components": Job(_components),
    "ingest": Job(_ingest),
    "append": Job(_append, resumes=True, in_java=True),
    "materialize": Job(_materialize, resumes=True),
    "stream_out": Job(_stream_out, resumes=True, in_java=True),
    "stream_in": Job(_stream_in, resumes=True, in_java=True),
}


def run(name: str, session: SparkSession, folder: Path) -> str:
    """Run a job, and return its result and what it has written."""
    job = JOBS[name]
    found = [job.run(session, folder), None if job.resumes else contents(folder / OUTPUT)]
    return _plain(found, folder)


def _plain(found: Any, folder: Path) -> str:
    return _TIME.sub("TIME", json.dumps(found, default=str, sort_keys=True).replace(str(folder), ""))


def contents(path: Path) -> Any:
    """Return what is in a log, or in the files of a folder; of Parquet the rows, in any order."""
    if path.is_file():
        with gossiplog.open(path, read_only=True) as log:
            return [len(log), log.verify().root.hash.hex()]
    found: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name.startswith((".", "_")):
            continue
        place = str(file.relative_to(path))
        if file.suffix == ".parquet":
            table = pq.ParquetFile(file).read()
            found.setdefault(os.path.dirname(place), []).extend(map(str, table.to_pylist()))
            found[os.path.dirname(place)].sort()
        else:
            found[place] = file.read_text(encoding="utf-8")
    return found


def run_again(name: str, session: SparkSession, folder: Path, expected: str) -> bool:
    """Look at what a kill left, run the job again, and compare; return whether its result was there.

    Raises:
        AssertionError: a part of a result was taken for whole, the job has another result, or files are left.
    """
    output = folder / OUTPUT
    is_there = output.exists()
    if JOBS[name].resumes:
        if output.is_file():
            # Whatever is in it is sound. No transaction may have come to its end.
            with suppress(NotALog):
                contents(output)
    elif is_there:
        if json.loads(_plain(contents(output), folder)) != json.loads(expected)[1]:
            raise AssertionError("a part of a result was taken for whole")
        _remove(output)
    check(run(name, session, folder), expected, folder)
    return is_there


def _remove(output: Path) -> None:
    if output.is_dir():
        shutil.rmtree(output)
        return
    for ending in ("", *_BESIDE_LOG):
        output.with_name(output.name + ending).unlink(missing_ok=True)
    # Of a log that had got its name; nobody needs it, as the refusal to make this log says.
    shutil.rmtree(output.with_name(f"{output.name}.ingest"), ignore_errors=True)


def check(found: str, expected: str, folder: Path) -> None:
    """Check that a job has the result of another run, and left nothing beside it.

    Raises:
        AssertionError: it has not.
    """
    if found != expected:
        raise AssertionError(f"the job has another result: {found[:2000]} and not {expected[:2000]}")
    known = {
        "logs",
        "keys",
        "checkpoint",
        "temporary",
        "found",
        JAVA,
        OUTPUT,
        *(OUTPUT + ending for ending in _BESIDE_LOG),
    }
    left = {path.name for path in folder.iterdir()} - known
    left |= {path.name for path in (folder / "temporary").iterdir()}
    endings = (".db", *(f".db{ending}" for ending in _BESIDE_LOG))
    left |= {path.name for path in (folder / "logs").iterdir() if not path.name.endswith(endings)}
    if left:
        raise AssertionError(f"files are left: {sorted(left)}")
