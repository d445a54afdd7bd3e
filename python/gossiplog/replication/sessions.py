"""Syncs that the broadcast machine has ordered: how each ends, and how the next one with its source goes on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

from gossiplog.protocol.broadcast.events import PeerId, StartSync, SyncEnded, SyncResult
from gossiplog.protocol.sync import Aborted, Client, Finished, SyncClientConfig
from gossiplog.replication.batches import VerifiedBatch

_MOST_WALKS = 4
"""Peers for which the nodes and children of a sync that was cut off are kept, about 13 MB each."""


class SyncSession:
    """A sync from its order to its end: a walk over the source's tree, and what becomes of the batches that it brings.

    Args:
        order: of the broadcast machine.
        stop: called once, when the walk has to end.

    Attributes:
        order: as above.
        result: how the sync ended, as far as that is known; None while the walk goes on.
        inserts: whether the log takes batches; once it could not take one, those that follow would lack parents.
    """

    def __init__(self, order: StartSync, stop: Callable[[], object]) -> None:
        self.order = order
        self.result: SyncResult | None = None
        self.inserts = True
        self._reason = ""
        self._cooldown = 0.0
        self._stop = stop

    def end(self, result: SyncResult, reason: str = "", cooldown: float = 0.0) -> None:
        """End the walk, unless it has ended; what it brought is still inserted."""
        if self.result is None:
            self.result, self._reason, self._cooldown = result, reason, cooldown
            self._stop()

    def note_end(self, event: Aborted | Finished) -> None:
        """End the walk as the source does."""
        if isinstance(event, Aborted):
            self.end(SyncResult.ABORTED, cooldown=event.cooldown / 1000)
        else:
            self.end(SyncResult.FINISHED)

    def judge(self, batch: VerifiedBatch) -> None:
        """End with a violation if the batch shows one, whether or not it was inserted."""
        if batch.violation is not None:
            self._overrule(SyncResult.VIOLATION, str(batch.violation))

    def fail(self, reason: str) -> None:
        """End because the log could not take a batch."""
        self.inserts = False
        self._overrule(SyncResult.FAILED, reason)

    def conclude(self, client: Client, held: Sequence[bytes]) -> SyncEnded:
        """Return what the machine is to learn of the end.

        Args:
            client: of the walk.
            held: keys of the order that are in the log now.
        """
        result = self.result or SyncResult.FAILED
        cost, missing = client.statistics, client.unanswered
        return SyncEnded(self.order.sync, result, held, cost, self._cooldown, self._reason, missing)

    def _overrule(self, result: SyncResult, reason: str) -> None:
        """Change the result, however the walk has ended, unless that was a violation."""
        if self.result is None:
            self.end(result, reason)
        elif self.result is not SyncResult.VIOLATION:
            self.result, self._reason = result, reason


class Resumptions:
    """How to go on with connected peers, and with the one whose connection broke last when it is back.

    Args:
        first: how a first sync with a peer asks.
    """

    def __init__(self, first: SyncClientConfig) -> None:
        self._first = first
        # What the walks have found is kept for those whose syncs ended last.
        self._configs: OrderedDict[PeerId, SyncClientConfig] = OrderedDict()
        self._interrupted: tuple[Hashable, SyncClientConfig] | None = None

    def next(self, peer: PeerId, name: Hashable) -> SyncClientConfig:
        """Return how to ask a peer, which is found by its name where its connection is a new one."""
        if self._interrupted is not None and self._interrupted[0] == name:
            config, self._interrupted = self._interrupted[1], None
            return config
        return self._configs.pop(peer, self._first)

    def keep(self, session: SyncSession, client: Client, name: Hashable, *, is_connected: bool) -> None:
        """Remember what a session found that was cut short."""
        if session.result in (SyncResult.FINISHED, SyncResult.VIOLATION):
            return
        if not is_connected:
            self._interrupted = (name, client.next_config)
            return
        self._configs[session.order.peer] = client.next_config
        if len(self._configs) > _MOST_WALKS:
            other = [*self._configs][-1 - _MOST_WALKS]
            self._configs[other] = self._configs[other].without_walk()

    def forget(self, peer: PeerId) -> None:
        """Forget a peer that is gone."""
        self._configs.pop(peer, None)
