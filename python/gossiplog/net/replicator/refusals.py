"""Refusals streams over a network: what the application refuses is named to the peers that have it, and they name ours.

A peer that does not speak the protocol, as canvas-js, refuses the stream, and is not asked again on the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import anyio

from gossiplog.core import encode_id
from gossiplog.errors import CorruptLog, NetworkError, ProtocolError, RefusedByPeer, RefusedMessage, StorageError
from gossiplog.log.replica import Replica
from gossiplog.net import events
from gossiplog.net.rate_limited_log import keep_latest
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol.refusals import INTERVAL, RefusalReader, Refused
from gossiplog.replication.batches import InsertOutcome

SETTLED_SECONDS = 2.0
"""How long a refusal or another difference must stand before it counts as final."""
_MOST_CAUSES = 16
"""Refused messages that are remembered of one that descends from them."""
_WRITE_SECONDS = 60.0
"""How long a peer may take to read a frame."""


class Refusals:
    """The refusals streams of one log.

    Args:
        workers: to run on.
        telemetry: remembers the reasons, counts, and notifies the application.
        protocol: that the streams speak.
        sessions: the peers that are being exchanged with, by number.
        rebase_command: returns the command that rebases the log without what a peer refuses; "" if there is none.
    """

    def __init__(
        self,
        replica: Replica,
        workers: WorkerPool,
        telemetry: Telemetry,
        protocol: str,
        sessions: Mapping[int, PeerSession],
        rebase_command: Callable[[PeerSession], str],
    ) -> None:
        self._replica = replica
        self._workers = workers
        self._telemetry = telemetry
        self._protocol = protocol
        self._sessions = sessions
        self._rebase_command = rebase_command
        # By key of a message that lacks parents: the refused messages that it descends from, or some of them.
        self._causes: dict[bytes, tuple[bytes, ...]] = {}

    def note(self, sources: Sequence[int], outcome: InsertOutcome) -> None:
        """Note what the application refuses of a batch, and name it to the peers that sent it.

        Args:
            sources: the numbers of the peers that sent the values of the batch.
            outcome: of the batch.
        """
        if not outcome.refused and not (outcome.orphans and self._telemetry.has_refused):
            return
        keys = outcome.keys
        by_key = {keys[index]: error for index, error in outcome.refused.items()}
        # A batch may have copies of one message from several peers.
        by_source: dict[int, dict[bytes, RefusedMessage]] = {}
        for source, key in zip(sources, keys, strict=True):
            if key in by_key:
                by_source.setdefault(source, {})[key] = by_key[key]
        for source, errors in by_source.items():
            peer = self._sessions.get(source)
            self._telemetry.refused_messages(errors, "" if peer is None else peer.name)
            if peer is not None:
                self._name(peer, {key: error.reason for key, error in errors.items()})
        for key, missing in sorted((keys[index], missing) for index, missing in outcome.orphans):
            if causes := self._causes_of(missing):
                keep_latest(self._causes, key, causes)

    def _causes_of(self, keys: Collection[bytes], most: int = _MOST_CAUSES) -> tuple[bytes, ...]:
        """Return the keys of refused messages: those of the keys, and those that the others descend from."""
        refused = self._telemetry.reasons(keys)
        found = dict.fromkeys(
            cause for key in keys for cause in ((key,) if key in refused else self._causes.get(key, ()))
        )
        return tuple(found)[:most]

    def reasons(self, keys: Collection[bytes]) -> tuple[tuple[str, str], ...]:
        """Return (id, reason) of the first refused messages among some keys, and of those that the others descend from.

        Args:
            keys: of messages that are skipped.
        """
        reasons = self._telemetry.reasons(self._causes_of(sorted(keys), events.MOST_IN_EVENT))
        return tuple((encode_id(key), reason) for key, reason in reasons.items())

    def name_again(self, number: int, keys: Collection[bytes]) -> None:
        """Name refused messages that another peer sent before to a peer that has them.

        Args:
            number: of the peer.
            keys: of messages that the peer has, and that are skipped: they are refused, or descend from refused ones.
        """
        peer = self._sessions.get(number)
        if peer is not None and keys:
            self._name(peer, self._telemetry.reasons(self._causes_of(keys)))

    def _name(self, peer: PeerSession, reasons: Mapping[bytes, str]) -> None:
        if not reasons or peer.tasks is None:
            return
        if not peer.refusals.is_writing:
            peer.refusals.is_writing = True
            peer.tasks.start_soon(self._write, peer)
        for key, reason in reasons.items():
            peer.refusals.writer.refuse(key, reason)
        peer.refusals.changed.set()

    async def _write(self, peer: PeerSession) -> None:
        """Write what there is to say, as long as the connection stands."""
        writer = peer.refusals.writer
        try:
            async with await peer.connection.open_stream(self._protocol) as stream:
                while True:
                    # It may be due later, or not at all before there is more to say.
                    with anyio.move_on_at(writer.due):
                        await peer.refusals.changed.wait()
                    while frame := writer.next(anyio.current_time()):
                        with anyio.fail_after(_WRITE_SECONDS):
                            await stream.send(frame)
        except (NetworkError, TimeoutError):
            # The peer does not speak the protocol, or does not read, or is gone. What it has not read is lost to it.
            pass

    async def read(self, peer: PeerSession, stream: Stream) -> None:
        """Read a stream that a peer opened, to its end."""
        if peer.refusals.is_read:
            stream.reset()
            peer.blame("it opened a second refusals stream")
            return
        peer.refusals.is_read = True
        reader = RefusalReader()
        try:
            async with stream:
                while data := await stream.receive():
                    await self._take(peer, reader, data)
                    stream.reserve_memory(reader.held)
                    await anyio.sleep(INTERVAL)
        except ProtocolError as error:
            peer.blame(f"it broke the refusals protocol: {error}")
        except NetworkError:
            # The connection's end says why.
            pass

    async def _take(self, peer: PeerSession, reader: RefusalReader, data: bytes) -> None:
        named: dict[bytes, str] = {}
        more: int | None = None
        try:
            for found in reader.receive(data):
                named.update(found.refused)
                more = found.more
        finally:
            if more is not None:
                await self._report(peer, Refused(tuple(named.items()), more))

    async def _report(self, peer: PeerSession, found: Refused) -> None:
        """Note what the peer refuses of what this log holds; it may name anything."""
        try:
            held = await self._workers.read(self._replica.known, [key for key, _ in found.refused])
        except (CorruptLog, StorageError) as error:
            self._telemetry.emit(events.Failed(f"looking up what {peer.name} refuses", error))
            return
        refused = tuple((encode_id(key), reason) for key, reason in found.refused if key in held)
        state = peer.refusals
        if refused or found.more > state.more:
            state.reported.update(refused)
            state.more = found.more
            state.reported_at = anyio.current_time()
            self._telemetry.reported(
                events.RefusalsReported(peer.name, refused, found.more, self._rebase_command(peer))
            )

    def error_for(self, peer: PeerSession, name: str) -> RefusedByPeer | None:
        """Return the error that names what a peer refuses of this log; None if it refuses nothing."""
        state = peer.refusals
        if not state.reported:
            return None
        return RefusedByPeer(name, tuple(state.reported.items()), state.more, self._rebase_command(peer))
