"""`gossiplog serve`: a hub, for browsers and for `gossiplog sync`, a peer of a mesh, or both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from gossiplog._core import check_address, check_peer_id
from gossiplog.cli.logs import LogPath, NewTopic
from gossiplog.cli.options import Gossip, RouterName, gossip_config, read_address
from gossiplog.cli.output import Json, Output
from gossiplog.cli.places import LogPlace
from gossiplog.cli.settings import Config, ShowConfig, may_be_secret, misspelt, place, show_settings
from gossiplog.net.arguments import check_texts
from gossiplog.net.http.addresses import read_networks
from gossiplog.net.transport.limits import Limits
from gossiplog.storage.postgres.url import PostgresURL

_DEFAULT = "127.0.0.1:8000"
_LIMITS = Limits()
_TOKENS = ("read_token", "write_token")


def serve(
    context: typer.Context,
    path: LogPath,
    hub: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Serve clients at this address; the port 0 takes a free one. The default is {_DEFAULT}, or no hub"
            " in a mesh.",
        ),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MULTIADDR",
            help="Join a mesh of peers, and listen at this address, such as /ip4/0.0.0.0/tcp/9000/ws. No token is asked"
            " for there: every peer that knows the topic reads and writes, unless --allow-peer is given.",
        ),
    ] = None,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="Join the mesh of the peer at this address."),
    ] = None,
    announce: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="Announce this address to the mesh, beside those of --listen."),
    ] = None,
    allow_peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PEERID",
            help="Be connected to this peer of the mesh, to others that are named so, and to those that --bootstrap"
            " names by their id, alone. The default is any peer.",
        ),
    ] = None,
    block_peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PEERID",
            help="Keep no connection to this peer of the mesh. What it writes may still come through others.",
        ),
    ] = None,
    mdns: Annotated[
        bool, typer.Option("--mdns/--no-mdns", help="Join the mesh of peers in the local network.")
    ] = False,
    identity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            readable=False,
            help="The file of the key by which a mesh knows this peer, made at its first use. The default is a file"
            " beside the log; for a log in Postgres it has to be named.",
        ),
    ] = None,
    gossip: Gossip = None,
    router: Annotated[
        RouterName,
        typer.Option(
            help="What spreads messages in the mesh: gossipsub of rust-libp2p, which passes them on once they are"
            " verified, or a router of this package, which does once they are stored. Those with episub get others'"
            " messages by syncs, and these theirs."
        ),
    ] = "libp2p",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics, /peers, /healthz and /readyz at this port, too.",
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The address of --metrics-port, such as 0.0.0.0. The default lets only programs on this machine"
            " connect. No token is asked for there.",
        ),
    ] = None,
    topic: NewTopic = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Accept this name of the machine from clients; * accepts any."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Accept pages of this origin, such as https://example.org; * accepts all."),
    ] = None,
    read_token: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", readable=False, help="The file of the tokens of readers: one, or NAME: TOKEN in each line."
        ),
    ] = None,
    write_token: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", readable=False, help="The file of the tokens of writers: one, or NAME: TOKEN in each line."
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", readable=False, help="Speak TLS with the chain of certificates in this file, in PEM."
        ),
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="The file of the certificate's key, in PEM.")
    ] = None,
    connections: Annotated[
        int, typer.Option(metavar="NUMBER", help="Clients that may be connected at a time; more are refused.")
    ] = _LIMITS.connections,
    connections_per_address: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Connections of clients and of peers from one address. The default is 32, and no limit from loopback.",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Believe X-Forwarded-For from this proxy, or network of proxies."),
    ] = None,
    streams: Annotated[
        int, typer.Option(metavar="NUMBER", help="Streams that each client may have open; more are reset.")
    ] = _LIMITS.streams,
    peer_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", help="Bytes kept in memory for each client; one that exceeds them is dropped."),
    ] = _LIMITS.peer_bytes,
    total_bytes: Annotated[
        int,
        typer.Option(
            metavar="BYTES",
            help="Bytes kept in memory for all clients and requests; beyond them, the client with the most is"
            " disconnected.",
        ),
    ] = _LIMITS.total_bytes,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="The lowest level of the lines in the log on stderr."),
    ] = "warning",
    log_format: Annotated[Literal["text", "json"], typer.Option(help="The format of the log on stderr.")] = "text",
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="Log each request and each WebSocket of the hub, too.")
    ] = False,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard/--no-dashboard",
            help="Show a page about the log to a browser that opens the hub's address and may read: messages,"
            " heads, peers, refusals.",
        ),
    ] = False,
    events: Annotated[
        bool,
        typer.Option("--events/--no-events", help="Write what happens to stdout, after the addresses of the server."),
    ] = True,
    json: Json = False,
    config: Config = None,
    show_config: ShowConfig = False,
) -> None:
    """Serve a log to browsers and other clients, or in a mesh of peers.

    It runs until Ctrl-C or SIGTERM, and then ends with 0. SIGHUP makes it read the files of tokens and certificates
    again. By default only programs on this machine can connect. Every
    option may also be set by a variable, such as GOSSIPLOG_METRICS_PORT, and in a file (--config).
    """
    if show_config:
        for line in show_settings(context, secret_files=_TOKENS, as_json=json):
            typer.echo(line)
    mesh = None
    if listen or bootstrap or mdns:
        mesh = (tuple(listen or ()), tuple(bootstrap or ()), tuple(announce or ()), mdns)
    elif announce or allow_peer or block_peer or gossip or identity is not None or router != "libp2p":
        raise typer.BadParameter(
            "--announce, --allow-peer, --block-peer, --gossip, --router and --identity are for a mesh: give --listen,"
            " --bootstrap or --mdns, too"
        )
    if gossip and router in ("floodsub", "episub"):
        raise typer.BadParameter(
            f"--gossip sets parameters of gossipsub, which --router {router} does not have: leave one of them out"
        )
    try:
        for name, addresses in (("listen", listen), ("bootstrap", bootstrap), ("announce", announce)):
            check_texts(place(context, name), addresses or (), "", check_address)
        check_texts(place(context, "allow_peer"), allow_peer or (), "", check_peer_id)
        check_texts(place(context, "block_peer"), block_peer or (), "", check_peer_id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if hub is None:
        if mesh is None:
            hub = _DEFAULT
        elif (
            allow_origin
            or access_log
            or dashboard
            or any((read_token, write_token, certificate, private_key, trusted_proxy))
        ):
            raise typer.BadParameter(
                "--allow-origin, --access-log, --dashboard, --trusted-proxy, tokens and TLS are for a hub's clients:"
                " give --hub, too"
            )
        elif allow_host and metrics_host is None:
            raise typer.BadParameter(
                "--allow-host is for a hub's clients, or for --metrics-host: give one of them, too"
            )
    if metrics_host is not None and metrics_port is None:
        raise typer.BadParameter("--metrics-host is for --metrics-port: give it, too")
    if (certificate is None) != (private_key is None):
        raise typer.BadParameter("--certificate and --private-key go together")
    try:
        limits = Limits(
            connections=connections,
            connections_per_address=connections_per_address,
            streams=streams,
            peer_bytes=peer_bytes,
            total_bytes=total_bytes,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    try:
        read_networks(trusted_proxy or ())
    except ValueError as error:
        raise typer.BadParameter(
            f"--trusted-proxy: {error}; expected an address such as 192.0.2.1, or a network"
        ) from error
    for name, token in (("read_token", read_token), ("write_token", write_token)):
        if token is not None and may_be_secret(token):
            raise typer.BadParameter(
                f"{place(context, name)} names no file (its {len(str(token))} characters are not shown, they may be a"
                " token): expected the path of a file that has the token in it"
            )
    # What it needs takes half a second to load, which no other command should wait for.
    from gossiplog.cli.serve.run import Mesh, Options, serve_log

    parameters = gossip_config(gossip)
    peers = tuple(allow_peer or ()), tuple(block_peer or ())
    options = Options(
        hub=None if hub is None else read_address("--hub", hub, _DEFAULT),
        mesh=None if mesh is None else Mesh(*mesh, identity or _identity_beside(path), parameters, *peers, router),
        metrics=None if metrics_port is None else (metrics_host, metrics_port),
        hosts=tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        read_token=read_token,
        write_token=write_token,
        certificate=certificate,
        private_key=private_key,
        trusted_proxies=tuple(trusted_proxy or ()),
        limits=limits,
        log_level=log_level,
        log_format=log_format,
        access_log=access_log,
        dashboard=dashboard,
        events=events,
    )
    if not show_config:
        serve_log(path, topic, options, Output(json), misspelt(context, os.environ))


def _identity_beside(place: LogPlace) -> Path:
    """Return the file of a peer's key beside a log.

    Raises:
        BadParameter: the log is in no folder.
    """
    if isinstance(place.location, PostgresURL):
        raise typer.BadParameter(
            "--identity is missing: a log in Postgres has no folder for the key by which a mesh knows this peer, and"
            " each server of the log needs one of its own"
        )
    return place.location.with_name(f"{place.location.name}.identity")
