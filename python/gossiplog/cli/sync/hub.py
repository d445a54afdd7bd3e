"""What `gossiplog sync` runs for a hub, and what it does alike for a peer: both logs get what the other holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio

from gossiplog._core import redacted_url
from gossiplog.cli.output import Stopwatch, exchange, note
from gossiplog.core import Node
from gossiplog.errors import Cause, ConnectionLost, GossipLogError, RefusedByPeer
from gossiplog.log import Log
from gossiplog.net import events
from gossiplog.net.client import connect, reader_text
from gossiplog.net.fetching import LastFailure
from gossiplog.net.service import background

# Seconds in which no message comes or goes and the hub's root stays, before logs that differ are taken to stay so.
_QUIET_SECONDS = 20.0
# The same where it is known why they stay different.
_OBSTACLE_SECONDS = 2.0
# Between looks at what has happened, in seconds.
_LOOK = 0.5
# These do not heal by themselves: a command that retries would hide them from its user.
_FINAL: Sequence[Cause] = ("token", "topic")
_HUB_REASONS = (
    "the hub does not take what this log has (writing may need a token), or this log's application refuses what the hub"
    " has"
)
_ASKED_AGAIN = "it asks again for messages that it was sent, so that it may be unable to store them: see its log"


class RemoteLog(Protocol):
    """Whom a log is kept in step with.

    Attributes:
        hub_root: the root of its log when `synced` looked last; None before.
        obstacle: what keeps the logs different after all else was exchanged; None where that is not known.
    """

    hub_root: Node | None

    @property
    def obstacle(self) -> Exception | None: ...

    async def synced(self) -> None:
        """Wait until both logs hold the same messages."""


@dataclass(slots=True)
class _Sums:
    """What the syncs in both directions have brought and cost.

    Attributes:
        inserted: messages that are new to the log.
        sent: messages that the hub has asked for and was sent; what it asks for again does not count again.
        requests: sent to the hub.
        round_trips: the longest chain of requests, of each sync.
        bytes_sent: to the hub, in requests and answers.
        bytes_received: from it, in answers.
        refused: messages that the log's application refuses.
    """

    inserted: int = 0
    sent: int = 0
    requests: int = 0
    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    refused: int = 0


class LogsDiffer(GossipLogError):
    """Two logs that do not get in step."""


class _OwnMessages:
    """Says, once for each connection, that a hub does not take the messages that are written to the log meanwhile.

    Args:
        hub: what to call the hub.
    """

    def __init__(self, hub: str) -> None:
        self._text = reader_text(hub)
        self._count = 0
        self._said = False

    def __call__(self, event: events.Event, may_write: bool | None) -> None:
        match event:
            case events.Connected():
                self._said = False
                if may_write is not False:
                    self._count = 0
            case events.Committed(inserted=inserted, sources=sources):
                self._count += inserted - sum(sources.values())
        if self._count > 0 and may_write is False and not self._said:
            self._said = True
            note(self._text)


class _SentCount:
    """How many messages a hub was sent. What it did not store, and asks for again, counts once.

    Attributes:
        stored: messages sent before the hub's root last changed.
        ended: sent in syncs that ended since then, and since the hub's root was last looked at.
        running: sent in the sync that runs.
        sync: its number.
        largest: sent in one sync, at most, since the hub's root last changed.
        is_asked_again: whether the hub asks again for messages that it was sent.
    """

    def __init__(self) -> None:
        self.stored = self.ended = self.running = self.sync = self.largest = 0
        self.is_asked_again = False
        self._root: Node | None = None

    def add(self, messages: int, sync: int) -> None:
        """Count messages that were sent in a sync of this number."""
        if sync != self.sync:
            self.ended, self.running, self.sync = self.ended + self.running, 0, sync
        self.running += messages

    def total(self, root: Node | None) -> int:
        """Return the count, with the hub's root as it was looked at last.

        If the root is the same after a sync, what that brought was not stored.
        """
        if self._root is None:
            self._root = root
        # A new object is a new look at the hub's root, even if it is equal.
        elif root is not self._root:
            if root != self._root:
                self.stored += self.largest if self.is_asked_again else self.ended + self.running
                self.running = self.largest = 0
            self.is_asked_again = root == self._root and (self.is_asked_again or self.ended > 0)
            self._root, self.ended = root, 0
        self.largest = max(self.largest, self.running)
        return self.stored + self.largest


class Listener:
    """Counts the client's events, and shows them as they come.

    Args:
        show: is called with how many messages were received and sent so far, and whether the hub asks for some again.
        held: gives the number of messages in the log.
        aloud: whether to say on stderr what becomes of the connection.
        final: causes of ConnectionLost that end the command, which then says them itself.

    Attributes:
        sums: of all syncs.
        failure: what went wrong last.
        hub_root: gives the root of the hub's log when it was looked at last; None before, and where nobody looks.
    """

    def __init__(
        self,
        show: Callable[[int, int, bool], None],
        held: Callable[[], int],
        *,
        aloud: bool,
        final: Collection[Cause] = (),
    ) -> None:
        self.sums = _Sums()
        self.failure = LastFailure()
        self.hub_root: Callable[[], Node | None] = lambda: None
        self._show = show
        self._held = held
        self._aloud = aloud
        self._final = final
        self._said = ""
        # Received by the syncs that have ended; received and inserted by the one that runs.
        self._values = self._receiving = self._inserting = 0
        self._sent = _SentCount()

    @property
    def is_asked_again(self) -> bool:
        """Whether the hub asks again for messages that it was sent."""
        return self._sent.is_asked_again

    def count_progress(self) -> tuple[int, int]:
        """Count and return the messages that were received and sent; a sync that fails repeats its requests."""
        self.sums.sent = min(self._sent.total(self.hub_root()), self._held())
        return self._values + self._receiving, self.sums.sent

    def __call__(self, event: events.Event) -> None:
        self.failure(event)
        match event:
            case events.SyncProgressed(inserted=inserted, statistics=statistics):
                self._receiving, self._inserting = statistics.values, inserted
                self._show_progress()
            case events.Served(messages=messages, size=size, sync=sync):
                self._sent.add(messages, sync)
                self.count_progress()
                self.sums.bytes_sent += size
                self._show_progress()
            case events.SyncEnded(peer, _, inserted, refused, statistics, error):
                self._values += statistics.values
                self._receiving = self._inserting = 0
                self.sums.inserted += inserted
                self._show_progress()
                self.sums.refused += refused
                self.sums.requests += statistics.requests
                self.sums.round_trips += statistics.round_trips
                self.sums.bytes_sent += statistics.bytes_sent
                self.sums.bytes_received += statistics.bytes_received
                if error:
                    note(f"syncing with {peer}: {error}")
            case events.RefusalsReported(peer, named, more, command) if self._aloud:
                note(str(RefusedByPeer(peer, named, more, command)))
            case events.Connected(peer) if self._aloud:
                self._said = ""
                note(f"connected to {peer}")
            case events.Disconnected(peer, reason) if self._aloud:
                note(f"{peer}: {reason}")
            case events.Failed(error=ConnectionLost(cause=cause)) if cause in self._final:
                pass
            case events.Failed(doing, error) if self._aloud:
                text, subject = str(error), doing.rpartition(" ")[2]
                text = text if text.startswith(subject) else f"{doing}: {text}"
                # Each attempt to connect may fail with the same words.
                if text != self._said:
                    self._said = text
                    note(text)
            case events.Defect(peer, doing, error):
                note(f"{peer}: a defect of gossiplog, {doing}: {type(error).__name__}: {error}")

    def _show_progress(self) -> None:
        self._show(self.sums.inserted + self._inserting, self.sums.sent, self.is_asked_again)


def sync_with_hub(
    log: Log,
    name: str,
    url: str,
    *,
    token_file: Path | None,
    ca_file: Path | None,
    follow: bool,
    done: Callable[[dict[str, Any]], None],
) -> None:
    """Bring a log and a hub's to the same messages.

    Args:
        log: to sync.
        name: what to call it.
        url: of the hub.
        token_file: that has the hub's bearer token, if it asks for one.
        ca_file: certificate authorities to trust beside the platform's, in PEM, or None.
        follow: whether to stay connected until Ctrl-C, and to connect again whenever the connection ends, unless the
            hub refuses the token or is one of another topic.
        done: is called with what that brought and cost, once both are equal.

    Raises:
        RefusedByPeer: the hub refuses messages of this log; a follower stays connected.
        NetworkError: the hub cannot be reached, or does not let this client in, or the connection ended early; a
            follower gets it only for a refused token or another topic.
        ProtocolError: the hub broke a rule of the protocols.
        LogsDiffer: the logs do not become equal.
    """
    hub = redacted_url(url)

    async def run() -> None:
        with exchange(f"{name} ⇄ {hub}") as show, Stopwatch() as watch:
            listener = Listener(show, lambda: len(log), aloud=follow, final=_FINAL)
            own = _OwnMessages(hub)

            def on_event(event: events.Event) -> None:
                listener(event)
                if in_step_once:
                    own(event, client.may_write)

            in_step_once = False
            client = await stack.enter_async_context(
                connect(
                    log,
                    url,
                    token_file=token_file,
                    ca_file=ca_file,
                    reconnect=follow,
                    give_up_on=_FINAL,
                    on_event=on_event,
                )
            )
            await in_step(client, listener, name, hub, give_up=not follow)
            # Until then, waiting for that says what is wrong.
            in_step_once = True
        done(result(log, name, hub, listener, watch))
        if follow:
            raise await client.ended()

    async def enter() -> None:
        async with stack:
            await run()

    stack = AsyncExitStack()
    try:
        anyio.run(enter)
    except ConnectionLost as error:
        if error.cause != "token":
            raise
        raise ConnectionLost(error.cause, f"{error.reason} (--token-file)", error.status) from error


def result(log: Log, name: str, source: str, listener: Listener, watch: Stopwatch) -> dict[str, Any]:
    """Return what the syncs brought and cost, once both logs are equal."""
    _, sent = listener.count_progress()
    root, sums = log.root, listener.sums
    return {
        "log": name,
        "source": source,
        "inserted": sums.inserted,
        "sent": sent,
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


async def in_step(
    source: RemoteLog, listener: Listener, name: str, hub: str, *, give_up: bool, reasons: str = _HUB_REASONS
) -> None:
    """Wait until the logs are equal, for as long as something happens.

    Args:
        source: the hub's client, or a peer.
        listener: its `on_event`.
        name: what to call the log,
        hub: and the hub or the peer.
        give_up: whether to raise when nothing happens; otherwise that is said, and waiting goes on.
        reasons: why logs may stay different.

    Raises:
        LogsDiffer: nothing happened for a while.
        RefusedByPeer: the other side refuses messages of this log.
        NetworkError: there is no connection, and none will be made.
        ProtocolError: the hub broke a rule of the protocols.
    """
    listener.hub_root = lambda: source.hub_root
    async with background() as tasks:
        tasks.start_soon(partial(_watch, source, listener, name, hub, give_up=give_up, reasons=reasons))
        while True:
            try:
                await source.synced()
                return
            except RefusedByPeer:
                if give_up:
                    raise
            # The listener has said it. The other side may come to take them.
            await anyio.sleep(_QUIET_SECONDS)


async def _watch(source: RemoteLog, listener: Listener, name: str, hub: str, *, give_up: bool, reasons: str) -> None:
    """Watch whether anything happens; see `in_step`."""
    quiet, said = 0.0, False
    before = listener.count_progress(), source.hub_root
    while True:
        await anyio.sleep(_LOOK)
        now = listener.count_progress(), source.hub_root
        moved, before = now != before, now
        quiet = 0.0 if moved else quiet + _LOOK
        said = said and not moved
        obstacle = source.obstacle
        if isinstance(obstacle, RefusedByPeer):
            # `synced` raises it.
            continue
        if said or quiet < (_OBSTACLE_SECONDS if obstacle else _QUIET_SECONDS):
            continue
        if obstacle:
            reason = str(obstacle)
        else:
            why = listener.failure.text or (_ASKED_AGAIN if listener.is_asked_again else reasons)
            reason = f"{name} and {hub} still differ, and nothing has come for {_QUIET_SECONDS:g} s: {why}"
        if give_up:
            raise LogsDiffer(reason)
        note(reason)
        said = True
