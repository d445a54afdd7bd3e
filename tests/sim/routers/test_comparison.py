"""`gossiplog.sim.routers.comparison`."""

from __future__ import annotations

from gossiplog.sim.routers.comparison import Row, compare, record, run_seeds
from gossiplog.sim.routers.named import Named
from gossiplog.sim.routers.plan import Plan

RUN = Named("small", plan=Plan(nodes=20, messages=2, connections=5, wait=2.0))


def test_seeds_are_run_in_their_order_in_one_process_or_several() -> None:
    alone = list(run_seeds(RUN, range(3, 7), 1))
    assert list(run_seeds(RUN, range(3, 7), 2)) == alone
    assert len({counts["!!publish"] for counts in alone}) > 1
    assert list(run_seeds(RUN, [4], 1)) == alone[1:2]


def test_rows_have_medians_and_what_was_published() -> None:
    found = [{"a": 10, "b": 1}, {"a": 30, "b": 2}, {"a": 20, "b": 9, "c": 5}]
    rows = compare(found, {"a": 25, "c": 0})
    assert rows == [Row("a", 20, 10, 30, 25), Row("b", 2, 1, 9, None), Row("c", 5, 5, 5, 0)]
    assert [row.deviation for row in rows] == [-0.2, None, None]
    assert record(rows[0]) == {"row": "a", "median": 20, "least": 10, "most": 30, "published": 25, "deviation": -0.2}
    assert record(rows[1]) == {"row": "b", "median": 2, "least": 1, "most": 9}
    assert record(rows[2])["published"] == 0
