"""What peers of a mesh have beside pushes and syncs: streams of a router of ours, and maybe a log of another topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import anyio.abc

from gossiplog.errors import NetworkError, StreamRefused
from gossiplog.net.replicator.defects import Defects
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.stream import Stream

_NAMING_SECONDS = 2.0
"""Within which a peer of a mesh has said what its streams speak."""
_NAMING_LOOK = 0.05


class GossipStreams(Protocol):
    """The streams of a router that this process runs.

    Attributes:
        protocols: that they speak.
    """

    protocols: Sequence[str]

    async def attend(self, connection: Connection, name: str, blame: Callable[[str], object]) -> None:
        """Speak with a peer, for as long as the connection stands; `blame` is called with a rule that it broke."""

    def accept(self, name: str, stream: Stream) -> None:
        """Take a stream that a peer has opened."""


class MeshPeers:
    """Speaks with peers for a router, and notes those of another topic.

    Args:
        streams: the router's; None where another layer has them.
        topics_of: returns the topics of which a peer exchanges messages; None before it has said so.
        topic: of the log.
        telemetry: counts, and notifies the application.
        defects: reports this package's own.

    Attributes:
        protocols: of streams to hand to `accept`.
    """

    def __init__(
        self,
        streams: GossipStreams | None,
        topics_of: Callable[[str], Sequence[str] | None],
        topic: str,
        telemetry: Telemetry,
        defects: Defects,
    ) -> None:
        self.protocols = streams.protocols if streams is not None else ()
        self._streams = streams
        self._topics_of = topics_of
        self._topic = topic
        self._telemetry = telemetry
        self._defects = defects

    def start(self, peer: PeerSession, tasks: anyio.abc.TaskGroup) -> None:
        """Have the router speak with a peer, for as long as the connection stands."""
        if self._streams is not None:
            tasks.start_soon(self._attend, peer, self._streams)

    def accept(self, peer: PeerSession, stream: Stream) -> None:
        """Hand a stream that a peer has opened to the router."""
        if self._streams is None:
            raise RuntimeError("a driver without streams of gossip takes none")
        self._streams.accept(peer.name, stream)

    async def _attend(self, peer: PeerSession, streams: GossipStreams) -> None:
        try:
            await streams.attend(peer.connection, peer.name, peer.blame)
        except NetworkError:
            # The connection's end says why.
            pass
        except BaseException as error:
            if not self._defects.catch("gossip", peer.number, "exchanging gossip with it", error):
                raise

    def note_refusal(self, peer: PeerSession, error: StreamRefused) -> None:
        """Note that a peer refused a push stream; it is asked again: its log may not be open yet."""
        if not (peer.refused or peer.joined) and peer.tasks is not None:
            peer.refused = True
            peer.tasks.start_soon(self._note_other_topic, peer, error)

    async def _note_other_topic(self, peer: PeerSession, error: StreamRefused) -> None:
        """Log that a peer's log has another topic, unless it has none: a bootstrap node speaks no log's protocols."""
        with anyio.move_on_after(_NAMING_SECONDS):
            while (topics := self._topics_of(peer.name)) is None:
                await anyio.sleep(_NAMING_LOOK)
        if peer.joined or (topics is not None and not topics):
            return
        self._telemetry.count(other_topics=1)
        text = f"it exchanges no messages of this log's topic, {self._topic!r}: its topic may be another ({error})"
        self._telemetry.incident(peer.name, "other_topics", 1, text)
