"""Where the page of a dashboard draws the peers of a row or a ring, and how it fits a phone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from gossiplog.dashboard.events import Connected, Disconnected, PeerAdded, PeerRemoved
from tests.integration.dashboards import Open, Page, Shown, showing

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("browser")]

RESTS = "dashboard.isResting && dashboard.layout.nodes.size === dashboard.state.peers.size"


@pytest.fixture
def empty() -> Iterator[Shown]:
    """A dashboard without peers."""
    with showing(0) as shown:
        shown.call(shown.publish, PeerRemoved(0.0, "12D3KooW0000"))
        yield shown


def join(shown: Shown, count: int, *, ring: bool) -> None:
    """Have peers join a row in another order than that of their places."""
    for number in sorted(range(count), key=lambda number: number * 7 % count):
        shown.call(shown.publish, PeerAdded(1.0, f"p{number}", str(number)))
    for number in sorted(range(count if ring else count - 1), key=lambda number: number * 5 % count):
        shown.call(shown.publish, Connected(2.0, f"p{number}", f"p{(number + 1) % count}"))


def places(page: Page, count: int) -> list[tuple[float, float]]:
    """Where the peers are drawn, once they rest there."""
    page.until(f"dashboard.state.peers.size === {count} && {RESTS}")
    found: dict[str, Any] = page.evaluate(
        "Object.fromEntries([...dashboard.layout.nodes].map(([name, {x, y}]) => [name, [x, y]]))"
    )
    return [(x, y) for x, y in (found[f"p{number}"] for number in range(count))]


def is_circle(found: list[tuple[float, float]]) -> bool:
    count = len(found)
    radius = math.hypot(*found[0])
    steps = [
        (math.atan2(y, x) - math.atan2(found[at - 1][1], found[at - 1][0])) % math.tau
        for at, (x, y) in enumerate(found)
    ]
    return all(abs(math.hypot(*each) - radius) < 0.1 * radius for each in found) and all(
        abs(step - math.tau / count) < 0.3 * math.tau / count for step in steps
    )


def test_a_ring_is_a_circle_and_stays_one_when_it_is_cut(empty: Shown, open_page: Open) -> None:
    page = open_page(empty.url)
    join(empty, 5, ring=True)
    page.until("dashboard.state.edges.size === 5")
    assert is_circle(places(page, 5))
    empty.call(empty.publish, Disconnected(3.0, "p4", "p0"))
    empty.call(empty.publish, Disconnected(3.0, "p1", "p2"))
    page.until("dashboard.state.edges.size === 3")
    assert is_circle(places(page, 5))
    # A peer more, in the place between the last and the first.
    empty.call(empty.publish, PeerAdded(4.0, "p5", "5"))
    for other in ("p4", "p0"):
        empty.call(empty.publish, Connected(4.0, "p5", other))
    page.until("dashboard.state.edges.size === 5")
    assert is_circle(places(page, 6))


def test_a_line_is_straight_and_a_long_one_is_folded(empty: Shown, open_page: Open) -> None:
    page = open_page(empty.url)
    join(empty, 4, ring=False)
    page.until("dashboard.state.edges.size === 3")
    found = places(page, 4)
    assert max(abs(y) for _, y in found) < 2
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    for number in range(4, 20):
        empty.call(empty.publish, PeerAdded(3.0, f"p{number}", str(number)))
        empty.call(empty.publish, Connected(3.0, f"p{number - 1}", f"p{number}"))
    page.until("dashboard.state.edges.size === 19")
    found = places(page, 20)
    # Neighbours are beside or below each other, and nobody else is as near.
    near = [math.dist(one, other) for one, other in pairwise(found)]
    assert max(near) < 80
    assert min(near) > 68
    assert min(math.dist(found[one], found[other]) for one in range(20) for other in range(one)) > 68


def test_what_is_no_row_is_drawn_by_forces_again(empty: Shown, open_page: Open) -> None:
    page = open_page(empty.url)
    join(empty, 6, ring=False)
    page.until("dashboard.state.edges.size === 5")
    assert max(abs(y) for _, y in places(page, 6)) < 2
    for one, other in (("p0", "p3"), ("p1", "p4"), ("p2", "p5"), ("p0", "p4")):
        empty.call(empty.publish, Connected(3.0, one, other))
    page.until("dashboard.state.edges.size === 9")
    assert max(abs(y) for _, y in places(page, 6)) > 10
