"""Merkle sync into a log: drives the client machine of `gossiplog.protocol` against a source, stream after stream.

While one batch is written, the next one is verified, and the source and the client walk on: each on a thread of its
own, one batch at a time and in their order. What was written stays, whatever comes after it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from operator import itemgetter
from typing import Protocol, TypeAlias

from gossiplog import core
from gossiplog.errors import CorruptSource, GossipLogError, MissingParents, ProtocolError
from gossiplog.log.replica import Replica
from gossiplog.log.results import PullResult
from gossiplog.message import ids_of
from gossiplog.protocol.sync import Aborted, Client, Finished, Received, Send, SyncClientConfig, SyncStatistics
from gossiplog.protocol.sync.events import SkippedMessages
from gossiplog.replication.batches import VerifiedBatch, verify_received

_BATCHES_UNDER_WAY = 4
"""Verified or being written: enough that neither thread waits while the source makes its next answers."""

_FRUITLESS_STREAMS = 16
"""Streams in a row that may be aborted before they brought a message or found that a part of the log needs none."""

_LONGEST_COOLDOWN = 10_000
"""Milliseconds that a source may ask to wait after it aborted a stream."""


class Stream(Protocol):
    """The source's end of a sync stream, as `sync.Server` is one."""

    def receive(self, data: bytes, now: float) -> bytes:
        """Take bytes from the client and return bytes for it; b"" when there are none until it gets more."""


Connect: TypeAlias = Callable[[], Stream]


class _Work:
    """What a pull has done so far, and does with each batch."""

    def __init__(
        self, replica: Replica, verify: Executor, write: Executor, stop: Callable[[], object] | None = None
    ) -> None:
        self._replica = replica
        self._stop = stop
        self._verify = verify
        self._write = write
        self.inserted = 0
        self.duplicates = 0
        # By key: what this log refuses is not asked for again when a stream goes on.
        self.refused: dict[bytes, GossipLogError] = {}
        self._skipped = SkippedMessages()
        self.writing: deque[Future[None]] = deque()
        self._streams: list[SyncStatistics] = []

    def make_room(self) -> None:
        """Wait until there is room for another batch, and raise what went wrong with one."""
        while len(self.writing) >= _BATCHES_UNDER_WAY:
            self.writing.popleft().result()

    def wait(self) -> None:
        """Wait for the batches that are under way, and raise what went wrong with the first of them."""
        failure: BaseException | None = None
        while self.writing:
            error = self.writing.popleft().exception()
            failure = failure or error
        if failure is not None:
            raise failure

    def stream(self, client: Client, stream: Stream, count: int) -> Aborted | Finished:
        """Drive a client to its end, and have what it receives verified and inserted.

        Raises:
            CorruptSource: the source is damaged. What it answered before is taken.
        """
        requests = client.start()
        damage: CorruptSource | None = None
        while True:
            if self._stop is not None:
                self._stop()
            try:
                answer = stream.receive(requests, time.monotonic())
            except CorruptSource as error:
                answer, damage = b"", error
            requests = b""
            for event in client.receive(answer) if answer else client.end():
                match event:
                    case Send(data):
                        requests += data
                    case Received():
                        self.make_room()
                        verified = self._verify.submit(verify_received, event, count)
                        self.writing.append(self._write.submit(self._insert, verified))
                    case Aborted() | Finished():
                        if damage is not None:
                            raise damage
                        return event

    def _insert(self, verified: Future[VerifiedBatch]) -> None:
        outcome = self._replica.insert(verified.result())
        keys = outcome.keys if outcome.refused or outcome.orphans else []
        self.inserted += len(outcome.inserted)
        self.duplicates += outcome.duplicates
        for index, refusal in outcome.refused.items():
            self._skip(keys[index], refusal)
        for index, parents in outcome.orphans:
            missing = MissingParents(core.encode_id(keys[index]), ids_of(parents))
            if self._skipped.hole(parents) is not None:
                raise ProtocolError(f"the source's log has holes: {missing}")
            self._skip(keys[index], missing)
        for _, error in outcome.invalid:
            raise ProtocolError(f"the source has an invalid message: {error}") from error
        if outcome.batch.violation is not None:
            raise outcome.batch.violation

    def _skip(self, key: bytes, error: GossipLogError) -> None:
        self._skipped.add(key)
        self.refused[key] = error

    def count(self, client: Client) -> None:
        """Add what a stream cost."""
        self._streams.append(client.statistics)

    def result(self) -> PullResult:
        """Return the result of the whole pull."""
        return PullResult(
            inserted=self.inserted,
            duplicates=self.duplicates,
            refused=tuple(
                (core.encode_id(key), error) for key, error in sorted(self.refused.items(), key=itemgetter(0))
            ),
            requests=sum(stream.requests for stream in self._streams),
            round_trips=sum(stream.round_trips for stream in self._streams),
            bytes_sent=sum(stream.bytes_sent for stream in self._streams),
            bytes_received=sum(stream.bytes_received for stream in self._streams),
            streams=len(self._streams),
        )


def pull(replica: Replica, connect: Connect, stop: Callable[[], object] | None = None) -> PullResult:
    """Get what the source has and the log lacks.

    Args:
        replica: of the log.
        connect: opens a stream to the source.
        stop: is called before each request; what it raises ends the pull. What came before is in the log.

    Raises:
        CorruptSource: the source is damaged. What comes before the damage, by key, is in the log; nothing where the
            damage is among the last messages, which the source has yet to index.
        ProtocolError: the source broke a rule. What came before it is in the log.
        TreeError: the log is damaged.
    """
    config = SyncClientConfig()
    fruitless = 0
    with ThreadPoolExecutor(1, "gossiplog-verify") as verify, ThreadPoolExecutor(1, "gossiplog-write") as write:
        work = _Work(replica, verify, write, stop)
        while True:
            snapshot = replica.snapshot()
            client = Client(snapshot, replica.topic, config=config)
            try:
                end = work.stream(client, connect(), snapshot.state.count)
            except CorruptSource:
                # What was asked for after the damage comes before it in the next stream, if it lies before it.
                if not client.statistics.values:
                    raise
                end = Aborted(0)
            finally:
                work.wait()
            work.count(client)
            if isinstance(end, Finished):
                return work.result()
            fruitless = 0 if client.statistics.values or client.statistics.complete else fruitless + 1
            if fruitless == _FRUITLESS_STREAMS:
                raise ProtocolError(f"the source aborted {fruitless} streams in a row without sending a message")
            config = dataclasses.replace(client.next_config, skip=frozenset(work.refused))
            if end.cooldown > _LONGEST_COOLDOWN:
                raise ProtocolError(
                    f"the source asks to wait for {end.cooldown} ms; {_LONGEST_COOLDOWN} ms at most are waited"
                )
            time.sleep(end.cooldown / 1000)
