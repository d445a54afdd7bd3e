"""How syncs end, and how the next ones go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossiplog import core
from gossiplog.core import Node, Nodes, Tree
from gossiplog.errors import ProtocolError
from gossiplog.protocol.broadcast.events import StartSync, SyncEnded, SyncResult
from gossiplog.protocol.sync import Aborted, Client, Finished, SyncClientConfig, SyncStatistics
from gossiplog.replication.batches import VerifiedBatch
from gossiplog.replication.sessions import _MOST_WALKS, Resumptions, SyncSession
from tests.conftest import TOPIC


class Nothing:
    """An empty log."""

    tree = Tree()

    def leaves(self, start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        return []


def client(config: SyncClientConfig | None = None) -> Client:
    return Client(Nothing(), TOPIC, config=config)


def session(peer: str = "peer") -> tuple[SyncSession, list[None]]:
    stops: list[None] = []
    return SyncSession(StartSync(7, peer, (), frozenset()), lambda: stops.append(None)), stops


def batch(violation: str | None = None) -> VerifiedBatch:
    return VerifiedBatch(core.verify_batch([], TOPIC), 0, violation=ProtocolError(violation) if violation else None)


@pytest.mark.parametrize(
    ("event", "result", "cooldown"),
    [(Aborted(1500), SyncResult.ABORTED, 1.5), (Finished(SyncStatistics()), SyncResult.FINISHED, 0.0)],
)
def test_a_walk_ends_once(event: Aborted | Finished, result: SyncResult, cooldown: float) -> None:
    sync, stops = session()
    assert sync.result is None
    sync.note_end(event)
    sync.end(SyncResult.FAILED, "the stream broke")
    assert (sync.result, len(stops)) == (result, 1)
    assert sync.conclude(client(), (b"held",)) == SyncEnded(7, result, (b"held",), SyncStatistics(), cooldown)


def test_what_was_asked_for_and_not_answered_is_named() -> None:
    sync, _ = session()
    asked = client()
    asked.start()
    sync.end(SyncResult.ABORTED)
    assert sync.conclude(asked, ()).unanswered == "its root"


def test_a_violation_in_a_batch_is_the_last_word() -> None:
    sync, stops = session()
    sync.judge(batch())
    assert sync.result is None
    sync.end(SyncResult.FINISHED)
    sync.judge(batch("a wrong value"))
    sync.judge(batch("another"))
    sync.fail("the disk is full")
    ended = sync.conclude(client(), ())
    assert (ended.result, ended.reason, len(stops)) == (SyncResult.VIOLATION, "a wrong value", 1)


def test_a_violation_in_a_batch_ends_the_walk() -> None:
    sync, stops = session()
    sync.judge(batch("a wrong value"))
    assert (sync.result, len(stops)) == (SyncResult.VIOLATION, 1)


def test_a_log_that_cannot_take_a_batch_ends_the_walk_and_takes_no_more() -> None:
    sync, stops = session()
    assert sync.inserts
    sync.fail("the disk is full")
    assert (sync.inserts, sync.result, len(stops)) == (False, SyncResult.FAILED, 1)
    # However the walk had ended.
    other, _ = session()
    other.end(SyncResult.FINISHED)
    other.fail("the disk is full")
    ended = other.conclude(client(), ())
    assert (ended.result, ended.reason) == (SyncResult.FAILED, "the disk is full")


FIRST = SyncClientConfig(window=1000)
WALKED = replace(FIRST, known={Node(1, None, bytes(16)): Nodes([Node(0, None, bytes(16))])})


@pytest.mark.parametrize("result", [SyncResult.ABORTED, SyncResult.FAILED])
def test_a_sync_that_was_cut_short_goes_on_once(result: SyncResult) -> None:
    resumptions = Resumptions(FIRST)
    sync, _ = session()
    sync.end(result)
    resumptions.keep(sync, client(WALKED), "name", is_connected=True)
    assert resumptions.next("another", "name") == FIRST
    assert resumptions.next("peer", "name").resumes
    assert resumptions.next("peer", "name") == FIRST
    resumptions.keep(sync, client(WALKED), "name", is_connected=True)
    resumptions.forget("peer")
    assert resumptions.next("peer", "name") == FIRST


@pytest.mark.parametrize("result", [SyncResult.FINISHED, SyncResult.VIOLATION])
def test_a_sync_that_is_over_leaves_nothing(result: SyncResult) -> None:
    resumptions = Resumptions(FIRST)
    sync, _ = session()
    sync.end(result)
    for is_connected in (True, False):
        resumptions.keep(sync, client(WALKED), "name", is_connected=is_connected)
        assert resumptions.next("peer", "name") == FIRST


def test_a_peer_whose_connection_broke_is_known_by_its_name() -> None:
    resumptions = Resumptions(FIRST)
    sync, _ = session()
    sync.end(SyncResult.FAILED)
    resumptions.keep(sync, client(WALKED), "name", is_connected=False)
    assert resumptions.next("peer", "another name") == FIRST
    assert resumptions.next("a new number", "name").resumes
    assert resumptions.next("a new number", "name") == FIRST


def test_what_walks_found_is_kept_for_the_last_peers() -> None:
    resumptions = Resumptions(FIRST)
    for number in range(_MOST_WALKS + 2):
        sync, _ = session(f"peer {number}")
        sync.end(SyncResult.ABORTED)
        resumptions.keep(sync, client(WALKED), "name", is_connected=True)
    found = [bool(resumptions.next(f"peer {number}", "name").known) for number in range(_MOST_WALKS + 2)]
    assert found == [False, False] + [True] * _MOST_WALKS
