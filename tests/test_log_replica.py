from __future__ import annotations

import threading

import pytest

from gossiplog import Log, Signer, core
from gossiplog.errors import LogClosed
from gossiplog.log import following


def test_what_a_driver_learns_of_a_log(log: Log) -> None:
    replica = log.replica
    assert (replica.topic, replica.count(), replica.heads(), replica.root()) == (log.topic, 0, [], core.Tree().root)
    messages = log.append_many(range(5))
    assert (replica.count(), replica.heads(), replica.root()) == (5, [messages[-1].key], log.root)
    assert set(replica.known([messages[2].key, bytes(20)])) == {messages[2].key}
    assert replica.snapshot().tree.root == log.root
    assert list(replica.arrivals(3, 10)) == [(4, messages[3].value), (5, messages[4].value)]


def test_a_batch_comes_in_with_its_verdicts(log: Log, signer: Signer) -> None:
    known = log.append("known")
    replica = log.replica
    _, child = signer.sign(log.topic, 2, [known.id], "child")
    _, orphan = signer.sign(log.topic, 2, [core.encode_id(core.encode_clock(1) + bytes(19))], "orphan")
    batch, count = replica.verify([known.value, child, b"broken", orphan])
    assert count == 1
    outcome = replica.ingest(batch, count)
    assert (outcome.inserted, outcome.duplicates, outcome.sequences) == ([1], 1, [range(2, 3)])
    assert outcome.orphans == [(3, [core.encode_clock(1) + bytes(19)])]
    assert [index for index, _ in batch.invalid] == [2]
    assert replica.count() == 2


def test_waiting_ends_with_a_commit(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 100.0)
    replica = log.replica
    log.append(1)
    assert replica.wait(0) == 1
    waiter = threading.Thread(target=replica.wait, args=(1,))
    waiter.start()
    log.append(2)
    waiter.join()
    assert replica.wait(1) == 2


def test_a_closed_log_says_so(log: Log) -> None:
    replica = log.replica
    log.close()
    for call in (replica.count, replica.heads, replica.snapshot, lambda: replica.wait(0)):
        with pytest.raises(LogClosed):
            call()
