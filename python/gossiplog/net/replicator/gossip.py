"""Messages that come by gossip: from the router into the log, and the answers back.

The router holds each message back until it has an answer, unless its validator accepted it (`core.GossipValidator`).

What no honest peer publishes is rejected before anything is stored. All else goes the way of what is pushed, and is
judged together with it.

Answers have a time limit, since a check of the application's or a database may hang: the router then ignores what
waits, and nobody is blamed. What the log takes later reaches peers by the heads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile

import anyio

from gossiplog.errors import NetworkError, ProtocolError
from gossiplog.net import events
from gossiplog.net.replicator.defects import defect_in
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.host import Answer, Publication, Router
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol import gossip
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import Delivery, GossipAnswer
from gossiplog.reprs import counted

NOBODY = 0
"""The number of a peer that is gone."""
_ANSWER_SECONDS = 10.0
"""How long the log may take to judge a message."""
_COMPLAINT_SECONDS = 1.0
"""Between two events which say that it took too long."""
_DECODED_AT_ONCE = 2**16
"""Bytes whose decoding takes less time than a thread takes to wake."""

_ANSWERS: dict[GossipAnswer, Answer] = {
    GossipAnswer.ACCEPT: "accept",
    GossipAnswer.IGNORE: "ignore",
    GossipAnswer.REJECT: "reject",
}


class GossipAdapter:
    """Pass messages between a router and the machine, in batches: those that came, own ones, and the answers.

    Args:
        router: that holds the messages back.
        workers: to run on.
        room: waits while the log has more to store than it takes.
        report: is called with what came, for the broadcast machine, which answers.
        telemetry: counts, and notifies the application of failures.
    """

    def __init__(
        self,
        router: Router,
        workers: WorkerPool,
        room: Callable[[], Awaitable[object]],
        report: Callable[[broadcast.InEvent], None],
        defect: Callable[[Publication, BaseException], None],
        telemetry: Telemetry,
    ) -> None:
        self._router = router
        self._workers = workers
        self._room = room
        self._report = report
        self._defect = defect
        self._telemetry = telemetry
        # When each message came that is not answered yet, in this order.
        self._waiting: dict[int, float] = {}
        self._answers: list[tuple[int, Answer]] = []
        self._asked = Signal()
        self._scope = anyio.CancelScope()
        self._failure: NetworkError | None = None

    def publish(self, key: bytes, value: bytes) -> bool:
        """Publish a message by the router; return False if it was sent to nobody.

        Raises:
            EncodeError: it is too large for gossip.
            NetworkError: likewise, or the router has ended.
        """
        return self._router.publish(gossip.encode(key, value))

    async def take(self, publications: Sequence[Publication], numbers: Mapping[Connection | None, int]) -> None:
        """Take messages from the router, as fast as the log takes them.

        Args:
            publications: the messages.
            numbers: by which the machine knows the peers.
        """
        now = anyio.current_time()
        self._waiting.update((publication.ticket, now) for publication in publications)
        self._asked.set()
        if sum(len(publication.data) for publication in publications) > _DECODED_AT_ONCE:
            found = await self._workers.read(_decode, publications)
        else:
            found = _decode(publications)
        deliveries: list[Delivery] = []
        for publication, message in zip(publications, found, strict=True):
            if isinstance(message, ProtocolError):
                self._telemetry.count(invalid=1)
                self._telemetry.incident(publication.name, "invalid_gossip", 1, str(message))
                self._give(publication.ticket, "reject")
            elif isinstance(message, BaseException):
                self._give(publication.ticket, "ignore")
                self._defect(publication, message)
            else:
                source = numbers.get(publication.connection, NOBODY)
                deliveries.append(Delivery(source, *message, publication.ticket))
        self.flush()
        for delivery in deliveries:
            await self._room()
            self._report(broadcast.Received(delivery))

    def answer(self, event: broadcast.GossipAnswered) -> None:
        """Pass on the machine's answer, unless the router was given one."""
        if isinstance(event.ticket, int):
            self._give(event.ticket, _ANSWERS[event.answer])

    def ignore_all(self) -> None:
        """Have the router ignore what waits: nobody may still remember it."""
        for ticket in tuple(self._waiting):
            self._give(ticket, "ignore")

    def _give(self, ticket: int, answer: Answer) -> None:
        came = self._waiting.pop(ticket, None)
        if came is not None:
            self._telemetry.observe("validation", anyio.current_time() - came)
            self._answers.append((ticket, answer))

    def flush(self) -> None:
        """Pass on to the router the answers that there are, all at once."""
        if self._answers:
            answers, self._answers = self._answers, []
            try:
                self._router.validate(answers)
            except NetworkError as error:
                # The caller that gave the answers has nothing to do with it.
                self._failure = error
                self._scope.cancel()

    async def run(self) -> None:
        """Have the router ignore what is not answered in time, without end.

        Raises:
            NetworkError: the router has ended.
        """
        with self._scope:
            while True:
                while not self._waiting:
                    await self._asked.wait()
                # Most are answered long before; those that came since are looked at when that one would have been old.
                await anyio.sleep_until(next(iter(self._waiting.values())) + _ANSWER_SECONDS)
                if self._ignore_old(anyio.current_time()):
                    self.flush()
                    await anyio.sleep(_COMPLAINT_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _ignore_old(self, now: float) -> bool:
        old = [ticket for ticket, _ in takewhile(lambda item: now - item[1] >= _ANSWER_SECONDS, self._waiting.items())]
        for ticket in old:
            self._give(ticket, "ignore")
        if old:
            reason = (
                f"{counted(len(old), 'message was', 'messages were')} not judged within {_ANSWER_SECONDS:g} s, nor"
                " passed on: an apply or payload function of the application, or the database, takes longer"
            )
            self._telemetry.emit(events.Failed("validating gossip", TimeoutError(reason)))
        return bool(old)


def _decode(publications: Sequence[Publication]) -> list[tuple[bytes, bytes] | BaseException]:
    """Return the messages, or what is wrong: ProtocolError, or a defect of this side."""
    found: list[tuple[bytes, bytes] | BaseException] = []
    for publication in publications:
        try:
            found.append(gossip.decode(publication.data))
        except ProtocolError as error:
            found.append(error)
        except BaseException as error:
            defect = defect_in(error)
            if defect is None:
                raise
            found.append(defect)
    return found
