"""`gossiplog.protocol.broadcast.skipped`: what the machine does about messages that the application refuses."""

from __future__ import annotations

import pytest

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    Appended,
    Delivery,
    GossipAnswer,
    GossipAnswered,
    HeadsReceived,
    Judged,
    PeerDisconnected,
    Received,
    RetryDue,
    StartSync,
    SyncBrought,
    SyncDue,
    SyncEnded,
    SyncOver,
    SyncResult,
    TimerExpired,
    Verdict,
)
from tests.protocol.bench import Bench, key, only, timers

# Rule 8: what the application refuses


def test_a_refused_message_blames_nobody_and_is_skipped() -> None:
    """Broadcast, 8."""
    bench = Bench("a", "b", gossiping=["g"])
    assert bench.judged("a", 1, Verdict.REFUSED) == []
    assert bench.judged("g", 2, Verdict.REFUSED, "ticket") == [GossipAnswered("g", "ticket", GossipAnswer.IGNORE)]
    assert bench.tell(Received(Delivery("b", key(1), b""))) == []
    assert bench.tell(Received(Delivery("g", key(1), b"", "t"))) == [GossipAnswered("g", "t", GossipAnswer.IGNORE)]
    assert bench.tell(HeadsReceived("b", [key(1), key(2)])) == []
    assert bench.judged("b", 3, Verdict.ORPHAN, missing=[key(1)]) == []
    assert bench.tell(HeadsReceived("b", [key(3), key(4)])) == [
        StartSync(1, "b", (key(4),), frozenset([key(1), key(2), key(3)]))
    ]


def test_a_refused_message_is_tried_again_later_and_later() -> None:
    """Broadcast, 8."""
    bench = Bench("a", config=BroadcastConfig(retry=10.0, longest_retry=50.0))
    waits = []
    due = timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED)))[RetryDue("a")]
    for _ in range(6):
        waits.append(due - bench.now)
        bench.now = due
        order = only(StartSync, bench.tell(TimerExpired(RetryDue("a"))))
        assert (order.peer, order.skip) == ("a", frozenset())
        due = timers(bench.all(SyncBrought(order.sync, [], 0, [key(1)])))[RetryDue("a")]
        assert bench.tell(SyncEnded(order.sync, SyncResult.FINISHED)) == []
    assert all(0.5 * min(50, 10 * 2**n) <= wait <= min(50, 10 * 2**n) for n, wait in enumerate(waits))


def test_refused_messages_have_one_retry_and_none_when_they_were_taken() -> None:
    """Broadcast, 8."""
    bench = Bench("a")
    assert timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED))).keys() == {RetryDue("a")}
    assert timers(bench.all(Judged(bench.receive("a", 2), Verdict.REFUSED))) == {}
    bench.tell(Appended([(key(1), b""), (key(2), b"")]))
    bench.tell(SyncEnded(1, SyncResult.FINISHED))
    bench.now = 100.0
    assert bench.tell(TimerExpired(RetryDue("a"))) == []


def test_retries_begin_anew_when_something_is_taken() -> None:
    """Broadcast, 8: the application may take the rest soon."""
    bench = Bench("a", config=BroadcastConfig(retry=10.0))
    due = timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED)))[RetryDue("a")]
    for _ in range(3):
        bench.now = due
        order = only(StartSync, bench.tell(TimerExpired(RetryDue("a"))))
        due = timers(bench.all(SyncBrought(order.sync, [], 0, [key(1)])))[RetryDue("a")]
        bench.tell(SyncEnded(order.sync, SyncResult.FINISHED))
    bench.tell(Appended([(key(1), b"")]))
    bench.now = due
    assert bench.tell(TimerExpired(RetryDue("a"))) == []
    assert timers(bench.all(Judged(bench.receive("a", 2), Verdict.REFUSED)))[RetryDue("a")] <= bench.now + 10.0


def test_what_is_refused_much_later_is_tried_again_as_soon_as_the_first() -> None:
    """Broadcast, 8."""
    bench = Bench("a", config=BroadcastConfig(retry=10.0))
    bench.now = timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED)))[RetryDue("a")]
    bench.tell(TimerExpired(RetryDue("a")))
    bench.tell(SyncEnded(1, SyncResult.FINISHED))
    bench.now += 1000.0
    assert timers(bench.all(Judged(bench.receive("a", 2), Verdict.REFUSED)))[RetryDue("a")] <= bench.now + 10.0


def test_each_sync_skips_what_the_rejected_sets_hold_then() -> None:
    """Broadcast, 8: as many messages as are remembered, and no more."""
    bench = Bench("a", config=BroadcastConfig(skipped=2))
    skipped = []
    for number in (1, 2, 3):
        bench.judged("a", number, Verdict.REFUSED)
        order = only(StartSync, bench.tell(HeadsReceived("a", [key(number + 10)])))
        skipped.append(order.skip)
        bench.tell(SyncEnded(order.sync, SyncResult.FINISHED, [key(number + 10)]))
    assert skipped == [{key(1)}, {key(1), key(2)}, {key(1), key(2)}]


def test_those_that_have_nothing_of_what_was_refused_are_not_asked() -> None:
    """Broadcast, 8: when the peer that sent it goes, one that sent it at the same time is."""
    bench = Bench("a", "b", "c")
    deliveries = [bench.receive(peer, 1) for peer in "ab"]
    for delivery in deliveries:
        assert bench.tell(Judged(delivery, Verdict.REFUSED)) == []
    assert [out.peer for out in bench.tell(PeerDisconnected("a")) if isinstance(out, StartSync)] == ["b"]


def test_what_the_application_takes_after_all_frees_the_rest() -> None:
    """Broadcast, 8."""
    bench = Bench("a", "b")
    bench.judged("a", 1, Verdict.REFUSED)
    bench.judged("b", 2, Verdict.REFUSED)
    bench.now = 100.0
    assert bench.tell(TimerExpired(RetryDue("a"))) == [StartSync(1, "a", (), frozenset([key(2)]))]
    assert bench.tell(SyncBrought(1, [key(1)], 1)) == [StartSync(2, "b", (), frozenset())]


def test_refusals_in_a_sync_explain_the_orphans_after_them() -> None:
    """Broadcast, 8 and 9."""
    bench = Bench("a", "b")
    bench.judged("b", 1, Verdict.REFUSED)
    sync = bench.sync("a", 9)
    brought = SyncBrought(sync, [], 0, [key(2)], [(key(3), [key(2)]), (key(4), [key(1), key(3)])])
    assert bench.tell(brought) == []
    bench.tell(PeerDisconnected("b"))
    assert bench.tell(SyncBrought(sync, [], 0, [], [(key(5), [key(1)])])) == []
    over = only(SyncOver, bench.all(SyncEnded(sync, SyncResult.FINISHED)))
    assert over.refused == {key(2), key(3), key(4), key(5)}


def test_what_was_refused_from_another_peer_meanwhile_explains_the_orphans_of_a_sync() -> None:
    """Broadcast, 9."""
    bench = Bench("a", "b")
    sync = bench.sync("a", 9)
    bench.judged("b", 1, Verdict.REFUSED)
    assert bench.tell(SyncBrought(sync, [], 0, [], [(key(5), [key(1)])])) == []


@pytest.mark.parametrize("how", ["heads", "push", "wanted", "sync"])
def test_when_the_peer_of_a_refused_message_goes_others_that_have_it_are_asked(how: str) -> None:
    """Broadcast, 8."""
    bench = Bench("a", "b", "c", config=BroadcastConfig(syncs=1))
    sync = bench.sync("c", 9)
    if how == "wanted":
        bench.tell(HeadsReceived("b", [key(1)]))
    bench.judged("a", 1, Verdict.REFUSED)
    if how == "heads":
        bench.tell(HeadsReceived("b", [key(1)]))
    elif how == "push":
        bench.tell(Received(Delivery("b", key(1), b"")))
    bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(9)]))
    if how == "sync":
        sync = bench.sync("b", 3)
        bench.tell(SyncBrought(sync, [], 0, [], [(key(3), [key(1)])]))
        bench.tell(SyncEnded(sync, SyncResult.FINISHED))
    order = only(StartSync, bench.tell(PeerDisconnected("a")))
    assert (order.peer, key(1) in order.skip) == ("b", False)


def test_what_waits_for_a_message_that_may_be_tried_again_is_not_skipped() -> None:
    """Broadcast, 8."""
    bench = Bench("a")
    due = timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED)))[RetryDue("a")]
    sync = bench.sync("a", 9)
    bench.now = due
    assert bench.tell(TimerExpired(RetryDue("a"))) == []
    assert bench.tell(SyncBrought(sync, [], 0, [], [(key(2), [key(1)]), (key(9), [key(2)])])) == []
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == [StartSync(2, "a", (), frozenset())]


def test_more_refusals_than_are_remembered_blame_nobody() -> None:
    """Broadcast, 8 and 9."""
    bench = Bench("a", config=BroadcastConfig(skipped=2))
    sync = bench.sync("a", 9)
    assert bench.tell(SyncBrought(sync, [], 0, [key(n) for n in range(5)], [(key(8), [key(4)])])) == []
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == []


def test_refusals_that_cannot_be_remembered_back_off() -> None:
    """Broadcast, 6 and 8."""
    bench = Bench("a", config=BroadcastConfig(skipped=2))
    sync = bench.sync("a", 4)
    bench.tell(SyncBrought(sync, [], 0, [key(n) for n in range(5)]))
    bench.tell(SyncEnded(sync, SyncResult.FINISHED))
    assert SyncDue("a") in timers(bench.all(HeadsReceived("a", [key(4)])))
