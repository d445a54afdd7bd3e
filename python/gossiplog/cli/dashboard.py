"""`gossiplog dashboard`: play a recording of a network in the browser."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gossiplog.cli.options import read_address
from gossiplog.cli.output import Json, Output, note
from gossiplog.reprs import counted, shell_path

if TYPE_CHECKING:
    from gossiplog.dashboard.recording import Summary

_PLACE = "127.0.0.1:0"


def dashboard(
    recording: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The recording: `gossiplog network` and `gossiplog simulate` make one with --record."
        ),
    ],
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the page at this address; the port 0 takes a free one. Everything but loopback lets others in.",
        ),
    ] = _PLACE,
    check: Annotated[bool, typer.Option("--check", help="Say what the recording holds, and serve nothing.")] = False,
    json: Json = False,
) -> None:
    """Play a recording of a network in a page, with pause, speed and a time slider, until Ctrl-C."""
    host, port = read_address("--listen", listen, _PLACE)
    # What these load takes longer than most commands.
    from gossiplog.dashboard.recording import check as check_recording

    output = Output(json)
    summary = check_recording(recording)
    if summary.is_cut:
        note(f"the last line of {shell_path(recording)} has not ended, as after a kill: it does not count")
    if check:
        _show(output, summary)
        return
    _serve(recording, summary.title or recording.name, host, port, output)


def _show(output: Output, summary: Summary) -> None:
    if output.json:
        output.record({"title": summary.title, "events": summary.events, "seconds": summary.seconds})
    else:
        output.show(
            f"{summary.title or 'without a title'}: {counted(summary.events, 'event')}, {summary.seconds:.1f} s"
        )


def _serve(recording: Path, title: str, host: str, port: int, output: Output) -> None:
    import anyio

    from gossiplog.cli.stopping import until_stopped
    from gossiplog.dashboard.stream import access_at, player
    from gossiplog.net.http.server import serve
    from gossiplog.net.service import background

    async def run() -> None:
        async with background() as tasks:
            application = player(recording, title, access_at(host))
            address = await tasks.start(partial(serve, application, host, port))
            url = address.url("http")
            if output.json:
                output.record({"url": url})
                output.flush()
            else:
                output.show(f"{title}: open {url} in a browser; Ctrl-C ends it")
            await until_stopped()

    anyio.run(run, backend="asyncio")
