"""Where the page of a dashboard draws the peers of a row or a ring, and how it fits a phone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from gossiplog.dashboard.events import Connected, Disconnected, PeerAdded, PeerRemoved
from tests.integration.dashboards import Open, Page, Shown, place, showing

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


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_no_column_of_the_peers_is_cut(open_page: Open, size: tuple[int, int]) -> None:
    with showing(14) as shown:
        page = open_page(shown.url, size=size)
        page.until("dashboard.isShown && document.querySelectorAll('#rows tr').length === 15")
        # As they are in a mesh: the widest kind, links of many peers, and clocks and counts of four digits.
        page.evaluate(
            """[...document.querySelectorAll("#rows tr")].forEach((row) => {
                const texts = ["bootstrap", null, "1234", "1235", "13 · 12", "bootstrap"];
                texts.forEach((text, at) => text !== null && (row.children[at].textContent = text));
            })"""
        )
        widths = page.evaluate(
            "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('#peers .scroll'))"
        )
        assert widths[0] <= widths[1]
        page.close()


def test_on_a_phone_figures_stay_on_a_line_and_the_legend_leaves_the_picture(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url, size=(390, 844))
    for _ in range(6):
        shown.call(shown.network.add)
    shown.call(shown.network.stop, list(shown.roots())[2])
    page.until("document.getElementById('figure-peers').textContent === '13 of 14'")
    lines = page.evaluate(
        "((range) => { range.selectNodeContents(document.getElementById('figure-peers'));"
        " return range.getClientRects().length; })(document.createRange())"
    )
    assert lines == 1
    page.click("#legend summary")
    legend, stage = (
        page.evaluate(f"document.getElementById({name!r}).getBoundingClientRect().height")
        for name in ("legend", "stage")
    )
    assert legend < 0.6 * stage
    assert "press it long to stop" in page.evaluate("document.getElementById('keys').textContent.replace(/\\s+/g, ' ')")


def test_a_long_press_stops_a_peer(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url, size=(390, 844))
    peer = list(shown.roots())[3]
    x, y = place(page, peer)
    # What browsers make of it.
    page.evaluate(
        f"document.getElementById('network').dispatchEvent(new PointerEvent('contextmenu',"
        f" {{ pointerType: 'touch', clientX: {x}, clientY: {y}, bubbles: true, cancelable: true }}))"
    )
    page.until(f"!dashboard.state.peers.get({peer!r}).running")


def test_what_is_no_row_is_drawn_by_forces_again(empty: Shown, open_page: Open) -> None:
    page = open_page(empty.url)
    join(empty, 6, ring=False)
    page.until("dashboard.state.edges.size === 5")
    assert max(abs(y) for _, y in places(page, 6)) < 2
    for one, other in (("p0", "p3"), ("p1", "p4"), ("p2", "p5"), ("p0", "p4")):
        empty.call(empty.publish, Connected(3.0, one, other))
    page.until("dashboard.state.edges.size === 9")
    assert max(abs(y) for _, y in places(page, 6)) > 10
