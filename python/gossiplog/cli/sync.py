"""`gossiplog sync`: one log gets what another holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import Json, Output, Stopwatch, progress
from gossiplog.log import Log, Pulled


def sync(
    path: LogPath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The log to pull from: its file.")],
    both: Annotated[bool, typer.Option("--both", help="Then give the source what it lacks, too.")] = False,
    json: Json = False,
) -> None:
    """Pull from another log what this one lacks. A log that is not there is made, with the source's topic."""
    output = Output(json)
    with open_log(source) as theirs, open_log(path, theirs.topic) as ours:
        pulls = [pull_timed(ours, theirs, str(path), str(source))]
        if both:
            pulls.append(pull_timed(theirs, ours, str(source), str(path)))
    if output.json:
        for pull in pulls:
            output.record(pull)
    else:
        output.show(pull_table(pulls))


def pull_timed(log: Log, source: Log, name: str, source_name: str) -> dict[str, Any]:
    """Pulls, and says what that brought and cost.

    Args:
        log: the log to pull into.
        source: the log to pull from.
        name: what to call the one,
        source_name: and the other.
    """
    with progress(f"{name} ← {source_name}") as _, Stopwatch() as watch:
        pulled: Pulled = log.pull(source)
    return {
        "log": name,
        "source": source_name,
        "inserted": pulled.inserted,
        "requests": pulled.requests,
        "round_trips": pulled.round_trips,
        "bytes_sent": pulled.bytes_sent,
        "bytes_received": pulled.bytes_received,
        "seconds": round(watch.seconds, 6),
        "messages_per_second": watch.rate(pulled.inserted),
        "messages": len(log),
        "root": {"level": log.root.level, "hash": log.root.hash.hex()},
    }


def pull_table(pulls: list[dict[str, Any]]) -> Table:
    """The results of `pull_timed`, for the terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("log")
    table.add_column("source")
    for heading in ("new", "requests", "round trips", "sent", "received", "seconds", "a second"):
        table.add_column(heading, justify="right")
    table.add_column("root")
    for pull in pulls:
        table.add_row(
            pull["log"],
            pull["source"],
            f"{pull['inserted']:,}",
            f"{pull['requests']:,}",
            f"{pull['round_trips']:,}",
            f"{pull['bytes_sent']:,}",
            f"{pull['bytes_received']:,}",
            f"{pull['seconds']:.3f}",
            f"{pull['messages_per_second']:,}",
            pull["root"]["hash"][:12],
        )
    return table
