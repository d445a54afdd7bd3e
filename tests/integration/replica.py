"""What every kind of peer can do in a test, so that a test takes any of them for either end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gossiplog import Log, Node, Signer, core


@dataclass(frozen=True, slots=True)
class State:
    """A log at one moment; equal in two logs exactly when they hold the same messages.

    Attributes:
        root: of its tree.
        clock: the next message's.
        heads: ids, ascending.
        count: of messages.
    """

    root: Node
    clock: int
    heads: tuple[str, ...]
    count: int


class Replica(Protocol):
    """A log, wherever it is."""

    def append(self, payload: Any, *, codec: str = "dag-cbor", parents: Sequence[str] | None = None) -> str:
        """Signs and stores a message behind these parents, or behind all heads. Returns its id."""

    def append_numbers(self, start: int, count: int) -> None:
        """Appends so many messages, one behind the other: {"number": start} and on."""

    def insert(self, values: Sequence[bytes]) -> list[tuple[int, str]]:
        """Verifies stored values, parents first, and keeps them. Returns (index, reason) of those that it refuses."""

    def values(self) -> list[bytes]:
        """All stored values in the order of their ids."""

    def ids(self) -> list[str]:
        """All ids, ascending."""

    def state(self) -> State:
        """The log as it is now."""


class Live(Replica, Protocol):
    """A log that others write to meanwhile."""

    def wait(self, *, count: int | None = None, root: Node | None = None) -> State:
        """The state, as soon as it has at least so many messages, or this root."""

    def wait_for_message(self, id: str) -> str | None:
        """How a message came, once it is there: "push", "sync", "pubsub" (by gossip), or None when the peer wrote it
        itself."""


class Hub(Live, Protocol):
    """A log that serves clients."""

    def listen(self) -> str:
        """Begins to serve, where it did before, if it did. Returns where, ws://..."""

    def stop_listening(self) -> None:
        """Drops all clients, as a hub does that dies."""


class Client(Live, Protocol):
    """A log that connects to hubs."""

    def connect(self, url: str) -> None:
        """Returns once the connection stands, before anything is synced."""

    def disconnect(self, url: str) -> None:
        """Returns once the connection is gone."""

    def syncs(self) -> list[int]:
        """How many messages each sync stream so far brought, with those that ended with an Abort."""


class MeshPeer(Live, Protocol):
    """A log that is a peer of a mesh."""

    def join(self, bootstrap: Sequence[str] = (), *, listens: bool = True) -> list[str]:
        """Joins the mesh of these multiaddrs, or begins one. Returns where others reach it, with its peer id."""

    def wait_for_graft(self, peer_id: str) -> None:
        """Returns once gossip goes to and from a peer."""


class LogReplica:
    """Our own log as a replica."""

    def __init__(self, log: Log, signer: Signer) -> None:
        self.log = log
        self._signer = signer

    def append(self, payload: Any, *, codec: str = "dag-cbor", parents: Sequence[str] | None = None) -> str:
        if parents is None:
            return self.log.append(payload, signer=self._signer, codec=codec).id
        clock = 1 + max((self.log.get(id).clock for id in parents), default=0)
        key, value = self._signer.sign(self.log.topic, clock, parents, payload, codec)
        self.log.insert(value)
        return core.encode_id(key)

    def append_numbers(self, start: int, count: int) -> None:
        self.log.append_many(({"number": number} for number in range(start, start + count)), signer=self._signer)

    def insert(self, values: Sequence[bytes]) -> list[tuple[int, str]]:
        return [(index, str(error)) for index, error in self.log.insert_many(values).refused]

    def values(self) -> list[bytes]:
        return [message.value for message in self.log]

    def ids(self) -> list[str]:
        return [message.id for message in self.log]

    def state(self) -> State:
        return State(root=self.log.root, clock=self.log.clock, heads=self.log.heads, count=len(self.log))
