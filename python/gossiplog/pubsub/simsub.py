"""simsub: the first gossipsub, of 2018. One overlay without topics, simulated before the protocol had a specification.

It follows the listing of https://github.com/vyzo/gerbil-simsub (README-literate-gossipsub.org, simsub/gossip.ss at
commit ee1ea87) line by line, for the sake of its published runs. So it keeps what later versions gave up:

- Peers are known by the CONNECT packets alone. Who gets one knows its sender, and does not answer.
- GRAFT always adds its sender to the mesh, however many are there: links are cut again only by a heartbeat.
- Gossip is drawn among all known peers, and then not sent to those of the mesh: mostly to fewer than `d`.
- IWANT is answered from all of the history, not only from what gossip announces.
- A message is forgotten with its window, and would be delivered again after that.
- There are no topics, so a message has none, let alone several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from random import Random
from typing import Any, TypeAlias

from gossiplog.checks import check_order, check_positive
from gossiplog.pubsub.events import Deliver, PeerId, Received, Send, SetTimer, TimerExpired

_HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class Config:
    """The overlay's parameters, with the values of the published runs.

    Attributes:
        d: the degree of the mesh that a heartbeat fills up to, or cuts down to; also how many are drawn for gossip.
        d_low: the least degree that is left as it is.
        d_high: the greatest degree that is left as it is.
        history_gossip: heartbeats for which a message is announced.
        history_length: heartbeats for which it is remembered.
        heartbeat_interval: seconds. The first heartbeat comes up to a second later than that.

    Raises:
        ValueError: the values contradict each other.
    """

    d: int = 6
    d_low: int = 4
    d_high: int = 12
    history_gossip: int = 3
    history_length: int = 120
    heartbeat_interval: float = 1.0

    def __post_init__(self) -> None:
        check_order(self, 0, "d_low", "d", "d_high")
        check_order(self, 1, "history_gossip", "history_length")
        check_positive(self)


@dataclass(frozen=True, slots=True)
class Greeting:
    """CONNECT: the sender knows the receiver from now on."""


@dataclass(frozen=True, slots=True)
class Message:
    """PUBLISH: a message, from the peer that passes it on."""

    id: Hashable
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class IHave:
    """The sender announces what it has seen recently."""

    ids: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class IWant:
    """The sender asks for messages."""

    ids: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class Graft:
    """The sender has the receiver in its mesh."""


@dataclass(frozen=True, slots=True)
class Prune:
    """The sender has the receiver in its mesh no longer."""


Packet: TypeAlias = Greeting | Message | IHave | IWant | Graft | Prune

_GREETING, _GRAFT, _PRUNE = Greeting(), Graft(), Prune()


class SimSub:
    """A node of the overlay. Messages come to it from outside as they do from peers: in a `Message`.

    Args:
        peers: that it connects to when it starts.
        random: what it draws with.
        config: the overlay's.

    Attributes:
        peers: that it knows.
        mesh: the peers that it forwards messages to.
    """

    __slots__ = ("_config", "_history", "_initial", "_messages", "_random", "_window", "mesh", "peers")

    def __init__(self, peers: Iterable[PeerId], random: Random, config: Config | None = None) -> None:
        # Dictionaries without values: sets, but in an order that does not depend on hashes.
        self.peers: dict[PeerId, None] = {}
        self.mesh: dict[PeerId, None] = {}
        self._initial = tuple(dict.fromkeys(peers))
        self._random = random
        self._config = config or Config()
        self._messages: dict[Hashable, Message] = {}
        self._window: list[Hashable] = []
        self._history: deque[list[Hashable]] = deque()  # the newest first

    def start(self, now: float) -> Sequence[Any]:
        """Connect to the first peers."""
        unknown = [peer for peer in self._initial if peer not in self.peers]
        self.peers.update(dict.fromkeys(unknown))
        timer = SetTimer(_HEARTBEAT, now + self._config.heartbeat_interval + self._random.random())
        return [Send(unknown, _GREETING), timer] if unknown else [timer]

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Return what follows from a packet or from the heartbeat's timer; other events are ignored."""
        if type(event) is Received:
            packet = event.packet
            # Nearly all packets are messages, and most of these copies.
            if type(packet) is Message:
                return () if packet.id in self._messages else self._accept(event.peer, packet)
            return self._control(event.peer, packet)
        if type(event) is TimerExpired and event.timer == _HEARTBEAT:
            return self._beat(now)
        return ()

    def _accept(self, source: PeerId, message: Message) -> Sequence[Any]:
        self._messages[message.id] = message
        self._window.append(message.id)
        delivery = Deliver(("",), message.id, message.data, source)
        targets = [peer for peer in self.mesh if peer != source]
        return (delivery, Send(targets, message)) if targets else (delivery,)

    def _control(self, source: PeerId, packet: Packet) -> Sequence[Any]:
        match packet:
            case IHave(ids):
                unknown = [id for id in ids if id not in self._messages]
                return (Send((source,), IWant(tuple(unknown))),) if unknown else ()
            case IWant(ids):
                return [Send((source,), self._messages[id]) for id in ids if id in self._messages]
            case Graft():
                self.mesh[source] = None
            case Prune():
                self.mesh.pop(source, None)
            case Greeting():
                self.peers[source] = None
        return ()

    def _beat(self, now: float) -> Sequence[Any]:
        links = self._maintain_mesh()
        self._shift()
        return [*links, *self._gossip(), SetTimer(_HEARTBEAT, now + self._config.heartbeat_interval)]

    def _maintain_mesh(self) -> Sequence[Send]:
        config, degree = self._config, len(self.mesh)
        if degree < config.d_low:
            candidates = [peer for peer in self.peers if peer not in self.mesh]
            added = self._random.sample(candidates, min(config.d - degree, len(candidates)))
            self.mesh.update(dict.fromkeys(added))
            return [Send(added, _GRAFT)] if added else []
        if degree > config.d_high:
            removed = self._random.sample(list(self.mesh), degree - config.d)
            for peer in removed:
                del self.mesh[peer]
            return [Send(removed, _PRUNE)]
        return []

    def _shift(self) -> None:
        self._history.appendleft(self._window)
        self._window = []
        if len(self._history) > self._config.history_length:
            for id in self._history.pop():
                self._messages.pop(id, None)

    def _gossip(self) -> Sequence[Send]:
        ids = tuple(chain.from_iterable(islice(self._history, self._config.history_gossip)))
        if not ids:
            return []
        drawn = self._random.sample(list(self.peers), min(self._config.d, len(self.peers)))
        targets = [peer for peer in drawn if peer not in self.mesh]
        return [Send(targets, IHave(ids))] if targets else []
