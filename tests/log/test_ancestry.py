from __future__ import annotations

import pytest

from gossiplog import Log, Signer, core
from gossiplog.errors import DecodeError, LimitExceeded, UnknownMessage
from gossiplog.log import ancestry
from gossiplog.log.log import replica_of


def wide(log: Log, signer: Signer, width: int) -> str:
    """A message on top of so many concurrent chains of three."""
    for number in range(width):
        parent: list[str] = []
        for clock in (1, 2, 3):
            key, value = signer.sign(log.topic, clock, parent, [number, clock])
            log.insert(value)
            parent = [core.encode_id(key)]
    return log.append("all").id


def test_the_frontiers_are_those_at_each_clock(log: Log, signer: Signer) -> None:
    id = wide(log, signer, 20)
    found = replica_of(log).frontiers(id, 1000, 10**6)
    assert found == [(clock, log.frontier(id, clock)) for clock in (2, 3)]
    assert [len(ids) for _, ids in found] == [20, 20]
    assert replica_of(log).frontiers(found[0][1][0], 1000, 10**6) == [(1, log.frontier(found[0][1][0], 1))]


def test_the_search_ends_at_its_limits(log: Log, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    id = wide(log, signer, 20)
    with pytest.raises(LimitExceeded, match="more than 39 of them"):
        replica_of(log).frontiers(id, 39, 10**6)
    read: list[int] = []
    with log._storage.reader() as reader:
        kind = type(reader)
    links, arrivals = kind.links, kind.arrivals
    monkeypatch.setattr(ancestry, "_AT_ONCE", 1)
    monkeypatch.setattr(kind, "links", lambda self, sequences: read.extend(sequences) or links(self, sequences))
    monkeypatch.setattr(kind, "arrivals", lambda self, *page: read.append(page[0]) or arrivals(self, *page))
    replica_of(log).frontiers(id, 1000, 10**6)
    whole = len(read)
    # The search itself, and then reading what it found, go no further than they may.
    for rows in (5, whole - 20):
        read.clear()
        with pytest.raises(LimitExceeded, match="bytes of the log would have to be read"):
            replica_of(log).frontiers(id, 1000, 256 * rows)
        assert len(read) <= rows


def test_messages_that_are_not_there(log: Log) -> None:
    with pytest.raises(UnknownMessage):
        replica_of(log).frontiers("0" * 32, 1, 1)
    with pytest.raises(DecodeError):
        replica_of(log).frontiers("short", 1, 1)
