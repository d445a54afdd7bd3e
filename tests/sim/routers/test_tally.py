"""`gossiplog.sim.routers.tally`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from gossiplog.sim.routers.kinds import simsub
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.simulation import simulate
from gossiplog.sim.routers.tally import COLUMNS, Degrees, Deliveries, Tally, write_parquet

PLAN = Plan(nodes=20, messages=2, connections=5, wait=2.0, seed=1)


def test_hops_are_counted_along_the_way() -> None:
    tally = Tally(400, ["a"])
    tally.publish(7, 1.0)
    tally.publish(8, 2.0)
    tally.deliver(7, 0, -1, 1.0)
    tally.deliver(8, 1, -1, 2.0)
    for node in range(1, 300):
        tally.deliver(7, node, node - 1, 1.0 + node)
    rows = tally.deliveries
    assert list(rows.hops) == [0, 0, *range(1, 256), *[255] * 44]
    assert list(rows.latency[:4]) == [0.0, 0.0, 1.0, 2.0]
    assert list(rows.source[:4]) == [-1, -1, 0, 1]
    assert list(rows.message[:3]) == [7, 8, 7]


def test_degrees_of_nobody_are_not_sampled() -> None:
    tally = Tally(3, [])
    tally.sample(1.0, [])
    tally.sample(2.0, [1, 3, 5])
    assert tally.degrees == [Degrees(2.0, 3.0, 1, 5)]


def test_a_row_for_each_delivery(tmp_path: Path) -> None:
    simulation = simulate(simsub(), PLAN, trace=None)
    path = tmp_path / "deliveries.parquet"
    path.write_text("what was there before")
    write_parquet(simulation.tally.deliveries, path)
    table = parquet.read_table(path)
    assert tuple(table.column_names) == COLUMNS
    assert table.num_rows == 40
    for name in COLUMNS:
        assert table.column(name).to_pylist() == list(getattr(simulation.tally.deliveries, name))
    assert list(tmp_path.iterdir()) == [path]


def test_no_rows(tmp_path: Path) -> None:
    write_parquet(Deliveries(), tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install gossiplog\[arrow\]"):
        write_parquet(Deliveries(), tmp_path / "none.parquet")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        write_parquet(Deliveries(), tmp_path / "nowhere" / "none.parquet")
