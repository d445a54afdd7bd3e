"""What a hub, a client and a peer say of those that they are connected to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Self

from gossiplog import _core
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.reprs import frozen


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
    def of_mesh(cls, infos: Iterable[_core.PeerInfo], sessions: Sequence[PeerSession]) -> tuple[Self, ...]:
        """Return what is known of the peers of a mesh.

        Args:
            infos: of all that are connected.
            sessions: with those that messages are exchanged with.
        """
        replicating = {session.name for session in sessions}
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
