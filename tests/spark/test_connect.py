"""Each job over Spark Connect: its server runs in the Java process of all tests, whose own session is another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as RemoteSession

import gossiplog
from gossiplog import Signer, spark
from gossiplog.errors import NotALog, OptionError, SparkError, StorageError
from gossiplog.spark import worker_errors
from gossiplog.spark.session import running, session
from gossiplog.spark.tasks import cancel, followed, over_connect, parallelism, spread
from tests.spark.conftest import TOPIC, MakeLog
from tests.spark.in_tasks import double, largest

SHAPE = "number long"


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[str]:
    """The URL of a server in the Java process of the tests, on a port that the system gives."""
    java: Any = spark._jvm
    context: Any = spark.sparkContext._jsc.sc()
    settings = context.conf()
    # The service itself has methods of classes that py4j does not find, and would not tell its port.
    plugin = java.org.apache.spark.sql.connect.SparkConnectPlugin().driverPlugin()
    with socket.socket() as reserved:
        # Java sets the same: two sockets may be bound to one port where only one of them listens.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address, port = reserved.getsockname()
        settings.set("spark.connect.grpc.binding.address", address).set("spark.connect.grpc.binding.port", str(port))
        plugin.init(context, None)
    try:
        yield f"sc://{address}:{port}"
    finally:
        plugin.shutdown()


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[RemoteSession]:
    made = RemoteSession.builder.remote(server).create()
    yield made
    made.stop()


@pytest.fixture
def connected(
    spark: SparkSession, client: RemoteSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SparkSession:
    """The one session of this process, as far as it knows, which works in another folder than its server."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.chdir(tmp_path)
    found: Any = client
    return found


def test_it_is_the_session_of_the_process(connected: SparkSession) -> None:
    assert running() is connected
    assert session("local[4]", driver_memory="64g", conf={"spark.sql.shuffle.partitions": "2"}) is connected
    assert connected.conf.get("spark.sql.shuffle.partitions") == "2"
    assert over_connect(connected)
    assert parallelism(connected) == 2


def test_what_logs_hold(connected: SparkSession, make_log: MakeLog) -> None:
    make_log("a.db", 30)
    make_log("b.db", 20)
    found = spark.summarize(spark.read(connected, "*.db"))
    assert {Path(each.log).name: each.messages for each in found} == {"a.db": 30, "b.db": 20}
    with pytest.raises(NotALog, match="there is no log"), spark.worker_errors():
        spark.read(connected, "c.db").count()


def test_verify_and_root(connected: SparkSession, make_log: MakeLog) -> None:
    path = make_log("a.db", 30)
    with gossiplog.open(path) as log:
        expected = log.root
    found = spark.verify_log(connected, "a.db")
    assert (found.messages, found.defects, found.root.hash) == (30, {}, expected.hash)
    make_log("b.db", 20)
    (row, other) = spark.fleet_roots(connected, "a.db", "b.db")
    assert (row.messages, other.messages) == (30, 20)
    assert row.node is not None
    assert row.node.hash == expected.hash
    checked = spark.verify_fleet(connected, "a.db", "b.db", "gone.db")
    assert {Path(each.log).name: (each.messages, dict(each.defects)) for each in checked.logs} == {
        "gone.db": (None, {"log": 1}),
        "a.db": (30, {}),
        "b.db": (20, {}),
    }
    assert [row.kind for row in checked.report.collect()] == ["log"]
    checked.report.unpersist()
    entries = spark.read(connected, "a.db", columns="key,value")
    assert spark.root(entries, ascending=True).node.hash == expected.hash


def test_reconcile_a_fleet(connected: SparkSession, replicas: list[Path], make_log: MakeLog) -> None:
    make_log("other.db", topic="another")
    found = spark.reconcile_fleet(connected, "*.db", "gone.db")
    assert {Path(row.log).name: row.lacks.messages for row in found.logs if row.problem is None} == {
        "one.db": 5,
        "two.db": 30,
        "three.db": 42,
        "other.db": 0,
    }
    assert (found.summary.problems, found.summary.topics, found.summary.alone) == (1, 2, 1)
    repairs = spark.write_fleet_repairs(found, "repairs")
    assert {Path(log).name for log in repairs} == {"one.db", "two.db", "three.db"}


def test_reconcile_and_write(connected: SparkSession, replicas: list[Path]) -> None:
    found = spark.reconcile(connected, "one.db", "two.db", "three.db")
    assert [lack.messages for lack in found.lacks] == [5, 30, 42]
    repairs = spark.write_repairs(found, "repairs")
    with pytest.raises(OptionError, match="which no session of Spark Connect reaches"):
        spark.write_repairs(found, "hdfs://there/repairs")
    lacking = connected.read.parquet(os.path.abspath(repairs[2])).select("value")
    assert spark.write(lacking, "three.db", report="report").inserted == 42
    assert (Path.cwd() / "report" / "summary.json").exists()


def test_streams(connected: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    """Paths are the server's: Spark hands them over as they are, and neither end knows that the other has them."""
    path, target, checkpoint = make_log("a.db", 30), tmp_path / "b.db", str(tmp_path / "checkpoint")
    frame = connected.readStream.format("gossiplog").option("maxRows", 20).load(str(path))
    written = frame.writeStream.format("gossiplog").trigger(availableNow=True)
    written.option("topic", TOPIC).option("checkpointLocation", checkpoint).start(str(target)).awaitTermination()
    with gossiplog.open(path) as ours, gossiplog.open(target) as theirs:
        assert ours.root == theirs.root
    path.unlink()
    again = frame.writeStream.format("gossiplog").option("checkpointLocation", checkpoint)
    with pytest.raises(StorageError, match=r"a.db, of which the query has read 30 messages, is gone"), worker_errors():
        again.start(str(target)).awaitTermination()


def test_analyze(connected: SparkSession, make_log: MakeLog) -> None:
    make_log("a.db", 30)
    found = spark.analyze(spark.read(connected, "a.db"))
    assert (found.totals.messages, found.totals.heads, found.totals.longest_chain) == (30, 1, 30)


def test_analyze_a_fleet(connected: SparkSession, make_log: MakeLog) -> None:
    make_log("a.db", 30)
    make_log("b.db", 20, topic="another")
    found = spark.analyze_fleet(connected, "*.db", "gone.db")
    assert {Path(row.log).name: row.messages for row in found.logs} == {"a.db": 30, "b.db": 20, "gone.db": 0}
    assert (found.totals.topics, found.totals.problems) == (2, 1)
    spark.write_fleet_analysis(found, "analysis")
    assert (Path.cwd() / "analysis" / "analysis.json").exists()


def test_materialize(connected: SparkSession, make_log: MakeLog) -> None:
    path = make_log("a.db", 30)
    folds: tuple[spark.Fold, ...] = (spark.LastWriter(), spark.FunctionFold(largest))
    for number, fold in enumerate(folds):
        value = "payload.number" if number == 0 else None
        recipe = spark.Recipe(fold, "payload.number % 3", value, shape=connected.createDataFrame([], SHAPE).schema)
        assert spark.materialize(connected, "a.db", f"state-{number}", recipe).rows == 3
        with gossiplog.open(path) as log:
            log.append({"number": 30 + number}, signer=Signer(bytes(32)))
        assert spark.materialize(connected, "a.db", f"state-{number}", recipe).new == 1
        table = spark.read_state(connected, f"state-{number}", fold).collect()
        assert sorted(int(row.value) for row in table) == ([28, 29, 30] if number == 0 else [29, 30, 31])


def test_ingest(connected: SparkSession, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    for number, author in enumerate(("ann", "bob")):
        Signer(bytes([number]) * 32).save(keys / f"{author}.key")
    events = connected.createDataFrame([(("ann", "bob")[n % 2], n) for n in range(20)], "author string, number long")
    layout = spark.Layout(author="author", sequence="number", payload=("number",))
    done = spark.ingest(events, "made.db", "org.example.made", layout, "keys", merger="ann")
    assert (done.events, done.authors, done.heads) == (20, 2, 2)
    with gossiplog.open("made.db") as log:
        assert log.count() == 21


def test_progress_and_the_end(connected: SparkSession, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        while not os.path.exists(gate):
            time.sleep(0.05)
        yield from batches

    ended: list[SparkError] = []

    def run() -> None:
        try:
            with spark.worker_errors():
                connected.range(10, numPartitions=2).mapInArrow(wait, "id bigint").collect()
        except SparkError as error:
            ended.append(error)

    with followed(connected) as look:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            while look() != (0, 2):
                assert thread.is_alive()
                threading.Event().wait(0.05)
            cancel(connected)
        finally:
            thread.join(60)
            (tmp_path / "gate").touch()
        assert not thread.is_alive()
        assert len(ended) == 1
        assert look() == (0, 0)


def test_parts_are_spread_in_their_order(connected: SparkSession) -> None:
    assert spread(connected, [3, 1, 2], double) == [6, 2, 4]
    assert spread(connected, [], double) == []


def test_a_command_needs_no_java(server: str, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log("a.db", 30)
    with gossiplog.open(path) as log:
        expected = log.root
    command = [sys.executable, "-m", "gossiplog", "pipeline", "root", "a.db", "--master", server]
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert expected.hash.hex() in done.stdout


def test_no_server(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark would wait for ten minutes."""
    monkeypatch.setattr(sys.modules[running.__module__], "_SERVER_SECONDS", 0.2)
    with pytest.raises(SparkError, match=rf"no server of Spark Connect answers at sc://127\.0\.0\.1:{port} within"):
        session(f"sc://127.0.0.1:{port}/;user_id=me")


def test_a_server_sets_its_own_memory() -> None:
    with pytest.raises(OptionError, match="set where it is started"):
        session("sc://127.0.0.1:1", driver_memory="4g")
