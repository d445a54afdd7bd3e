"""Sweeps on Spark: the same rows as without it, medians, plots."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from gossiplog.cli.main import build
from gossiplog.errors import OptionError
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.sweep import Grid
from gossiplog.spark import sweep, write_sweep
from gossiplog.spark.jobs.sweep import charts

GRID = Grid(("simsub", "floodsub"), (10, 20), (3, 6), seeds=range(3), plan=Plan(messages=2, fanout=1, connections=4))


def test_each_run_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    rows = write_sweep(sweep(spark, GRID), folder)
    written = [row.asDict() for row in spark.read.parquet(str(folder / "runs")).collect()]
    alone = [run.record() for run in GRID.runs()]

    def order(row: dict[str, object]) -> str:
        return repr([row[name] for name in ("router", "nodes", "degree", "loss", "seed")])

    assert sorted(written, key=order) == sorted(alone, key=order)
    assert [(row["router"], row["nodes"], row["degree"]) for row in rows] == [
        ("floodsub", 10, None),
        ("floodsub", 20, None),
        ("simsub", 10, 3),
        ("simsub", 10, 6),
        ("simsub", 20, 3),
        ("simsub", 20, 6),
    ]
    ours = [run["p50"] for run in alone if (run["router"], run["nodes"]) == ("floodsub", 10)]
    assert (rows[0]["runs"], rows[0]["p50"]) == (3, median(ours))
    plots = sorted(path.name for path in folder.glob("*.svg"))
    measures = ("delivered", "duplicates", "p50", "p95")
    assert plots == sorted(f"{measure}-by-{axis}.svg" for measure in measures for axis in ("degree", "nodes"))
    for plot in plots:
        ElementTree.parse(folder / plot)
    with pytest.raises(OptionError, match="is there already"):
        write_sweep(sweep(spark, GRID), folder)


def test_a_plot_has_a_line_for_each_router() -> None:
    rows = [
        {"router": router, "nodes": nodes, "degree": None, "loss": 0.0, "p50": value, "p95": None}
        | {"duplicates": 1.0, "delivered": 1.0}
        for router, nodes, value in (("a", 10, 0.1), ("a", 20, 0.2), ("b", 10, 0.3), ("b", 20, 0.5))
    ]
    found = charts(rows)
    # No run has a 95th percentile.
    assert set(found) == {"p50-by-nodes", "duplicates-by-nodes", "delivered-by-nodes"}
    chart = found["p50-by-nodes"]
    assert chart.labels == ["10", "20"]
    assert {series.name: list(series.values) for series in chart.series} == {"a": [100, 200], "b": [300, 500]}


def test_a_plot_has_all_routers() -> None:
    routers = [f"gossipsub:{share},floodsub:{100 - share}" for share in range(10, 90, 10)]
    rows = [
        {"router": router, "nodes": nodes, "degree": None, "loss": 0.0, "p50": 0.1, "p95": 0.1}
        | {"duplicates": 1.0, "delivered": 1.0}
        for router in routers
        for nodes in (10, 20)
    ]
    assert [series.name for series in charts(rows)["p50-by-nodes"].series] == routers


def test_a_router_without_a_value_has_no_line() -> None:
    rows = [
        {"router": router, "nodes": nodes, "degree": None, "loss": 0.0, "p50": value, "p95": None}
        | {"duplicates": None, "delivered": 0.0}
        for router, nodes, value in (("a", 10, 0.1), ("a", 20, None), ("b", 10, 0.3), ("b", 20, 0.5))
    ]
    assert [series.name for series in charts(rows)["p50-by-nodes"].series] == ["b"]


def test_the_command(spark: SparkSession, tmp_path: Path) -> None:
    command = ["pipeline", "sweep", str(tmp_path / "sweep"), "--router", "floodsub", "--nodes", "8", "--nodes", "12"]
    done = CliRunner().invoke(build(), [*command, "--connections", "3", "--seeds", "0:2", "--messages", "2", "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["nodes"], row["runs"], row["delivered"]) for row in rows] == [(8, 2, 1.0), (12, 2, 1.0)]
    refused = CliRunner().invoke(build(), [*command, "--connections", "9"])
    assert refused.exit_code == 2
    assert "9 connections of each of 8 nodes" in refused.output


def test_large_networks_may_have_many_connections(spark: SparkSession, tmp_path: Path) -> None:
    command = ["pipeline", "sweep", str(tmp_path / "sweep"), "--router", "floodsub", "--nodes", "130", "--json"]
    done = CliRunner().invoke(build(), [*command, "--connections", "110", "--seeds", "0:1", "--messages", "1"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["delivered"] == 1.0
