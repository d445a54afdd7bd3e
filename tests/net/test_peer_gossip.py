"""What peers accept of gossip, pass on and store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock

import anyio
import pytest

from gossiplog import Log, MemoryStorage, Peer, Signer, core
from gossiplog.errors import StorageError
from gossiplog.log import following
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net import peer as peer_module
from gossiplog.net.peer import driver_of
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.transport.host import Host
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch
from tests.net.meshes import QUICK_PEER, running, signers
from tests.net.support import LISTEN, TOPIC, Heard, until_equal

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_gossip")]

Open = Callable[..., Log]


@pytest.mark.parametrize(("forward", "held_back"), [(None, 0), ("verified", 0), ("stored", 2)])
async def test_an_append_arrives_by_gossip(opened: Open, signer: Signer, forward: str | None, held_back: int) -> None:
    ours, theirs = opened(signer=signer), opened()
    async with running(ours, theirs, forward=forward) as ((here, there), (_, told)):
        ours.append("hi")
        # Its child would be an orphan, if it came first.
        await told.wait_for_messages(1)
        ours.append("x" * 100_000)
        await told.wait_for_messages(2)
        while there.counters.network["gossip_accepted"] < 2:
            await anyio.sleep(0.01)
        assert there.counters.inserted == {"gossip": 2}
        assert (here.counters.mesh, there.counters.mesh) == (1, 1)
        assert min(here.counters.bytes_sent, there.counters.bytes_received) > 100_000
        assert not any("bytes" in name for name in here.counters.network)
        assert validated(there) == held_back
        (info,) = there.peers
        assert (info.name, info.subscribed, info.in_mesh) == (here.peer_id, True, True)
        assert (info.kind, info.replicates) == ("mesh", True)
    assert there.counters.inserted == {"gossip": 2}
    assert there.peers == ()


def validated(peer: Peer) -> int:
    """How many messages of gossip waited for the log."""
    found = peer.counters.latencies.get("validation")
    return found.counts[-1] if found is not None else 0


@pytest.mark.parametrize(
    ("forward", "held_back"), [(None, 1), ("stored", 1), ("verified", 0)], ids=["default", "stored", "verified"]
)
@pytest.mark.parametrize("function", ["payload", "apply"])
async def test_what_the_application_may_refuse_waits_for_the_log(
    opened: Open, signer: Signer, function: str, forward: str | None, held_back: int
) -> None:
    ours, theirs = opened(signer=signer), opened(**{function: lambda *arguments: None})
    async with running(ours, theirs, forward=forward) as ((_, there), (_, told)):
        ours.append("hi")
        await told.wait_for_messages(1)
        while not there.counters.network["gossip_accepted"]:
            await anyio.sleep(0.01)
        assert validated(there) == held_back


async def test_forward_is_one_of_two_words(opened: Open) -> None:
    with pytest.raises(ValueError, match="forward is 'early'; it must be 'verified', 'stored' or None"):
        Peer(opened(), forward="early")  # type: ignore[arg-type]


async def test_what_follows_the_heads_of_before_the_start_is_accepted_at_once(opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    ours.append("before")
    theirs.pull(ours)
    async with running(ours, theirs) as ((_, there), (_, told)):
        ours.append("after")
        await told.wait_for_messages(1)
        assert validated(there) == 0


@pytest.mark.parametrize("is_told", [True, False], ids=["learnt", "asked"])
async def test_what_follows_appends_that_nobody_heard_of_is_accepted_at_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    if not is_told:
        monkeypatch.setattr(ChangeFeed, "_note_newest", AsyncMock())
    ours, theirs = (opened(signer=signer) for signer in signers(2))
    async with Peer(ours, listen=[LISTEN], broadcast=QUICK_PEER) as here:
        for number in range(3):
            ours.append(number)
        while here.counters.inserted != {"append": 3}:
            await anyio.sleep(0.01)
        heard = Heard()
        async with Peer(
            theirs, listen=[LISTEN], bootstrap=here.addresses, broadcast=QUICK_PEER, on_event=heard
        ) as there:
            await heard.wait(events.Grafted)
            await there.synced()
            await here.synced()
            theirs.append("after")
            await until_equal(ours, theirs)
            while set(here.counters.inserted) <= {"append"}:
                await anyio.sleep(0.01)
            assert (here.counters.inserted, validated(here)) == ({"append": 3, "gossip": 1}, 0)


async def test_what_follows_messages_of_another_process_is_accepted_at_once(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 1e9)
    ours, theirs = opened(tmp_path / "log.db"), opened(signer=signers(1)[0])
    other = opened(tmp_path / "log.db", signer=signers(2)[1])
    async with Peer(ours, listen=[LISTEN], broadcast=QUICK_PEER) as here:
        stored = other.append("by another process")
        theirs.insert(stored.value)
        heard = Heard()
        async with Peer(
            theirs, listen=[LISTEN], bootstrap=here.addresses, broadcast=QUICK_PEER, on_event=heard
        ) as there:
            await heard.wait(events.Grafted)
            await there.synced()
            await here.synced()
            theirs.append("after")
            while set(here.counters.inserted) <= {"append"}:
                await anyio.sleep(0.01)
            assert (here.counters.inserted.get("gossip"), validated(here)) == (1, 0)


async def test_what_is_not_stored_at_the_end_is_reported(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "_STORING_SECONDS", 0.01)
    batches = [core.verify_batch([signer.sign(TOPIC, 1, [], number)[1]], TOPIC) for number in range(3)]

    async def hang(*arguments: object) -> None:
        await anyio.sleep_forever()

    heard = Heard()
    async with Peer(opened(), listen=[LISTEN], broadcast=QUICK_PEER, on_event=heard):
        await anyio.wait_all_tasks_blocked()
        monkeypatch.setattr(Host, "take_accepted", lambda host: (batches.pop(), [None]) if batches else None)
        monkeypatch.setattr(Driver, "store_accepted", hang)
    (failed,) = heard.of(events.Failed)
    assert failed.doing == "storing gossip at the end"
    assert str(failed.error).startswith("3 messages were passed on, and not stored within 0.01 s of the end")


async def until_idle(*peers: Peer) -> None:
    """Wait until the logs are equal, and no sync is left that would bring what is appended next."""
    await until_equal(*(peer.log for peer in peers))
    while not all(driver_of(peer).is_idle for peer in peers):
        await anyio.sleep(0.01)


async def test_gossip_is_stored_in_memory_without_a_thread(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(MemoryStorage(), signer=signer), opened(MemoryStorage())
    threads, insert = set[int](), replica_of(theirs).insert_at_once

    def note(batch: VerifiedBatch) -> InsertOutcome | None:
        threads.add(threading.get_ident())
        return insert(batch)

    monkeypatch.setattr(replica_of(theirs), "insert_at_once", note)
    async with running(ours, theirs) as ((here, there), (_, told)):
        ours.append("the first")
        await until_idle(here, there)
        for number in range(5):
            ours.append(number)
            await told.wait_for_messages(number + 2)
        assert there.counters.inserted["gossip"] >= 5
    assert threads == {threading.get_ident()}


async def test_what_is_not_stored_at_once_is_stored_in_order(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(MemoryStorage(), signer=signer), opened(MemoryStorage())
    turns, insert = itertools.cycle([False, True, False, False]), replica_of(theirs).insert_at_once
    monkeypatch.setattr(replica_of(theirs), "insert_at_once", lambda batch: insert(batch) if next(turns) else None)
    async with running(ours, theirs) as (_, (_, told)):
        for number in range(50):
            ours.append(number)
            if number % 5 == 0:
                await anyio.sleep(0)
        await told.wait_for_messages(50)
        assert [message.payload for message in told.messages] == [*range(50)]
        await until_equal(ours, theirs)


async def test_what_was_passed_on_is_stored_at_the_end(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [opened(signer=signer), opened()]
    insert, hold = replica_of(logs[1]).insert, threading.Event()

    def wait(batch: VerifiedBatch) -> InsertOutcome:
        hold.wait(10)
        return insert(batch)

    async with Peer(logs[0], listen=[LISTEN]) as here:
        async with Peer(logs[1], listen=[LISTEN], bootstrap=here.addresses) as there:
            while not (here.counters.mesh and there.counters.mesh):
                await anyio.sleep(0.01)
            logs[0].append("the first")
            await until_idle(here, there)
            before = there.counters.network["gossip_accepted"]
            monkeypatch.setattr(replica_of(logs[1]), "insert", wait)
            for number in range(20):
                logs[0].append(number)
                await anyio.sleep(0.005)
            while there.counters.network["gossip_accepted"] < before + 20:
                await anyio.sleep(0.01)
            assert len(logs[1]) < 21
            threading.Timer(0.1, hold.set).start()
        assert len(logs[1]) == 21


@pytest.mark.parametrize("error", [StorageError("the disk is full"), RuntimeError("a defect")])
async def test_accepted_messages_that_cannot_be_stored_come_later(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ours, theirs = opened(signer=signer), opened()
    failures = iter([error, error])
    insert = replica_of(theirs).insert

    def fail(batch: VerifiedBatch) -> InsertOutcome:
        if (failure := next(failures, None)) is not None:
            raise failure
        return insert(batch)

    async with running(ours, theirs) as ((_, there), _):
        monkeypatch.setattr(replica_of(theirs), "insert", fail)
        for number in range(3):
            ours.append(number)
            await anyio.sleep(0.02)
        await until_equal(ours, theirs)
        assert next(failures, None) is None
        assert there.counters.network["gossip_accepted"]
        assert there.counters.dropped == 0
        ours.append("last")
        await until_equal(ours, theirs)
