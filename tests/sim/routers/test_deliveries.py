"""`gossiplog.sim.routers.deliveries`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from gossiplog.sim.routers.deliveries import COLUMNS, write_parquet
from gossiplog.sim.routers.kinds import simsub
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.simulation import simulate
from gossiplog.sim.routers.tally import Deliveries

PLAN = Plan(nodes=20, messages=2, connections=5, wait=2.0, seed=1)


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
