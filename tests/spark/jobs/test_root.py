from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import gossiplog
from gossiplog import core
from gossiplog.errors import ColumnError, TreeError
from gossiplog.spark import read, root
from gossiplog.spark.jobs.root import joined, partition_fragment
from tests.spark.shared import frame_of_rows

MakeLog = Callable[..., Path]


def own_root(path: Path) -> core.Node:
    with gossiplog.open(path) as log:
        return log.root


def parts(*frames: DataFrame) -> DataFrame:
    """The frames' partitions, one after the other."""
    whole, *rest = frames
    for frame in rest:
        whole = whole.union(frame)
    return whole


@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_the_root_is_the_log_s_own(spark: SparkSession, make_log: MakeLog, partitions: int) -> None:
    path = make_log(messages=3000)
    # So that partitions come in several batches.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    frame = read(spark, str(path), columns="key,value", partitions=partitions)
    assert frame.rdd.getNumPartitions() == partitions
    found = root(frame, ascending=True)
    assert (found.entries, found.node) == (3000, own_root(path))


def test_every_encoding_is_in_the_tree(spark: SparkSession, several: tuple[Path, list[int]]) -> None:
    path, _ = several
    assert root(read(spark, str(path), columns="key,value"), ascending=True).node == own_root(path)


def test_entries_in_any_order_and_as_hashes(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=500)
    with gossiplog.open(path) as log:
        entries = [(message.key, message.value) for message in log]
    shuffled = [(bytearray(key), bytearray(value)) for key, value in sorted(entries, key=lambda entry: entry[0][::-1])]
    frame = frame_of_rows(spark, shuffled, "key binary, value binary").repartition(3)
    assert root(frame).node == own_root(path)
    hashes = [(bytearray(core.leaf_hash(key, value)), bytearray(key), 1) for key, value in entries]
    assert root(frame_of_rows(spark, hashes, "hash binary, key binary, other int")).node == own_root(path)


@pytest.mark.parametrize("ascending", [False, True])
def test_without_entries(spark: SparkSession, make_log: MakeLog, ascending: bool) -> None:
    empty = core.Tree().root
    assert root(read(spark, str(make_log(messages=0)), columns="key,value"), ascending=ascending).node == empty
    assert root(frame_of_rows(spark, [], "key binary, hash binary"), ascending=ascending).node == empty


def test_a_partition_without_entries(spark: SparkSession) -> None:
    rows = [(bytearray(b"key"), bytearray(16))]
    frame = frame_of_rows(spark, rows, "key binary, hash binary").repartition(8, "key")
    assert root(frame, ascending=True).entries == 1


def test_keys_that_come_twice_or_overlap(spark: SparkSession, make_log: MakeLog) -> None:
    frame = read(spark, str(make_log(messages=100)), columns="key,value")
    with pytest.raises(TreeError, match="repetitions"):
        root(parts(frame, frame))
    with pytest.raises(TreeError, match="overlap"):
        root(parts(frame, frame), ascending=True)
    descending = frame.orderBy(frame.key.desc())
    with pytest.raises(TreeError, match="ascend"):
        root(descending, ascending=True)


def test_frames_without_entries_columns_or_with_nulls(spark: SparkSession) -> None:
    with pytest.raises(ColumnError, match="key and value"):
        root(spark.createDataFrame([(1,)], "key int"))
    for row in ((None, bytearray(16)), (bytearray(b"k"), None)):
        with pytest.raises(ColumnError, match="entry has both"):
            root(frame_of_rows(spark, [row], "key binary, hash binary"))
    with pytest.raises(ColumnError, match="hash"):
        root(frame_of_rows(spark, [(bytearray(b"k"), bytearray(3))], "key binary, hash binary"))


# What a task does with its partition, without Spark

ENTRIES = [(bytes([0, number]), core.leaf_hash(bytes([0, number]), b"value")) for number in range(200)]


def batch(entries: list[tuple[bytes | None, bytes | None]], content: str = "hash") -> pa.RecordBatch:
    keys, contents = ([entry[column] for entry in entries] for column in (0, 1))
    return pa.record_batch({"key": pa.array(keys, pa.binary()), content: pa.array(contents, pa.binary())})


def fragment_of(*batches: pa.RecordBatch) -> bytes:
    (found,) = partition_fragment(batches)
    assert found.schema == pa.schema([("fragment", pa.binary())])
    (fragment,) = found.column("fragment").to_pylist()
    return bytes(fragment)


def test_the_fragment_of_a_partition_does_not_depend_on_its_batches() -> None:
    whole = fragment_of(batch(ENTRIES))
    assert fragment_of(batch([]), batch(ENTRIES[:1]), batch(ENTRIES[1:150]), batch(ENTRIES[150:])) == whole
    assert fragment_of(batch([(key, b"value") for key, _ in ENTRIES], "value")) == whole
    tree, _ = core.Tree().insert_leaves([(key, hash, 0) for key, hash in ENTRIES], lambda start, end: [])
    assert joined([whole]).root == tree.root


def test_the_fragment_of_a_partition_without_entries() -> None:
    assert fragment_of() == fragment_of(batch([])) == core.Fragment().to_bytes()


def test_entries_that_no_partition_can_have() -> None:
    with pytest.raises(TreeError, match="ascend"):
        fragment_of(batch(ENTRIES[::-1]))
    with pytest.raises(TreeError):
        fragment_of(batch(ENTRIES), batch(ENTRIES[-1:]))
    for entry in ((None, bytes(16)), (b"k", None)):
        with pytest.raises(ColumnError, match="1 rows of a partition have no"):
            fragment_of(batch([entry]))
