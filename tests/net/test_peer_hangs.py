"""A peer whose application's function hangs: it reads, serves and ends as ever, says what hangs, and harms nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from gossiplog import Hub, Log, Peer, Signer
from gossiplog.errors import LogClosed, StorageError
from gossiplog.net import events
from gossiplog.net.client import connect
from gossiplog.net.replicator import workers
from gossiplog.storage import base
from tests.net.meshes import QUICK_PEER, running, signers
from tests.net.support import LISTEN, Heard, serving, until_equal

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.usefixtures("quick_gossip", "impatient")]

Open = Callable[..., Log]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_LONG_SECONDS", 0.05)
    monkeypatch.setattr(workers, "_LAST_SECONDS", 0.5)


class Hanging:
    """A function that hangs for one payload, until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def payload(self, payload: object) -> None:
        if payload == "hang":
            self.entered.set()
            self.release.wait()

    def apply(self, message: object, transaction: object) -> None:
        self.payload(getattr(message, "payload", None))


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    function = Hanging()
    yield function
    function.release.set()


async def until_there(payload: object, *logs: Log) -> None:
    while not all(payload in [message.payload for message in log] for log in logs):
        await anyio.sleep(0.01)


async def told(heard: Heard, doing: str, reason: str) -> None:
    while not any(event.doing == doing and reason in str(event.error) for event in heard.of(events.Failed)):
        await heard.changed()


async def reads_and_serves(peer: Peer, fresh: Log) -> None:
    """A log that has nothing yet gets from the peer what its log has."""
    async with serving(Hub(peer.log, peer=peer)) as url, connect(fresh, url):
        await until_equal(peer.log, fresh)
        assert [message.payload for message in peer.log] == [message.payload for message in fresh]


async def test_a_payload_check_that_hangs(opened: Open, tmp_path: Path, hanging: Hanging) -> None:
    ours, theirs, others = (
        opened(tmp_path / f"{number}.db", signer=signer, payload=hanging.payload if number == 1 else None)
        for number, signer in enumerate(signers(3))
    )
    heard = Heard()
    async with running(ours, others) as (peers, _):
        async with Peer(
            theirs, listen=[LISTEN], bootstrap=peers[0].addresses, broadcast=QUICK_PEER, on_event=heard
        ) as there:
            ours.append("before")
            await until_there("before", theirs)
            ours.append("hang")
            await anyio.to_thread.run_sync(hanging.entered.wait)
            await told(heard, "checking payloads", "`payload` function has not returned")
            ours.append("after")
            await until_there("after", others)
            # What the application appends does not wait, nor does it for those who hear of it.
            theirs.append("mine")
            await until_there("mine", ours, others)
            await reads_and_serves(there, opened())
            assert [message.payload for message in theirs] == ["before", "mine"]
        await told(heard, "checking payloads", "is left to itself")
        theirs.close()
        assert not hanging.release.is_set()


async def test_an_apply_that_hangs(
    opened: Open, tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs, others = (
        opened(tmp_path / f"{number}.db", signer=signer, apply=hanging.apply if number == 1 else None)
        for number, signer in enumerate(signers(3))
    )
    heard = Heard()
    ended: list[Exception] = []

    def append() -> None:
        try:
            theirs.append("mine")
        except LogClosed as error:
            ended.append(error)

    async with running(ours, others) as (peers, _):
        async with Peer(
            theirs, listen=[LISTEN], bootstrap=peers[0].addresses, broadcast=QUICK_PEER, on_event=heard
        ) as there:
            ours.append("before")
            await until_there("before", theirs)
            ours.append("hang")
            await anyio.to_thread.run_sync(hanging.entered.wait)
            await told(heard, "writing to the log", "`apply` function, or the database, takes so long")
            ours.append("after")
            await until_there("after", others)
            appending = threading.Thread(target=append)
            appending.start()
            await reads_and_serves(there, opened())
            assert [message.payload for message in theirs] == ["before"]
        await told(heard, "writing to the log", "is left to itself")
        with monkeypatch.context() as patch:
            patch.setattr(base, "_CLOSING_SECONDS", 0.05)
            with pytest.raises(StorageError, match="does an `apply` function hang"):
                await anyio.to_thread.run_sync(theirs.close)
        with pytest.raises(LogClosed):
            len(theirs)
        hanging.release.set()
        await anyio.to_thread.run_sync(appending.join)
        theirs.close()
    assert len(ended) == 1
    # The transaction ended as it would have.
    with opened(tmp_path / "1.db") as log:
        assert [message.payload for message in log] == ["before", "hang"]
        log.verify()


@pytest.mark.parametrize("function", ["payload", "apply"])
async def test_a_peer_whose_log_in_memory_hangs_ends(
    opened: Open, signer: Signer, hanging: Hanging, function: str
) -> None:
    ours, theirs = opened(signer=signer), opened(**{function: getattr(hanging, function)})
    heard = Heard()
    async with running(ours, opened()) as (peers, _):
        async with Peer(theirs, listen=[LISTEN], bootstrap=peers[0].addresses, broadcast=QUICK_PEER, on_event=heard):
            ours.append("hang")
            await anyio.to_thread.run_sync(hanging.entered.wait)
            ours.append("after")
        assert heard.of(events.Failed)
        ours.append("as ever")
        hanging.release.set()
