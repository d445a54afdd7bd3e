"""`gossiplog repair`: a damaged log made sound, from a replica and from its own messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossiplog._core import redacted_url
from gossiplog.cli.logs import AcceptLoss, LogPath
from gossiplog.cli.output import Json, Output, Stopwatch, fields_table, note, printable, steps_of
from gossiplog.cli.sync.command import CaFile, TokenFile, check_no_hub_options, check_source
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.reprs import counted, listed

# Problems, and notes, that a terminal shows at most.
_PROBLEMS = 20


def repair(
    path: LogPath,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="A replica: the file or the URL of a log, a hub (ws:// or wss://) or a peer (multiaddr).",
        ),
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    accept_loss: AcceptLoss = False,
    json: Json = False,
) -> None:
    """Repair a damaged log that no program has open: take what is lost from a replica, and build the rest anew.

    Without --from, it repairs what follows from the messages. The damaged file is kept as LOG.damaged; of a log in
    Postgres, what could be read, in the schema SCHEMA_damaged. Where the source
    lacks something, too, the command names it, ends with status 1, and leaves the log as it was; --accept-loss goes on
    without lost messages that no other descends from.
    """
    output = Output(json)
    if source is None:
        check_no_hub_options(token_file, ca_file)
        named = ""
    else:
        named = check_source("--from", source, path, token_file=token_file, ca_file=ca_file)
    # It takes half a second to load, which other commands should not wait for.
    from gossiplog.net import maintenance

    try:
        with steps_of("Repairing") as advance, Stopwatch() as watch:
            repaired = maintenance.repair(
                path.location, source, token_file=token_file, ca_file=ca_file, accept_loss=accept_loss, progress=advance
            )
    except CorruptLog as error:
        where = str(path) if source is None else f"{path}, from {redacted_url(named)}"
        raise StorageError(f"{where}: {error}") from error
    if output.json:
        output.record(
            {
                "log": str(path),
                "damaged": list(repaired.damaged),
                "fetched": repaired.fetched,
                "moved": repaired.moved,
                "notes": list(repaired.notes),
                "former": repaired.former,
                "messages": repaired.messages,
                "root": {"level": repaired.root.level, "hash": repaired.root.hash.hex()},
                "seconds": round(watch.seconds, 6),
            }
        )
        return
    if not repaired.damaged:
        output.show(f"{path} is sound: nothing in it was changed.")
        for remark in repaired.notes:
            note(remark)
        return
    shown = [*map(printable, repaired.damaged[:_PROBLEMS])]
    output.show("Was damaged:", listed(shown, _PROBLEMS, separator="\n", count=len(repaired.damaged)), "", "Repaired.")
    for remark in repaired.notes[:_PROBLEMS]:
        note(remark)
    if len(repaired.notes) > _PROBLEMS:
        note(f"and {counted(len(repaired.notes) - _PROBLEMS, 'more note')}, which --json lists")
    table = fields_table()
    table.add_row("log", printable(str(path)))
    table.add_row("messages", f"{repaired.messages:,}, {repaired.fetched:,} of them from the source")
    table.add_row("root", f"{repaired.root.hash.hex()} at level {repaired.root.level}")
    former = "former file" if isinstance(path.location, Path) else "former log"
    table.add_row(former, printable(str(repaired.former)))
    output.show("", table)
