"""Refusals streams over a network: what the application refuses is named to the peers that have it, and they name ours.

A peer that does not speak the protocol, as canvas-js, refuses the stream, and is not asked again on the connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from gossiplog.core import encode_id
from gossiplog.errors import CorruptLog, NetworkError, ProtocolError, RefusedByPeer, RefusedMessage, StorageError
from gossiplog.log import Log
from gossiplog.log.rebasing import rebase_command
from gossiplog.log.replica import Replica
from gossiplog.net import events
from gossiplog.net.rate_limited_log import keep_latest
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.stream import Signal, Stream
from gossiplog.protocol.refusals import INTERVAL, RefusalReader, RefusalWriter, Refused
from gossiplog.replication.batches import InsertOutcome

QUIET_SECONDS = 2.0
"""After a peer has named what it refuses, or what keeps logs different, and before that is taken to stay so."""
_MOST_CAUSES = 16
"""Refused messages that are remembered of one that descends from them."""
_WRITE_SECONDS = 60.0
"""How long a peer may take to read a frame."""


@dataclass(slots=True, eq=False)
class _Writing:
    """A refusals stream that this side writes, or is about to open.

    Attributes:
        writer: of its frames.
        changed: set when there is more to say.
    """

    writer: RefusalWriter = field(default_factory=RefusalWriter)
    changed: Signal = field(default_factory=Signal)


class Refusals:
    """The refusals streams of one log.

    Args:
        replica: of the log.
        workers: to run on.
        telemetry: remembers the reasons, counts, and notifies the application.
        protocol: that the streams speak.
        sessions: the peers that are being exchanged with, by number.
    """

    def __init__(
        self,
        replica: Replica,
        workers: WorkerPool,
        telemetry: Telemetry,
        protocol: str,
        sessions: Mapping[int, PeerSession],
    ) -> None:
        self._replica = replica
        self._workers = workers
        self._telemetry = telemetry
        self._protocol = protocol
        self._sessions = sessions
        self._writing: dict[int, _Writing] = {}
        # By key of a message that lacks parents: the refused messages that it descends from, or some of them.
        self._causes: dict[bytes, tuple[bytes, ...]] = {}
        # Peers that have opened a stream.
        self._opened: set[int] = set()

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

    def _causes_of(self, keys: Collection[bytes]) -> tuple[bytes, ...]:
        """Return the keys of refused messages: those of the keys, and those that the others descend from."""
        refused = self._telemetry.reasons(keys)
        found = dict.fromkeys(
            cause for key in keys for cause in ((key,) if key in refused else self._causes.get(key, ()))
        )
        return tuple(found)[:_MOST_CAUSES]

    def name_again(self, number: int, keys: Collection[bytes]) -> None:
        """Name refused messages that another peer sent before to a peer that has them.

        Args:
            number: of the peer.
            keys: of messages that the peer has, and that are skipped: they are refused, or descend from refused ones.
        """
        peer = self._sessions.get(number)
        if peer is not None and keys:
            self._name(peer, self._telemetry.reasons(self._causes_of(keys)))

    def named(self, number: int) -> Mapping[bytes, str]:
        """Return what the application refuses of what a peer has, as far as the peer is told: the reasons by key."""
        writing = self._writing.get(number)
        return {} if writing is None else writing.writer.named

    def forget(self, peer: PeerSession) -> None:
        """Forget a peer that is gone."""
        self._writing.pop(peer.number, None)
        self._opened.discard(peer.number)

    def _name(self, peer: PeerSession, reasons: Mapping[bytes, str]) -> None:
        if not reasons or peer.tasks is None:
            return
        writing = self._writing.get(peer.number)
        if writing is None:
            writing = self._writing[peer.number] = _Writing()
            peer.tasks.start_soon(self._write, peer, writing)
        for key, reason in reasons.items():
            writing.writer.refuse(key, reason)
        writing.changed.set()

    async def _write(self, peer: PeerSession, writing: _Writing) -> None:
        """Write what there is to say, as long as the connection stands."""
        try:
            async with await peer.connection.open_stream(self._protocol) as stream:
                while True:
                    # It may be due later, or not at all before there is more to say.
                    with anyio.move_on_at(writing.writer.due):
                        await writing.changed.wait()
                    while frame := writing.writer.next(anyio.current_time()):
                        with anyio.fail_after(_WRITE_SECONDS):
                            await stream.send(frame)
        except (NetworkError, TimeoutError):
            # The peer does not speak the protocol, or does not read, or is gone. What it has not read is lost to it.
            pass

    async def read(self, peer: PeerSession, stream: Stream) -> None:
        """Read a stream that a peer opened, to its end."""
        if peer.number in self._opened:
            stream.reset()
            peer.drop("it opened a second refusals stream")
            return
        self._opened.add(peer.number)
        reader = RefusalReader()
        try:
            async with stream:
                while data := await stream.receive():
                    await self._take(peer, reader, data)
                    stream.reserve_memory(reader.held)
                    await anyio.sleep(INTERVAL)
        except ProtocolError as error:
            peer.drop(f"it broke the refusals protocol: {error}")
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
        if refused or found.more > peer.reported_more:
            peer.reported.update(refused)
            peer.reported_more = found.more
            peer.reported_at = anyio.current_time()
            self._telemetry.reported(events.RefusalsReported(peer.name, refused, found.more))


def refusals_of(
    peer: PeerSession, name: str, log: Log, target: str, options: Sequence[str] = ()
) -> RefusedByPeer | None:
    """Return what a peer says that it refuses of a log; None where it refuses nothing.

    Args:
        peer: that says so.
        name: what to call it.
        log: the log.
        target: where `gossiplog rebase` finds the peer.
        options: of `gossiplog rebase`, to reach it.
    """
    if not peer.reported:
        return None
    command = rebase_command(log.replica.place, target, list(peer.reported), options)
    return RefusedByPeer(name, tuple(peer.reported.items()), peer.reported_more, command)
