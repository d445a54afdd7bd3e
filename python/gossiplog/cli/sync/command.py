"""`gossiplog sync`: one log gets what another holds, a hub, or a peer of a mesh."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import typer

from gossiplog.cli.logs import AcceptLoss, LogPath, open_log
from gossiplog.cli.output import Json, Output, Stopwatch, fields_table, printable, spinner
from gossiplog.cli.places import LogPlace
from gossiplog.errors import CorruptLog, CorruptSource, GossipLogError, NotALog, ProtocolError
from gossiplog.log import Log
from gossiplog.net.arguments import SourceKind, kind_of_source
from gossiplog.reprs import counted, shell_path
from gossiplog.storage.base import check_same_topic
from gossiplog.storage.postgres.url import PostgresURL, is_postgres_url
from gossiplog.storage.sqlite.tables import BESIDE

if TYPE_CHECKING:
    from rich.table import Table

_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}/?")
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/))?([^?#]*).*", re.DOTALL)
_EXPECTED = (
    ": expected the file of another log, a hub (ws://HOST:PORT) or a peer (/ip4/… or /dns4/…), or a log in Postgres"
    " (postgresql://…)"
)

TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", readable=False, help="With a hub: the file of its bearer token.")
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With a wss:// hub: the file of further certificate authorities to trust, in PEM."
    ),
]


def check_source(name: str, source: str, place: LogPlace, *, token_file: Path | None, ca_file: Path | None) -> str:
    """Check that an argument names a source, and that its options fit; return it as it may be shown.

    Args:
        name: of the argument.
        source: its text.
        place: of the log that is brought up to date with the source.
        token_file: of a hub's token, if one was given.
        ca_file: of certificate authorities, likewise.

    Raises:
        typer.BadParameter: it is an address of pages, or the log itself; or it is no hub, and has options of one.
        NotALog: it is the path of a file that does not exist.
    """
    kind = _parse_kind(name, source)
    if kind is SourceKind.FILE:
        _parse_log(name, source, place)
    if kind is not SourceKind.HUB:
        check_no_hub_options(token_file, ca_file)
    return _shown(source)


def check_no_hub_options(token_file: Path | None, ca_file: Path | None) -> None:
    """Raise typer.BadParameter where one of the options is given."""
    if token_file is not None or ca_file is not None:
        raise typer.BadParameter("--token-file and --ca-file are for hubs (ws:// or wss:// addresses)")


def _parse_kind(name: str, source: str) -> SourceKind:
    try:
        return kind_of_source(source)
    except ValueError as error:
        raise typer.BadParameter(f"{name}: {error}") from None


def _parse_log(name: str, source: str, place: LogPlace) -> LogPlace:
    """Return the place of a source that is a log, given as path, as "file:" URI or as URL; see `check_source`."""
    found = LogPlace.parse(source)
    if isinstance(found.location, PostgresURL):
        if str(found) == str(place):
            raise typer.BadParameter(f"{name}: {found} is the log itself{_EXPECTED}")
        return found
    uri = _FILE_URI.fullmatch(source)
    file = Path(source if uri is None else unquote(uri[1]))
    if not file.exists():
        raise NotALog(f"{name}: there is no log {file if uri else source}{_hub_hint(source) or _EXPECTED}")
    if isinstance(place.location, Path) and place.location.exists() and place.location.samefile(file):
        raise typer.BadParameter(f"{name}: {source} is the log itself{_EXPECTED}")
    return LogPlace(file)


def _shown(source: str) -> str:
    """Return a source as it was given, but for a password."""
    return str(LogPlace.parse(source)) if is_postgres_url(source) else source


def _hub_hint(source: str) -> str:
    """Return what to say of a hub's address that lacks its scheme; "" for other texts."""
    if _HOST_AND_PORT.fullmatch(source) and not Path(source).exists():
        return f": a hub's address begins with ws://, as ws://{source}"
    return ""


class PullFailed(GossipLogError):
    """A pull between two logs that ended early: what came before is in the log."""


def sync(
    path: LogPath,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The other side: a log's file or postgresql:// URL, a hub's ws:// address, or a peer's multiaddr,"
            " /ip4/… or /dns4/….",
        ),
    ],
    both: Annotated[
        bool,
        typer.Option("--both", help="Give the other log what it lacks, too. With a hub or a peer this is always done."),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="With a hub or a peer: stay connected, until Ctrl-C, or until the hub refuses the token or the topic.",
        ),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(
            help="Topic of the log; LOG is made with it if it does not exist. May be left out if SOURCE is a file."
        ),
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    accept_loss: AcceptLoss = False,
    json: Json = False,
) -> None:
    """Get from another log, a hub or a peer what this one lacks. LOG is made if it does not exist.

    The exit status is 3 if the hub or the peer refuses messages of LOG: one line says which, why, and what to run.
    """
    output = Output(json)

    def show(pull: dict[str, Any]) -> None:
        if output.json:
            output.record(pull)
        else:
            output.show(_fields(pull))
        if follow:
            output.flush()

    kind = _parse_kind("SOURCE", source)
    if kind is SourceKind.HUB:
        # What it needs takes half a second to load, which a sync with a file should not wait for.
        from gossiplog.cli.sync.hub import sync_with_hub

        with _open_destination(path, topic, accept_loss) as log:
            sync_with_hub(log, str(path), source, token_file=token_file, ca_file=ca_file, follow=follow, done=show)
        return
    if kind is SourceKind.PEER:
        check_no_hub_options(token_file, ca_file)
        from gossiplog.cli.sync.mesh import sync_with_peer

        with _open_destination(path, topic, accept_loss) as log:
            sync_with_peer(log, str(path), source, follow=follow, done=show)
        return
    if follow or token_file is not None or ca_file is not None:
        raise typer.BadParameter(
            f"{_shown(source)} is taken for a file{_hub_hint(source)}; --token-file and --ca-file are for hubs (ws://"
            " or wss:// addresses), --follow is for hubs and peers (multiaddrs)"
        )
    other = _parse_log("SOURCE", source, path)
    name = _shown(source)
    # It may be somebody else's: nothing is written to it unless that is asked for.
    with open_log(other, read_only=not both) as theirs:
        check_same_topic(str(other), theirs.topic, topic)
        with _open_destination(path, theirs.topic, accept_loss) as ours:
            show(pull_timed(ours, theirs, str(path), name))
            if both:
                if not output.json:
                    output.show("")
                show(pull_timed(theirs, ours, name, str(path)))


@contextmanager
def _open_destination(place: LogPlace, topic: str | None, accept_loss: bool) -> Iterator[Log]:
    """Open a log, or make it; if the block fails before a new one got a message, nothing is left of it."""
    if isinstance(place.location, PostgresURL):
        # An empty log in a schema is in nobody's way, and who may use it may have been set already.
        with open_log(place, topic, makes=True) as log:
            yield log
        return
    # What is left of another log stays.
    files = [Path(f"{place}{suffix}") for suffix in ("", *BESIDE)]
    is_new = is_empty = not any(file.exists() for file in files)
    try:
        with open_log(place, topic, accept_loss=accept_loss, makes=True) as log:
            is_empty = False
            try:
                yield log
            except BaseException:
                with suppress(GossipLogError):
                    is_empty = len(log) == 0
                raise
    finally:
        if is_new and is_empty:
            for file in files:
                file.unlink(missing_ok=True)


def pull_timed(log: Log, source: Log, name: str, source_name: str) -> dict[str, Any]:
    """Pull, and return what that brought and cost.

    Args:
        log: the log to pull into.
        source: the log to pull from.
        name: what to call the one,
        source_name: and the other.

    Raises:
        PullFailed: one of them is damaged.
    """
    before = len(log)
    try:
        with spinner(f"{name} ← {source_name}"), Stopwatch() as watch:
            pulled = log.pull(source)
        messages, root = len(log), log.root
    except ProtocolError as error:
        raise PullFailed(f"{source_name}: {error}") from error
    except CorruptSource as error:
        way_back = (
            f"gossiplog doctor {shell_path(source_name)} says what to run, and the same sync then brings the rest"
        )
        came = f"{counted(len(log) - before, 'message')} from before the damage came"
        raise PullFailed(f"{source_name}: {error}; {came}. {way_back}") from error
    except CorruptLog as error:
        raise PullFailed(f"{name}: {error}") from error
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
        "messages": messages,
        "root": {"level": root.level, "hash": root.hash.hex()},
    }


def _fields(pull: dict[str, Any]) -> Table:
    table = fields_table()
    table.add_row("log", printable(pull["log"]))
    table.add_row("source", printable(pull["source"]))
    table.add_row("new", f"{counted(pull['inserted'], 'message')}, {pull['messages_per_second']:,} a second")
    if "sent" in pull:
        table.add_row("sent", counted(pull["sent"], "message"))
    table.add_row("requests", f"{pull['requests']:,} in {counted(pull['round_trips'], 'round trip')}")
    table.add_row("bytes", f"{pull['bytes_sent']:,} sent, {pull['bytes_received']:,} received")
    table.add_row("seconds", f"{pull['seconds']:.3f}")
    table.add_row("messages", f"{pull['messages']:,}")
    table.add_row("root", f"{pull['root']['hash']} at level {pull['root']['level']}")
    return table
