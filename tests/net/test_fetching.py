"""`test_maintenance.py` has the functions that fetch."""

from __future__ import annotations

from gossiplog.net import events
from gossiplog.net.fetching import LastFailure
from gossiplog.protocol.sync import SyncStatistics


def test_the_last_failure_of_a_source_is_kept() -> None:
    failure = LastFailure("it has not connected")
    assert failure.text == "it has not connected"
    for event, reason in [
        (events.Connected("hub"), ""),
        (events.Disconnected("hub", "the peer closed it", blamed=False), "the connection ended: the peer closed it"),
        (events.SyncEnded("hub", False, 0, 0, SyncStatistics(), "no bytes came"), "no bytes came"),
        (events.SyncEnded("hub", True, 5, 0, SyncStatistics(), ""), ""),
    ]:
        failure(event)
        assert failure.text == reason
