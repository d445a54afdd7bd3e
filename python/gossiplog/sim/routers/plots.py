"""Plots of a run: how long messages took, how many neighbours nodes had, and the way that a message went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gossiplog.charts import COLOURS, Chart, Series, standalone, svg
from gossiplog.sim.routers.simulation import Simulation
from gossiplog.sim.routers.tally import Degrees, Deliveries

_STEPS = 100
_WIDTH, _ROW, _MARGIN = 720, 7, 40


def write_plots(simulation: Simulation, folder: Path) -> list[Path]:
    """Write latency.svg, degree.svg and tree.svg, those of which there is something to show.

    Returns:
        The files.

    Raises:
        OSError: a file cannot be written.
    """
    rows = simulation.tally.deliveries
    latencies = sorted(latency for latency, source in zip(rows.latency, rows.source, strict=True) if source >= 0)
    plots = {}
    if latencies and latencies[-1] > 0:
        plots["latency.svg"] = svg(latency_chart(latencies))
    if simulation.tally.degrees:
        plots["degree.svg"] = svg(degree_chart(simulation.tally.degrees))
    if rows.message:
        plots["tree.svg"] = tree(rows, rows.message[-1])
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, element in plots.items():
        (folder / name).write_text(standalone(element), encoding="utf-8")
        written.append(folder / name)
    return written


def latency_chart(ascending: Sequence[float]) -> Chart:
    """Return how much of all deliveries came within a time.

    Args:
        ascending: seconds, more than 0 at the end.
    """
    most = ascending[-1] * 1000
    edges = [most * step / _STEPS for step in range(_STEPS + 1)]
    shares, passed = [], 0
    for edge in edges[1:]:
        while passed < len(ascending) and ascending[passed] * 1000 <= edge:
            passed += 1
        shares.append(100 * passed / len(ascending))
    shares[-1] = 100.0
    return Chart("Latency", "milliseconds", "% of deliveries within", (Series("deliveries", shares),), edges=edges)


def degree_chart(degrees: Sequence[Degrees]) -> Chart:
    """Return a chart of the neighbours that nodes forward messages to, over time."""
    edges = [sample.at for sample in degrees]
    edges.append(edges[-1] + 1.0)
    series = (
        Series("mean", [sample.mean for sample in degrees]),
        Series("least", [sample.least for sample in degrees]),
        Series("most", [sample.most for sample in degrees]),
    )
    return Chart("Neighbours of a node", "seconds", "neighbours", series, edges=edges)


def tree(rows: Deliveries, message: int) -> str:
    """Return a plot of the way of one message: nodes placed by time, each joined to the one that it had it from.

    Args:
        rows: of all messages.
        message: that is shown.

    Returns:
        An SVG element.
    """
    came = {}
    children: dict[int, list[int]] = defaultdict(list)
    for number, node, source, latency in zip(rows.message, rows.node, rows.source, rows.latency, strict=True):
        if number == message and node not in came:
            came[node] = latency
            children[source if source in came else -1].append(node)
    lines: dict[int, int] = {}
    # The leaves of a node below each other; without recursion, since a chain may be long.
    waiting = children[-1][::-1]
    parents = {child: node for node, below in children.items() for child in below}
    while waiting:
        node = waiting.pop()
        lines[node] = len(lines)
        waiting += children[node][::-1]
    height = _MARGIN + _ROW * len(lines) + _MARGIN
    scale = (_WIDTH - 2 * _MARGIN) / (max(came.values()) or 1.0)

    def place(node: int) -> tuple[float, float]:
        return _MARGIN + came[node] * scale, _MARGIN / 2 + _ROW * lines[node]

    parts = []
    for node in lines:
        x, y = place(node)
        if parents[node] >= 0:
            before_x, before_y = place(parents[node])
            parts.append(
                f'<path d="M{before_x:.1f} {before_y:.1f}V{y:.1f}H{x:.1f}" fill="none" stroke="{COLOURS[0]}"'
                ' stroke-width="0.6"/>'
            )
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{COLOURS[1]}"><title>{node}</title></circle>')
    title = f"The way of message {message}"
    parts.append(
        f'<text x="{_WIDTH / 2:.1f}" y="{height - 8}" text-anchor="middle">'
        f"{escape(title)}: 0 to {1000 * max(came.values()):.0f} milliseconds</text>"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
