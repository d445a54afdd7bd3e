"""The peers that are connected, as `/peers` lists them: those of a mesh, and a hub's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossiplog._core import PeerInfo
from gossiplog.net.replicator.sessions import PeerSession


def peer_list(sessions: Sequence[PeerSession], infos: Sequence[PeerInfo]) -> list[dict[str, Any]]:
    """Return what a program may want to know of each peer, ready for JSON.

    Args:
        sessions: of all peers with whom messages are exchanged.
        infos: the peers of the mesh, those included with whom none are.

    Returns:
        Of each: `peer`, by which events name it; `kind`, "mesh" or "client"; `replicates`, whether messages are
        exchanged with it; and of a mesh `address` (a multiaddr), `dialer` (whether this side dialled), `agent` (the
        program, as it says; or null), `subscribed`, `in_mesh`, `score` and `rtt` (seconds, or null), as
        `gossiplog._core.PeerInfo` has them.
    """
    replicating = {peer.name for peer in sessions}
    mesh = [
        {
            "peer": info.peer_id,
            "kind": "mesh",
            "replicates": info.peer_id in replicating,
            "address": info.address,
            "dialer": info.dialer,
            "agent": info.agent,
            "subscribed": info.subscribed,
            "in_mesh": info.in_mesh,
            "score": info.score,
            "rtt": info.rtt,
        }
        for info in infos
    ]
    clients = [{"peer": peer.name, "kind": "client", "replicates": True} for peer in sessions if not peer.gossips]
    return mesh + clients
