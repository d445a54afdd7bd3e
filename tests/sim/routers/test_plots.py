"""`gossiplog.sim.routers.plots`."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

from gossiplog.sim.routers.kinds import simsub
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.plots import degree_chart, latency_chart, tree, write_plots
from gossiplog.sim.routers.simulation import simulate
from gossiplog.sim.routers.tally import Degrees, Deliveries, Tally

PLAN = Plan(nodes=20, messages=2, connections=5, wait=2.0, seed=1)
NAMESPACE = {"s": "http://www.w3.org/2000/svg"}


def test_three_files(tmp_path: Path) -> None:
    simulation = simulate(simsub(), PLAN, trace=None)
    paths = write_plots(simulation, tmp_path / "plots")
    assert [path.name for path in paths] == ["latency.svg", "degree.svg", "tree.svg"]
    for path in paths:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.find("s:style", NAMESPACE) is not None
    drawn = ElementTree.fromstring(paths[2].read_text(encoding="utf-8"))
    assert len(drawn.findall("s:circle", NAMESPACE)) == 20
    assert len(drawn.findall("s:path", NAMESPACE)) == 15


def test_only_what_there_is(tmp_path: Path) -> None:
    quiet = simulate(simsub(), replace(PLAN, messages=0), trace=None)
    assert [path.name for path in write_plots(quiet, tmp_path)] == ["degree.svg"]


def test_latencies_add_up() -> None:
    chart = latency_chart([0.05, 0.1, 0.1, 0.2])
    (series,) = chart.series
    assert list(series.values) == sorted(series.values)
    assert (series.values[0], series.values[24], series.values[49], series.values[99]) == (0.0, 25.0, 75.0, 100.0)
    assert chart.edges[-1] == 200.0


def test_degrees_over_time() -> None:
    chart = degree_chart([Degrees(0.0, 1.5, 1, 2), Degrees(1.0, 3.0, 2, 5)])
    assert [list(series.values) for series in chart.series] == [[1.5, 3.0], [1, 2], [2, 5]]
    assert list(chart.edges) == [0.0, 1.0, 2.0]


def test_a_tree_joins_each_node_to_its_source() -> None:
    tally = Tally(4, [])
    tally.publish(0, 0.0)
    tally.publish(1, 0.0)
    for node, source, at in ((0, -1, 0.0), (1, 0, 0.1), (2, 0, 0.2), (3, 1, 0.3), (3, 2, 0.4)):
        tally.deliver(1, node, source, at)
    tally.deliver(0, 3, -1, 0.5)
    drawn = ElementTree.fromstring(tree(tally.deliveries, 1))
    titles = [title.text for title in drawn.iterfind("s:circle/s:title", NAMESPACE)]
    assert titles == ["0", "1", "3", "2"]
    assert len(drawn.findall("s:path", NAMESPACE)) == 3
    assert "0 to 300 milliseconds" in str(drawn.find("s:text", NAMESPACE).text)  # type: ignore[union-attr]


def test_a_chain_of_any_length() -> None:
    rows = Deliveries()
    for node in range(5000):
        for column, value in ((rows.message, 0), (rows.node, node), (rows.source, node - 1), (rows.hops, 0)):
            column.append(value)
        rows.latency.append(0.0)
    assert tree(rows, 0).count("<circle") == 5000
