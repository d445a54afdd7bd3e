"""Drives a router of `gossiplog.pubsub` on the connections of a peer: what is simulated is what runs here.

Each message of others waits for its answer (`validate`), and is not passed on before: as with a host's own gossip. What
a peer rejects seven times within ten minutes of another has that one dropped, and so has what breaks the protocol.
`MAX_WAITING` messages wait, and `MAX_WAITING_BYTES`, whether the replicator has taken them or not: a router forgets
what is not answered in time, and this side has to remember it. What finds no room is ignored, and comes by a sync.

A router that asks for connections (episub's) gets streams on the connections that there are; where there is none, the
host dials by id, since Kademlia has the addresses. Its `Disconnect` ends the streams alone: the connection is the
host's, which closes those that it does not need. While it has no neighbours, it is given streams to a few peers, which
are its contacts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import anyio.abc

from gossiplog.errors import EncodeError, NetworkError, StreamReset
from gossiplog.net.routing.kinds import DecodedFrame, Links, RouterKind
from gossiplog.net.routing.sessions import Budget, GossipSession
from gossiplog.net.service import background
from gossiplog.net.timers import Timers
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.host import Answer, Publication
from gossiplog.net.transport.stream import Signal, Stream
from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.events import (
    Connect,
    ConnectFailed,
    Deliver,
    Disconnect,
    GossipAnswered,
    Join,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Ping,
    Publish,
    Received,
    Rejected,
    RoundTrip,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.gossipsub import Unsent
from gossiplog.pubsub.log_routers import REJECTIONS, Penalties
from gossiplog.pubsub.unanswered import MAX_WAITING, MAX_WAITING_BYTES

LinkChange: TypeAlias = Literal["subscribe", "unsubscribe", "graft", "prune"]

CONTACTS = 4
"""Peers to which a router that has no neighbours is given streams."""
_CONTACT_SECONDS = 1.0
"""Between looks for such peers."""
_RETRY_SECONDS = 1.0
"""After which streams are opened again that have ended, and the first pause where the peer refuses them."""
_LONGEST_RETRY_SECONDS = 300.0
_DIAL_SECONDS = 10.0
"""In which a peer that a router asks for has to be connected."""
_DIAL_PAUSES = (0.25, 0.75, 2.0)
"""Between attempts, while Kademlia looks the peer up."""
_PING_SECONDS = 2.0
"""In which the host has to know how long the way to a peer is that has just been connected."""
_LOOK_SECONDS = 0.1
_MOST_DIALS = 64

_ANSWERS: dict[Answer, GossipAnswer] = {
    "accept": GossipAnswer.ACCEPT,
    "ignore": GossipAnswer.IGNORE,
    "reject": GossipAnswer.REJECT,
}


class Dialler(Protocol):
    """What is needed of a host."""

    peer_id: str

    async def dial_peer(self, peer_id: str) -> None:
        """Connect to a peer; see `Host.dial_peer`."""

    def rtt(self, peer_id: str) -> float | None:
        """Return a peer's last round trip; see `Host.rtt`."""


class RouterHost:
    """Runs one router, for the time of `run`. A `Router` for the replicator; no call but the coroutines waits.

    Args:
        kind: of the router.
        topic: that is published to.
        dialler: that has the connections.
        random: of the router.
        notify: is called with how a peer stands with the topic, when that has changed; it must not block.
    """

    def __init__(
        self,
        kind: RouterKind,
        topic: str,
        dialler: Dialler,
        random: Random,
        notify: Callable[[str, LinkChange], object],
    ) -> None:
        self.protocols: Sequence[str] = kind.protocols
        self._kind = kind
        self._topic = topic
        self._dialler = dialler
        self._notify = notify
        self._random = random
        self._router = kind.make(dialler.peer_id, random, topic)
        self._sessions: dict[str, GossipSession] = {}
        self._budget = Budget()
        self._penalties = Penalties()
        self._counts = Counter[str]()
        self._links = Links()
        # What happened while the router's last orders were being carried out.
        self._inbox: deque[Any] = deque()
        self._is_handling = False
        self._has_joined = False
        # Packets queued during the event being handled.
        self._sent = 0
        self._tickets = count(1)
        # By ticket, the ids and sizes of messages that are not answered yet, also of those in `_publications`.
        self._waiting: dict[int, tuple[Any, int]] = {}
        self._waiting_bytes = 0
        self._publications: list[Publication] = []
        self._arrived = Signal()
        # Peers that the router waits for, and those that are being dialled.
        self._asked_for: set[str] = set()
        self._dialling: set[str] = set()
        # Set when a session comes up, or the router is notified that one does not.
        self._settled = Signal()
        self._timers = Timers[Any](lambda timer: self._handle(TimerExpired(timer)))
        self._tasks: anyio.abc.TaskGroup | None = None

    # What the replicator asks for

    def publish(self, data: bytes) -> bool:
        """Publish a message; return False if it was sent to nobody.

        Raises:
            NetworkError: it is too large.
        """
        if len(data) > self._kind.max_data:
            raise NetworkError(
                f"a message of {len(data)} bytes: {self._kind.name} publishes {self._kind.max_data} at most"
            )
        if not self._has_joined:
            return False
        self._sent = 0
        self._handle(Publish((self._topic,), data))
        self._counts["published"] += 1
        return self._sent > 0

    def validate(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Decide what is to become of messages, by their tickets."""
        for ticket, answer in answers:
            if (waiting := self._waiting.pop(ticket, None)) is not None:
                id, size = waiting
                self._waiting_bytes -= size
                self._counts[_COUNT_OF_ANSWER[answer]] += 1
                self._handle(GossipAnswered(id, _ANSWERS[answer]))

    async def gossip(self) -> list[Publication]:
        """Return the messages that came since the last call, one at least. Waits for them."""
        while not self._publications:
            await self._arrived.wait()
        publications, self._publications = self._publications, []
        return publications

    # What others may see

    @property
    def links(self) -> Links:
        """How the router stands with its peers."""
        return self._links

    def score(self, name: str) -> float:
        """Return how a peer behaved: 0, less what its rejected messages cost."""
        return self._penalties.score(name, anyio.current_time())

    @property
    def counts(self) -> Mapping[str, int]:
        """What was counted, by the names that a host has, and `gossip_copies`: messages that came again."""
        return {name: self._counts[name] for name in COUNT_NAMES}

    @property
    def held(self) -> int:
        """Bytes that wait for peers, and of messages that wait for their answers."""
        return self._budget.queued + self._waiting_bytes

    # Connections

    async def run(self) -> None:
        """Run the router, without end."""
        self._perform(self._router.start(anyio.current_time()))
        if not self._kind.chooses_neighbours:
            self._join()
        async with background() as tasks:
            self._tasks = tasks
            try:
                tasks.start_soon(self._timers.run)
                while self._kind.chooses_neighbours:
                    self._find_contacts()
                    await anyio.sleep(_CONTACT_SECONDS)
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def attend(self, connection: Connection, name: str, blame: Callable[[str], object]) -> None:
        """Speak with a peer, for as long as the connection stands.

        Args:
            connection: to the peer.
            name: its id.
            blame: is called with the rule that it broke.

        Raises:
            ConnectionLost: the connection has ended.
        """
        session = self._sessions[name] = GossipSession(name, connection, self._kind, self._budget, blame)
        if name in self._asked_for or self._needs_contacts:
            session.want()
        pause = 0.0
        try:
            while True:
                await session.wait_wanted(anyio.current_time() + pause)
                stream = await session.open()
                if stream is None:
                    pause = min(max(2 * pause, _RETRY_SECONDS), _LONGEST_RETRY_SECONDS)
                    session.refused_until = anyio.current_time() + pause
                    session.wanted = not self._kind.chooses_neighbours
                    session.refuse()
                    self._fail(name)
                    continue
                pause = 0.0 if self._kind.chooses_neighbours else _RETRY_SECONDS
                await self._converse(session, stream)
        finally:
            session.refuse()
            if self._sessions.get(name) is session:
                del self._sessions[name]
            self._fail(name)

    def accept(self, name: str, stream: Stream) -> None:
        """Take a stream that a peer has opened; it is read once one of this side is open."""
        session = self._sessions.get(name)
        if session is None:
            stream.reset()
        else:
            session.accept(stream, anyio.current_time())

    async def _converse(self, session: GossipSession, stream: Stream) -> None:
        """Speak with a peer until a stream ends, or the router wants no more."""
        session.begin()
        peer = self._kind.peer_of(session.name)
        self._asked_for.discard(session.name)
        self._settled.set()
        try:
            self._handle(PeerConnected(peer, stream.protocol))
            if not self._has_joined:
                self._join()
            async with background() as tasks:
                tasks.start_soon(_until_end, session.write, tasks.cancel_scope, stream)
                tasks.start_soon(_until_end, session.read, tasks.cancel_scope, lambda frame: self._take(session, frame))
                await anyio.sleep_forever()
        except StreamReset:
            # By the peer, which may open one again.
            pass
        finally:
            stream.reset()
            session.end()
            self._handle(PeerDisconnected(peer))

    def _join(self) -> None:
        self._has_joined = True
        self._handle(Join(self._topic))

    @property
    def _needs_contacts(self) -> bool:
        if not self._kind.chooses_neighbours or self._links.subscribed:
            return False
        return sum(session.wanted or session.is_up for session in self._sessions.values()) < CONTACTS

    def _find_contacts(self) -> None:
        now = anyio.current_time()
        idle = [
            session
            for session in self._sessions.values()
            if not (session.wanted or session.is_up) and session.refused_until <= now
        ]
        self._random.shuffle(idle)
        while idle and self._needs_contacts:
            idle.pop().want()

    # The router

    def _handle(self, event: Any) -> None:
        """Report an event to the router, after whatever is being reported just now, and do what it asks for."""
        self._inbox.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._inbox:
                self._perform(self._router.handle(self._inbox.popleft(), anyio.current_time()))
        finally:
            self._is_handling = False
            self._inbox.clear()
        self._note_links()

    def _take(self, session: GossipSession, frame: DecodedFrame) -> None:
        """Report what came from a peer."""
        self._counts["gossip_copies"] += len(frame.messages)
        self._handle(Received(self._kind.peer_of(session.name), frame.packet))

    def _perform(self, orders: Sequence[Any]) -> None:
        for order in orders:
            match order:
                case Send(peers, packet):
                    self._send(peers, packet)
                case Deliver(source=source) if source is not None:
                    self._deliver(order, self._kind.name_of(source))
                case SetTimer(timer, at):
                    self._timers.set(timer, at)
                case Connect(peer):
                    self._connect(peer)
                case Disconnect(peer):
                    if (session := self._sessions.get(self._kind.name_of(peer))) is not None and session.is_up:
                        session.close()
                case Ping(peer):
                    self._start(self._ping, peer)
                case Rejected(peers):
                    for peer in peers:
                        self._penalise(self._kind.name_of(peer))

    def _send(self, peers: Sequence[PeerId], packet: Any) -> None:
        try:
            data = self._kind.encode(packet)
        except EncodeError:
            # A message that came in a longer encoding than ours, or a topic of a stranger's: nobody gets it.
            self._counts["gossip_dropped"] += 1
            return
        for peer in peers:
            session = self._sessions.get(self._kind.name_of(peer))
            if session is None or not session.is_up:
                continue
            if session.queue(data):
                self._sent += 1
                continue
            self._counts["gossip_dropped"] += 1
            if self._kind.reports_unsent:
                self._inbox.append(Unsent(peer, packet))
            elif self._kind.chooses_neighbours:
                # What it lacks now would have it take part as what it is not.
                session.abort()

    def _deliver(self, delivery: Deliver, name: str) -> None:
        self._counts["gossip_copies"] -= 1
        self._counts["gossip_received"] += 1
        size = len(delivery.data)
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
            self._counts["gossip_dropped"] += 1
            self._inbox.append(GossipAnswered(delivery.id, GossipAnswer.IGNORE))
            return
        ticket = next(self._tickets)
        self._waiting[ticket] = (delivery.id, size)
        self._waiting_bytes += size
        session = self._sessions.get(name)
        connection = None if session is None else session.connection
        self._publications.append(Publication(ticket, connection, name, delivery.data))
        self._arrived.set()

    def _penalise(self, name: str) -> None:
        if self._penalties.add(name, anyio.current_time()) and (session := self._sessions.get(name)) is not None:
            session.blame(f"{REJECTIONS} of its messages were rejected")

    def _note_links(self) -> None:
        before, after = self._links, self._kind.links(self._router, self._topic)
        if after == before:
            return
        self._links = after
        changes: tuple[tuple[LinkChange, frozenset[str]], ...] = (
            ("subscribe", after.subscribed - before.subscribed),
            ("graft", after.mesh - before.mesh),
            ("prune", before.mesh - after.mesh),
            ("unsubscribe", before.subscribed - after.subscribed),
        )
        for change, names in changes:
            for name in sorted(names):
                self._notify(name, change)

    # What takes time

    def _start(self, task: Callable[[PeerId], Coroutine[Any, Any, None]], peer: PeerId) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(task, peer)

    def _connect(self, peer: PeerId) -> None:
        name = self._kind.name_of(peer)
        session = self._sessions.get(name)
        if session is not None and session.is_up:
            # It is being closed.
            self._inbox.append(ConnectFailed(peer))
            return
        self._asked_for.add(name)
        if session is not None:
            session.want()
        elif name not in self._dialling and len(self._dialling) < _MOST_DIALS and self._tasks is not None:
            self._dialling.add(name)
            self._start(self._dial, peer)
        else:
            self._asked_for.discard(name)
            self._inbox.append(ConnectFailed(peer))

    async def _dial(self, peer: PeerId) -> None:
        """Connect to a peer that the router asks for; its session comes up by itself."""
        name = self._kind.name_of(peer)
        try:
            with anyio.move_on_after(_DIAL_SECONDS):
                if await self._reach(name):
                    while name in self._asked_for:
                        await self._settled.wait()
        finally:
            self._dialling.discard(name)
        self._fail(name)

    async def _reach(self, name: str) -> bool:
        """Connect to a peer, and return whether it is connected."""
        for pause in _DIAL_PAUSES:
            if name in self._sessions:
                return True
            try:
                await self._dialler.dial_peer(name)
            except NetworkError:
                # Nobody knows the peer yet, or it is being dialled for another reason.
                await anyio.sleep(pause)
            else:
                return True
        return name in self._sessions

    def _fail(self, name: str) -> None:
        """Notify the router that there is no connection, if it waits for one."""
        if name in self._asked_for:
            self._asked_for.discard(name)
            self._settled.set()
            self._handle(ConnectFailed(self._kind.peer_of(name)))

    async def _ping(self, peer: PeerId) -> None:
        """Report how long the way to a peer is, which the host measures now and then."""
        name = self._kind.name_of(peer)
        end = anyio.current_time() + _PING_SECONDS
        while (found := self._dialler.rtt(name)) is None and anyio.current_time() < end and name in self._sessions:
            await anyio.sleep(_LOOK_SECONDS)
        session = self._sessions.get(name)
        self._handle(RoundTrip(peer, found if session is not None and session.is_up else None))


COUNT_NAMES = (
    "gossip_received",
    "gossip_accepted",
    "gossip_ignored",
    "gossip_rejected",
    "gossip_dropped",
    "gossip_copies",
    "published",
)
"""What a router host counts."""
_COUNT_OF_ANSWER: dict[Answer, str] = {
    "accept": "gossip_accepted",
    "ignore": "gossip_ignored",
    "reject": "gossip_rejected",
}


async def _until_end(run: Callable[[Any], Awaitable[object]], scope: anyio.CancelScope, argument: Any) -> None:
    """Run to the end, and then end the others of the group."""
    await run(argument)
    scope.cancel()
