"""The sync streams of a simulated peer: those that it asks on, and those that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gossiplog.errors import ProtocolError
from gossiplog.log.replica import Replica
from gossiplog.protocol.broadcast_events import InEvent, StartSync, SyncAdvanced, SyncEnded, SyncResult
from gossiplog.protocol.sync import Aborted, Client, ClientConfig, Finished, Received, Send, Server, ServerConfig
from gossiplog.replication.batches import verify_received
from gossiplog.replication.verdicts import report_sync
from gossiplog.sim.network import ConnectionEnd, StreamEnd

TOPIC = "org.example.simulation"
PUSH = "push"
SYNC = "sync"
GOSSIP = "gossip"


@dataclass(slots=True, eq=False)
class _Sync:
    order: StartSync
    client: Client
    stream: StreamEnd
    count: int  # of the messages in the log when it began
    ended: bool = False


class Syncs:
    """Drives the client machines of one peer.

    Args:
        replica: the log of the peer.
        config: how to ask.
        report: tells the broadcast machine what happened.
        enqueue: has a transaction run, after those before it.
    """

    def __init__(
        self,
        replica: Replica,
        config: ClientConfig,
        report: Callable[[InEvent], object],
        enqueue: Callable[[Callable[[], object]], object],
    ) -> None:
        self._replica = replica
        self._config = config
        self._report = report
        self._enqueue = enqueue
        self._running: dict[int, _Sync] = {}
        self._configs: dict[object, ClientConfig] = {}  # for peers that aborted a stream

    @property
    def sources(self) -> list[object]:
        """The peers of the syncs that have not ended."""
        return [sync.order.peer for sync in self._running.values()]

    def start(self, order: StartSync, end: ConnectionEnd | None) -> None:
        """Begins a sync over a connection; None for one that has ended meanwhile."""
        if end is None:
            self._report(SyncEnded(order.sync, SyncResult.FAILED, reason="not connected"))
            return
        config = replace(self._configs.pop(order.peer, self._config), skip=order.skip)
        snapshot = self._replica.snapshot()
        sync = _Sync(order, Client(snapshot, TOPIC, config=config), end.open(SYNC), snapshot.state.count)
        self._running[order.sync] = sync
        sync.stream.on_data = lambda data: self._receive(sync, data)
        sync.stream.on_end = lambda: self._break_off(sync, SyncResult.FAILED, "the stream broke")
        sync.stream.write(sync.client.start())

    def stop(self, number: int) -> None:
        """Ends a sync early."""
        if number in self._running:
            self._break_off(self._running[number], SyncResult.ABORTED, "")

    def _receive(self, sync: _Sync, data: bytes) -> None:
        if sync.ended:
            return
        self._report(SyncAdvanced(sync.order.sync, sync.client.statistics))
        try:
            for event in sync.client.receive(data):
                match event:
                    case Send(requests):
                        sync.stream.write(requests)
                    case Received():
                        self._write(sync, event)
                    case Aborted(cooldown):
                        self._configs[sync.order.peer] = sync.client.next_config
                        self._end(sync, SyncResult.ABORTED, "", cooldown / 1000)
                    case Finished():
                        self._end(sync, SyncResult.FINISHED, "")
        except ProtocolError as error:
            self._end(sync, SyncResult.VIOLATION, str(error))

    def _break_off(self, sync: _Sync, result: SyncResult, reason: str) -> None:
        if not sync.ended:
            for event in sync.client.end():
                if isinstance(event, Received):
                    self._write(sync, event)
            self._end(sync, result, reason)

    def _end(self, sync: _Sync, result: SyncResult, reason: str, cooldown: float = 0.0) -> None:
        sync.ended = True
        sync.stream.close()
        self._enqueue(lambda: self._conclude(sync, result, reason, cooldown))

    def _conclude(self, sync: _Sync, result: SyncResult, reason: str, cooldown: float) -> None:
        del self._running[sync.order.sync]
        held = list(self._replica.known(sync.order.wanted))
        self._report(SyncEnded(sync.order.sync, result, held, sync.client.statistics, cooldown, reason))

    def _write(self, sync: _Sync, received: Received) -> None:
        self._enqueue(lambda: self._insert(sync, received))

    def _insert(self, sync: _Sync, received: Received) -> None:
        outcome = self._replica.insert(verify_received(received, sync.count))
        brought, violation = report_sync(sync.order.sync, outcome), outcome.batch.violation
        self._report(brought if violation is None or brought.invalid else replace(brought, invalid=str(violation)))


def serve(stream: StreamEnd, replica: Replica, config: ServerConfig, blame: Callable[[str], object]) -> None:
    """Serves a log, as it is now, on a stream.

    Args:
        stream: that the other side opened.
        replica: the log to serve.
        config: the limits.
        blame: told what the other side did wrong.
    """
    kernel = stream.connection.network.kernel
    server = Server(replica.snapshot(), now=kernel.now, config=config)

    def receive(data: bytes) -> None:
        try:
            while answer := server.receive(data, kernel.now):
                stream.write(answer)
                data = b""
        except ProtocolError as error:
            blame(str(error))
        if server.closed:
            stream.close()

    def check() -> None:
        if not stream.closed:
            receive(b"")
        if not stream.closed:
            kernel.at(server.deadline, check)

    stream.on_data = receive
    kernel.at(server.deadline, check)
