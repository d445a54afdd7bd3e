"""`gossiplog bench`: how fast this machine is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gossiplog.cli.output import Json, Output, headed_table, progress

if TYPE_CHECKING:
    from rich.table import Table

    from gossiplog.cli.bench.stage import Result


def bench(
    size: Annotated[int, typer.Option(min=100, help="Number of messages in the measured logs.")] = 10_000,
    json: Json = False,
) -> None:
    """Measure the main kinds of work, each beside the least that it could cost on this machine.

    That takes about half a minute on an idle machine with 10,000 messages, and more in proportion. All figures of a
    line are those of the median of three rounds.
    """
    # Here, because every command would wait for it.
    from gossiplog.cli.bench import suite

    output = Output(json)
    results = []
    with progress("Measuring", suite.RESULTS) as advance:
        for result in suite.run(size):
            advance(1)
            if output.json:
                output.record(_fields(result))
            else:
                results.append(result)
    if not output.json:
        output.show(_table(results))


def _fields(result: Result) -> dict[str, object]:
    return {
        "work": result.work,
        "result": result.reached,
        "detail": result.detail,
        "target": _target(result),
        "seconds": result.seconds,
        "floor_seconds": result.floor_seconds,
    }


def _table(results: list[Result]) -> Table:
    table = headed_table("work", "result", "details", "target with 1,000,000 messages")
    for result in results:
        table.add_row(result.work.replace("`", ""), result.reached, result.detail, _target(result).replace("`", ""))
    return table


def _target(result: Result) -> str:
    """Return the target of logs of a million messages; "" where bare Rust, which is missing here, would measure it."""
    return "" if result.met is None else result.must
