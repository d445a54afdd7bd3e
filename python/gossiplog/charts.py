"""Plots as SVG, written by hand: bars and steps over a range of numbers, bars and lines over categories.

No plotting library: these few shapes need none, and it would be the largest package to install. The text stays text,
which scales and can be searched, and the same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

# Colours that colour-blind readers distinguish, too (Okabe and Ito, https://jfly.uni-koeln.de/color/).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Of lines beyond so many: the same colours, with other dashes.
_DASHES = ("", "7 4", "2 3")
_WIDTH, _HEIGHT = 720, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 34, 48
_TICKS = 5
# What a character takes on average, and a little more: the widest letters are rare.
_CHARACTER_WIDTH = 6.8
_LEGEND_ROW = 18
_STYLE = (
    "svg { background: #fff; } text { font: 12px sans-serif; fill: #333; }"
    " .grid { stroke: #ddd; } .axis { stroke: #666; }"
)


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one kind.

    Attributes:
        name: for the legend.
        values: one for each bin; 0 or more.
    """

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """What a plot shows.

    Attributes:
        title: what it is about, for those who cannot see it, too.
        x: the label of the horizontal axis.
        y: the label of the vertical axis.
        series: one is drawn as bars, several in different colours: as steps over bins, as lines over categories.
        edges: of the bins, ascending, one more than there are bins; or else
        labels: of the categories, one for each bin.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    edges: Sequence[float] = ()
    labels: Sequence[str] = ()


def svg(chart: Chart) -> str:
    """Return the plot as an SVG element, to be put into a page."""
    edges = chart.edges or range(len(chart.labels) + 1)
    top = max((value for series in chart.series for value in series.values), default=0)
    # What is counted has no halves.
    whole = all(value == int(value) for series in chart.series for value in series.values)
    y_ticks = ticks(0, top or 1, whole=whole)
    frame = _Frame(edges[0], edges[-1], max(y_ticks[-1], top))
    parts, rows = [_grid(frame, y_ticks), _x_axis(frame, chart)], 1
    if len(chart.series) == 1:
        parts.append(_bars(frame, edges, chart.series[0]))
    else:
        draw = _line if chart.labels else _steps
        parts += [draw(frame, edges, series, number) for number, series in enumerate(chart.series)]
        legend, rows = _legend(chart.series)
        parts.append(legend)
    # Further rows of the legend are above the first.
    above = _LEGEND_ROW * (rows - 1)
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, chart.x, "middle"))
    parts.append(
        f'<text transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(chart.y)}</text>'
    )
    return (
        f'<svg viewBox="0 {-above} {_WIDTH} {_HEIGHT + above}" role="img" aria-label="{escape(chart.title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def standalone(element: str) -> str:
    """Return a plot as a file of its own: with the style that a page would give it.

    Args:
        element: what `svg` returned, or another SVG element.
    """
    opening, _, rest = element.partition(">")
    return f"{opening}><style>{_STYLE}</style>{rest}\n"


def ticks(least: float, most: float, *, whole: bool = True) -> list[float]:
    """Return round numbers, about five, whose range covers another one.

    Args:
        least: of the range.
        most: of the range; above `least`.
        whole: only integers.
    """
    raw = (most - least) / _TICKS
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    if whole:
        step = max(step, 1)
    first = math.floor(least / step)
    return [number * step for number in range(first, math.ceil(most / step - 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The area of the plot, and the values at its ends."""

    first: float
    last: float
    top: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.first) / (self.last - self.first) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM)


def _short(value: float) -> str:
    """Return a number as the margin has room for it."""
    for least, unit, name in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / unit:g}{name}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid(frame: _Frame, values: Sequence[float]) -> str:
    return "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{frame.y(value):.1f}" y2="{frame.y(value):.1f}"/>'
        + _text(_LEFT - 6, frame.y(value) + 4, _short(value), "end")
        for value in values
    )


def _x_axis(frame: _Frame, chart: Chart) -> str:
    base = _HEIGHT - _BOTTOM
    if chart.labels:
        # Every second or third one, and so on, where they are too long to stand beside each other.
        room = frame.x(frame.first + 1) - _LEFT
        step = math.ceil(max(map(_width, chart.labels)) / room)
        marks = [(number + 0.5, label) for number, label in enumerate(chart.labels)][::step]
    else:
        inside = (value for value in ticks(frame.first, frame.last) if frame.first <= value <= frame.last)
        marks = [(value, f"{value:,.0f}") for value in inside]
    line = f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'
    return line + "".join(
        f'<line class="axis" x1="{frame.x(at):.1f}" x2="{frame.x(at):.1f}" y1="{base}" y2="{base + 4}"/>'
        # Centred under the last mark, a label may extend beyond the plot's edge.
        + _text(min(frame.x(at), _WIDTH - _width(label) / 2), base + 17, label, "middle")
        for at, label in marks
    )


def _width(text: str) -> float:
    """Return about how wide a text is drawn."""
    return _CHARACTER_WIDTH * (len(text) + 1)


def _bars(frame: _Frame, edges: Sequence[float], series: Series) -> str:
    bars = []
    for (left, right), value in zip(pairwise(edges), series.values, strict=True):
        x, width = frame.x(left), frame.x(right) - frame.x(left)
        # Narrow bars touch, so that they look like an area and not like a fence.
        gap = 0.2 * width if width > 8 else 0
        bars.append(
            f'<rect x="{x + gap / 2:.2f}" width="{width - gap:.2f}" y="{frame.y(value):.2f}"'
            f' height="{frame.y(0) - frame.y(value):.2f}"/>'
        )
    # Smoothed edges of bars that touch would let the background shine through between them.
    return f'<g fill="{COLOURS[0]}" shape-rendering="crispEdges">{"".join(bars)}</g>'


def _steps(frame: _Frame, edges: Sequence[float], series: Series, number: int) -> str:
    points = " ".join(
        f"{frame.x(edge):.2f},{frame.y(value):.2f}"
        for (left, right), value in zip(pairwise(edges), series.values, strict=True)
        for edge in (left, right)
    )
    return _polyline(points, number)


def _line(frame: _Frame, edges: Sequence[float], series: Series, number: int) -> str:
    places = [
        (frame.x((left + right) / 2), frame.y(value))
        for (left, right), value in zip(pairwise(edges), series.values, strict=True)
    ]
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" fill="{_colour(number)}"/>' for x, y in places)
    return _polyline(points, number) + dots


def _polyline(points: str, number: int) -> str:
    return f'<polyline points="{points}" fill="none" {_stroke(number)} stroke-width="1.8"/>'


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _stroke(number: int) -> str:
    dashes = _DASHES[number // len(COLOURS) % len(_DASHES)]
    return f'stroke="{_colour(number)}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _legend(several: Sequence[Series]) -> tuple[str, int]:
    """Return the legend, and how many rows it has: the last one just above the plot, the others above it."""
    rows: list[list[tuple[float, int]]] = [[]]
    x = float(_LEFT)
    for number, series in enumerate(several):
        width = 20 + _width(series.name)
        if rows[-1] and x + width > _WIDTH:
            rows.append([])
            x = float(_LEFT)
        rows[-1].append((x, number))
        x += width + 16
    parts = []
    for above, row in enumerate(reversed(rows)):
        y = 8 - above * _LEGEND_ROW
        for x, number in row:
            parts.append(f'<path d="M{x:.1f} {y + 5}h14" {_stroke(number)} stroke-width="4"/>')
            parts.append(_text(x + 20, y + 9, several[number].name, "start"))
    return "".join(parts), len(rows)
