"""What `gossiplog sync` runs for a hub: both logs get what the other holds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio

from gossiplog.cli.output import Stopwatch, note, progress
from gossiplog.errors import GossipLogError
from gossiplog.log import Log
from gossiplog.net import events
from gossiplog.net.client import Client, connect

# Seconds without an event after which two logs that differ are taken to stay so.
_PATIENCE = 20.0


@dataclass(slots=True)
class _Sums:
    """What the syncs from the hub have brought and cost.

    Attributes:
        inserted: messages.
        requests: sent to the hub.
        round_trips: the longest chain of requests, of each sync.
        bytes_sent: to the hub.
        bytes_received: from it.
        refused: messages that the log's application refuses.
    """

    inserted: int = 0
    requests: int = 0
    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    refused: int = 0


class LogsDiffer(GossipLogError):
    """Two logs that do not get in step."""


class _Listener:
    """Counts what the client tells, and shows it as it comes.

    Attributes:
        sums: of all syncs.
        heard: how many events have come.
    """

    def __init__(self, advance: Callable[[int], None], *, aloud: bool) -> None:
        self.sums = _Sums()
        self.heard = 0
        self._advance = advance
        self._aloud = aloud
        self._shown = 0

    def __call__(self, event: events.Event) -> None:
        self.heard += 1
        match event:
            case events.SyncProgressed(inserted=inserted):
                self._advance(inserted - self._shown)
                self._shown = inserted
            case events.SyncEnded(peer, _, inserted, refused, statistics, error):
                self._advance(inserted - self._shown)
                self._shown = 0
                self.sums.inserted += inserted
                self.sums.refused += refused
                self.sums.requests += statistics.requests
                self.sums.round_trips += statistics.round_trips
                self.sums.bytes_sent += statistics.bytes_out
                self.sums.bytes_received += statistics.bytes_in
                if error:
                    note(f"syncing with {peer}: {error}")
            case events.Connected(peer) if self._aloud:
                note(f"connected to {peer}")
            case events.Disconnected(peer, reason) if self._aloud:
                note(f"{peer}: {reason}")
            case events.Failed(doing, error) if self._aloud:
                note(f"{doing}: {error}")


def sync_with_hub(
    log: Log, name: str, url: str, *, token: str | None, follow: bool, done: Callable[[dict[str, Any]], None]
) -> None:
    """Brings a log and a hub's to the same messages.

    Args:
        log: to sync.
        name: what to call it.
        url: of the hub.
        token: the hub's bearer token, if it asks for one.
        follow: whether to stay connected until Ctrl-C, and to connect again whenever the connection ends.
        done: is told what that brought and cost, once both are equal.

    Raises:
        NetworkError: the hub cannot be reached, or the connection ended early.
        ProtocolError: the hub broke a rule of the protocols.
    """

    async def run() -> None:
        with progress(f"{name} ⇄ {url}") as advance, Stopwatch() as watch:
            listener = _Listener(advance, aloud=follow)
            client = await stack.enter_async_context(
                connect(log, url, token=token, reconnect=follow, on_event=listener)
            )
            await (client.synced() if follow else _synced(client, listener, name, url))
        root, sums = log.root, listener.sums
        done(
            {
                "log": name,
                "source": url,
                "inserted": sums.inserted,
                "refused": sums.refused,
                "requests": sums.requests,
                "round_trips": sums.round_trips,
                "bytes_sent": sums.bytes_sent,
                "bytes_received": sums.bytes_received,
                "seconds": round(watch.seconds, 6),
                "messages_per_second": watch.rate(sums.inserted),
                "messages": len(log),
                "root": {"level": root.level, "hash": root.hash.hex()},
            }
        )
        if follow:
            await anyio.sleep_forever()

    async def enter() -> None:
        async with stack:
            await run()

    stack = AsyncExitStack()
    anyio.run(enter)


async def _synced(client: Client, listener: _Listener, name: str, url: str) -> None:
    """Waits until the logs are equal, for as long as something happens.

    Raises:
        LogsDiffer: nothing did for a while.
    """
    while True:
        before = listener.heard, client.hub_root
        with anyio.move_on_after(_PATIENCE) as scope:
            await client.synced()
        if not scope.cancelled_caught:
            return
        if (listener.heard, client.hub_root) == before:
            raise LogsDiffer(
                f"{name} and {url} still differ, and nothing has come for {_PATIENCE:g} s: the hub does not take what"
                " this log has (writing may need a token), or this log's application refuses what the hub has"
            )
