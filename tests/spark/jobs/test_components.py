"""Connected components, against a search on one machine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from gossiplog.spark.jobs import components as job
from gossiplog.spark.jobs.components import components
from tests.spark.shared import frame_of_rows


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
}


# The graphs are one: no edge leads from one to another.
APART = 1000


@pytest.fixture(scope="module", params=[0, 2**17], ids=["executors", "driver"])
def found(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The components of all graphs."""
    edges = [(number * APART + a, number * APART + b) for number, name in enumerate(GRAPHS) for a, b in GRAPHS[name]]
    return joined(spark, tmp_path_factory.mktemp("components"), edges, request.param)


def joined(spark: SparkSession, folder: Path, edges: list[tuple[int, int]], few: int) -> list[Row]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_FEW", few)
        return components(frame_of_rows(spark, edges, "a bigint, b bigint"), str(folder / "rounds")).collect()


def check(rows: list[Row], edges: list[tuple[int, int]]) -> None:
    expected = searched(edges)
    assert len({row.node for row in rows}) == len(rows)
    # The least nodes are not in the result, which has only those that are linked to another.
    assert {row.node: row.component for row in rows} == {n: least for n, least in expected.items() if n != least}


def test_only_nodes_of_the_graphs_are_in_the_result(found: list[Row]) -> None:
    nodes = {number * APART + n for number, name in enumerate(GRAPHS) for edge in GRAPHS[name] for n in edge}
    assert {row.node for row in found} <= nodes


@pytest.mark.parametrize("name", GRAPHS)
def test_components(found: list[Row], name: str) -> None:
    start = list(GRAPHS).index(name) * APART
    near = range(start - APART // 2, start + APART // 2)
    check([row for row in found if row.node in near], [(start + a, start + b) for a, b in GRAPHS[name]])


@pytest.mark.parametrize("few", [0, 2**17], ids=["executors", "driver"])
def test_without_edges(spark: SparkSession, tmp_path: Path, few: int) -> None:
    check(joined(spark, tmp_path, [], few), [])
