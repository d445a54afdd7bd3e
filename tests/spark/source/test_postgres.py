"""Logs in Postgres through the data source: read in partitions, followed, written, and without passwords in plans."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

import gossiplog
from gossiplog import NotALog, Signer
from gossiplog.errors import CorruptLog, CursorOutdated, OptionError, StorageError
from gossiplog.spark import read, reconcile, verify_log, worker_errors
from gossiplog.spark.jobs.ingest import check_new_log
from gossiplog.spark.source.locks import LockPatience, is_locked
from gossiplog.spark.source.offsets import decode
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.options import (
    BATCH_OPTIONS,
    STREAM_OPTIONS,
    pruned,
    read_options,
    write_options,
)
from gossiplog.spark.source.reader import LogReader
from gossiplog.spark.source.stream_reader import LogStreamReader
from gossiplog.spark.source.writer import LogArrowWriter
from gossiplog.storage.postgres.connections import LOCK_SECONDS
from gossiplog.storage.postgres.url import PostgresURL
from tests.postgres import Server, schema_of

TOPIC = "org.example.spark"
SIGNER = Signer(bytes(32))
MESSAGES = 1500
VALUES = StructType([StructField("value", BinaryType())])


@pytest.fixture(scope="module")
def server() -> Server:
    from tests import postgres

    return postgres.shared_server()


@pytest.fixture(scope="module")
def full(server: Server) -> Any:
    """The URL of a log that tests only read."""
    with schema_of(server) as schema:
        url = server.url(schema)
        with gossiplog.open(url, TOPIC) as log:
            log.append_many(range(MESSAGES), signer=SIGNER)
        yield url


def batch_reader(url: str, columns: Sequence[str] = ("id", "log", "seq"), **options: str) -> LogReader:
    return LogReader(read_options({"path": url} | options, BATCH_OPTIONS), pruned(columns))


def rows(reader: LogReader) -> list[dict[str, Any]]:
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_partitions_tile_the_log(full: str, partitions: int) -> None:
    reader = batch_reader(full, partitions=str(partitions))
    sizes = [sum(len(batch) for batch in reader.read(partition)) for partition in reader.partitions()]
    assert len(sizes) == partitions
    assert sum(sizes) == MESSAGES
    assert partitions == 1 or max(sizes) < 2 * MESSAGES / partitions
    found = rows(reader)
    with gossiplog.open(full, read_only=True) as log:
        assert [row["id"] for row in found] == [message.id for message in log]
    assert {row["log"] for row in found} == {PostgresURL.parse(full).place}


def test_a_read_is_pinned_to_the_count_of_its_plan(new_postgres_url: Callable[[], str]) -> None:
    url = new_postgres_url()
    with gossiplog.open(url, TOPIC) as log:
        log.append_many(range(100), signer=SIGNER)
        reader = batch_reader(url, partitions="4")
        partitions = reader.partitions()
        log.append_many(range(100), signer=SIGNER)
        found = [row["seq"] for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
        assert sorted(found) == list(range(1, 101))
        assert len(rows(reader)) == 200


def test_a_rebase_between_plan_and_read_is_noticed(
    new_postgres_url: Callable[[], str], postgres_server: Server
) -> None:
    url = new_postgres_url()
    with gossiplog.open(url, TOPIC) as log, gossiplog.open(":memory:", TOPIC) as target:
        bad, *_ = log.append_many(range(5), signer=SIGNER)
        reader = batch_reader(url)
        partitions = reader.partitions()
        schema = url.partition("schema=")[2]
        try:
            gossiplog.rebase(url, target, [bad.id], signer=SIGNER)
            with pytest.raises(CursorOutdated, match=r"was rebased while it was read \(.*\): run the job again"):
                next(iter(reader.read(partitions[0])))
            assert len(rows(reader)) == 4
        finally:
            postgres_server.drop_schema(f"{schema}_generation_0")


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_rebase_between_two_pages_is_noticed(
    kind: str, new_postgres_url: Callable[[], str], postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of two generations, of which some would be missing, are no state of the log."""
    monkeypatch.setattr("gossiplog.spark.source.batches.BATCH", 10)
    monkeypatch.setattr("gossiplog.spark.source.stream_reader.BATCH", 10)
    url = new_postgres_url()
    with gossiplog.open(url, TOPIC) as log, gossiplog.open(":memory:", TOPIC) as target:
        bad, *_ = log.append_many(range(30), signer=SIGNER)
        if kind == "batch":
            (planned,) = (batching := batch_reader(url)).partitions()
            pages = batching.read(planned)
        else:
            following = LogStreamReader(read_options({"path": url}, STREAM_OPTIONS), pruned(["seq"]))
            end = following.latestOffset({}, following.getDefaultReadLimit())
            (part,) = following.partitions({}, end)
            pages = following.read(part)
        assert len(next(pages)) == 10
        try:
            gossiplog.rebase(url, target, [bad.id], signer=SIGNER)
            with gossiplog.open(url) as new:
                new.append_many(range(30), signer=SIGNER)
            with pytest.raises(StorageError, match=r"was replaced while the job read it: run the job again") as caught:
                next(pages)
            assert not isinstance(caught.value, CorruptLog)
        finally:
            postgres_server.drop_schema(f"{url.partition('schema=')[2]}_generation_0")


def test_a_stream_goes_on_from_its_offsets(new_postgres_url: Callable[[], str]) -> None:
    url = new_postgres_url()
    with gossiplog.open(url, TOPIC) as log:
        log.append_many(range(25), signer=SIGNER)
        options = read_options({"path": url, "startingOffsets": "earliest"}, STREAM_OPTIONS)
        reader = LogStreamReader(options, pruned(["seq"]))
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        log.append(1, signer=SIGNER)
        (name,) = decode(json.loads(json.dumps(end))).logs
        assert name == PostgresURL.parse(url).place
        found = [
            row["seq"]
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        assert found == list(range(1, 26))
        assert decode(reader.latestOffset(end, reader.getDefaultReadLimit())).logs[name].sequence == 26


def test_values_are_added_to_a_log_which_is_made(
    full: str, new_postgres_url: Callable[[], str], tmp_path: Path
) -> None:
    url = new_postgres_url()
    with gossiplog.open(full, read_only=True) as log:
        values = [message.value for message in log]
    with pytest.raises(OptionError, match="the option staging is missing"):
        LogArrowWriter(write_options({"path": url, "topic": TOPIC}), VALUES)
    with pytest.raises(NotALog):
        LogArrowWriter(write_options({"path": url, "staging": str(tmp_path)}), VALUES)
    writer = LogArrowWriter(write_options({"path": url, "topic": TOPIC, "staging": str(tmp_path)}), VALUES)
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([batch]))])
    with gossiplog.open(url, read_only=True) as ours, gossiplog.open(full, read_only=True) as theirs:
        assert ours.root == theirs.root
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_not_built_in_a_database() -> None:
    with pytest.raises(gossiplog.StorageError, match="is no path of a file: name one to be made on this machine, and"):
        check_new_log("postgresql://host/notes", TOPIC)


def test_spark_reads_and_checks_it(spark: SparkSession, full: str, tmp_path: Path) -> None:
    frame = read(spark, full, columns="id,seq", partitions=3)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.count() == MESSAGES
    with gossiplog.open(full, read_only=True) as log, gossiplog.open(tmp_path / "copy.db", TOPIC) as copy:
        copy.pull(log)
        copy.append("more", signer=SIGNER)
    found = verify_log(spark, full)
    assert (found.messages, sum(found.defects.values())) == (MESSAGES, 0)
    found.report.unpersist()
    compared = reconcile(spark, full, str(tmp_path / "copy.db"))
    assert [lack.messages for lack in compared.lacks] == [1, 0]
    compared.missing.unpersist()


def test_no_plan_holds_a_password(spark: SparkSession, full: str) -> None:
    with_password = full.replace("gossip@", "gossip:s3cret@")
    with pytest.raises(OptionError, match="has a password, which Spark would show") as caught, worker_errors():
        read(spark, with_password).count()
    assert "s3cret" not in str(caught.value)


def test_a_locked_log_of_many_is_waited_for_as_one_in_a_file_is(server: Server, full: str) -> None:
    patience = LockPatience(0.25)
    with server.connect() as holder, holder.transaction():
        holder.execute(f"LOCK TABLE {PostgresURL.parse(full).schema}.gossiplog_meta IN ACCESS EXCLUSIVE MODE")
        # For a server, a lock_timeout of 0 is no limit.
        for seconds in (patience, LockPatience(0.0)):
            began = time.monotonic()
            with pytest.raises(StorageError) as caught, opened(full, patience=seconds):
                pass
            assert is_locked(caught.value)
            assert time.monotonic() - began < LOCK_SECONDS / 2
    assert patience.left == pytest.approx(0.2)
