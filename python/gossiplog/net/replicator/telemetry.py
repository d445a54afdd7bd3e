"""What becomes known of a driver's work: events for the application, lines for the log of the process, and counts."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import accumulate
from types import MappingProxyType
from weakref import WeakSet

import anyio

from gossiplog.core import encode_id
from gossiplog.errors import CorruptLog, RefusedMessage
from gossiplog.log.blocking import calling_back
from gossiplog.net import events
from gossiplog.net.event_stream import EventStream
from gossiplog.net.rate_limited_log import RateLimitedLog, keep_latest, one_line
from gossiplog.net.transport.stream import Signal
from gossiplog.replication.batches import InsertOutcome
from gossiplog.reprs import counted, frozen, listed

LOGGER = logging.getLogger("gossiplog")
# An application that does not set logging up gets nothing on its standard error.
LOGGER.addHandler(logging.NullHandler())

REFUSALS = ("address", "banned", "host", "limit", "origin", "peer", "rate", "token", "topic")
"""Why connections are refused: `limit` and `address` are limits of connections, in all and from one address, `rate`
that of connections which one address opens; `banned` is who broke a rule before; `peer` is one that may not join the
mesh; `topic` is another log's; the others are what `gossiplog.net.http.access` checks."""
REFUSED_REMEMBERED = 2**14
"""Keys of refused messages that are remembered, so that each message counts once; about 3 MiB."""
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of a `Latency`, in seconds; a last bucket has none."""

_SHOWN = 5
"""Refused messages that a line of the log names."""
_SHOWN_REASON = 120
"""Characters of a reason in it."""
_LONGEST_REASON = 256
"""Characters of a reason that are remembered."""
_MOST_SOURCES = 16
_MOST_AT_ONCE = 256
_MOST_COPIES = 2**13


@frozen
class Latency:
    """Durations of one kind, as Prometheus counts them in a histogram.

    Attributes:
        counts: how many took as long as each of BOUNDS at most, and last how many there were at all.
        seconds: that all took together.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print(client.counters.latencies["sync"].seconds > 0)
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        True
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0


class Histogram:
    """Counts durations of one kind. prometheus_client's own would not do: docs/design/http.md."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Record one duration, in seconds."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    @property
    def latency(self) -> Latency:
        """What was counted so far."""
        return Latency(tuple(accumulate(self._counts)), self._seconds)


@frozen
class NetworkCounters:
    """What was counted since a driver was made.

    Attributes:
        connections: that stand now and have a push stream.
        connected: peers that have joined.
        dropped: peers that were dropped for breaking a rule, those included that never joined.
        refused_connections: WebSockets and connections of peers that were not let in, by the reasons of REFUSALS.
        refused_requests: HTTP requests that a hub refused (`gossiplog.net.http.access`), by "host", "origin", "token",
            and by "rate" those with a token whose address had shown too many wrong ones.
        bytes_received: from peers: what the WebSockets of a hub's clients, or a client's own, carry, and all bytes of a
            mesh's TCP connections, with what libp2p adds. What a mesh has over QUIC is not counted.
        bytes_sent: likewise.
        inserted: new messages by "push", by "gossip", by "sync", and by "append", which is any other way.
        duplicates: messages that came and were in the log already.
        syncs: that ended, by "complete" and "failed".
        other_topics: connections to clients and to peers of a mesh whose log has another topic, as far as is known.
        orphans: messages that came by push or gossip before their parents.
        refused: messages that the application refused. One that is refused several times counts once, as long as it is
            among the latest REFUSED_REMEMBERED.
        reported: messages of this log that peers said they refuse; those that several refuse count several times.
        invalid: messages that no peer may have.
        errors: failures on this side, by the name of their class.
        held: bytes that are kept for peers now (see `Limits`).
        network: what the network counted, by name (see `gossiplog._core.Network.counts`).
        mesh: peers that gossip is exchanged with directly, now.
        defects: of this package that peers' input brought to light, by where: "push", "gossip", "sync" (this side
            asked), "serving", "storing", "refusals", "broadcast" (the machine that all peers share) and "connection"
            (its bytes).
        open_connections: that stand now, whether or not messages are exchanged over them, by "hub" and "mesh".
        connection_limits: how many there may be, likewise.
        latencies: of "validation", from a message's coming by gossip to the answer, where it waits for the log; of
            "storing", a batch of messages that peers sent; and of "sync", whole ones.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print(client.counters.inserted, client.counters.syncs)
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        {'sync': 1} {'complete': 1}
    """

    connections: int = 0
    connected: int = 0
    dropped: int = 0
    refused_connections: Mapping[str, int] = field(default_factory=dict)
    refused_requests: Mapping[str, int] = field(default_factory=dict)
    bytes_received: int = 0
    bytes_sent: int = 0
    inserted: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0
    syncs: Mapping[str, int] = field(default_factory=dict)
    other_topics: int = 0
    orphans: int = 0
    refused: int = 0
    reported: int = 0
    invalid: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    held: int = 0
    network: Mapping[str, int] = field(default_factory=dict)
    mesh: int = 0
    defects: Mapping[str, int] = field(default_factory=dict)
    open_connections: Mapping[str, int] = field(default_factory=dict)
    connection_limits: Mapping[str, int] = field(default_factory=dict)
    latencies: Mapping[str, Latency] = field(default_factory=dict)

    def _with_network(self, counts: Mapping[str, int], held: int) -> NetworkCounters:
        """Return these and what a network or a host has counted, whose bytes count as the others do.

        Args:
            counts: see `gossiplog._core.Network.counts`.
            held: bytes that it keeps.
        """
        network = Counter[str](self.network)
        # Not the sum of two, which has no zeros.
        network.update(counts)
        sent, received = network.pop("bytes_sent", 0), network.pop("bytes_received", 0)
        return replace(
            self,
            network=MappingProxyType(dict(network)),
            held=self.held + held,
            bytes_sent=self.bytes_sent + sent,
            bytes_received=self.bytes_received + received,
        )


def log_level_of(event: events.Event) -> int:
    """Return the level of the line that the log has about an event; 0 if it has none."""
    match event:
        case events.Connected() | events.Disconnected(blamed=False):
            return logging.INFO
        case events.Disconnected() | events.Rejected():
            return logging.WARNING
        case events.SyncEnded(error=error) if error:
            return logging.WARNING
        case events.MessagesRefused() | events.RefusalsReported():
            return logging.WARNING
        case events.Failed() | events.Defect():
            return logging.ERROR
    return 0


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _SHOWN_REASON else f"{reason[:_SHOWN_REASON]}…"


class Telemetry:
    """Takes notice of what happens, and passes it on.

    The application's function is called from a task of its own (`run`), so that what it raises cannot leave a driver
    halfway through something: it ends the driver, as an error of the driver's would.

    Args:
        on_event: the application's function, or None.
        argument: the log in the commands that errors of a damaged one name: see `Storage.argument`.

    Attributes:
        last_refused: the key and the error of the message that the application refused last; None before.
        cannot_store: why the last attempt to write to the log failed, "" if it did not.
        file_fault: why the files of the log are not those that were opened, "" if they are.
        damage: the first damage that was found in the log, "" for none.
    """

    def __init__(self, on_event: Callable[[events.Event], None] | None, argument: str = "") -> None:
        self._on_event = on_event
        self._argument = argument
        self._listeners: tuple[Callable[[events.Event], object], ...] = ()
        self._streams: WeakSet[EventStream] = WeakSet()
        self._heard = Signal()
        self._waiting: deque[events.Event] = deque()
        self._due = anyio.Event()
        self._counts: Counter[str] = Counter()
        self._refused_connections: Counter[str] = Counter()
        self._inserted: Counter[str] = Counter()
        self._syncs: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._defects: Counter[str] = Counter()
        self._latencies: dict[str, Histogram] = {}
        self._sources: Counter[str] = Counter()
        self._limited_log = RateLimitedLog(LOGGER)
        # The reasons by key, that of the message that was refused longest ago first.
        self._refused: dict[bytes, str] = {}
        self.last_refused: tuple[bytes, RefusedMessage] | None = None
        self.cannot_store = ""
        self.file_fault = ""
        self.damage = ""

    @property
    def counters(self) -> NetworkCounters:
        """The counts as they are now."""
        return NetworkCounters(
            **self._counts,
            refused_connections=MappingProxyType(dict(self._refused_connections)),
            refused_requests=MappingProxyType({}),
            open_connections=MappingProxyType({}),
            connection_limits=MappingProxyType({}),
            inserted=MappingProxyType(dict(self._inserted)),
            syncs=MappingProxyType(dict(self._syncs)),
            errors=MappingProxyType(dict(self._errors)),
            defects=MappingProxyType(dict(self._defects)),
            network=MappingProxyType({}),
            latencies=MappingProxyType({kind: found.latency for kind, found in self._latencies.items()}),
        )

    @property
    def connections(self) -> int:
        """Peers that are connected now."""
        return self._counts["connections"]

    @property
    def most_at_once(self) -> int:
        """Messages that may be passed on in one callback of the event loop.

        That takes some milliseconds, with a thousand peers, too.
        """
        return max(1, min(_MOST_AT_ONCE, _MOST_COPIES // max(1, self.connections)))

    @property
    def is_heard(self) -> bool:
        """Whether there is an application that listens."""
        return self._on_event is not None or len(self._streams) > 0

    async def until_heard(self) -> None:
        """Wait until there is an application that listens."""
        while not self.is_heard:
            await self._heard.wait()

    def register(self, stream: EventStream) -> None:
        """Put each event into a stream, for as long as somebody holds it."""
        self._streams.add(stream)
        self._heard.set()

    def count(self, **amounts: int) -> None:
        """Add to some of the counters that are numbers."""
        # `Counter.update` takes three times as long.
        for name, amount in amounts.items():
            self._counts[name] += amount

    def brought(self, peer: str, messages: int) -> None:
        """Note who brought new messages, for the next event about commits."""
        if self.is_heard and messages and (peer in self._sources or len(self._sources) < _MOST_SOURCES):
            self._sources[peer] += messages

    def take_sources(self) -> Mapping[str, int]:
        """Return how many new messages peers brought since the last call."""
        sources, self._sources = self._sources, Counter()
        return MappingProxyType(dict(sources))

    def inserted(self, way: str, messages: int) -> None:
        """Count messages that are new to the log; see `NetworkCounters.inserted`."""
        if messages:
            self._inserted[way] += messages

    def count_outcome(self, outcome: InsertOutcome) -> None:
        """Count the messages of a batch that are invalid, or were in the log."""
        self.count(duplicates=outcome.duplicates, invalid=len(outcome.invalid))

    def refused_messages(self, errors: Mapping[bytes, RefusedMessage], peer: str) -> None:
        """Count, log and report messages that the application refused, each at its first refusal.

        Args:
            errors: what the application raised, by the key of the message.
            peer: that sent them; "" where it is gone.
        """
        new = [key for key in errors if key not in self._refused]
        for key, error in errors.items():
            keep_latest(self._refused, key, error.reason[:_LONGEST_REASON], REFUSED_REMEMBERED)
            self.last_refused = key, error
        if not new:
            return
        self.count(refused=len(new))
        named = [(encode_id(key), errors[key]) for key in new[: events.MOST_IN_EVENT]]
        text = f"the application refuses {counted(len(new), 'message')} that it sent"
        texts = [f"message {id}: {_shortened(error.reason)}" for id, error in named]
        shown = listed(texts, _SHOWN, separator="; ", count=len(new))
        self._limited_log.note("refused_messages", peer or "a peer that is gone", f"{text}: {shown}")
        self.emit(events.MessagesRefused(tuple(named), peer, len(new) - len(named)))

    @property
    def has_refused(self) -> bool:
        """Whether the application refused any message that is remembered."""
        return bool(self._refused)

    def reasons(self, keys: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return why the application refused messages, by key, for those of the keys whose reasons are remembered."""
        return {key: self._refused[key] for key in keys if key in self._refused}

    def reported(self, event: events.RefusalsReported) -> None:
        """Count and log that a peer refuses messages of this log, and report it to the application."""
        self.count(reported=len(event.refused))
        count = len(event.refused) + event.more
        text = f"it says that it refuses {counted(count, 'message')} of this log"
        # In quotes: these are the peer's words.
        texts = [f'message {id}: "{_shortened(reason)}"' for id, reason in event.refused]
        shown = listed(texts, _SHOWN, separator="; ", count=count)
        self._limited_log.note("reported_refusals", event.peer, f"{text}: {shown}")
        self.emit(event)

    def observe(self, kind: str, seconds: float) -> None:
        """Record how long something took; see `NetworkCounters.latencies`."""
        self._latencies.setdefault(kind, Histogram()).observe(seconds)

    def incident(self, peer: str, kind: str, count: int, text: str, *, repeats: bool = True) -> None:
        """Log a peer's failed attempt; the network counts it (see `NetworkCounters.network`).

        Args:
            peer: who made it.
            kind: of the line.
            count: how often.
            text: what happened, as a clause.
            repeats: whether the same of one peer may be several lines of a minute.
        """
        self._limited_log.note(kind, peer, text, count, repeats=repeats)

    def count_refused(self, reason: str, connections: int = 1) -> None:
        """Count connections that were not let in; `reason` is one of REFUSALS."""
        self._refused_connections[reason] += connections

    def refused(self, peer: str, reason: str, text: str) -> None:
        """Count and log a connection that was not let in.

        Args:
            peer: who made it.
            reason: one of REFUSALS.
            text: the same as a clause.
        """
        self.count_refused(reason)
        self._limited_log.note("refused_connections", peer, f"not let in: {text}")

    def dropped(self, peer: str, reason: str) -> None:
        """Count and log a peer that was dropped because it broke a rule."""
        self.count(dropped=1)
        self._limited_log.note("dropped", peer, f"dropped: {reason}")

    def defect(self, kind: str, event: events.Defect) -> None:
        """Count and log a defect, and report it to the application; `kind` is one of `NetworkCounters.defects`."""
        self._defects[kind] += 1
        # A class of errors has a line of its own: one defect is not to hide another.
        name = type(event.error).__name__
        text = f"a defect of gossiplog, please report it: {event.doing} raised {name}: {event.error}"
        self._limited_log.note(f"{kind} {name}", event.peer or "no peer", text, error=event.error, lines=1)
        self.emit(event)

    def emit(self, event: events.Event, *, logged: bool = False) -> None:
        """Count and log what happened, and report it to the application.

        Args:
            event: what happened.
            logged: whether the log has a line of its own about the cause, as that a peer was dropped.
        """
        match event:
            case events.Connected(peer):
                self.count(connections=1, connected=1)
                LOGGER.info("%s joined", one_line(peer))
            case events.Disconnected(peer, reason, blamed):
                self.count(connections=-1)
                if not blamed:
                    LOGGER.info("%s left: %s", one_line(peer), one_line(reason))
            case events.SyncEnded(peer=peer, complete=complete, inserted=inserted, error=error):
                self._syncs["complete" if complete else "failed"] += 1
                if error and not logged:
                    text = f"a sync brought {counted(inserted, 'message')}: {error}"
                    self._limited_log.note("failed_sync", peer, text, repeats=False)
            case events.Failed(doing, error):
                if isinstance(error, CorruptLog):
                    # The protocols' machines find damage, too, and know no place.
                    error._locate(self._argument)
                    self.damage = self.damage or error.problems[0]
                self._errors[type(error).__name__] += 1
                # A database that fails does so at each attempt, and clients make as many as they like.
                self._limited_log.note(
                    type(error).__name__, doing, str(error), level=logging.ERROR, subject="doing", repeats=False
                )
        for listener in self._listeners:
            listener(event)
        for stream in self._streams:
            stream._put(event)
        if self._on_event is not None:
            self._waiting.append(event)
            self._due.set()

    @contextmanager
    def listening(self, listener: Callable[[events.Event], object]) -> Iterator[None]:
        """Call a function of this package with each event at once, for the time of a block; it must not raise or wait.

        It is no application: what is made for those alone, as `Committed`, may not come.
        """
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

    async def run(self) -> None:
        """Call the application's function with each event, in order; raise what it raises."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            self.flush()

    def flush(self) -> None:
        """Call the application's function with the events that it has not received yet."""
        while self._waiting and self._on_event is not None:
            event = self._waiting.popleft()
            try:
                with calling_back():
                    self._on_event(event)
            except BaseException:
                # It is not called again after it failed.
                self._on_event = None
                raise
