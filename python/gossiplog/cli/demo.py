"""`gossiplog demo`: a history becomes a log, three peers go on by themselves, and meet again."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gossiplog.cli.graph import drawing
from gossiplog.cli.import_git import Commit, GitError, count_commits, import_history, read_history
from gossiplog.cli.logs import open_log
from gossiplog.cli.output import Json, Output, Stopwatch, headed_table, printable, progress
from gossiplog.cli.places import LogPlace
from gossiplog.cli.sync.command import pull_timed
from gossiplog.log import Log
from gossiplog.message import SignedMessage
from gossiplog.reprs import counted
from gossiplog.signer import Signer

TOPIC = "org.gossiplog.demo"
_PEERS = {"ada": 3, "ben": 4, "eve": 2}  # and how many messages each appends while they are apart
# Who pulls from whom.
_COPY = (("ben", "ada"), ("eve", "ada"))
_MEET = (("ada", "ben"), ("ben", "eve"), ("eve", "ada"), ("ada", "eve"), ("ben", "eve"))
_MADE_UP = 2000  # commits of the history that stands in for a missing one
_DRAWN = 14  # messages in a drawing


def demo(
    repository: Annotated[
        Path | None,
        typer.Argument(metavar="REPOSITORY", help="The Git repository to import. The default is the one you are in."),
    ] = None,
    json: Json = False,
) -> None:
    """Import a Git history into a log, let three peers append while they are apart, and sync them."""
    output = Output(json)
    with TemporaryDirectory(prefix="gossiplog-demo-") as folder, ExitStack() as stack:
        paths = {name: Path(folder, f"{name}.db") for name in _PEERS}
        peers = {name: stack.enter_context(open_log(LogPlace(path), TOPIC)) for name, path in paths.items()}
        _import(output, peers["ada"], repository)
        _pull(output, "The other two copy it.", peers, _COPY)
        _part(output, peers)
        _pull(output, "They meet, two at a time.", peers, _MEET)
        _agree(output, peers)


def made_up_history(length: int) -> Iterator[Commit]:
    """Yield commits of four authors that branch and merge: the same at every call."""
    choice = random.Random(0)
    tips: list[str] = []
    for number in range(length):
        sha = hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()
        parents = choice.sample(tips, min(len(tips), choice.choice((1, 1, 1, 2))))
        # One commit in four leaves its parent a tip, for another to branch off from.
        if len(tips) > 2 or choice.random() < 0.75:
            tips = [tip for tip in tips if tip not in parents]
        tips.append(sha)
        author = choice.choice(("Ada", "Ben", "Eve", "Kim"))
        email = f"{author.lower()}@example.org"
        yield Commit(sha, tuple(parents), author, email, 1_700_000_000 + number, f"Change {number}")


def _import(output: Output, log: Log, repository: Path | None) -> None:
    source, commits = _history(repository)
    with progress("Importing commits") as advance, Stopwatch() as watch:
        imported = import_history(log, commits, Signer.generate().private_key, advance)
    rate = watch.rate(imported.commits)
    if output.json:
        output.record(
            {"step": "import", "source": source, "commits": imported.commits, "authors": imported.authors}
            | {"seconds": round(watch.seconds, 6), "commits_per_second": rate}
            | _state(log)
        )
        return
    _heading(output, f"{source} becomes a log.")
    what = f"{counted(imported.commits, 'commit')} by {counted(imported.authors, 'author')}"
    output.show(
        f"{what} in {watch.seconds:.2f} s: signed, verified and stored, {rate:,} a second."
        f" {counted(len(log.heads), 'head')}. The latest:",
        _drawing(log),
    )


def _history(repository: Path | None) -> tuple[str, Iterator[Commit]]:
    """Return what the history is called, and its commits. Only a repository that was asked for has to be one."""
    place = repository or Path.cwd()
    try:
        if count_commits(place) > 0 or repository is not None:
            return f"The history of {place}", read_history(place)
    except GitError:
        if repository is not None:
            raise
    return f"A made-up history (there is no Git repository in {place})", made_up_history(_MADE_UP)


def _part(output: Output, peers: dict[str, Log]) -> None:
    if not output.json:
        _heading(output, "Apart, each appends messages of its own.")
    for name, log in peers.items():
        signer = Signer.generate()
        texts = [f"note {number}" for number in range(1, _PEERS[name] + 1)]
        with Stopwatch() as watch:
            ids = [log.append({"from": name, "text": text}, signer=signer).id for text in texts]
        rate = watch.rate(len(ids))
        if output.json:
            output.record({"step": "append", "peer": name, "ids": ids, "appends_per_second": rate} | _state(log))
        else:
            output.show(
                f"{name}: root {log.root.hash.hex()}, {counted(len(log), 'message')}, {rate:,} durable appends a second"
            )
            output.show(*(f"     {id}" for id in ids))


def _pull(output: Output, heading: str, peers: dict[str, Log], pulls: Sequence[tuple[str, str]]) -> None:
    results = [pull_timed(peers[name], peers[source], name, source) for name, source in pulls]
    if output.json:
        for result in results:
            output.record({"step": "sync"} | result)
    else:
        _heading(output, heading)
        output.show(_pull_table(results))


def _pull_table(pulls: list[dict[str, Any]]) -> Table:
    """Return the results of `pull_timed`, within 80 columns.

    The roots, which have no room, are shown before and after.
    """
    numbers = ("new", "requests", "round\ntrips", "sent", "received", "seconds", "a second")
    table = headed_table("log", "source", numbers=numbers)
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
        )
    return table


def _agree(output: Output, peers: dict[str, Log]) -> None:
    logs = list(peers.values())
    equal = all(a.root == b.root for a, b in permutations(logs, 2))
    if output.json:
        output.record({"step": "compare", "equal": equal} | _state(logs[0]))
        return
    _heading(output, "The same messages make the same root." if equal else "The roots differ.")
    for name, log in peers.items():
        output.show(
            f"{name}: root {log.root.hash.hex()}, {counted(len(log), 'message')}, {counted(len(log.heads), 'head')}"
        )
    output.show(_drawing(logs[0]))


def _state(log: Log) -> dict[str, Any]:
    root = {"level": log.root.level, "hash": log.root.hash.hex()}
    return {"messages": len(log), "heads": len(log.heads), "root": root}


def _heading(output: Output, text: str) -> None:
    output.show("", Text(text, Style(bold=True)))


def _drawing(log: Log) -> Text:
    """Return the latest messages as a graph, a colour an author."""
    return drawing(log, _DRAWN, _summary)


def _summary(message: SignedMessage) -> str:
    """Return one line about a message of the demo."""
    payload = message.payload
    text = payload["message"].partition("\n")[0] if "message" in payload else f"{payload['from']}: {payload['text']}"
    return printable(text)
