"""`python -m gossiplog.sim`: runs one seed with its trace, or many."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gossiplog.sim.kernel import TraceHash
from gossiplog.sim.whole.checks import BrokenInvariant
from gossiplog.sim.whole.run import Failure, run_seed, soak

app = typer.Typer(add_completion=False)


@app.command()
def main(
    seed: Annotated[int | None, typer.Option(help="Run this one.")] = None,
    seeds: Annotated[str, typer.Option(help="Run these: FIRST:END, END left out.", metavar="FIRST:END")] = "0:100",
    peers: Annotated[int, typer.Option(help="Honest peers in each run.", min=2)] = 30,
    processes: Annotated[int, typer.Option(help="How many at a time; 0 is one a core.", min=0)] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Print what happens, with --seed.")] = False,
) -> None:
    """Simulate networks of whole peers, and watch the invariants of reliable causal broadcast.

    A run is a function of its seed. One that breaks an invariant prints the command that shows it again; then the exit
    code is 1.
    """
    if seed is None:
        _run_many(_range(seeds), peers, processes or os.cpu_count() or 1)
    else:
        _run_one(seed, peers, trace)


def _run_one(seed: int, peers: int, trace: bool) -> None:
    summary = TraceHash()

    def line(text: str) -> None:
        summary(text)
        if trace:
            typer.echo(text)

    try:
        result = run_seed(seed, peers, line)
    except BrokenInvariant as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo(json.dumps(asdict(result) | {"trace": summary.digest()}))


def _run_many(seeds: range, peers: int, processes: int) -> None:
    console = Console(stderr=True)
    failed = slowest = 0
    following = seeds.start
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"{peers} peers", total=len(seeds))
            for outcome in soak(seeds, peers, processes):
                following = outcome.seed + 1
                if isinstance(outcome, Failure):
                    failed += 1
                    progress.console.print(outcome.text, soft_wrap=True, highlight=False, markup=False)
                else:
                    slowest = max(slowest, round(outcome.seconds))
                progress.advance(task)
    except KeyboardInterrupt:
        typer.echo(f"stopped; go on with --seeds {following}:{seeds.stop}", err=True)
        raise typer.Exit(130) from None
    typer.echo(json.dumps({"seeds": len(seeds), "failed": failed, "slowest_to_converge": slowest}))
    if failed:
        raise typer.Exit(1)


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise typer.BadParameter(f"{text!r} is no range of seeds: expected two numbers, as in 0:100")
    return range(int(first), int(end))


if __name__ == "__main__":
    sys.exit(app())
