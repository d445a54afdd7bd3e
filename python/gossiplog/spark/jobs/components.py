"""Connected components of a graph that no single machine holds.

Alternating large-star and small-star: R. Kiveris, S. Lattanzi, V. Mirrokni, V. Rastogi, S. Vassilvitskii, "Connected
Components in MapReduce and Beyond", SoCC 2014 (https://doi.org/10.1145/2670979.2670997), sections 3.1 and 3.2. Each
round links nodes to smaller ones without parting or joining components; when a round changes nothing, every node is
linked to the smallest of its component. That takes O(log² n) rounds for n nodes, by observation O(log n).

The driver joins few edges by itself: a round costs seconds, however little there is to do.
"""

from __future__ import annotations

import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from gossiplog.spark.folders import parquet_files, write_back

# Edges that the driver joins: some 30 MB.
_FEW = 2**17


def components(edges: DataFrame, folder: str) -> DataFrame:
    """Return the components of a graph.

    Args:
        edges: with the columns a and b, bigint: nodes that belong together, in any order.
        folder: to be made, of this machine, which the executors see, too. Each round is written there: a plan of many
            rounds would grow with them, and be computed from the start for each.

    Returns:
        A frame with the columns node and component, which is the least node of those that are connected. A node that is
        the least itself, or has no edge to another, is not in it.
    """
    session = edges.sparkSession
    pairs = edges.where("a != b").select(F.greatest("a", "b").alias("node"), F.least("a", "b").alias("least"))
    rounds = 0
    current = write_back(pairs.distinct(), _path(folder, rounds))
    if (few := _few(_path(folder, rounds))) is not None:
        return session.createDataFrame(_joined(few))
    while True:
        rounds += 1
        following = write_back(_small_star(_large_star(current)), _path(folder, rounds))
        # Both are sets: what one of them lacks occurs once.
        changed = not current.union(following).groupBy("node", "least").count().where("count = 1").isEmpty()
        shutil.rmtree(_path(folder, rounds - 1))
        current = following
        if not changed:
            return current.withColumnRenamed("least", "component")


def _few(folder: str) -> pa.Table | None:
    """Return the pairs that were written to a folder; None where they are too many for the driver."""
    files = parquet_files(folder)
    if sum(pq.read_metadata(file).num_rows for file in files) > _FEW:
        return None
    return pa.concat_tables(map(pq.read_table, files))


def _joined(pairs: pa.Table) -> pa.Table:
    """Return the components of a few pairs, by union and find."""
    parent: dict[int, int] = {}

    def least(node: int) -> int:
        while (above := parent.get(node, node)) != node:
            parent[node] = parent.get(above, above)
            node = above
        return node

    for node, other in zip(pairs["node"].to_pylist(), pairs["least"].to_pylist(), strict=True):
        low, high = sorted((least(node), least(other)))
        if low != high:
            parent[high] = low
    schema = pa.schema([("node", pa.int64()), ("component", pa.int64())])
    return pa.table([list(parent), [least(node) for node in parent]], schema=schema)


def _large_star(pairs: DataFrame) -> DataFrame:
    """Link the larger neighbours of each node to the least of its neighbours and itself."""
    both = pairs.union(pairs.select("least", "node")).toDF("node", "neighbour")
    smallest = F.least(F.min("neighbour").over(Window.partitionBy("node")), "node")
    linked = both.withColumn("least", smallest).where("neighbour > node")
    return linked.select(F.col("neighbour").alias("node"), "least").distinct()


def _small_star(pairs: DataFrame) -> DataFrame:
    """Link each node and its smaller neighbours to the least of these."""
    linked = pairs.withColumn("smallest", F.min("least").over(Window.partitionBy("node")))
    neighbours = linked.where("least != smallest").select("least", "smallest")
    return neighbours.union(linked.select("node", "smallest")).toDF("node", "least").distinct()


def _path(folder: str, number: int) -> str:
    return os.path.join(folder, f"round-{number}")
