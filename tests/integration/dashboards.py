"""Dashboards of scripted networks (`tests/dashboard/scripted.py`), and their pages in Chromium, for tests of these."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.abc
from anyio.from_thread import BlockingPortal, start_blocking_portal

from gossiplog.dashboard.stream import Dashboard
from gossiplog.net.http.listener import Address
from tests.dashboard.scripted import ScriptedNetwork
from tests.integration.pages import Page

ROWS = """[...document.querySelectorAll("#rows tr")].map((row) => ({...row.dataset, texts: [...row.children].map(
    (cell) => cell.textContent)}))"""
# Whether nothing moves any more: a node that moves is somewhere else when the click comes.
RESTS = "dashboard.isShown && dashboard.isResting"

Open = Callable[..., Page]
"""Opens a page (fixture `open_page`)."""


class Shown:
    """A scripted network and its dashboard, which run on a thread of their own."""

    def __init__(self, portal: BlockingPortal, title: str) -> None:
        numbers = itertools.count()
        self.dashboard = Dashboard(title)
        self.network = ScriptedNetwork(self.publish, lambda: next(numbers) / 1000)
        self.dashboard._controls = self.network
        self.url = ""
        self.portal = portal

    def publish(self, event: Any) -> None:
        self.dashboard.publish(event)

    async def run(self, *, port: int = 0, task_status: anyio.abc.TaskStatus[Address]) -> None:
        await self.dashboard.serve(port=port, task_status=task_status)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function where the network runs."""
        return self.portal.call(function, *arguments)

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call(self.dashboard.snapshot)
        return found

    def roots(self) -> dict[str, str]:
        return {name: peer["root"] for name, peer in self.snapshot()["peers"].items()}


@contextmanager
def showing(count: int = 8, port: int = 0, label: str = "{}", *, title: str = "a network") -> Iterator[Shown]:
    """A network of so many peers and a bootstrap, and its dashboard."""
    with start_blocking_portal() as portal:
        shown = Shown(portal, title)
        shown.call(shown.network.add, "bootstrap", "boot")
        shown.call(lambda: shown.network.begin(count, label=label))
        future, address = portal.start_task(lambda *, task_status: shown.run(port=port, task_status=task_status))
        shown.url = address.url("http")
        try:
            yield shown
        finally:
            future.cancel()


def place(page: Page, name: str) -> tuple[float, float]:
    """Where a peer is drawn, once it rests."""
    page.until(RESTS)
    return point(page, f"dashboard.layout.nodes.get({name!r})")


def point(page: Page, of: str) -> tuple[float, float]:
    x, y = page.evaluate(
        f"(() => {{ const at = {of}; const box = document.getElementById('network').getBoundingClientRect();"
        " const [x, y] = dashboard.drawing.toCanvas(at.x, at.y); return [box.x + x, box.y + y]; })()"
    )
    return x, y


def click_where_it_is(page: Page, name: str) -> None:
    """Click a peer that may be moving, as those of a network do that changes by itself."""
    page.until(f"dashboard.layout.nodes.has({name!r})")
    page.evaluate(
        f"""(() => {{
            const canvas = document.getElementById("network");
            const {{ x, y }} = dashboard.layout.nodes.get({name!r});
            const [left, top] = dashboard.drawing.toCanvas(x, y);
            const box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new MouseEvent("click", {{ clientX: box.x + left, clientY: box.y + top }}));
        }})()"""
    )


def neutral(snapshot: dict[str, Any]) -> dict[str, Any]:
    edges = {
        frozenset(edge["peers"]): (edge["connected"], dict(zip(edge["peers"], edge["links"], strict=True)))
        for edge in snapshot["edges"]
    }
    return {"peers": snapshot["peers"], "edges": edges, "groups": snapshot["groups"], "rate": snapshot["rate"]}


def becomes_true_state(page: Page, shown: Shown) -> None:
    """Wait until the page has all that has happened, and hold what it knows and says against the network's state."""
    state = shown.snapshot()
    page.until(f"dashboard.state.now >= {state['at']}")
    assert neutral(page.evaluate("dashboard.state.snapshot()")) == neutral(state)
    page.until("dashboard.isShown")
    roots = {name: peer["root"] for name, peer in state["peers"].items()}
    rows = {row["peer"]: row for row in page.evaluate(ROWS)}
    for name, peer in state["peers"].items():
        label, root, messages, clock, _, status = rows[name]["texts"]
        assert label == peer["label"]
        assert root == (peer["root"][-4:] or "–")
        assert (messages, clock) == (str(peer["messages"]), str(peer["clock"]))
        assert status == (peer["kind"] if peer["running"] else "stopped")
    # Equal colours are equal logs, and others are others.
    logs = [name for name, peer in state["peers"].items() if peer["kind"] != "bootstrap"]
    colours = {rows[name]["colour"] for name in logs}
    assert len(colours) == len({roots[name] for name in logs})
    assert len({(rows[name]["colour"], roots[name]) for name in logs}) == len(colours)


def drawn_colour(page: Page, name: str) -> str:
    """The colour in the picture at a peer, beside its letters."""
    page.until(RESTS)
    found = page.evaluate(
        f"""(() => {{
            const {{ drawing, layout }} = dashboard;
            const at = layout.nodes.get({name!r});
            const [x, y] = drawing.toCanvas(at.x, at.y);
            const up = drawing.radius(layout.nodes.size) * 0.72;
            // By a canvas of the test's own: the browser complains of a picture that is read again and again.
            const copy = new OffscreenCanvas(1, 1).getContext("2d", {{ willReadFrequently: true }});
            const [left, top] = [Math.round(x * drawing.ratio), Math.round((y - up) * drawing.ratio)];
            copy.drawImage(document.getElementById("network"), left, top, 1, 1, 0, 0, 1, 1);
            return [...copy.getImageData(0, 0, 1, 1).data];
        }})()"""
    )
    red, green, blue, _ = found
    return f"#{red:02x}{green:02x}{blue:02x}"
