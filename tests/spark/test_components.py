"""Connected components, against a search on one machine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.spark import components as job
from gossiplog.spark.components import components


def searched(edges: list[tuple[int, int]]) -> dict[int, int]:
    """The least node of each node's component, by union and find."""
    root: dict[int, int] = {}

    def find(node: int) -> int:
        while root.setdefault(node, node) != node:
            node = root[node]
        return node

    for a, b in edges:
        first, second = sorted((find(a), find(b)))
        root[second] = first
    return {node: find(node) for node in root}


def random_graph() -> list[tuple[int, int]]:
    chance = random.Random(1)
    return [(chance.randrange(-150, 150), chance.randrange(-150, 150)) for _ in range(150)]


GRAPHS = {
    # Large components of these take the most rounds.
    "path": [(n * 37 % 101, (n + 1) * 37 % 101) for n in range(100)],
    "random": random_graph(),
    "star, loops and repetitions": [(5, n) for n in range(20)] + [(7, 7), (30, 31), (31, 30), (99, 99)],
    "none": [],
}


@pytest.mark.parametrize("few", [0, 2**17], ids=["executors", "driver"])
@pytest.mark.parametrize("name", GRAPHS)
def test_components(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, few: int) -> None:
    monkeypatch.setattr(job, "_FEW", few)
    edges = GRAPHS[name]
    frame = spark.createDataFrame(edges, "a bigint, b bigint")
    rows = components(frame, str(tmp_path / "rounds")).collect()
    expected = searched(edges)
    assert len({row.node for row in rows}) == len(rows)
    # The least nodes are not in the result, which has only those that are linked to another.
    assert {row.node: row.component for row in rows} == {n: least for n, least in expected.items() if n != least}
