"""`gossiplog serve`: a hub, for browsers and for `gossiplog sync`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossiplog.cli.logs import LogPath
from gossiplog.cli.output import Json, Output
from gossiplog.net.limits import Limits

_DEFAULT = "127.0.0.1:8000"
_LIMITS = Limits()


def serve(
    path: LogPath,
    hub: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where clients connect; the port 0 takes one that is free.")
    ] = _DEFAULT,
    topic: Annotated[str | None, typer.Option(help="Of a log that is not there, to make it.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name under which clients know this machine; * for any.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Whose pages may connect, as https://example.org; * for all."),
    ] = None,
    read_token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with a token that readers must show.")
    ] = None,
    write_token: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with a token that writers must show.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Speak TLS, with this chain of certificates in PEM.")
    ] = None,
    private_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key, in PEM.")] = None,
    connections: Annotated[
        int, typer.Option(metavar="NUMBER", help="Clients at a time; more are refused.")
    ] = _LIMITS.connections,
    streams: Annotated[
        int, typer.Option(metavar="NUMBER", help="Streams that a client may have open; more are reset.")
    ] = _LIMITS.streams,
    peer_bytes: Annotated[
        int, typer.Option(metavar="BYTES", help="Kept in memory for a client; one that exceeds them is dropped.")
    ] = _LIMITS.peer_bytes,
    total_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", help="Kept for all clients; beyond, the one with most is disconnected."),
    ] = _LIMITS.total_bytes,
    json: Json = False,
) -> None:
    """Serve a log to browsers and other clients, until Ctrl-C. By default only programs on this machine can connect."""
    host, port = _address(hub)
    if (certificate is None) != (private_key is None):
        raise typer.BadParameter("--certificate and --private-key go together")
    try:
        limits = Limits(connections=connections, streams=streams, peer_bytes=peer_bytes, total_bytes=total_bytes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    # What it needs takes half a second to load, which no other command should wait for.
    from gossiplog.cli.serve_hub import Options, serve_hub

    options = Options(
        host=host,
        port=port,
        hosts=tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        read_token=read_token,
        write_token=write_token,
        certificate=certificate,
        private_key=private_key,
        limits=limits,
    )
    serve_hub(path, topic, options, Output(json))


def _address(value: str) -> tuple[str, int]:
    host, separator, port = value.rpartition(":")
    if not separator or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{value!r} is no address: expected HOST:PORT, as {_DEFAULT}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
