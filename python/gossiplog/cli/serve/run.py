"""What `gossiplog serve` runs: a hub, a peer of a mesh, or both over one log."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import typer
from starlette.types import ASGIApp, Receive, Scope, Send

from gossiplog.cli.logs import open_log
from gossiplog.cli.output import Output, failure, printable
from gossiplog.cli.places import LogPlace
from gossiplog.cli.printer import Printer, missing_lines
from gossiplog.cli.serve.descriptors import descriptor_warning, raise_descriptor_limit
from gossiplog.cli.serve.log import server_log, utc
from gossiplog.errors import GossipLogError, KeyFileError
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.events import PeerInfo
from gossiplog.net.garbage import collect_rarely
from gossiplog.net.http import server
from gossiplog.net.http.access import Access, Token
from gossiplog.net.http.access_log import AccessLog
from gossiplog.net.http.application import create_monitor
from gossiplog.net.http.listener import Address, Listener, bind
from gossiplog.net.http.server import serve
from gossiplog.net.http.tls import TLS, certificate_scope
from gossiplog.net.hub import Hub
from gossiplog.net.peer import Peer
from gossiplog.net.rate_limited_log import RateLimitedLog, one_line
from gossiplog.net.replicator.telemetry import LOGGER, NetworkCounters, log_level_of
from gossiplog.net.routing.kinds import RouterName
from gossiplog.net.service import background
from gossiplog.net.transport.limits import Limits
from gossiplog.pubsub.gossipsub.config import GossipConfig
from gossiplog.reprs import counted
from gossiplog.signer import read_secret

_ENDING = (signal.SIGINT, signal.SIGTERM)
_ALL_INTERFACES = ("0.0.0.0", "::")

_REFUSALS = 5  # shown of one event, on a terminal
_NO_TOKENS_IN_MESH = (
    "the tokens hold for the hub alone: any peer of the mesh that knows the topic reads and writes without one. Name"
    " the peers that may connect with --allow-peer, or keep others from the port of the mesh"
)

Show: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Writes a line for people, or its fields for programs."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """How a peer of a mesh is run.

    Attributes:
        listen: multiaddrs that it listens on.
        bootstrap: multiaddrs of peers that it knows.
        announce: multiaddrs under which others reach it, beside those.
        mdns: whether it looks for peers in the local network.
        identity: the file with the key by which others know it; made if it is not there.
        gossip: the parameters of gossip; None for the defaults.
        allow_peers: ids of the only peers to be connected to, beside those that `bootstrap` names; none for any.
        block_peers: ids of peers to keep no connection to.
        router: what spreads messages.
    """

    listen: tuple[str, ...]
    bootstrap: tuple[str, ...]
    announce: tuple[str, ...]
    mdns: bool
    identity: Path
    gossip: GossipConfig | None
    allow_peers: tuple[str, ...]
    block_peers: tuple[str, ...]
    router: RouterName


@dataclass(frozen=True, slots=True)
class Options:
    """How a log is served.

    Attributes:
        hub: the host and the port on which a hub listens, 0 taking one that is free; None for no hub.
        mesh: None for no peer.
        metrics: the host, None for the loopback, and the port at which metrics are served, too; None for no such port.
        hosts: further names under which a hub's clients know this machine.
        origins: whose pages may connect.
        read_token: the file with the tokens, one of which readers must show, or None.
        write_token: the file with the tokens, one of which writers must show, or None.
        certificate: the file with the chain, in PEM, or None to go without TLS.
        private_key: the file with its key.
        trusted_proxies: addresses and networks that report the addresses of a hub's clients.
        limits: of connections, streams and memory, of a hub and of a peer each.
        log_level: as `server_log` takes it.
        log_format: likewise.
        access_log: whether requests to the hub are logged.
        dashboard: whether the hub has a page for browsers.
        events: whether what happens is shown, not just where the log is served.
    """

    hub: tuple[str, int] | None
    mesh: Mesh | None
    metrics: tuple[str | None, int] | None
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    read_token: Path | None
    write_token: Path | None
    certificate: Path | None
    private_key: Path | None
    trusted_proxies: tuple[str, ...]
    limits: Limits
    log_level: str
    log_format: str
    access_log: bool
    dashboard: bool
    events: bool

    @property
    def tls(self) -> TLS | None:
        """What the server needs for TLS."""
        if self.certificate is None or self.private_key is None:
            return None
        return TLS(self.certificate, self.private_key)

    def warnings(self) -> tuple[str, ...]:
        """Return what may surprise about the options."""
        has_token = self.read_token is not None or self.write_token is not None
        return (_NO_TOKENS_IN_MESH,) if has_token and self.mesh is not None and not self.mesh.allow_peers else ()

    def access(self) -> Access:
        """Return what callers must bring.

        Raises:
            ValueError: something that is no host or no origin.
            KeyFileError: a file without a token.
        """
        host = _ALL_INTERFACES[0] if self.hub is None else self.hub[0]
        own = () if host in _ALL_INTERFACES else (host.lower(),)
        return Access(
            hosts=frozenset([*own, *self.hosts]),
            origins=frozenset(self.origins),
            read_token=None if self.read_token is None else Token.load_all(self.read_token),
            write_token=None if self.write_token is None else Token.load_all(self.write_token),
        )

    def monitor_access(self) -> Access:
        """Return what callers of the metrics' own port must bring.

        Raises:
            ValueError: something that is no host.
        """
        host, _ = self.metrics or (None, 0)
        if host is None:
            return Access()
        # A scraper may know this machine by any of its addresses.
        own = () if host in _ALL_INTERFACES else (host.lower(),)
        return Access(hosts=frozenset([*own, *self.hosts]), addresses=True)


def serve_log(place: LogPlace, topic: str | None, options: Options, output: Output, warnings: Sequence[str]) -> None:
    """Serve a log until a signal ends it: SIGINT, as Ctrl-C sends it, or SIGTERM.

    Args:
        place: of the log.
        topic: of a log that is not there, to make it.
        options: where, for whom, and what is logged.
        output: where to say what happens.
        warnings: about the options, for the log.

    Raises:
        BadParameter: something that is no host or no origin, or files that are no certificate and its key.
        Exit: it failed; the log says why.
    """
    with server_log(options.log_level, options.log_format, access=options.access_log):
        for warning in (*warnings, *options.warnings()):
            LOGGER.warning("%s", warning)
        services = sum(service is not None for service in (options.hub, options.mesh))
        if text := descriptor_warning(raise_descriptor_limit(), options.limits.connections, services):
            LOGGER.warning("%s", text)
        if options.private_key is not None and (text := _exposure(options.private_key)):
            LOGGER.warning("%s", text)
        try:
            _open_and_serve(place, topic, options, output)
        except (GossipLogError, OSError) as error:
            LOGGER.error("%s", failure(error))
            raise typer.Exit(1) from error


def _open_and_serve(place: LogPlace, topic: str | None, options: Options, output: Output) -> None:
    def encoded(text: str, fields: dict[str, Any]) -> bytes:
        return output.encoded(fields) if output.json else f"{printable(text)}\n".encode()

    def dropped(count: int) -> bytes:
        return encoded(missing_lines(count), {"event": "dropped", "lines": count})

    def gone(error: OSError) -> None:
        LOGGER.warning("what happens is no longer shown, but serving goes on: nobody reads it (%s)", error)

    try:
        access = options.access()
        options.monitor_access()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if (tls := options.tls) is not None:
        try:
            tls.reload()
        except OSError as error:
            raise typer.BadParameter(f"--certificate, --private-key: {failure(error)}") from error
    with (
        # Before the log is made: what cannot be served leaves no file.
        _bound("--hub", options.hub) as hub_listener,
        _bound("--metrics-port", options.metrics) as metrics_listener,
        open_log(place, topic, makes=True, say=_warn) as log,
        Printer(sys.stdout.fileno(), dropped, gone) as printer,
    ):
        replica_of(log).check_appendable()
        if refusal := replica_of(log).write_refusal:
            LOGGER.warning("clients can only read: %s", one_line(refusal))

        def show(text: str, fields: dict[str, Any]) -> None:
            printer.say(encoded(text, fields))

        listeners = _Listeners(hub_listener, metrics_listener)
        # On one terminal a line of the log says enough; programs read the two apart.
        shares_terminal = not output.json and sys.stderr.isatty()
        lowest = logging.getLevelNamesMapping()[options.log_level.upper()] if shares_terminal else None

        def on_event(event: events.Event) -> None:
            if lowest is None or log_level_of(event) < lowest:
                _show_event(_timed(show), event)

        heard = on_event if options.events else None
        anyio.run(_serve, log, str(place), access, options, listeners, show, heard, backend="asyncio")


def _exposure(private_key: Path) -> str:
    """Return what is wrong with the mode of the key of TLS; "" if nothing is, or if it cannot be read.

    Not an error as for tokens: programs that renew certificates write such files, with modes of their own.
    """
    if not os.access(private_key, os.R_OK):
        return ""
    try:
        read_secret(private_key, "private key", 0)
    except KeyFileError as error:
        return str(error)
    return ""


@contextmanager
def _bound(option: str, place: tuple[str | None, int] | None) -> Iterator[Listener | None]:
    """Take the address of an option for a block.

    Raises:
        OSError: it cannot be used; its text names the option.
    """
    if place is None:
        yield None
        return
    try:
        listener = bind(place[0] or "127.0.0.1", place[1])
    except OSError as error:
        raise OSError(f"{option}: {error.strerror or error}") from error
    with listener:
        yield listener


@dataclass(frozen=True, slots=True)
class _Listeners:
    """Where a hub and the metrics are served: sockets that are bound; None where they are not served."""

    hub: Listener | None
    metrics: Listener | None


async def _serve(
    log: Log,
    name: str,
    access: Access,
    options: Options,
    listeners: _Listeners,
    show: Show,
    on_event: Callable[[events.Event], None] | None,
) -> None:
    """Serve until a signal; a signal that comes before it serves, and a second one, end it at once."""
    terminals = [number for number in (0, 1, 2) if os.isatty(number)]
    tls = options.tls
    begun, ended = anyio.Event(), anyio.Event()
    with anyio.open_signal_receiver(*_signals()) as signals:

        async def watch(scope: anyio.CancelScope) -> None:
            async for number in signals:
                if number not in _ENDING and not _is_gone(terminals):
                    # Before it serves, the files have just been read.
                    if begun.is_set():
                        _reload(hub, tls, options, show)
                    continue
                LOGGER.info("stopped by %s", signal.Signals(number).name)
                if ended.is_set() or not begun.is_set():
                    scope.cancel()
                ended.set()

        hub: Hub | None = None
        async with background() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(watch, scope)
                async with _served(log, name, access, options, tls, listeners, on_event) as (hub, places, fields):
                    # Modules and settings stay. Each full collection of garbage went through them, for 40 ms in which
                    # nothing else ran, every other second while clients asked for much.
                    collect_rarely()
                    show(f"serving {name} at {', '.join(places)}, until Ctrl-C", fields)
                    LOGGER.info("serving %s at %s", one_line(name), one_line(", ".join(places)))
                    begun.set()
                    await ended.wait()


@asynccontextmanager
async def _served(
    log: Log,
    name: str,
    access: Access,
    options: Options,
    tls: TLS | None,
    listeners: _Listeners,
    on_event: Callable[[events.Event], None] | None,
) -> AsyncIterator[tuple[Hub | None, list[str], dict[str, Any]]]:
    """Serve a log for a block.

    Yields:
        The hub, if there is one; where it serves, for people; and the same as fields.
    """
    async with AsyncExitStack() as stack:
        peer = _peer(log, options.mesh, options.limits, on_event)
        if peer is not None:
            await stack.enter_async_context(peer)
        hub = None
        if options.hub is not None:
            hub = Hub(
                log,
                access=access,
                limits=options.limits,
                peer=peer,
                on_event=on_event if peer is None else None,
                dashboard=options.dashboard,
            )
            await stack.enter_async_context(hub)
        fields: dict[str, Any] = {"log": name, "topic": log.topic}
        places: list[str] = []
        tasks = await stack.enter_async_context(background())
        # Both servers share them, so that the metrics at either port have all counts.
        limited_log = RateLimitedLog(server.LOGGER)
        if peer is not None:
            fields |= {"peer": peer.peer_id, "listen": list(peer.addresses)}
            places += peer.addresses or [f"no address, as {peer.peer_id}"]
        if hub is not None and listeners.hub is not None:
            run = partial(
                serve,
                AccessLog(hub) if options.access_log else hub,
                listener=listeners.hub,
                tls=tls,
                limits=options.limits,
                trusted_proxies=options.trusted_proxies,
                limited_log=limited_log,
            )
            at: Address = await tasks.start(run)
            fields |= {"hub": at.url("ws"), "api": at.url("http") + "/api"}
            places.append(at.url("ws"))
            if options.dashboard:
                fields |= {"page": at.url("http") + "/"}
                places[-1] += f" (its page: {fields['page']})"
        if listeners.metrics is not None:
            monitor = _monitor(log, peer, hub, options.monitor_access(), tls)
            at = await tasks.start(partial(serve, monitor, listener=listeners.metrics, limited_log=limited_log))
            fields |= {"metrics": at.url("http") + "/metrics"}
        yield hub, places, fields


def _signals() -> list[signal.Signals]:
    """Return the signals to wait for. SIGHUP is not one of them if it is ignored, as nohup has it."""
    found = list(_ENDING)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


def _is_gone(terminals: Sequence[int]) -> bool:
    """Return whether the terminal that the program was started in was closed, which sends SIGHUP, too."""
    return any(not os.isatty(number) for number in terminals)


def _reload(hub: Hub | None, tls: TLS | None, options: Options, show: Show) -> None:
    """Read the files of tokens and certificates again; if one cannot be used, all stay as they are."""
    try:
        access = options.access()
        if tls is not None:
            tls.reload()
    except (GossipLogError, OSError) as error:
        LOGGER.error("the tokens and the certificate stay as they were: %s", failure(error))
        return
    gone = hub.replace_tokens(access.read_token, access.write_token) if hub is not None else 0
    clients = counted(gone, "client")
    text = f"read the files of tokens and certificates again; {clients} disconnected, whose token was replaced"
    if options.events:
        _timed(show)(text, {"event": "reloaded", "disconnected": gone})
    else:
        LOGGER.info("%s", text)


def _peer(log: Log, mesh: Mesh | None, limits: Limits, on_event: Callable[[events.Event], None] | None) -> Peer | None:
    if mesh is None:
        return None
    peer = Peer(
        log,
        listen=mesh.listen,
        bootstrap=mesh.bootstrap,
        identity=mesh.identity,
        announce=mesh.announce,
        mdns=mesh.mdns,
        gossip=mesh.gossip,
        allow_peers=mesh.allow_peers,
        limits=limits,
        router=mesh.router,
        on_event=on_event,
    )
    for peer_id in mesh.block_peers:
        peer.block(peer_id)
    return peer


def _warn(text: str) -> None:
    LOGGER.warning("%s", one_line(text))


def _timed(show: Show) -> Show:
    """Return a function that shows things with the time."""
    return lambda text, fields: show(text, {**fields, "time": utc(time.time())})


def _monitor(log: Log, peer: Peer | None, hub: Hub | None, access: Access, tls: TLS | None) -> ASGIApp:
    """Make the application of the metrics' own port."""

    def counters() -> NetworkCounters:
        return hub.counters if hub is not None else peer.counters if peer is not None else NetworkCounters()

    def peers() -> tuple[PeerInfo, ...]:
        # A hub that shares the peer's work knows the peers of the mesh, too.
        return hub.peers if hub is not None else peer.peers if peer is not None else ()

    def unready() -> str:
        return hub.obstacle if hub is not None else peer.obstacle if peer is not None else ""

    monitor = create_monitor(log, counters, peers, access=access, unready=unready)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # The certificate is that of the hub's own port.
        await monitor({**scope, **certificate_scope(tls)}, receive, send)

    return answer


def _listed(refused: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"id": id, "reason": reason} for id, reason in refused]


def _first(refused: Sequence[tuple[str, str]]) -> str:
    shown = "; ".join(f"message {id}: {reason}" for id, reason in refused[:_REFUSALS])
    return shown + ("; …" if len(refused) > _REFUSALS else "")


def _show_event(show: Show, event: events.Event) -> None:
    match event:
        case events.Connected(peer):
            show(f"{peer} joined", {"event": "connected", "peer": peer})
        case events.Disconnected(peer, reason, blamed):
            fields = {"event": "disconnected", "peer": peer, "reason": reason, "blamed": blamed}
            show(f"{peer} {'was dropped' if blamed else 'left'}: {reason}", fields)
        case events.Rejected(peer, reason):
            fields = {"event": "rejected", "peer": peer, "reason": reason}
            show(f"{peer} was dropped before it joined: {reason}", fields)
        case events.Grafted(peer):
            show(f"{peer} came into the mesh", {"event": "grafted", "peer": peer})
        case events.Pruned(peer):
            show(f"{peer} left the mesh", {"event": "pruned", "peer": peer})
        case events.Subscribed(peer):
            show(f"{peer} listens to gossip", {"event": "subscribed", "peer": peer})
        case events.Unsubscribed(peer):
            show(f"{peer} listens to gossip no more", {"event": "unsubscribed", "peer": peer})
        case events.MessagesRefused(refused, peer, more):
            named = [(id, error.reason) for id, error in refused]
            fields = {"event": "refused", "peer": peer, "refused": _listed(named), "more": more}
            count = counted(len(named) + more, "message")
            show(f"{count} of {peer or 'a peer that is gone'} were refused: {_first(named)}", fields)
        case events.RefusalsReported(peer, reported, more):
            fields = {"event": "refusals_reported", "peer": peer, "refused": _listed(reported), "more": more}
            show(f"{peer} refuses {counted(len(reported) + more, 'message')} of this log: {_first(reported)}", fields)
        case events.SyncEnded(peer, complete, inserted, refused, statistics, error, reasons):
            fields = {
                "event": "sync",
                "peer": peer,
                "complete": complete,
                "inserted": inserted,
                "refused": refused,
                "reasons": _listed(reasons),
                "requests": statistics.requests,
                "bytes": statistics.bytes_received,
                "error": error,
            }
            state = "" if complete else ", not all that it has"
            show(f"{peer} brought {counted(inserted, 'message')}{state}{f': {error}' if error else ''}", fields)
        case events.Committed(messages, root, inserted, sources, authors):
            fields = {
                "event": "committed",
                "messages": messages,
                "inserted": inserted,
                "peers": [{"peer": peer, "inserted": count} for peer, count in sources.items()],
                "authors": list(authors),
                "root": {"level": root.level, "hash": root.hash.hex()},
            }
            origin = f" from {', '.join(sources)}" if sources else ""
            show(f"{counted(messages, 'message')}, {inserted:,} new{origin}, by {', '.join(authors)}", fields)
        case events.Failed(doing, error):
            show(f"{doing}: {error}", {"event": "failed", "doing": doing, "error": str(error)})
        case events.Defect(peer, doing, error, times):
            raised = f"{type(error).__name__}: {error}"
            fields = {"event": "defect", "peer": peer, "doing": doing, "error": raised, "times": times}
            show(f"{peer or 'no peer'}: a defect of gossiplog, {doing}: {raised}", fields)
