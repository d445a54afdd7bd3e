"""Messages that come by gossip, and the answers to their router."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from gossiplog import Signer
from gossiplog._core import PanicException
from gossiplog.errors import EncodeError, NetworkError
from gossiplog.net import events
from gossiplog.net.replicator import gossip as validation
from gossiplog.net.replicator.gossip import GossipAdapter
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.service import background
from gossiplog.net.transport.host import Publication
from gossiplog.net.transport.network import Network
from gossiplog.protocol import gossip
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import Delivery, GossipAnswer, GossipAnswered, Received
from tests.net.support import TOPIC, FakeRouter, Heard, connect_pair

pytestmark = pytest.mark.anyio


class Bench:
    """A validation that is not followed by any log: what it reports is kept, and answered by the test."""

    def __init__(self) -> None:
        self.router = FakeRouter()
        self.heard = Heard()
        self.telemetry = Telemetry(self.heard)
        self.reported: list[broadcast.InEvent] = []
        self.validation = GossipAdapter(
            self.router, WorkerPool(), self.room, self.reported.append, self.found, self.telemetry
        )
        self.crowded = False
        self.defects: list[tuple[Publication, BaseException]] = []

    def found(self, publication: Publication, error: BaseException) -> None:
        self.defects.append((publication, error))

    async def room(self) -> None:
        if self.crowded:
            await anyio.sleep_forever()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with anyio.fail_after(60):
            async with background() as tasks:
                tasks.start_soon(self.validation.run)
                tasks.start_soon(self.telemetry.run)
                yield


def publication(ticket: int, data: bytes) -> Publication:
    return Publication(ticket, None, "somebody", data)


async def test_messages_get_their_answers_in_batches(signer: Signer, network: Network) -> None:
    bench = Bench()
    messages = [signer.sign(TOPIC, 1, [], number) for number in range(3)]
    source, other = connect_pair(network, [])
    async with bench.running():
        publications = [
            Publication(ticket, connection, "somebody", gossip.encode(*message))
            for ticket, (connection, message) in enumerate(zip((source, other, None), messages, strict=True), 7)
        ]
        await bench.validation.take(publications, {source: 1, other: 2})
        assert bench.reported == [
            Received(Delivery(number, *message, ticket))
            for ticket, (number, message) in enumerate(zip((1, 2, 0), messages, strict=True), 7)
        ]
        for ticket, answer in zip((7, 8, 9), GossipAnswer, strict=True):
            bench.validation.answer(GossipAnswered(1, ticket, answer))
        assert bench.router.batches == []
        bench.validation.flush()
        # One that was answered is not answered again.
        bench.validation.answer(GossipAnswered(1, 7, GossipAnswer.REJECT))
        bench.validation.flush()
    assert bench.router.batches == [[(7, "accept"), (8, "ignore"), (9, "reject")]]
    assert bench.telemetry.counters.latencies["validation"].counts[-1] == 3


async def test_what_no_honest_peer_publishes_is_rejected_at_once(signer: Signer) -> None:
    bench = Bench()
    bench.crowded = True
    async with bench.running():
        await bench.validation.take([publication(1, b"nonsense"), publication(2, b"")], {})
        await bench.router.answered(2)
    assert bench.router.batches == [[(1, "reject"), (2, "reject")]]
    assert bench.reported == []
    assert bench.telemetry.counters.invalid == 2


@pytest.mark.parametrize("decoded_at_once", [0, 2**16])
async def test_a_defect_in_decoding_costs_that_publication_alone(
    signer: Signer, monkeypatch: pytest.MonkeyPatch, decoded_at_once: int
) -> None:
    decode, error = gossip.decode, PanicException("a defect")

    def fail(data: bytes) -> tuple[bytes, bytes]:
        if data == b"marked":
            raise error
        return decode(data)

    monkeypatch.setattr(validation, "_DECODED_AT_ONCE", decoded_at_once)
    monkeypatch.setattr(gossip, "decode", fail)
    bench = Bench()
    async with bench.running():
        message = signer.sign(TOPIC, 1, [], "a")
        publications = [publication(1, b"marked"), publication(2, gossip.encode(*message)), publication(3, b"")]
        await bench.validation.take(publications, {})
        await bench.router.answered(2)
    assert bench.router.batches == [[(1, "ignore"), (3, "reject")]]
    assert bench.defects == [(publications[0], error)]
    assert bench.reported == [Received(Delivery(0, *message, 2))]


async def test_messages_wait_while_the_log_has_much_to_store(signer: Signer) -> None:
    bench = Bench()
    bench.crowded = True
    async with bench.running():
        with anyio.move_on_after(0.05) as scope:
            await bench.validation.take([publication(1, gossip.encode(*signer.sign(TOPIC, 1, [], "a")))], {})
    assert scope.cancelled_caught
    assert bench.reported == []


async def test_what_is_not_judged_in_time_is_ignored_and_reported(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_ANSWER_SECONDS", 0.01)
    bench = Bench()
    async with bench.running():
        await bench.validation.take([publication(1, gossip.encode(*signer.sign(TOPIC, 1, [], "a")))], {})
        await bench.router.answered(1)
        (failed,) = await bench.heard.wait(events.Failed)
        # The answer comes after all.
        bench.validation.answer(GossipAnswered(1, 1, GossipAnswer.ACCEPT))
        bench.validation.flush()
    assert bench.router.batches == [[(1, "ignore")]]
    assert (failed.doing, type(failed.error)) == ("validating gossip", TimeoutError)
    assert "not judged within" in str(failed.error)


async def test_all_that_wait_can_be_ignored(signer: Signer) -> None:
    bench = Bench()
    async with bench.running():
        found = [publication(ticket, gossip.encode(*signer.sign(TOPIC, 1, [], ticket))) for ticket in range(2)]
        await bench.validation.take(found, {})
        bench.validation.ignore_all()
        # The answer comes after all.
        bench.validation.answer(GossipAnswered(1, 1, GossipAnswer.ACCEPT))
        bench.validation.flush()
    assert bench.router.batches == [[(0, "ignore"), (1, "ignore")]]


async def test_own_messages_are_published(signer: Signer) -> None:
    bench = Bench()
    message = signer.sign(TOPIC, 1, [], "a")
    bench.validation.publish(*message)
    assert bench.router.published == [gossip.encode(*message)]
    with pytest.raises(EncodeError):
        bench.validation.publish(message[0], bytes(gossip.MAX_DATA))


async def test_a_router_that_is_gone_ends_the_task(signer: Signer) -> None:
    bench = Bench()

    def gone(answers: object) -> None:
        raise NetworkError("the host was stopped")

    async def run() -> None:
        async with bench.running():
            bench.router.validate = gone  # type: ignore[method-assign]
            await bench.validation.take([publication(1, b"")], {})
            await anyio.sleep_forever()

    with pytest.raises(NetworkError, match="stopped"):
        await run()
