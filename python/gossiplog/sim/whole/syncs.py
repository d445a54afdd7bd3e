"""The sync streams of a simulated peer: those that it asks on, and those that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gossiplog.errors import ProtocolError
from gossiplog.log.replica import Replica
from gossiplog.protocol.broadcast.events import InEvent, StartSync, SyncAdvanced, SyncEnded, SyncResult
from gossiplog.protocol.sync import Aborted, Client, Finished, Received, Send, Server, SyncClientConfig
from gossiplog.protocol.sync.server import SyncServerConfig
from gossiplog.replication.batches import verify_received
from gossiplog.replication.sessions import Resumptions, SyncSession
from gossiplog.replication.verdicts import report_sync
from gossiplog.sim.whole.network import ConnectionEnd, StreamEnd

TOPIC = "org.example.simulation"
PUSH = "push"
SYNC = "sync"
GOSSIP = "gossip"


class _Sync(SyncSession):
    def __init__(
        self, order: StartSync, client: Client, stream: StreamEnd, count: int, stop: Callable[[], object]
    ) -> None:
        super().__init__(order, stop)
        self.client = client
        self.stream = stream
        self.count = count  # of the messages in the log when it began


class Syncs:
    """Drives the client machines of one peer.

    Args:
        config: how to ask.
        report: is called with what happened, for the broadcast machine.
        enqueue: has a transaction run, after those before it.
    """

    def __init__(
        self,
        replica: Replica,
        config: SyncClientConfig,
        report: Callable[[InEvent], object],
        enqueue: Callable[[Callable[[], object]], object],
    ) -> None:
        self._replica = replica
        self._report = report
        self._enqueue = enqueue
        self._running: dict[int, _Sync] = {}
        self._resumptions = Resumptions(config)

    @property
    def sources(self) -> list[object]:
        """The peers of the syncs that have not ended."""
        return [sync.order.peer for sync in self._running.values()]

    def start(self, order: StartSync, end: ConnectionEnd | None) -> None:
        """Begin a sync over a connection; None for one that has ended meanwhile."""
        if end is None:
            self._report(SyncEnded(order.sync, SyncResult.FAILED, reason="not connected"))
            return
        config = replace(self._resumptions.next(order.peer, order.peer), skip=order.skip)
        snapshot = self._replica.snapshot()
        client = Client(snapshot, TOPIC, config=config)
        sync = _Sync(order, client, end.open(SYNC), snapshot.state.count, lambda: self._stop(sync))
        self._running[order.sync] = sync
        sync.stream.on_data = lambda data: self._receive(sync, data)
        sync.stream.on_end = lambda: sync.end(SyncResult.FAILED, "the stream broke")
        sync.stream.write(client.start())

    def stop(self, number: int) -> None:
        """End a sync early."""
        if number in self._running:
            self._running[number].end(SyncResult.ABORTED)

    def forget(self, peer: object) -> None:
        """Forget how to ask a peer that is gone."""
        self._resumptions.forget(peer)

    def _receive(self, sync: _Sync, data: bytes) -> None:
        self._report(SyncAdvanced(sync.order.sync, sync.client.statistics))
        try:
            for event in sync.client.receive(data):
                match event:
                    case Send(requests):
                        sync.stream.write(requests)
                    case Received():
                        self._enqueue(partial(self._insert, sync, event))
                    case Aborted() | Finished():
                        sync.note_end(event)
        except ProtocolError as error:
            sync.end(SyncResult.VIOLATION, str(error))

    def _stop(self, sync: _Sync) -> None:
        sync.stream.close()
        for event in sync.client.end():
            if isinstance(event, Received):
                self._enqueue(partial(self._insert, sync, event))
        self._enqueue(partial(self._conclude, sync))

    def _insert(self, sync: _Sync, received: Received) -> None:
        batch = verify_received(received, sync.count)
        self._report(report_sync(sync.order.sync, self._replica.insert(batch)))
        sync.judge(batch)

    def _conclude(self, sync: _Sync) -> None:
        del self._running[sync.order.sync]
        self._resumptions.keep(sync, sync.client, sync.order.peer, is_connected=sync.stream.connection.alive)
        self._report(sync.conclude(sync.client, list(self._replica.known(sync.order.advertised))))


def serve(stream: StreamEnd, replica: Replica, config: SyncServerConfig, blame: Callable[[str], object]) -> None:
    """Serve a log, as it is now, on a stream.

    Args:
        stream: that the other side opened.
        replica: the log to serve.
        config: the limits.
        blame: is called with what the other side did wrong.
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
