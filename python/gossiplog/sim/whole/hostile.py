"""Peers that break the rules, each in its own way, to everybody who connects to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import gossiplog
from gossiplog import core
from gossiplog.errors import ProtocolError
from gossiplog.log.log import replica_of
from gossiplog.protocol import gossip, wire
from gossiplog.protocol.push import Push
from gossiplog.protocol.sync import Server, SyncServerConfig
from gossiplog.pubsub import wire as pubsub
from gossiplog.pubsub.rpc import Control, Message, Rpc, Subscription
from gossiplog.sim.whole.network import ConnectionEnd, Network, StreamEnd
from gossiplog.sim.whole.syncs import GOSSIP, PUSH, SYNC, TOPIC

_HONEST_TREE = 20


class Kind(Enum):
    """What a hostile peer does."""

    GARBAGE = "writes random bytes"
    FORGER = "gossips messages with broken signatures, or pushes them to peers that do not gossip with it"
    MISKEYED = "gossips or pushes valid messages under keys that are not theirs"
    ORPHANS = "pushes messages whose parents do not exist, and advertises heads that do not exist"
    LIAR = "serves a tree whose values are not its keys'"
    FORGED_LOG = "serves a tree with a forged message in it"
    SILENT = "advertises heads that do not exist, and answers no sync"
    ABORTER = "advertises heads that do not exist, and aborts every sync"


PUBLISHERS = frozenset({Kind.FORGER, Kind.MISKEYED})
"""Those that want to be in the meshes of others."""

UNPROVABLE = frozenset({Kind.SILENT, Kind.ABORTER})
"""Those that nobody can blame: the same happens on a bad network. They are only to be kept from doing harm."""


class HostilePeer:
    """A hostile node.

    Args:
        number: its address.
        network: that it is on.
        kind: what it does.
        targets: whom it dials.
        period: seconds between what it does.
    """

    def __init__(self, number: int, network: Network, kind: Kind, targets: list[int], period: float = 0.5) -> None:
        self.number = number
        self.kind = kind
        self.targets = targets
        self.connections: dict[int, ConnectionEnd] = {}
        self._network = network
        self._kernel = network.kernel
        self._random = network.kernel.random
        self._period = period
        self._pushes: dict[int, StreamEnd] = {}
        self._gossips: dict[int, StreamEnd] = {}
        self._signer = gossiplog.Signer(number.to_bytes(32, "big"))
        self._count = 0
        self._log = gossiplog.open(gossiplog.MemoryStorage(), TOPIC, signer=self._signer)
        if kind is Kind.LIAR:
            self._log.append_many({"from": number, "n": n} for n in range(_HONEST_TREE))

    def start(self) -> None:
        """Begin."""
        self._network.nodes[self.number] = self
        for target in self.targets:
            self._dial(target)
        self._kernel.after(self._period, self._act)

    def stop(self) -> None:
        """Stop: the peer goes away."""
        self._network.stop(self.number)

    def connected(self, end: ConnectionEnd, dialled: bool) -> None:
        self.connections[end.there] = end
        end.on_end = lambda: self._ended(end)
        if dialled:
            self._join(end.there, end.open(PUSH))
            if self.kind in PUBLISHERS:
                self._graft(end.there, end.open(GOSSIP))

    def opened(self, stream: StreamEnd, protocol: str) -> None:
        if protocol == PUSH:
            self._join(stream.connection.there, stream)
        elif protocol == SYNC and self.kind is not Kind.SILENT:
            self._serve(stream)

    def _dial(self, target: int) -> None:
        if target not in self.connections and self._network.nodes.get(self.number) is self:
            self._network.dial(self.number, target, lambda: self._kernel.after(2.0, self._dial, target))

    def _ended(self, end: ConnectionEnd) -> None:
        if self.connections.get(end.there) is end:
            del self.connections[end.there]
            self._pushes.pop(end.there, None)
            if end.there in self.targets:
                self._kernel.after(2.0, self._dial, end.there)

    def _join(self, other: int, stream: StreamEnd) -> None:
        self._pushes[other] = stream
        stream.write(self._update())

    def _graft(self, other: int, stream: StreamEnd) -> None:
        """Want to be in a peer's mesh; one that does not gossip with this node ends the stream."""
        self._gossips[other] = stream
        stream.on_end = lambda: self._gossips.pop(other)
        hello = Rpc(subscriptions=(Subscription(TOPIC, True),), control=Control(graft=(TOPIC,)))
        stream.write(b"".join(pubsub.encode(hello)))

    def _act(self) -> None:
        if self._network.nodes.get(self.number) is not self:
            return
        for other, stream in list(self._pushes.items()):
            match self.kind:
                case Kind.GARBAGE:
                    # In whole frames: half a frame is no offence, and what waits for the rest is bounded.
                    length = self._random.randrange(1, 128)
                    stream.write(bytes([length]) + self._random.randbytes(length))
                case Kind.FORGER | Kind.MISKEYED:
                    key, value = self._forged() if self.kind is Kind.FORGER else self._miskeyed()
                    if other in self._gossips:
                        message = Message((TOPIC,), gossip.encode(key, value))
                        self._gossips[other].write(b"".join(pubsub.encode(Rpc((message,)))))
                    else:
                        stream.write(wire.encode_push(wire.Insert(key, value)))
                case Kind.ORPHANS:
                    stream.write(wire.encode_push(wire.Insert(*self._orphan())) + self._update())
                case Kind.LIAR | Kind.FORGED_LOG | Kind.SILENT | Kind.ABORTER:
                    stream.write(self._update())
        self._kernel.after(self._period, self._act)

    def _update(self) -> bytes:
        """Return an Update; with heads that nobody has, unless the tree that is served has to look honest."""
        if self.kind is Kind.LIAR:
            return Push().update([core.decode_id(id) for id in self._log.heads])
        heads = [core.encode_clock(9) + self._random.randbytes(19) for _ in range(self._random.randrange(1, 5))]
        return Push().update(heads)

    def _sign(self, clock: int, parents: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        self._count += 1
        return self._signer.sign(TOPIC, clock, parents, {"n": self._count, "hostile": self.number}, "dag-cbor")

    def _orphan(self) -> tuple[bytes, bytes]:
        return self._sign(5, (core.encode_id(core.encode_clock(4) + self._random.randbytes(19)),))

    def _miskeyed(self) -> tuple[bytes, bytes]:
        """Return a valid message under the key of one with another clock: `push.check_key` takes it for the value's."""
        key, value = self._sign(1)
        return core.encode_clock(2) + key[1:], value

    def _forged(self) -> tuple[bytes, bytes]:
        _, value = self._sign(1)
        signature = core.read_message(value, TOPIC).signature
        value = value.replace(signature, self._random.randbytes(len(signature)))
        return core.read_message(value, TOPIC).key, value

    def _serve(self, stream: StreamEnd) -> None:
        snapshot = Forged(dict([self._forged()])) if self.kind is Kind.FORGED_LOG else replica_of(self._log).snapshot()
        config = SyncServerConfig(requests=0) if self.kind is Kind.ABORTER else None
        server = Server(snapshot, now=self._kernel.now, config=config)
        change: Callable[[bytes], bytes] = _swap_values if self.kind is Kind.LIAR else bytes

        def receive(data: bytes) -> None:
            try:
                while answer := server.receive(data, self._kernel.now):
                    stream.write(change(answer))
                    data = b""
            except ProtocolError:
                stream.close()

        stream.on_data = receive


class Forged:
    """A snapshot that follows the rules of the tree, over any entries."""

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries = dict(sorted(entries.items()))
        self.tree = core.Tree().insert(self._entries.items())

    def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> list[tuple[bytes, bytes]]:
        return [
            (key, core.leaf_hash(key, value))
            for key, value in self._entries.items()
            if start <= key and (end is None or key < end)
        ][:limit]

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        return [self._entries[key] for key in keys]


def _swap_values(answers: bytes) -> bytes:
    """Return the same answers, but the first value of each stands for all."""
    frames = wire.FrameReader(wire.MAX_ANSWER)
    frames.feed(answers)
    changed = []
    while (frame := frames.next()) is not None:
        answer = wire.decode_answer(frame)
        if isinstance(answer, wire.Values) and answer.values:
            answer = wire.Values([answer.values[-1]] * len(answer.values))
        changed.append(wire.encode_answer(answer))
    return b"".join(changed)
