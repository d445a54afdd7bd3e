"""What `gossiplog serve` runs: a hub, a peer of a mesh, or both over one log."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import typer
from starlette.types import ASGIApp

from gossiplog.cli.logs import open_log
from gossiplog.cli.output import Output, note, printable
from gossiplog.cli.printer import Printer
from gossiplog.log import Log
from gossiplog.net import events, serving
from gossiplog.net.access import Access, Token
from gossiplog.net.background import background
from gossiplog.net.hub import Hub
from gossiplog.net.limits import Limits
from gossiplog.net.peer import Peer
from gossiplog.net.record import LOGGER, Counters
from gossiplog.net.serving import TLS, Address, serve
from gossiplog.net.site import create_monitor
from gossiplog.pubsub.gossipsub.config import GossipConfig

_ALL_INTERFACES = ("0.0.0.0", "::")

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
        gossip: the parameters of gossip.
    """

    listen: tuple[str, ...]
    bootstrap: tuple[str, ...]
    announce: tuple[str, ...]
    mdns: bool
    identity: Path
    gossip: GossipConfig


@dataclass(frozen=True, slots=True)
class Options:
    """How a log is served.

    Attributes:
        hub: the host and the port on which a hub listens, 0 taking one that is free; None for no hub.
        mesh: None for no peer.
        metrics_port: on which metrics are served apart, or None.
        hosts: further names under which a hub's clients know this machine.
        origins: whose pages may connect.
        read_token: the file with the token that readers must show, or None.
        write_token: the file with the token that writers must show, or None.
        certificate: the file with the chain, in PEM, or None to go without TLS.
        private_key: the file with its key.
        trusted_proxies: addresses and networks that tell the addresses of a hub's clients.
        limits: of connections, streams and memory, of a hub and of a peer each.
    """

    hub: tuple[str, int] | None
    mesh: Mesh | None
    metrics_port: int | None
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    read_token: Path | None
    write_token: Path | None
    certificate: Path | None
    private_key: Path | None
    trusted_proxies: tuple[str, ...]
    limits: Limits

    @property
    def tls(self) -> TLS | None:
        """What the server needs for TLS."""
        if self.certificate is None or self.private_key is None:
            return None
        return TLS(self.certificate, self.private_key)

    def access(self) -> Access:
        """What callers must bring.

        Raises:
            ValueError: something that is no host or no origin.
            KeyFileError: a file without a token.
        """
        host = _ALL_INTERFACES[0] if self.hub is None else self.hub[0]
        own = () if host in _ALL_INTERFACES else (host.lower(),)
        return Access(
            hosts=frozenset([*own, *self.hosts]),
            origins=frozenset(self.origins),
            read_token=None if self.read_token is None else Token.load(self.read_token),
            write_token=None if self.write_token is None else Token.load(self.write_token),
        )


def serve_log(path: Path, topic: str | None, options: Options, output: Output) -> None:
    """Serves a log until a signal ends it: SIGINT, as Ctrl-C sends it, or SIGTERM.

    Args:
        path: of the log.
        topic: of a log that is not there, to make it.
        options: where and for whom.
        output: where to say what happens.

    Raises:
        OSError: the address or the TLS files cannot be used.
        KeyFileError: a file without a token.
    """

    def encoded(text: str, fields: dict[str, Any]) -> bytes:
        return output.encoded(fields) if output.json else f"{printable(text)}\n".encode()

    def dropped(count: int) -> bytes:
        text = f"{count:,} lines are missing here: they were not read in time"
        return encoded(text, {"event": "dropped", "lines": count})

    def gone(error: OSError) -> None:
        note(f"what happens is not shown any more, but serving goes on: nobody reads it ({error})")

    try:
        access = options.access()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with (
        open_log(path, topic) as log,
        Printer(sys.stdout.fileno(), dropped, gone) as printer,
        _complaints(),
    ):

        def show(text: str, fields: dict[str, Any]) -> None:
            printer.say(encoded(text, fields))

        anyio.run(_serve, log, str(path), access, options, show, backend="asyncio")


@contextmanager
def _complaints() -> Iterator[None]:
    """Write the server's warnings, and tracebacks of defects, to stderr: Python would do that on the event loop."""

    def dropped(count: int) -> bytes:
        return f"gossiplog: {count:,} warnings are missing here: they were not read in time\n".encode()

    # Nobody is left to tell when stderr is gone.
    with Printer(sys.stderr.fileno(), dropped, gone=lambda error: None) as printer:
        handlers = [(logging.getLogger(name), _Handler(printer)) for name in ("uvicorn", serving.__name__)]
        defects = _Handler(printer)
        # All else that this logger has is shown as an event.
        defects.addFilter(lambda record: record.name == LOGGER.name and bool(record.exc_info))
        handlers.append((LOGGER, defects))
        for logger, handler in handlers:
            logger.addHandler(handler)
        try:
            yield
        finally:
            for logger, handler in handlers:
                logger.removeHandler(handler)


class _Handler(logging.Handler):
    """Passes on what is logged."""

    def __init__(self, printer: Printer) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        lines = map(printable, self.format(record).splitlines())
        self._printer.say("gossiplog: {}\n".format("\n".join(lines)).encode())


async def _serve(log: Log, name: str, access: Access, options: Options, show: Show) -> None:
    on_event = partial(_show_event, show)
    async with AsyncExitStack() as stack:
        peer = _peer(log, options.mesh, options.limits, on_event)
        if peer is not None:
            await stack.enter_async_context(peer)
        hub = None
        if options.hub is not None:
            hub = Hub(log, access=access, limits=options.limits, peer=peer, on_event=on_event if peer is None else None)
            await stack.enter_async_context(hub)
        fields: dict[str, Any] = {"log": name, "topic": log.topic}
        places: list[str] = []
        tasks = await stack.enter_async_context(background())
        if peer is not None:
            fields |= {"peer": peer.peer_id, "listen": list(peer.addresses)}
            places += peer.addresses or [f"no address, as {peer.peer_id}"]
        if hub is not None and options.hub is not None:
            host, port = options.hub
            run = partial(
                serve,
                hub,
                host,
                port,
                tls=options.tls,
                limits=options.limits,
                trusted_proxies=options.trusted_proxies,
            )
            at: Address = await tasks.start(run)
            fields |= {"hub": at.url("ws"), "api": at.url("http") + "/api"}
            places.append(at.url("ws"))
        if options.metrics_port is not None:
            at = await tasks.start(partial(serve, _monitor(log, peer, hub), port=options.metrics_port))
            fields |= {"metrics": at.url("http") + "/metrics"}
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            show(f"serving {name} at {', '.join(places)}, until Ctrl-C", fields)
            async for _ in signals:
                break


def _peer(log: Log, mesh: Mesh | None, limits: Limits, on_event: Callable[[events.Event], None]) -> Peer | None:
    if mesh is None:
        return None
    return Peer(
        log,
        mesh.listen,
        mesh.bootstrap,
        identity=mesh.identity,
        announce=mesh.announce,
        mdns=mesh.mdns,
        gossip=mesh.gossip,
        limits=limits,
        on_event=on_event,
    )


def _monitor(log: Log, peer: Peer | None, hub: Hub | None) -> ASGIApp:
    """What tells of both over HTTP."""

    def counters() -> Counters:
        return hub.counters if hub is not None else peer.counters if peer is not None else Counters()

    def peers() -> list[dict[str, Any]]:
        # A hub that shares the peer's work knows the peer's neighbours, too.
        return hub.peers if hub is not None else peer.listed if peer is not None else []

    return create_monitor(log, counters, peers)


def _show_event(show: Show, event: events.Event) -> None:
    match event:
        case events.Connected(peer):
            show(f"{peer} joined", {"event": "connected", "peer": peer})
        case events.Disconnected(peer, reason, blamed):
            fields = {"event": "disconnected", "peer": peer, "reason": reason, "blamed": blamed}
            show(f"{peer} {'was dropped' if blamed else 'left'}: {reason}", fields)
        case events.Grafted(peer):
            show(f"{peer} came into the mesh", {"event": "grafted", "peer": peer})
        case events.Pruned(peer):
            show(f"{peer} left the mesh", {"event": "pruned", "peer": peer})
        case events.Subscribed(peer):
            show(f"{peer} listens to gossip", {"event": "subscribed", "peer": peer})
        case events.Unsubscribed(peer):
            show(f"{peer} listens to gossip no more", {"event": "unsubscribed", "peer": peer})
        case events.SyncEnded(peer, complete, inserted, refused, statistics, error):
            fields = {
                "event": "sync",
                "peer": peer,
                "complete": complete,
                "inserted": inserted,
                "refused": refused,
                "requests": statistics.requests,
                "bytes": statistics.bytes_in,
                "error": error,
            }
            state = "" if complete else ", not all that it has"
            show(f"{peer} brought {inserted:,} messages{state}{f': {error}' if error else ''}", fields)
        case events.Committed(messages, root):
            root_fields = {"level": root.level, "hash": root.hash.hex()}
            show(f"{messages:,} messages", {"event": "committed", "messages": messages, "root": root_fields})
        case events.Failed(doing, error):
            show(f"{doing}: {error}", {"event": "failed", "doing": doing, "error": str(error)})
        case events.Defect(peer, doing, error, times):
            raised = f"{type(error).__name__}: {error}"
            fields = {"event": "defect", "peer": peer, "doing": doing, "error": raised, "times": times}
            show(f"{peer or 'no peer'}: a defect of gossiplog, {doing}: {raised}", fields)
