"""Plots as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from gossiplog.charts import COLOURS, Chart, Series, svg, ticks

NAMESPACE = {"s": "http://www.w3.org/2000/svg"}


def drawn(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(svg(chart))


def texts(element: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in element.findall(".//s:text", NAMESPACE)]


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (0, 1, [0, 1]),
        (0, 3, [0, 1, 2, 3]),
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (1, 3571, [0, 1000, 2000, 3000, 4000]),
        (0, 40_000, [0, 10_000, 20_000, 30_000, 40_000]),
    ],
)
def test_ticks(least: float, most: float, expected: list[float]) -> None:
    assert ticks(least, most) == expected


def test_ticks_of_what_is_not_counted() -> None:
    assert ticks(0, 0.8, whole=False) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert "0.2" in texts(drawn(Chart("Title", "x", "y", (Series("shares", [0.8, 0.1]),), edges=[1, 2, 3])))


def test_bars_stand_on_the_axis_and_are_as_high_as_their_values() -> None:
    element = drawn(Chart("Title", "across", "up", (Series("messages", [10, 5, 0]),), edges=[1, 2, 4, 5]))
    bars = element.findall(".//s:g/s:rect", NAMESPACE)
    heights = [float(bar.get("height", "")) for bar in bars]
    bottoms = {round(float(bar.get("y", "")) + float(bar.get("height", "")), 2) for bar in bars}
    widths = [float(bar.get("width", "")) for bar in bars]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.02)
    assert heights[2] == 0
    assert len(bottoms) == 1
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.02)
    assert element.get("aria-label") == "Title"
    assert {"across", "up", "10", "0"} <= set(texts(element))


def test_narrow_bars_touch_without_seams() -> None:
    element = drawn(Chart("Title", "x", "y", (Series("messages", [1] * 200),), edges=range(201)))
    (group,) = [group for group in element.findall("s:g", NAMESPACE) if group.find("s:rect", NAMESPACE) is not None]
    assert group.get("shape-rendering") == "crispEdges"
    bars = [(float(bar.get("x", "")), float(bar.get("width", ""))) for bar in group]
    for (x, width), (following, _) in pairwise(bars):
        assert x + width == pytest.approx(following, abs=0.011)


def test_several_series_are_steps_with_a_legend() -> None:
    element = drawn(Chart("Title", "x", "y", (Series("heads", [1, 2]), Series("width", [3, 4])), edges=[1, 2, 3]))
    lines = element.findall("s:polyline", NAMESPACE)
    assert [line.get("stroke") for line in lines] == list(COLOURS[:2])
    assert [len((line.get("points") or "").split()) for line in lines] == [4, 4]
    assert {"heads", "width"} <= set(texts(element))
    assert element.findall(".//s:g/s:rect", NAMESPACE) == []


def test_any_number_of_series_can_be_told_apart() -> None:
    count = 3 * len(COLOURS)
    several = tuple(Series(f"router {number}", [number, number + 1]) for number in range(count + 1))
    element = drawn(Chart("Title", "x", "y", several, labels=["1", "2"]))
    lines = [(line.get("stroke"), line.get("stroke-dasharray")) for line in element.findall("s:polyline", NAMESPACE)]
    assert len(set(lines)) == count
    # Beyond these they begin anew.
    assert lines[count:] == lines[:1]
    legend = [(mark.get("stroke"), mark.get("stroke-dasharray")) for mark in element.findall("s:path", NAMESPACE)]
    assert sorted(map(str, legend)) == sorted(map(str, lines))


def test_categories_stand_under_their_bars() -> None:
    element = drawn(Chart("Title", "x", "y", (Series("clocks", [7, 8]),), labels=["1", "3–4"]))
    places = {
        text.text: float(text.get("x", ""))
        for text in element.findall("s:text", NAMESPACE)
        if text.text in ("1", "3–4")
    }
    for bar, label in zip(element.findall(".//s:g/s:rect", NAMESPACE), ("1", "3–4"), strict=True):
        middle = float(bar.get("x", "")) + float(bar.get("width", "")) / 2
        assert places[label] == pytest.approx(middle, abs=0.1)


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (4000, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (40_000, ["0", "10k", "20k", "30k", "40k"]),
        (1_500_000, ["0", "500k", "1M", "1.5M"]),
        (3e9, ["0", "1G", "2G", "3G"]),
    ],
)
def test_labels_fit_into_the_margin(most: float, labels: list[str]) -> None:
    found = texts(drawn(Chart("Title", "across", "up", (Series("bytes", [most]),), labels=["bin"])))
    assert found[: len(labels)] == labels


def test_nothing_but_zeros() -> None:
    element = drawn(Chart("Title", "x", "y", (Series("clocks", [0, 0]),), edges=[1, 2, 3]))
    assert {bar.get("height") for bar in element.findall(".//s:g/s:rect", NAMESPACE)} == {"0.00"}


def test_text_is_escaped() -> None:
    assert texts(drawn(Chart('"<b>', "<x>", "&", (Series("s", [1]),), edges=[0, 1])))[-2:] == ["<x>", "&"]


def test_several_series_over_categories_are_lines() -> None:
    """Between two categories there is nothing that steps could show."""
    element = drawn(Chart("Title", "nodes", "y", (Series("a", [1, 2]), Series("b", [3, 4])), labels=["10", "100"]))
    lines = element.findall("s:polyline", NAMESPACE)
    assert [len((line.get("points") or "").split()) for line in lines] == [2, 2]
    places = {float(text.get("x", "")) for text in element.findall("s:text", NAMESPACE) if text.text in ("10", "100")}
    dots = {round(float(dot.get("cx", "")), 1) for dot in element.findall("s:circle", NAMESPACE)}
    assert dots == places


def extent(text: ElementTree.Element) -> tuple[float, float]:
    """Where a text begins and ends, by the width that most characters have at most."""
    at, half = float(text.get("x", "")), 3.4 * len(text.text or "")
    return at - half, at + half


@pytest.mark.parametrize(
    "chart",
    [
        Chart("T", "", "", (Series("a", [1] * 200),), edges=range(1, 1_000_002, 5_000)),
        Chart("T", "", "", (Series("a", [1] * 15),), labels=[f"{2**k + 1:,}–{2 ** (k + 1):,}" for k in range(15)]),
    ],
)
def test_labels_are_neither_cut_off_nor_drawn_over_each_other(chart: Chart) -> None:
    element = drawn(chart)
    below = [text for text in element.findall("s:text", NAMESPACE) if text.get("y") == "249.0" and text.text]
    extents = [extent(text) for text in below]
    assert len(extents) >= 5
    assert extents[0][0] >= 0
    assert extents[-1][1] <= 720
    assert all(end < start for (_, end), (start, _) in pairwise(extents))


def test_a_long_legend_has_several_rows() -> None:
    series = tuple(Series(f"gossipsub:{share},simsub:10,floodsub:{80 - share}", [1, 2]) for share in (10, 20, 30, 40))
    element = drawn(Chart("Title", "x", "y", series, labels=["1", "2"]))
    _, top, _, height = map(float, (element.get("viewBox") or "").split())
    names = [text for text in element.findall("s:text", NAMESPACE) if (text.text or "").startswith("gossipsub")]
    assert len(names) == 4
    for text in names:
        assert float(text.get("x", "")) + 6.8 * len(text.text or "") <= 720
        assert float(text.get("y", "")) > top + 10
    assert (top, height) == (-18, 298)
