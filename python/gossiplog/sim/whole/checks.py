"""What must hold at every step of a run: the invariants of reliable causal broadcast."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gossiplog.core import SignedMessage, decode_id, encode_id, verify
from gossiplog.errors import InvalidMessage

_STORM = 20
_STORM_SECONDS = 5.0


class BrokenInvariant(Exception):
    """A run did what no run may do."""


@dataclass(slots=True)
class Checks:
    """Watches all honest nodes of a run.

    Attributes:
        parents: keys of the parents of every message that an honest node appended, by its key.
        applied: for each honest node, the keys of the messages that its `apply` has run for.
        acknowledged: keys of the messages that `append` returned, by node.
        accepted: for each honest node, keys of the messages that it accepted by gossip in this life, before
            it held them.
        pushes: messages sent to a peer, by push or gossip.
        syncs: started by honest nodes.
        orphans: that an honest node sent to another.
        arrived: keys of valid messages without parents that hostile nodes sent to an honest one.
        honest: the nodes that are watched.
    """

    parents: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    applied: dict[int, dict[bytes, None]] = field(default_factory=dict)
    acknowledged: dict[int, list[bytes]] = field(default_factory=dict)
    accepted: dict[int, set[bytes]] = field(default_factory=dict)
    arrived: set[bytes] = field(default_factory=set)
    honest: set[int] = field(default_factory=set)
    pushes: int = 0
    syncs: int = 0
    orphans: int = 0
    _fruitless: dict[tuple[int, int], deque[float]] = field(default_factory=dict)

    def add(self, node: int) -> None:
        """Watch an honest node."""
        self.honest.add(node)
        self.applied[node] = {}
        self.acknowledged[node] = []
        self.accepted[node] = set()

    def apply(self, node: int, message: SignedMessage) -> None:
        """Check a call of a node's `apply`: once for each message, after its parents."""
        applied = self.applied[node]
        key = message.key
        parents = self.parents.get(key)
        if parents is None:
            parents = self.parents[key] = tuple(map(decode_id, message.parents))
        if key in applied:
            raise BrokenInvariant(f"node {node} applied {message.id} twice")
        for parent in parents:
            if parent not in applied:
                raise BrokenInvariant(f"node {node} applied {message.id} before its parent {encode_id(parent)}")
        applied[key] = None

    def accept(self, node: int, message: SignedMessage) -> None:
        """Check a message that a node accepts before it holds it: it holds or has accepted the parents."""
        self.parents.setdefault(message.key, tuple(map(decode_id, message.parents)))
        self.accepted[node].add(message.key)
        self._check_parents(node, message.key, "accepts")

    def forward(self, node: int, key: bytes, copies: int) -> None:
        """Check that a node may send a message on: it holds it, and so its parents, or is about to."""
        self.pushes += copies
        if not self._has(node, key):
            raise BrokenInvariant(f"node {node} forwards {encode_id(key)}, which it does not hold")
        self._check_parents(node, key, "forwards")

    def _has(self, node: int, key: bytes) -> bool:
        return key in self.applied[node] or key in self.accepted[node]

    def _check_parents(self, node: int, key: bytes, doing: str) -> None:
        for parent in self.parents[key]:
            if not self._has(node, parent):
                raise BrokenInvariant(f"node {node} {doing} {encode_id(key)} without its parent {encode_id(parent)}")

    def orphan(self, node: int, source: int, key: bytes, missing: Sequence[bytes]) -> None:
        """Check the source of an orphan: an honest one has all that is missing, so that a sync with it repairs."""
        if source in self.honest:
            self.orphans += 1
            for wanted in (key, *missing):
                if not self._has(source, wanted):
                    raise BrokenInvariant(
                        f"node {node} cannot get {encode_id(wanted)} from node {source}, which sent the orphan"
                        f" {encode_id(key)}"
                    )

    def sync(self, node: int, source: int, running: Sequence[object], limit: int, now: float) -> None:
        """Check that a node may start a sync: it has none with this source, and not too many.

        A hostile source causes no storm.

        Args:
            node: that starts it.
            source: to sync with.
            running: the sources of its other syncs.
            limit: how many it may have in all.
            now: the time.
        """
        self.syncs += 1
        if source in running:
            raise BrokenInvariant(f"node {node} starts a second sync with node {source}")
        if len(running) >= limit:
            raise BrokenInvariant(f"node {node} starts a sync beside {len(running)} others; {limit} are allowed")
        if source not in self.honest:
            recent = self._fruitless.setdefault((node, source), deque(maxlen=_STORM))
            recent.append(now)
            if len(recent) == _STORM and now - recent[0] < _STORM_SECONDS:
                raise BrokenInvariant(
                    f"node {node} started {_STORM} syncs with the hostile node {source} within {_STORM_SECONDS:g} s"
                )

    def blame(self, node: int, culprit: int, reason: str) -> None:
        """Check that a peer which a node drops for what it did is not honest."""
        if culprit in self.honest:
            raise BrokenInvariant(f"node {node} blames the honest node {culprit}: {reason}")

    def arrive(self, source: int, value: bytes, topic: str) -> None:
        """Note a valid message that a hostile node sent: it has to reach all, under whichever key."""
        if source not in self.honest:
            with suppress(InvalidMessage):
                message = verify(value, topic)
                if not message.parents:
                    self.arrived.add(message.key)

    def restart(self, node: int, held: int) -> None:
        """Check a log that is opened again: what it had applied is there, and nothing else."""
        self.accepted[node].clear()
        if held != len(self.applied[node]):
            raise BrokenInvariant(f"node {node} restarts with {held} messages; it applied {len(self.applied[node])}")

    def rest(self, roots: Callable[[], Sequence[tuple[int, object]]]) -> None:
        """Check a network that is quiet and whole: all honest nodes hold the same, and every append that returned.

        Args:
            roots: (node, root of its log) of each honest node.
        """
        found = roots()
        different = [node for node, root in found if root != found[0][1]]
        if different:
            raise BrokenInvariant(f"at rest, nodes {different[:10]} have other roots than node {found[0][0]}")
        held = self.applied[found[0][0]]
        missed = self.arrived - held.keys()
        if missed:
            raise BrokenInvariant(f"lost: {len(missed)} valid messages that hostile nodes sent")
        for node, keys in self.acknowledged.items():
            lost = [key for key in keys if key not in held]
            if lost:
                raise BrokenInvariant(f"lost: {encode_id(lost[0])} and {len(lost) - 1} more that node {node} appended")
