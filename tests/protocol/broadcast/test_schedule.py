"""`gossiplog.protocol.broadcast.schedule`: when the machine syncs, with which peers, and when again."""

from __future__ import annotations

import pytest

from gossiplog.protocol.broadcast import events
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    Appended,
    GossipAnswer,
    GossipAnswered,
    HeadsReceived,
    Insert,
    Judged,
    OrphansDue,
    OverlapDue,
    PeerConnected,
    PeerDisconnected,
    RetryDue,
    SendUpdate,
    SetTimer,
    StartSync,
    StopSync,
    SyncAdvanced,
    SyncBrought,
    SyncCheck,
    SyncDue,
    SyncEnded,
    SyncOver,
    SyncProgress,
    SyncResult,
    SyncStarted,
    TimerExpired,
    Verdict,
)
from gossiplog.protocol.sync import SyncStatistics
from tests.protocol.bench import Bench, key, only, timers

# Rule 4: syncs


def test_an_orphan_that_was_pushed_calls_for_a_sync_with_who_pushed_it() -> None:
    """Broadcast, 4 and 12: at once, since pushes keep the order."""
    bench = Bench("a")
    assert bench.judged("a", 3, Verdict.ORPHAN, missing=[key(1)]) == [StartSync(1, "a", (key(3),), frozenset())]


def test_an_orphan_that_came_by_gossip_waits_for_its_parents() -> None:
    """Broadcast, 12."""
    bench = Bench("a", gossiping=["g"])
    orphan = bench.receive("g", 4, "ticket")
    outs = bench.all(Judged(orphan, Verdict.ORPHAN, [key(1), key(2)]))
    assert outs == [SetTimer(OrphansDue(), BroadcastConfig().orphan_wait)]
    parent = bench.receive("g", 1, "parent")
    assert Insert(orphan) not in bench.tell(Judged(parent, Verdict.INSERTED))
    # The other one comes in another way.
    assert bench.tell(Appended([(key(2), b"value")]))[0] == Insert(orphan)
    assert GossipAnswered("g", "ticket", GossipAnswer.ACCEPT) in bench.tell(Judged(orphan, Verdict.INSERTED))
    bench.now = BroadcastConfig().orphan_wait
    assert bench.all(TimerExpired(OrphansDue())) == []


def test_an_orphan_that_waited_in_vain_is_ignored_and_calls_for_a_sync() -> None:
    """Broadcast, 12."""
    bench = Bench(gossiping=["g", "h"])
    assert bench.judged("g", 2, Verdict.ORPHAN, "first", missing=[key(1)]) == []
    bench.now = BroadcastConfig().orphan_wait / 2
    assert bench.judged("h", 3, Verdict.ORPHAN, "second", missing=[key(1)]) == []
    bench.now = BroadcastConfig().orphan_wait
    outs = bench.all(TimerExpired(OrphansDue()))
    assert SetTimer(OrphansDue(), 1.5 * BroadcastConfig().orphan_wait) in outs
    assert GossipAnswered("g", "first", GossipAnswer.IGNORE) in outs
    assert StartSync(1, "g", (key(2),), frozenset()) in outs
    assert GossipAnswered("h", "second", GossipAnswer.IGNORE) not in outs
    # What the sync brings frees the other.
    outs = bench.tell(SyncBrought(1, [key(1), key(2)], 2))
    assert [out.delivery.ticket for out in outs if isinstance(out, Insert)] == ["second"]


def test_orphans_of_one_parent_are_tried_again_in_the_order_in_which_they_came() -> None:
    """Broadcast, 12: with one timer for all."""
    bench = Bench(gossiping=["g"])
    orphans = [bench.receive("g", number, number) for number in (5, 3, 4)]
    set_at = [timers(bench.all(Judged(orphan, Verdict.ORPHAN, missing=[key(1)]))) for orphan in orphans]
    assert set_at == [{OrphansDue(): BroadcastConfig().orphan_wait}, {}, {}]
    outs = bench.judged("g", 1, Verdict.INSERTED, "ticket")
    assert [out for out in outs if isinstance(out, Insert)] == [Insert(orphan) for orphan in orphans]


@pytest.mark.parametrize("config", [BroadcastConfig(orphans=2), BroadcastConfig(orphan_bytes=11)])
def test_as_many_orphans_as_there_is_room_for_wait(config: BroadcastConfig) -> None:
    """Broadcast, 12."""
    bench = Bench(gossiping=["g"], config=config)
    assert [bench.judged("g", number, Verdict.ORPHAN, number, missing=[key(1)]) for number in (2, 3)] == [[], []]
    assert bench.judged("g", 4, Verdict.ORPHAN, 4, missing=[key(1)])[0] == GossipAnswered("g", 4, GossipAnswer.IGNORE)


@pytest.mark.parametrize("config", [BroadcastConfig(orphans=1), BroadcastConfig(orphan_bytes=2 * len(b"value") - 1)])
def test_orphans_that_have_no_room_do_not_wait(config: BroadcastConfig) -> None:
    """Broadcast, 12."""
    bench = Bench(gossiping=["g"], config=config)
    assert bench.judged("g", 2, Verdict.ORPHAN, 1, missing=[key(1)]) == []
    outs = bench.judged("g", 3, Verdict.ORPHAN, 2, missing=[key(1)])
    assert outs == [GossipAnswered("g", 2, GossipAnswer.IGNORE), StartSync(1, "g", (key(3),), frozenset())]
    # There is room again.
    bench.now = config.orphan_wait
    bench.tell(TimerExpired(OrphansDue()))
    assert bench.judged("g", 4, Verdict.ORPHAN, 3, missing=[key(1)]) == []


def test_unknown_heads_call_for_a_sync_with_the_sender() -> None:
    """Broadcast, 4."""
    assert Bench("a").tell(HeadsReceived("a", [key(1), key(2)])) == [StartSync(1, "a", (key(1), key(2)), frozenset())]


def test_heads_that_were_not_looked_up_call_for_a_sync() -> None:
    """Broadcast, 4."""
    assert Bench("a").tell(HeadsReceived("a", [], 10)) == [StartSync(1, "a", (), frozenset())]


def test_orphans_during_a_sync_coalesce_into_one_more() -> None:
    """Broadcast, 4."""
    bench = Bench("a")
    sync = bench.sync("a", 1)
    for number in range(2, 50):
        assert bench.judged("a", number, Verdict.ORPHAN, missing=[key(1)]) == []
    outs = bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(1)]))
    assert outs == [StartSync(2, "a", tuple(map(key, range(2, 50))), frozenset())]
    assert bench.tell(SyncEnded(2, SyncResult.FINISHED, list(map(key, range(2, 50))))) == []


def test_no_more_sync_when_the_first_brought_all() -> None:
    """Broadcast, 4."""
    bench = Bench("a")
    sync = bench.sync("a", 1)
    bench.judged("a", 3, Verdict.ORPHAN, missing=[key(2)])
    bench.tell(SyncBrought(sync, [key(1), key(2), key(3)], 3))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(1)])) == []


def test_a_sync_in_the_queue_is_not_started_when_another_has_brought_what_it_was_for() -> None:
    """Broadcast, 4."""
    bench = Bench("a", "b", config=BroadcastConfig(syncs=1))
    sync = bench.sync("a", 1)
    assert bench.tell(HeadsReceived("b", [key(1)])) == []
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(1)])) == [SendUpdate(("b",))]


def test_syncs_with_peers_that_gossip_reaches_start_one_after_the_other() -> None:
    """Broadcast, 4: one ends, or has had `overlap` for itself, before the next starts; others do not wait for it."""
    bench = Bench("a", gossiping=["g", "h", "i"], config=BroadcastConfig(overlap=2.0, spacing=0.5))
    first = bench.sync("g", 1)
    bench.now = 1.0
    assert timers(bench.all(HeadsReceived("h", [key(2)]))) == {OverlapDue(): 2.0}
    assert bench.all(HeadsReceived("i", [key(3)])) == []
    assert bench.tell(HeadsReceived("a", [key(4)])) == [StartSync(2, "a", (key(4),), frozenset())]
    bench.now = 2.0
    outs = bench.all(TimerExpired(OverlapDue()))
    assert only(StartSync, outs).peer == "h"
    assert timers(outs)[OverlapDue()] == 4.0
    bench.now = 3.0
    # What is left began earlier.
    assert only(StartSync, bench.tell(SyncEnded(3, SyncResult.FINISHED, [key(2)]))).peer == "i"
    assert bench.machine.is_idle is False
    for sync, held in ((first, 1), (2, 4), (4, 3)):
        assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(held)])) == []
    assert bench.machine.is_idle


def test_what_waits_for_the_end_of_a_sync_may_leave_or_come_to_nothing() -> None:
    """Broadcast, 4."""
    bench = Bench(gossiping=["g", "h", "i"], config=BroadcastConfig(overlap=2.0))
    first = bench.sync("g", 1, 3)
    assert bench.tell(HeadsReceived("h", [key(2)])) == bench.tell(HeadsReceived("i", [key(3)])) == []
    bench.tell(PeerDisconnected("h"))
    assert bench.tell(SyncEnded(first, SyncResult.FINISHED, [key(1), key(3)])) == []
    assert bench.machine.is_idle


def test_heads_gather_before_the_next_sync_with_a_peer_that_gossip_reaches() -> None:
    """Broadcast, 4: `spacing` after the start of the last one, which has ended; who has the most comes first."""
    bench = Bench("a", gossiping=["g", "h", "i"], config=BroadcastConfig(overlap=2.0, spacing=0.5))
    first = bench.sync("g", 1)
    bench.now = 0.1
    bench.tell(SyncEnded(first, SyncResult.FINISHED, [key(1)]))
    assert timers(bench.all(HeadsReceived("h", [key(2)]))) == {OverlapDue(): 0.5}
    assert bench.all(HeadsReceived("i", [key(2), key(3)])) == []
    assert bench.sync("a", 4) == 2
    bench.now = 0.5
    assert only(StartSync, bench.all(TimerExpired(OverlapDue()))).peer == "i"
    bench.now = 1.5
    # What brought the one that waits is there.
    assert StartSync not in map(type, bench.tell(SyncEnded(3, SyncResult.FINISHED, [key(2), key(3)])))


def test_a_source_that_has_waited_for_a_turn_comes_before_those_that_have_more() -> None:
    """Broadcast, 4."""
    bench = Bench(gossiping=["g", "h", "i"], config=BroadcastConfig(overlap=100.0, turn=30.0, stall=1000.0))
    first = bench.sync("g", 1)
    bench.tell(HeadsReceived("h", [key(2)]))
    bench.now = 29.0
    bench.tell(HeadsReceived("i", [key(3), key(4)]))
    bench.now = 30.0
    assert only(StartSync, bench.tell(SyncEnded(first, SyncResult.FINISHED, [key(1)]))).peer == "h"


def test_a_timer_of_an_overlap_that_comes_too_early_is_set_again() -> None:
    """Broadcast, 4."""
    bench = Bench(gossiping=["g", "h"], config=BroadcastConfig(overlap=2.0))
    bench.sync("g", 1)
    assert timers(bench.all(HeadsReceived("h", [key(2)]))) == {OverlapDue(): 2.0}
    bench.now = 1.9
    assert timers(bench.all(TimerExpired(OverlapDue()))) == {OverlapDue(): 2.0}


def test_a_sync_that_has_had_its_turn_is_stopped_for_one_that_gossip_reaches() -> None:
    """Broadcast, 7."""
    config = BroadcastConfig(overlap=100.0, stall=10.0, turn=15.0)
    bench = Bench(gossiping=["g", "h"], config=config)
    sync = bench.sync("g", 1)
    for number, bench.now in enumerate((10.0, 20.0)):
        bench.tell(HeadsReceived("h", [key(2)]))
        bench.tell(SyncAdvanced(sync, SyncStatistics()))
        assert bench.tell(TimerExpired(SyncCheck(sync))) == number * [StopSync(sync)]


@pytest.mark.parametrize("held", [Appended([(key(1), b"")]), "pushed"])
def test_what_came_another_way_needs_no_sync(held: events.InEvent | str) -> None:
    """Broadcast, 4."""
    bench = Bench("a", "b", config=BroadcastConfig(syncs=1))
    sync = bench.sync("b", 9)
    assert bench.tell(HeadsReceived("a", [key(1)])) == []
    if isinstance(held, str):
        bench.judged("b", 1, Verdict.INSERTED)
    else:
        bench.tell(held)
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(9)])) == []


@pytest.mark.parametrize("waiting", ["a", "aa"])
def test_a_peer_does_not_wait_for_its_own_sync(waiting: str) -> None:
    """Broadcast, 4: what calls for a sync while one runs, or waits, calls for one more at most: nobody waits for it."""
    bench = Bench("a", "b", config=BroadcastConfig(syncs=1, stall=10.0, turn=25.0))
    first = bench.sync("b", 9)
    for number, peer in enumerate(waiting):
        assert bench.tell(HeadsReceived(peer, [key(number)])) == []
    assert only(StartSync, bench.tell(SyncEnded(first, SyncResult.FINISHED, [key(9)]))).peer == "a"
    bench.tell(HeadsReceived("a", [key(8)]))
    for bench.now in (10.0, 20.0, 30.0):
        bench.tell(SyncAdvanced(2, SyncStatistics()))
        assert bench.tell(TimerExpired(SyncCheck(2))) == []


def test_a_sync_ends_what_called_for_it() -> None:
    """Broadcast, 4: heads that were not looked up, too."""
    bench = Bench("a")
    bench.tell(HeadsReceived("a", [], 10))
    assert timers(bench.all(SyncEnded(1, SyncResult.FINISHED))) == {}


def test_more_heads_than_are_remembered_call_for_a_sync() -> None:
    """Broadcast, 4: although all that are remembered came another way."""
    bench = Bench("a", "b", config=BroadcastConfig(syncs=1, advertised=2))
    sync = bench.sync("b", 9)
    bench.tell(HeadsReceived("a", [key(1), key(2), key(3)]))
    bench.tell(Appended([(key(1), b""), (key(2), b"")]))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(9)])) == [StartSync(2, "a", (), frozenset())]


def test_a_peer_that_goes_is_not_synced_with() -> None:
    """Broadcast, 4: neither in the queue nor any longer."""
    bench = Bench("a", "b", config=BroadcastConfig(syncs=1))
    sync = bench.sync("b", 9)
    bench.tell(HeadsReceived("a", [], 10))
    bench.tell(PeerDisconnected("a"))
    assert bench.tell(PeerDisconnected("b")) == [StopSync(sync)]
    assert bench.tell(SyncEnded(sync, SyncResult.ABORTED)) == []


def test_a_few_syncs_at_a_time_in_the_order_of_their_calls() -> None:
    """Broadcast, 4."""
    peers = [f"p{number}" for number in range(6)]
    bench = Bench(*peers, config=BroadcastConfig(syncs=2))
    started = [
        out.peer
        for number, peer in enumerate(peers)
        for out in bench.tell(HeadsReceived(peer, [key(number)]))
        if isinstance(out, StartSync)
    ]
    assert started == ["p0", "p1"]
    for sync in range(1, 6):
        outs = bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(sync - 1)]))
        started += [out.peer for out in outs if isinstance(out, StartSync)]
    assert started == peers


def test_a_peer_that_comes_back_waits_for_its_old_sync_to_end() -> None:
    """Broadcast, 4."""
    bench = Bench("a")
    sync = bench.sync("a", 1)
    bench.tell(PeerDisconnected("a"))
    bench.tell(PeerConnected("a"))
    assert bench.tell(HeadsReceived("a", [key(1)])) == []
    assert bench.tell(SyncEnded(sync, SyncResult.FAILED)) == [StartSync(2, "a", (key(1),), frozenset())]


# Rules 5 to 7: Abort, back-off, turns


def test_an_aborted_sync_that_brought_something_goes_on_at_once() -> None:
    """Broadcast, 5."""
    bench = Bench("a")
    sync = bench.sync("a", 9)
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert bench.tell(SyncEnded(sync, SyncResult.ABORTED)) == [StartSync(2, "a", (key(9),), frozenset())]


def test_an_aborted_sync_that_found_nothing_missing_below_some_nodes_goes_on_at_once() -> None:
    """Broadcast, 5."""
    bench = Bench("a")
    sync = bench.sync("a", 9)
    ended = SyncEnded(sync, SyncResult.ABORTED, statistics=SyncStatistics(complete=1))
    assert bench.tell(ended) == [StartSync(2, "a", (key(9),), frozenset())]


def test_an_aborted_sync_that_had_something_refused_goes_on_at_once() -> None:
    """Broadcast, 5: it need not be asked for again."""
    bench = Bench("a")
    sync = bench.sync("a", 9)
    bench.tell(SyncBrought(sync, [], 0, [key(1)]))
    assert bench.tell(SyncEnded(sync, SyncResult.ABORTED)) == [StartSync(2, "a", (key(9),), frozenset([key(1)]))]


def test_an_aborted_sync_for_heads_that_were_not_looked_up_goes_on() -> None:
    """Broadcast, 5."""
    bench = Bench("a")
    bench.tell(HeadsReceived("a", [], 10))
    bench.tell(SyncBrought(1, [key(1)], 1))
    assert bench.tell(SyncEnded(1, SyncResult.ABORTED)) == [StartSync(2, "a", (), frozenset())]


def test_a_cooldown_is_waited_for_within_limits() -> None:
    """Broadcast, 5."""
    for cooldown, waited in ((3.0, 3.0), (1e6, 300.0)):
        bench = Bench("a")
        sync = bench.sync("a", 9)
        bench.tell(SyncBrought(sync, [key(1)], 1))
        outs = bench.all(SyncEnded(sync, SyncResult.ABORTED, cooldown=cooldown))
        assert timers(outs) == {SyncDue("a"): waited}
        bench.now = waited
        assert bench.tell(TimerExpired(SyncDue("a"))) == [StartSync(2, "a", (key(9),), frozenset())]


@pytest.mark.parametrize("result", [SyncResult.FAILED, SyncResult.ABORTED])
def test_failures_back_off_longer_each_time(result: SyncResult) -> None:
    """Broadcast, 6."""
    bench = Bench("a", config=BroadcastConfig(backoff=1.0, longest_backoff=20.0))
    sync = bench.sync("a", 1)
    waits = []
    for _ in range(8):
        due = timers(bench.all(SyncEnded(sync, result, reason="broken")))[SyncDue("a")]
        assert bench.tell(HeadsReceived("a", [key(1), key(2)])) == []
        waits.append(due - bench.now)
        bench.now = due
        sync = only(StartSync, bench.tell(TimerExpired(SyncDue("a")))).sync
    assert all(0.5 * min(20, 2**n) <= wait <= min(20, 2**n) for n, wait in enumerate(waits))
    assert len(set(waits)) == len(waits)
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert only(StartSync, bench.tell(SyncEnded(sync, SyncResult.ABORTED))).peer == "a"


def test_heads_that_the_peer_has_not_got_back_off() -> None:
    """Broadcast, 6."""
    bench = Bench("a")
    sync = bench.sync("a", 1)
    over = only(SyncOver, bench.all(SyncEnded(sync, SyncResult.FINISHED)))
    assert over == SyncOver(
        "a", True, 0, frozenset(), SyncStatistics(), "the peer advertised 1 message that it does not have"
    )
    assert SyncDue("a") in timers(bench.all(HeadsReceived("a", [key(2)])))


def test_a_sync_that_brought_nothing_of_what_was_not_looked_up_backs_off() -> None:
    """Broadcast, 6."""
    bench = Bench("a")
    bench.tell(HeadsReceived("a", [], 10))
    bench.tell(SyncEnded(1, SyncResult.FINISHED))
    assert SyncDue("a") in timers(bench.all(HeadsReceived("a", [key(2)])))


def test_a_sync_that_brought_something_does_not_back_off() -> None:
    """Broadcast, 6: although it lacked a message that the peer had advertised."""
    bench = Bench("a")
    sync = bench.sync("a", 9)
    bench.tell(SyncBrought(sync, [key(1)], 1))
    bench.tell(SyncEnded(sync, SyncResult.FINISHED))
    assert bench.sync("a", 2) == 2


def test_a_sync_for_what_was_refused_does_not_back_off() -> None:
    """Broadcast, 6: that the application refuses again is not the peer's fault."""
    bench = Bench("a")
    bench.now = timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED)))[RetryDue("a")]
    assert only(StartSync, bench.tell(TimerExpired(RetryDue("a")))).peer == "a"
    bench.tell(SyncBrought(1, [], 0, [key(1)]))
    bench.tell(SyncEnded(1, SyncResult.FINISHED))
    assert bench.sync("a", 2) == 2


def test_a_success_ends_a_row_of_failures() -> None:
    """Broadcast, 6: the next pause is as short as the first."""
    bench = Bench("a", config=BroadcastConfig(backoff=1.0))
    sync = bench.sync("a", 1)
    for _ in range(5):
        bench.now = timers(bench.all(SyncEnded(sync, SyncResult.FAILED)))[SyncDue("a")]
        sync = only(StartSync, bench.tell(TimerExpired(SyncDue("a")))).sync
    bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(1)]))
    sync = bench.sync("a", 2)
    assert timers(bench.all(SyncEnded(sync, SyncResult.FAILED)))[SyncDue("a")] <= bench.now + 1.0


def test_a_timer_is_set_once() -> None:
    """Broadcast, 6."""
    bench = Bench("a")
    bench.tell(SyncEnded(bench.sync("a", 1), SyncResult.FINISHED))
    assert len(timers(bench.all(HeadsReceived("a", [key(2)])))) == 1
    assert len(timers(bench.all(HeadsReceived("a", [key(3)])))) == 0


@pytest.mark.parametrize(
    ("unanswered", "error"),
    [("", "no bytes came for 10 s"), ("its root", "no bytes came for 10 s; the peer was asked for its root")],
)
def test_a_sync_without_bytes_is_stopped(unanswered: str, error: str) -> None:
    """Broadcast, 7."""
    bench = Bench("a", config=BroadcastConfig(stall=10.0))
    outs = bench.all(HeadsReceived("a", [key(1)]))
    assert timers(outs) == {SyncCheck(1): 10.0}
    bench.tell(SyncAdvanced(1, SyncStatistics()))
    bench.now = 10.0
    assert timers(bench.all(TimerExpired(SyncCheck(1)))) == {SyncCheck(1): 20.0}
    bench.now = 20.0
    assert bench.tell(TimerExpired(SyncCheck(1))) == [StopSync(1)]
    over = only(SyncOver, bench.all(SyncEnded(1, SyncResult.ABORTED, unanswered=unanswered)))
    assert (over.complete, over.error) == (False, error)
    assert bench.tell(TimerExpired(SyncCheck(1))) == []


def test_a_sync_that_had_its_turn_makes_room_for_others_and_goes_on_later() -> None:
    """Broadcast, 7."""
    bench = Bench("a", "b", config=BroadcastConfig(syncs=1, stall=10.0, turn=25.0))
    bench.sync("a", 9)
    bench.tell(HeadsReceived("b", [key(8)]))
    for bench.now in (10.0, 20.0):
        bench.tell(SyncBrought(1, [key(int(bench.now))], 1))
        assert bench.tell(TimerExpired(SyncCheck(1))) == []
    bench.now = 30.0
    bench.tell(SyncAdvanced(1, SyncStatistics()))
    assert bench.tell(TimerExpired(SyncCheck(1))) == [StopSync(1)]
    outs = bench.tell(SyncEnded(1, SyncResult.ABORTED))
    assert outs == [SendUpdate(("b",)), StartSync(2, "b", (key(8),), frozenset())]
    assert bench.tell(SyncEnded(2, SyncResult.FINISHED, [key(8)])) == [StartSync(3, "a", (key(9),), frozenset())]


def test_a_sync_keeps_its_turn_while_nobody_waits() -> None:
    """Broadcast, 7."""
    bench = Bench("a", "b", config=BroadcastConfig(stall=10.0, turn=25.0))
    bench.sync("a", 9)
    for bench.now in (10.0, 20.0, 30.0, 40.0):
        bench.tell(SyncAdvanced(1, SyncStatistics()))
        assert bench.tell(TimerExpired(SyncCheck(1))) == []


def test_the_application_is_notified_of_syncs() -> None:
    bench = Bench("a")
    assert SyncStarted("a") in bench.all(HeadsReceived("a", [key(1)]))
    bench.all(SyncBrought(1, [key(1)], 1))
    cost = SyncStatistics(3, 100, 200, 2, 1)
    assert bench.all(SyncAdvanced(1, cost)) == [SyncProgress("a", 1, cost)]
    assert SyncOver("a", True, 1, frozenset(), cost, "") in bench.all(SyncEnded(1, SyncResult.FINISHED, [key(1)], cost))
    assert bench.all(SyncEnded(1, SyncResult.FINISHED)) == []


@pytest.mark.parametrize("ticket", [None, "ticket"])
def test_what_the_log_could_not_store_is_asked_for_until_it_can(ticket: str | None) -> None:
    """Broadcast, 4: on a full disk, a sync that skipped these messages said that it had brought all."""
    bench = Bench("a")
    outs = bench.judged("a", 1, Verdict.UNSTORED, ticket)
    assert [out.answer for out in outs if isinstance(out, GossipAnswered)] == [GossipAnswer.IGNORE] * bool(ticket)
    order = only(StartSync, outs)
    assert (order.peer, order.advertised, order.skip) == ("a", (key(1),), frozenset())
    outs = bench.all(SyncEnded(order.sync, SyncResult.FAILED, reason="the disk is full"))
    over = only(SyncOver, outs)
    assert (over.complete, [*over.refused], over.error) == (False, [], "the disk is full")
    assert not [out for out in outs if isinstance(out, StartSync)]
    bench.now = timers(outs)[SyncDue("a")]
    assert only(StartSync, bench.tell(TimerExpired(SyncDue("a")))).advertised == (key(1),)
