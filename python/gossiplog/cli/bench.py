"""`gossiplog bench`: how fast this machine is."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from gossiplog.cli.measurements import Measurement, measure
from gossiplog.cli.output import Json, Output, progress


def bench(
    size: Annotated[int, typer.Option(min=100, help="How many messages the logs have.")] = 10_000,
    json: Json = False,
) -> None:
    """Measure the main kinds of work, each beside the least that it could cost on this machine."""
    output = Output(json)
    results = []
    with progress("Measuring") as advance:
        for result in measure(size):
            advance(1)
            if output.json:
                output.record(_fields(result))
            else:
                results.append(result)
    if not output.json:
        output.show(_table(results))


def _fields(result: Measurement) -> dict[str, object]:
    return {
        "work": result.work,
        "count": result.count,
        "seconds": round(result.seconds, 6),
        "per_second": round(result.count / result.seconds),
        "floor": result.floor,
        "floor_seconds": None if result.floor_seconds is None else round(result.floor_seconds, 6),
        "ratio": None if result.ratio is None else round(result.ratio, 3),
    }


def _table(results: list[Measurement]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("work")
    for heading in ("count", "seconds", "a second", "times its floor"):
        table.add_column(heading, justify="right")
    table.add_column("the floor")
    for result in results:
        table.add_row(
            result.work,
            f"{result.count:,}",
            f"{result.seconds:.4f}",
            f"{result.count / result.seconds:,.0f}",
            "" if result.ratio is None else f"{result.ratio:.2f}",
            result.floor or "",
        )
    return table
