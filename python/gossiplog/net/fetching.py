"""All messages of a hub or a peer, for a log that takes them once."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from gossiplog.errors import NetworkError, RefusedByPeer
from gossiplog.log import Log
from gossiplog.log.blocking import is_on_event_loop, on_thread
from gossiplog.net import events
from gossiplog.net.arguments import SourceKind, kind_of_source
from gossiplog.net.client import connect
from gossiplog.net.peer import Peer
from gossiplog.net.service import background
from gossiplog.storage.location import Location

_STALLED_SECONDS = 60.0
"""Without a message from the source, after which it is given up."""


def fetch_from(
    source: Log | Location | None,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    ca_file: str | os.PathLike[str] | None,
) -> Callable[[Log], object] | None:
    """Return a function that brings a log up to date with a hub or a peer; None where the source is neither.

    It runs an event loop of its own, and raises NetworkError where the source cannot be reached, or sends nothing for a
    minute.

    Args:
        source: a log, the path of its file, a hub's URL or a peer's multiaddr.
        token: the text of the hub's bearer token, if it asks for one.
        token_file: the file that has it, instead of `token`.
        ca_file: a PEM file of certificate authorities to trust beside the platform's.

    Raises:
        ValueError: the source begins with http:// or https://.
        RuntimeError: it is a hub or a peer, and an event loop runs on this thread.
    """

    async def from_hub(log: Log, url: str) -> None:
        failure = LastFailure()
        async with connect(
            log, url, token=token, token_file=token_file, ca_file=ca_file, reconnect=False, on_event=failure
        ) as client:
            try:
                await _while_it_grows(log, url, failure, client.synced)
            except NetworkError:
                # The hub has sent all that it has, and does not take what this log has.
                if client.obstacle is None:
                    raise

    if not isinstance(source, str):
        return None
    kind = kind_of_source(source)
    if kind is not SourceKind.FILE and is_on_event_loop():
        raise RuntimeError(
            f"fetching from {source} runs an event loop of its own, and one runs on this thread: in a coroutine, write"
            f" {on_thread('gossiplog.repair')}, or the same of gossiplog.rebase"
        )
    match kind:
        case SourceKind.HUB:
            return lambda log: anyio.run(from_hub, log, source)
        case SourceKind.PEER:
            return lambda log: anyio.run(_from_peer, log, source)
        case SourceKind.FILE:
            return None


async def _from_peer(log: Log, address: str) -> None:
    failure = LastFailure(f"it exchanges no messages of the topic {log.topic!r}")
    async with Peer(log, listen=(), on_event=failure) as peer:

        async def synced() -> None:
            await peer.joined()
            await peer.synced()

        await peer.dial(address)
        with suppress(RefusedByPeer):
            await _while_it_grows(log, address, failure, synced)


class LastFailure:
    """Remembers what went wrong last with a source: an `on_event`.

    Args:
        text: what is wrong as long as the source has not connected.

    Attributes:
        text: the failure; "" when it has gone well since.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.Connected():
                self.text = ""
            case events.Disconnected(_, reason) | events.Rejected(_, reason):
                self.text = f"the connection ended: {reason}"
            case events.Failed(_, error):
                self.text = str(error)
            case events.SyncEnded(error=reason):
                self.text = reason


async def _while_it_grows(log: Log, source: str, failure: LastFailure, synced: Callable[[], Awaitable[object]]) -> None:
    """Wait until a log has what the source has.

    Raises:
        NetworkError: nothing has come for a while.
    """

    async def watch() -> None:
        before = -1
        while (count := len(log)) != before:
            before = count
            await anyio.sleep(_STALLED_SECONDS)
        why = failure.text and f": {failure.text}"
        raise NetworkError(f"{source} sent no message for {_STALLED_SECONDS:g} s, and its log differs{why}")

    async with background() as tasks:
        tasks.start_soon(watch)
        await synced()
