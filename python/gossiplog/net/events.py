"""What an application learns of the network: its events, and the peers that are connected.

Clients of a hub are named by their addresses, peers of a mesh by their peer ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Literal, Self, TypeAlias

from gossiplog import _core
from gossiplog.core import Node
from gossiplog.errors import RefusedMessage
from gossiplog.protocol.sync import SyncStatistics
from gossiplog.reprs import frozen

MOST_IN_EVENT = 64
"""Refused messages that an event names."""


@frozen
class PeerInfo:
    """A peer that is connected.

    What follows `dialer` is known of peers of a mesh alone, and None otherwise.

    Attributes:
        name: by which events name it; in a mesh its peer id.
        kind: a peer of a "mesh", a hub's "client", or the "hub" of a client.
        replicates: whether messages are exchanged with it.
        dialer: whether this side made the connection.
        address: its end of the first connection to it, as a multiaddr without `/p2p/...`.
        agent: what it calls its program, in at most 256 characters; None also until it said so.
        protocols: what it says its streams may speak, ascending, at most 128; empty until it said so.
        subscribed: whether it subscribed to the topic.
        in_mesh: whether it is in the topic's mesh: messages go to it and come from it in full.
        score: how it behaved by gossip: around 0 and more is good, and below -400 it is disconnected from.
        rtt: the last round trip in seconds; None also before the first.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print([(peer.kind, peer.replicates) for peer in client.peers])
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        [('hub', True)]
    """

    name: str
    kind: Literal["mesh", "client", "hub"]
    replicates: bool
    dialer: bool
    address: str | None = None
    agent: str | None = None
    protocols: tuple[str, ...] | None = None
    subscribed: bool | None = None
    in_mesh: bool | None = None
    score: float | None = None
    rtt: float | None = None

    @classmethod
    def of_mesh(cls, infos: Iterable[_core.PeerInfo], replicating: Collection[str]) -> tuple[Self, ...]:
        """Return what is known of the peers of a mesh.

        Args:
            infos: of all that are connected.
            replicating: ids of those that messages are exchanged with.
        """
        return tuple(
            cls(
                info.peer_id,
                "mesh",
                info.peer_id in replicating,
                info.dialer,
                info.address,
                info.agent,
                tuple(info.protocols),
                info.subscribed,
                info.in_mesh,
                info.score,
                info.rtt,
            )
            for info in infos
        )


@frozen
class Connected:
    """A peer has joined.

    Attributes:
        peer: its name, as in `PeerInfo.name`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Connected(peer=peer):
        ...             print(peer, "connected")
        >>> on_event(gossiplog.Connected("12D3KooWExample"))
        12D3KooWExample connected
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str


@frozen
class Disconnected:
    """A peer is gone.

    Attributes:
        peer: which.
        reason: how the connection ended, or which rule the peer broke.
        blamed: whether it was dropped for breaking a rule.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Disconnected(peer=peer, reason=reason):
        ...             print(peer, reason)
        >>> on_event(gossiplog.Disconnected("12D3KooWExample", "it closed the connection", blamed=False))
        12D3KooWExample it closed the connection
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    reason: str
    blamed: bool


@frozen
class Rejected:
    """A peer broke a rule before it had joined, and was dropped.

    Attributes:
        peer: which.
        reason: the rule.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Rejected(peer=peer, reason=reason):
        ...             print(peer, reason)
        >>> on_event(gossiplog.Rejected("12D3KooWExample", "it sent a frame that is too long"))
        12D3KooWExample it sent a frame that is too long
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    reason: str


@frozen
class Subscribed:
    """A peer of the mesh subscribed to the topic: it takes messages by gossip. It may come before the peer's Connected.

    Attributes:
        peer: its name, as in `PeerInfo.name`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Subscribed(peer=peer):
        ...             print(peer, "subscribed")
        >>> on_event(gossiplog.Subscribed("12D3KooWExample"))
        12D3KooWExample subscribed
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str


@frozen
class Unsubscribed:
    """A peer of the mesh unsubscribed from the topic, or disconnected: then it may come after its Disconnected.

    Attributes:
        peer: its name, as in `PeerInfo.name`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Unsubscribed(peer=peer):
        ...             print(peer, "unsubscribed")
        >>> on_event(gossiplog.Unsubscribed("12D3KooWExample"))
        12D3KooWExample unsubscribed
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str


@frozen
class Grafted:
    """A peer joined our gossip mesh: full messages go to it and come from it; others get announcements only.

    It may come before the peer's Connected, which comes once messages are exchanged by push.

    Attributes:
        peer: its name, as in `PeerInfo.name`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Grafted(peer=peer):
        ...             print(peer, "in our mesh")
        >>> on_event(gossiplog.Grafted("12D3KooWExample"))
        12D3KooWExample in our mesh
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str


@frozen
class Pruned:
    """The peer left our gossip mesh, or disconnected: then it may come after its Disconnected.

    Attributes:
        peer: its name, as in `PeerInfo.name`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Pruned(peer=peer):
        ...             print(peer, "left our mesh")
        >>> on_event(gossiplog.Pruned("12D3KooWExample"))
        12D3KooWExample left our mesh
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str


@frozen
class SyncStarted:
    """A sync with a peer, its source, has begun.

    Attributes:
        peer: its name, as in `PeerInfo.name`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.SyncStarted(peer=peer):
        ...             print(peer, "sync begins")
        >>> on_event(gossiplog.SyncStarted("12D3KooWExample"))
        12D3KooWExample sync begins
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str


@frozen
class SyncProgressed:
    """What a sync has brought so far.

    Attributes:
        peer: its source.
        inserted: messages that are new to the log.
        statistics: what it has cost.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.SyncProgressed(peer=peer, inserted=inserted):
        ...             print(peer, inserted)
        >>> on_event(gossiplog.SyncProgressed("12D3KooWExample", 256, gossiplog.SyncStatistics()))
        12D3KooWExample 256
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    inserted: int
    statistics: SyncStatistics


@frozen
class SyncEnded:
    """A sync has ended.

    Attributes:
        peer: its source.
        complete: whether it was read to its end: then the log has everything that the source has, but `refused`.
        inserted: messages that are new to the log.
        refused: how many messages were skipped: those that the local application refuses, and those that descend from
            them.
        statistics: what it cost.
        error: why it is not complete, or what is wrong although it is; "" where nothing is.
        reasons: (id, reason) of the first of those that the application refuses, MOST_IN_EVENT at most. The others are
            counted in `refused` alone.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.SyncEnded(peer=peer, complete=True, refused=0):
        ...             print(peer, "has nothing that this log lacks")
        >>> on_event(gossiplog.SyncEnded("12D3KooWExample", True, 3, 0, gossiplog.SyncStatistics(), ""))
        12D3KooWExample has nothing that this log lacks
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    complete: bool
    inserted: int
    refused: int
    statistics: SyncStatistics
    error: str
    reasons: tuple[tuple[str, str], ...] = ()


@frozen
class MessagesRefused:
    """The local application refuses messages that peers sent: its `apply` or `payload` raised.

    They are tried again, ever more rarely; each message is in one such event, unless very many others were refused
    meanwhile (`gossiplog.net.replicator.telemetry.REFUSED_REMEMBERED`). What descends from it is skipped, too, and is
    in none.

    Attributes:
        refused: (id, error) of the first, MOST_IN_EVENT at most, as in `PullResult`; the application's exception is the
            error's `__cause__`.
        peer: that sent them; "" where it is gone.
        more: how many others there are.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.MessagesRefused(refused=refused, more=more):
        ...             print(len(refused) + more)
        >>> on_event(gossiplog.MessagesRefused((("0fttjet8…", gossiplog.RefusedMessage("too long")),), more=2))
        3
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    refused: tuple[tuple[str, RefusedMessage], ...]
    peer: str = ""
    more: int = 0


@frozen
class RefusalsReported:
    """A peer says that its application refuses messages of this log (wire format, "Refusals").

    What descends from them cannot reach that peer either. `gossiplog rebase` is the way back to a log that it takes.
    Other peers may take the messages: nothing changes for those.

    Attributes:
        peer: which.
        refused: (id, reason) of those that it names for the first time. The reason is the peer's own text, in which
            what does not print is escaped.
        more: how many it refuses beside all that it has named.
        command: the shell command that rebases the log without them; see `RefusedByPeer.command`.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.RefusalsReported(peer=peer, refused=refused, command=command):
        ...             print(peer, dict(refused), command)
        >>> refused = (("0fttjet8…", "too long"),)
        >>> on_event(gossiplog.RefusalsReported("12D3KooWExample", refused, 0, "gossiplog rebase …"))
        12D3KooWExample {'0fttjet8…': 'too long'} gossiplog rebase …
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    refused: tuple[tuple[str, str], ...]
    more: int
    command: str = ""


@frozen
class Served:
    """A peer that takes from this log what it lacks was sent an answer.

    Attributes:
        peer: who asked.
        messages: in the answer; one that is asked for again counts again.
        size: bytes of the answer.
        sync: which of the peer's syncs it was, from 1 on for each connection.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Served(peer=peer, messages=messages):
        ...             print(peer, messages)
        >>> on_event(gossiplog.Served("12D3KooWExample", messages=20, size=4_000, sync=1))
        12D3KooWExample 20
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    messages: int
    size: int
    sync: int


@frozen
class Committed:
    """There are new messages in the log, from peers, this program or another.

    Attributes:
        messages: how many there are now.
        root: of the tree over them.
        inserted: how many are new since the event before, or since the driver began.
        sources: how many each peer brought since the event before, by its name; of very many peers, the first. Those of
            the next event may be counted already. The rest was written by this program, or by another on this machine.
        authors: of the new ones, ascending; where there are very many new ones, of the first of them.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Committed(messages=messages, inserted=inserted):
        ...             print(inserted, messages)
        >>> on_event(gossiplog.Committed(messages=12, root=log.root, inserted=2))
        2 12
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    messages: int
    root: Node
    inserted: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    authors: tuple[str, ...] = ()


@frozen
class Failed:
    """Something went wrong on this side; the exchange goes on.

    Attributes:
        doing: what.
        error: as it was raised.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Failed(doing=doing, error=error):
        ...             print(doing, repr(error))
        >>> on_event(gossiplog.Failed("calling apply", OSError("disk full")))
        calling apply OSError('disk full')
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    doing: str
    error: Exception


@frozen
class Defect:
    """This package raised what it should not while it handled a peer's input; please report it.

    The peer is disconnected, and may come back; the third time within ten minutes it is dropped as for a broken rule.
    Everybody else is served as before. The logger `gossiplog` has the traceback, once a minute for each kind.

    Attributes:
        peer: whose input it was; "" where that is not known.
        doing: what was being done.
        error: as it was raised. A panic of the core's is no Exception.
        times: how many the peer has caused within ten minutes; 0 where it is not known.

    Examples:
        >>> def on_event(event: gossiplog.Event) -> None:
        ...     match event:
        ...         case gossiplog.Defect(doing=doing, error=error):
        ...             print(doing, repr(error))
        >>> on_event(gossiplog.Defect("12D3KooWExample", "reading a frame", IndexError(7), times=1))
        reading a frame IndexError(7)
        >>> gossiplog.Peer(log, on_event=on_event)
        <Peer ...>
    """

    peer: str
    doing: str
    error: BaseException
    times: int


@frozen
class EventsDropped:
    """In a stream of events: here were others, which were dropped because nobody took them in time.

    Attributes:
        count: how many.

    Examples:
        >>> def handle(event: gossiplog.Event | gossiplog.EventsDropped) -> None:
        ...     if isinstance(event, gossiplog.EventsDropped):
        ...         print(event.count, "events were left out")
        >>> handle(gossiplog.EventsDropped(count=12))
        12 events were left out
    """

    count: int


Event: TypeAlias = (
    Connected
    | Disconnected
    | Rejected
    | Subscribed
    | Unsubscribed
    | Grafted
    | Pruned
    | SyncStarted
    | SyncProgressed
    | SyncEnded
    | MessagesRefused
    | RefusalsReported
    | Served
    | Committed
    | Failed
    | Defect
)
"""What `on_event` is called with, and what streams of events have beside EventsDropped.

Examples:
    >>> async def main():
    ...     def on_event(event: gossiplog.Event) -> None:
    ...         match event:
    ...             case gossiplog.Committed(inserted=inserted):
    ...                 print(inserted, "message")
    ...     async with gossiplog.Peer(log, on_event=on_event) as peer:
    ...         events = peer.events()
    ...         message = await gossiplog.AsyncLog(log).append("one")
    ...         async for event in events:
    ...             if isinstance(event, gossiplog.Committed):
    ...                 break
    >>> anyio.run(main)
    1 message
"""
