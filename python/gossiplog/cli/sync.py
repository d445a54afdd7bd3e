"""`gossiplog sync`: one log gets what another holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import Json, Output, Stopwatch, fields_table, printable, spinner
from gossiplog.errors import CorruptLog, GossipLogError, NotALog, ProtocolError, TreeError
from gossiplog.log import Log


class PullFailed(GossipLogError):
    """A pull between two logs that ended early: what came before is in the log."""


def sync(
    path: LogPath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The log to pull from: its file.")],
    both: Annotated[bool, typer.Option("--both", help="Then give the source what it lacks, too.")] = False,
    json: Json = False,
) -> None:
    """Pull from another log what this one lacks. A log that is not there is made, with the source's topic."""
    output = Output(json)
    if not source.exists():
        raise NotALog(f"there is no log {source} to pull from")
    with open_log(source) as theirs, open_log(path, theirs.topic) as ours:
        pulls = [pull_timed(ours, theirs, str(path), str(source))]
        if both:
            pulls.append(pull_timed(theirs, ours, str(source), str(path)))
    if output.json:
        for pull in pulls:
            output.record(pull)
    else:
        for number, pull in enumerate(pulls):
            output.show(*([""] if number else []), _fields(pull))


def pull_timed(log: Log, source: Log, name: str, source_name: str) -> dict[str, Any]:
    """Pulls, and says what that brought and cost.

    Args:
        log: the log to pull into.
        source: the log to pull from.
        name: what to call the one,
        source_name: and the other.

    Raises:
        PullFailed: one of them is damaged.
    """
    try:
        with spinner(f"{name} ← {source_name}"), Stopwatch() as watch:
            pulled = log.pull(source)
    except ProtocolError as error:
        raise PullFailed(f"{source_name}: {error}") from error
    except (CorruptLog, TreeError) as error:
        # Either may be the damaged one.
        raise PullFailed(f"pulling {source_name} into {name}: {error}") from error
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


def _fields(pull: dict[str, Any]) -> Table:
    table = fields_table()
    table.add_row("log", printable(pull["log"]))
    table.add_row("source", printable(pull["source"]))
    table.add_row("new", f"{pull['inserted']:,} messages, {pull['messages_per_second']:,} a second")
    table.add_row("requests", f"{pull['requests']:,} in {pull['round_trips']:,} round trips")
    table.add_row("bytes", f"{pull['bytes_sent']:,} sent, {pull['bytes_received']:,} received")
    table.add_row("seconds", f"{pull['seconds']:.3f}")
    table.add_row("messages", f"{pull['messages']:,}")
    table.add_row("root", f"{pull['root']['hash']} at level {pull['root']['level']}")
    return table
