"""The limits and delays of the broadcast machine."""

from __future__ import annotations

from dataclasses import dataclass

from gossiplog.checks import check_order, check_positive


@dataclass(frozen=True, slots=True)
class BroadcastConfig:
    """The limits and delays of a broadcast machine. All are choices of this project; canvas-js has none of them.

    Attributes:
        syncs: that run at a time, over all peers; a peer has one at most.
        overlap: seconds after which a sync with a peer that gossip reaches is joined by another such one.
        spacing: seconds from the start of such a sync until the next one starts, when the first has ended before.
        advertised: messages remembered that a peer advertised; any further ones are remembered as "more".
        skipped: messages remembered of each peer that the local application refuses, or that descend from one.
        backoff: seconds to wait after a peer's first failed sync; each further one doubles it.
        longest_backoff: seconds, at most, also of a source's cooldown.
        broken_promises: syncs in a row that are complete and lack what the peer advertised, after which it is blamed.
        stall: seconds without a byte after which a sync is stopped.
        turn: seconds after which a sync is stopped while others wait for their turn.
        retry: seconds after which messages that the application refused are asked for again; doubles likewise.
        longest_retry: seconds, at most.
        fanout: peers reached by gossip, chosen at random, that are sent the heads at once after a sync that brought
            messages. Each tells others, and the rest are sent them after `announce`.
        announce: seconds after which peers reached by gossip are sent the heads, because gossip may be lost.
        orphan_wait: seconds in which the parents of a message that came by gossip may follow it.
        orphans: messages that wait so at a time; any further ones call for a sync at once.
        orphan_bytes: of all of their values.

    Examples:
        >>> gossiplog.Peer(log, broadcast=gossiplog.BroadcastConfig(syncs=2))
        <Peer ...>
    """

    syncs: int = 4
    overlap: float = 2.0
    spacing: float = 0.25
    advertised: int = 1024
    skipped: int = 4096
    backoff: float = 1.0
    longest_backoff: float = 300.0
    broken_promises: int = 3
    stall: float = 15.0
    turn: float = 30.0
    retry: float = 10.0
    longest_retry: float = 3600.0
    fanout: int = 8
    announce: float = 5.0
    orphan_wait: float = 0.25
    orphans: int = 1024
    orphan_bytes: int = 2**22

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for a limit or a delay with which the machine would stand still or spin."""
        check_positive(self)
        check_order(self, 0, "spacing", "overlap")
        check_order(self, 0, "backoff", "longest_backoff")
        check_order(self, 0, "retry", "longest_retry")
