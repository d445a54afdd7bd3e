"""`gossiplog.sim.routers.tally`."""

from __future__ import annotations

from gossiplog.sim.routers.tally import Degrees, Tally


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
