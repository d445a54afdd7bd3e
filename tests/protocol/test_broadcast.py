"""`gossiplog.protocol.broadcast`: each of its rules, and what strangers may do to it.

What whole networks of it do is in tests/sim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.protocol import broadcast_events as events
from gossiplog.protocol.broadcast import Broadcast
from gossiplog.protocol.broadcast_config import Config
from gossiplog.protocol.broadcast_events import (
    AnnounceDue,
    Appended,
    Delivery,
    Disconnect,
    Gossip,
    HeadsReceived,
    Insert,
    Judged,
    OrphansDue,
    OutEvent,
    PeerBehind,
    PeerCaughtUp,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    RetryDue,
    SendInsert,
    SendUpdate,
    ServingAborted,
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
    Validated,
    Verdict,
)
from gossiplog.protocol.sync import Statistics
from tests.strategies import repeatable


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


class Bench:
    """A machine, and what came out of it; quiet things are left out."""

    def __init__(self, *peers: str, gossiping: Sequence[str] = (), config: Config | None = None) -> None:
        self.machine = Broadcast(Random(1), config)
        self.now = 0.0
        for peer in (*peers, *gossiping):
            self.tell(PeerConnected(peer, peer in gossiping))

    def tell(self, event: events.InEvent) -> list[OutEvent]:
        quiet = SyncStarted | SyncProgress | SyncOver | SetTimer
        return [out for out in self.machine.handle(event, self.now) if not isinstance(out, quiet)]

    def all(self, event: events.InEvent) -> list[OutEvent]:
        return self.machine.handle(event, self.now)

    def receive(self, source: str, number: int, ticket: object = None) -> Delivery:
        delivery = Delivery(source, key(number), b"value", ticket)
        assert self.tell(Received(delivery)) == [Insert(delivery)]
        return delivery

    def judged(
        self, source: str, number: int, verdict: Verdict, ticket: object = None, **more: object
    ) -> list[OutEvent]:
        return self.tell(Judged(self.receive(source, number, ticket), verdict, **more))  # type: ignore[arg-type]

    def sync(self, peer: str, *numbers: int) -> int:
        """Makes it sync with a peer, and returns the number of the sync."""
        return only(StartSync, self.tell(HeadsReceived(peer, [key(number) for number in numbers]))).sync


def only(kind: type, outs: Iterable[OutEvent]) -> object:
    (found,) = (out for out in outs if isinstance(out, kind))
    return found


def timers(outs: Iterable[OutEvent]) -> dict[events.Timer, float]:
    return {out.timer: out.at for out in outs if isinstance(out, SetTimer)}


# Rules 1 to 3: what is sent


def test_a_peer_that_connects_is_told_the_heads() -> None:
    """Broadcast, 1."""
    bench = Bench()
    for peer in "abc":
        assert bench.tell(PeerConnected(peer)) == [SendUpdate((peer,))]


def test_a_peer_connects_once() -> None:
    with pytest.raises(ValueError, match="peer 'a' is connected already"):
        Bench("a").tell(PeerConnected("a"))


def test_an_own_append_is_pushed_to_all_that_gossip_does_not_reach_and_published() -> None:
    """Broadcast, 2."""
    bench = Bench("a", "b", gossiping=["g"])
    outs = bench.tell(Appended([(key(1), b"1"), (key(2), b"2")]))
    assert outs == [
        SendInsert(("a", "b"), key(1), b"1"),
        Publish(key(1), b"1"),
        SendInsert(("a", "b"), key(2), b"2"),
        Publish(key(2), b"2"),
    ]


def test_any_number_of_peers_are_sent_to() -> None:
    """Broadcast, 1 and 2."""
    peers = tuple(f"peer {number}" for number in range(100))
    bench = Bench(*peers)
    assert bench.tell(Appended([(key(1), b"")]))[0] == SendInsert(peers, key(1), b"")
    assert bench.judged(peers[0], 2, Verdict.INSERTED)[0] == SendInsert(peers[1:], key(2), b"value")
    sync = bench.sync(peers[0], 3)
    bench.tell(SyncBrought(sync, [key(3)], 1))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == [SendUpdate(peers[1:])]


def test_what_came_by_push_goes_to_all_others_and_to_gossip() -> None:
    """Broadcast, 2."""
    bench = Bench("a", "b", "c")
    outs = bench.judged("a", 1, Verdict.INSERTED)
    assert outs == [SendInsert(("b", "c"), key(1), b"value"), Publish(key(1), b"value")]


def test_what_came_by_gossip_is_accepted_and_pushed_but_not_published() -> None:
    """Broadcast, 2."""
    bench = Bench("a", gossiping=["g", "h"])
    outs = bench.judged("g", 1, Verdict.INSERTED, "ticket")
    assert outs == [Validated("g", "ticket", Gossip.ACCEPT), SendInsert(("a",), key(1), b"value")]


@pytest.mark.parametrize("verdict", [Verdict.DUPLICATE, Verdict.ORPHAN, Verdict.REFUSED, Verdict.INVALID])
def test_nothing_else_is_forwarded(verdict: Verdict) -> None:
    """Broadcast, 3."""
    bench = Bench("a", "b", gossiping=["g"])
    outs = bench.judged("a", 1, verdict) + bench.judged("g", 2, verdict, "ticket")
    assert not [out for out in outs if isinstance(out, SendInsert | Publish)]


def test_a_duplicate_by_gossip_is_accepted_because_others_may_lack_it() -> None:
    """Broadcast, 2."""
    assert Bench(gossiping=["g"]).judged("g", 1, Verdict.DUPLICATE, "ticket") == [
        Validated("g", "ticket", Gossip.ACCEPT)
    ]


@pytest.mark.parametrize("result", [SyncResult.FINISHED, SyncResult.ABORTED, SyncResult.FAILED])
def test_after_a_sync_that_brought_messages_all_but_the_source_are_told(result: SyncResult) -> None:
    """Broadcast, 1."""
    bench = Bench("a", "b", gossiping=["g"])
    sync = bench.sync("a", 1)
    assert bench.tell(SyncBrought(sync, [key(1)], 1)) == []
    assert bench.tell(SyncEnded(sync, result)) == [SendUpdate(("b", "g"))]


def test_after_a_sync_that_brought_nothing_nobody_is_told() -> None:
    """Broadcast, 1."""
    bench = Bench("a", "b")
    sync = bench.sync("a", 1)
    assert bench.tell(SyncBrought(sync, [key(1)], 0)) == []
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == []


def test_what_a_sync_brought_is_told_although_its_source_has_gone() -> None:
    """Broadcast, 1."""
    bench = Bench("a", "b")
    sync = bench.sync("a", 1)
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert bench.tell(PeerDisconnected("a")) == [StopSync(sync)]
    assert bench.tell(SyncEnded(sync, SyncResult.FAILED)) == [SendUpdate(("b",))]


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
    assert outs == [SetTimer(OrphansDue(), Config().orphan_wait)]
    parent = bench.receive("g", 1, "parent")
    assert Insert(orphan) not in bench.tell(Judged(parent, Verdict.INSERTED))
    # The other one comes in another way.
    assert bench.tell(Appended([(key(2), b"value")]))[0] == Insert(orphan)
    assert Validated("g", "ticket", Gossip.ACCEPT) in bench.tell(Judged(orphan, Verdict.INSERTED))
    bench.now = Config().orphan_wait
    assert bench.all(TimerExpired(OrphansDue())) == []


def test_an_orphan_that_waited_in_vain_is_ignored_and_calls_for_a_sync() -> None:
    """Broadcast, 12."""
    bench = Bench(gossiping=["g", "h"])
    assert bench.judged("g", 2, Verdict.ORPHAN, "first", missing=[key(1)]) == []
    bench.now = Config().orphan_wait / 2
    assert bench.judged("h", 3, Verdict.ORPHAN, "second", missing=[key(1)]) == []
    bench.now = Config().orphan_wait
    outs = bench.all(TimerExpired(OrphansDue()))
    assert SetTimer(OrphansDue(), 1.5 * Config().orphan_wait) in outs
    assert Validated("g", "first", Gossip.IGNORE) in outs
    assert StartSync(1, "g", (key(2),), frozenset()) in outs
    assert Validated("h", "second", Gossip.IGNORE) not in outs
    # What the sync brings frees the other.
    outs = bench.tell(SyncBrought(1, [key(1), key(2)], 2))
    assert [out.delivery.ticket for out in outs if isinstance(out, Insert)] == ["second"]


def test_orphans_of_one_parent_are_tried_again_in_the_order_in_which_they_came() -> None:
    """Broadcast, 12: with one timer for all."""
    bench = Bench(gossiping=["g"])
    orphans = [bench.receive("g", number, number) for number in (5, 3, 4)]
    set_at = [timers(bench.all(Judged(orphan, Verdict.ORPHAN, missing=[key(1)]))) for orphan in orphans]
    assert set_at == [{OrphansDue(): Config().orphan_wait}, {}, {}]
    outs = bench.judged("g", 1, Verdict.INSERTED, "ticket")
    assert [out for out in outs if isinstance(out, Insert)] == [Insert(orphan) for orphan in orphans]


@pytest.mark.parametrize("config", [Config(orphans=2), Config(orphan_bytes=11)])
def test_as_many_orphans_as_there_is_room_for_wait(config: Config) -> None:
    """Broadcast, 12."""
    bench = Bench(gossiping=["g"], config=config)
    assert [bench.judged("g", number, Verdict.ORPHAN, number, missing=[key(1)]) for number in (2, 3)] == [[], []]
    assert bench.judged("g", 4, Verdict.ORPHAN, 4, missing=[key(1)])[0] == Validated("g", 4, Gossip.IGNORE)


@pytest.mark.parametrize("config", [Config(orphans=1), Config(orphan_bytes=2 * len(b"value") - 1)])
def test_orphans_that_have_no_room_do_not_wait(config: Config) -> None:
    """Broadcast, 12."""
    bench = Bench(gossiping=["g"], config=config)
    assert bench.judged("g", 2, Verdict.ORPHAN, 1, missing=[key(1)]) == []
    outs = bench.judged("g", 3, Verdict.ORPHAN, 2, missing=[key(1)])
    assert outs == [Validated("g", 2, Gossip.IGNORE), StartSync(1, "g", (key(3),), frozenset())]
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
    bench = Bench("a", "b", config=Config(syncs=1))
    sync = bench.sync("a", 1)
    assert bench.tell(HeadsReceived("b", [key(1)])) == []
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(1)])) == [SendUpdate(("b",))]


@pytest.mark.parametrize("held", [Appended([(key(1), b"")]), "pushed"])
def test_what_came_another_way_needs_no_sync(held: events.InEvent | str) -> None:
    """Broadcast, 4."""
    bench = Bench("a", "b", config=Config(syncs=1))
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
    bench = Bench("a", "b", config=Config(syncs=1, stall=10.0, turn=25.0))
    first = bench.sync("b", 9)
    for number, peer in enumerate(waiting):
        assert bench.tell(HeadsReceived(peer, [key(number)])) == []
    assert only(StartSync, bench.tell(SyncEnded(first, SyncResult.FINISHED, [key(9)]))).peer == "a"
    bench.tell(HeadsReceived("a", [key(8)]))
    for bench.now in (10.0, 20.0, 30.0):
        bench.tell(SyncAdvanced(2, Statistics()))
        assert bench.tell(TimerExpired(SyncCheck(2))) == []


def test_a_sync_ends_what_called_for_it() -> None:
    """Broadcast, 4: heads that were not looked up, too."""
    bench = Bench("a")
    bench.tell(HeadsReceived("a", [], 10))
    assert timers(bench.all(SyncEnded(1, SyncResult.FINISHED))) == {}


def test_more_heads_than_are_remembered_call_for_a_sync() -> None:
    """Broadcast, 4: although all that are remembered came another way."""
    bench = Bench("a", "b", config=Config(syncs=1, wanted=2))
    sync = bench.sync("b", 9)
    bench.tell(HeadsReceived("a", [key(1), key(2), key(3)]))
    bench.tell(Appended([(key(1), b""), (key(2), b"")]))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(9)])) == [StartSync(2, "a", (), frozenset())]


def test_a_peer_that_goes_is_not_synced_with() -> None:
    """Broadcast, 4: neither in the queue nor any longer."""
    bench = Bench("a", "b", config=Config(syncs=1))
    sync = bench.sync("b", 9)
    bench.tell(HeadsReceived("a", [], 10))
    bench.tell(PeerDisconnected("a"))
    assert bench.tell(PeerDisconnected("b")) == [StopSync(sync)]
    assert bench.tell(SyncEnded(sync, SyncResult.ABORTED)) == []


def test_a_few_syncs_at_a_time_in_the_order_of_their_calls() -> None:
    """Broadcast, 4."""
    peers = [f"p{number}" for number in range(6)]
    bench = Bench(*peers, config=Config(syncs=2))
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
    ended = SyncEnded(sync, SyncResult.ABORTED, statistics=Statistics(complete=1))
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
    bench = Bench("a", config=Config(backoff=1.0, longest_backoff=20.0))
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
    assert over == SyncOver("a", True, 0, 0, Statistics(), "the peer has not got 1 of the messages that it told of")
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
    bench = Bench("a", config=Config(backoff=1.0))
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
    bench = Bench("a", config=Config(stall=10.0))
    outs = bench.all(HeadsReceived("a", [key(1)]))
    assert timers(outs) == {SyncCheck(1): 10.0}
    bench.tell(SyncAdvanced(1, Statistics()))
    bench.now = 10.0
    assert timers(bench.all(TimerExpired(SyncCheck(1)))) == {SyncCheck(1): 20.0}
    bench.now = 20.0
    assert bench.tell(TimerExpired(SyncCheck(1))) == [StopSync(1)]
    over = only(SyncOver, bench.all(SyncEnded(1, SyncResult.ABORTED, unanswered=unanswered)))
    assert (over.complete, over.error) == (False, error)
    assert bench.tell(TimerExpired(SyncCheck(1))) == []


def test_a_sync_that_had_its_turn_makes_room_for_others_and_goes_on_later() -> None:
    """Broadcast, 7."""
    bench = Bench("a", "b", config=Config(syncs=1, stall=10.0, turn=25.0))
    bench.sync("a", 9)
    bench.tell(HeadsReceived("b", [key(8)]))
    for bench.now in (10.0, 20.0):
        bench.tell(SyncBrought(1, [key(int(bench.now))], 1))
        assert bench.tell(TimerExpired(SyncCheck(1))) == []
    bench.now = 30.0
    bench.tell(SyncAdvanced(1, Statistics()))
    assert bench.tell(TimerExpired(SyncCheck(1))) == [StopSync(1)]
    outs = bench.tell(SyncEnded(1, SyncResult.ABORTED))
    assert outs == [SendUpdate(("b",)), StartSync(2, "b", (key(8),), frozenset())]
    assert bench.tell(SyncEnded(2, SyncResult.FINISHED, [key(8)])) == [StartSync(3, "a", (key(9),), frozenset())]


def test_a_sync_keeps_its_turn_while_nobody_waits() -> None:
    """Broadcast, 7."""
    bench = Bench("a", "b", config=Config(stall=10.0, turn=25.0))
    bench.sync("a", 9)
    for bench.now in (10.0, 20.0, 30.0, 40.0):
        bench.tell(SyncAdvanced(1, Statistics()))
        assert bench.tell(TimerExpired(SyncCheck(1))) == []


def test_the_application_is_told_of_syncs() -> None:
    bench = Bench("a")
    assert SyncStarted("a") in bench.all(HeadsReceived("a", [key(1)]))
    bench.all(SyncBrought(1, [key(1)], 1))
    cost = Statistics(3, 100, 200, 2, 1)
    assert bench.all(SyncAdvanced(1, cost)) == [SyncProgress("a", 1, cost)]
    assert SyncOver("a", True, 1, 0, cost, "") in bench.all(SyncEnded(1, SyncResult.FINISHED, [key(1)], cost))
    assert bench.all(SyncEnded(1, SyncResult.FINISHED)) == []


# Rule 8: what the application refuses


def test_a_refused_message_blames_nobody_and_is_left_out() -> None:
    """Broadcast, 8."""
    bench = Bench("a", "b", gossiping=["g"])
    assert bench.judged("a", 1, Verdict.REFUSED) == []
    assert bench.judged("g", 2, Verdict.REFUSED, "ticket") == [Validated("g", "ticket", Gossip.IGNORE)]
    assert bench.tell(Received(Delivery("b", key(1), b""))) == []
    assert bench.tell(Received(Delivery("g", key(1), b"", "t"))) == [Validated("g", "t", Gossip.IGNORE)]
    assert bench.tell(HeadsReceived("b", [key(1), key(2)])) == []
    assert bench.judged("b", 3, Verdict.ORPHAN, missing=[key(1)]) == []
    assert bench.tell(HeadsReceived("b", [key(3), key(4)])) == [
        StartSync(1, "b", (key(4),), frozenset([key(1), key(2), key(3)]))
    ]


def test_a_refused_message_is_tried_again_later_and_later() -> None:
    """Broadcast, 8."""
    bench = Bench("a", config=Config(retry=10.0, longest_retry=50.0))
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
    bench = Bench("a", config=Config(retry=10.0))
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
    bench = Bench("a", config=Config(retry=10.0))
    bench.now = timers(bench.all(Judged(bench.receive("a", 1), Verdict.REFUSED)))[RetryDue("a")]
    bench.tell(TimerExpired(RetryDue("a")))
    bench.tell(SyncEnded(1, SyncResult.FINISHED))
    bench.now += 1000.0
    assert timers(bench.all(Judged(bench.receive("a", 2), Verdict.REFUSED)))[RetryDue("a")] <= bench.now + 10.0


def test_each_sync_skips_what_is_left_out_then() -> None:
    """Broadcast, 8: as many messages as are remembered, and no more."""
    bench = Bench("a", config=Config(left_out=2))
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
    assert over.refused == 4


@pytest.mark.parametrize("how", ["heads", "push", "wanted", "sync"])
def test_when_the_peer_of_a_refused_message_goes_others_that_have_it_are_asked(how: str) -> None:
    """Broadcast, 8."""
    bench = Bench("a", "b", "c", config=Config(syncs=1))
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


def test_what_waits_for_a_message_that_may_be_tried_again_is_not_left_out() -> None:
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
    bench = Bench("a", config=Config(left_out=2))
    sync = bench.sync("a", 9)
    assert bench.tell(SyncBrought(sync, [], 0, [key(n) for n in range(5)], [(key(8), [key(4)])])) == []
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == []


def test_refusals_that_cannot_be_remembered_back_off() -> None:
    """Broadcast, 6 and 8."""
    bench = Bench("a", config=Config(left_out=2))
    sync = bench.sync("a", 4)
    bench.tell(SyncBrought(sync, [], 0, [key(n) for n in range(5)]))
    bench.tell(SyncEnded(sync, SyncResult.FINISHED))
    assert SyncDue("a") in timers(bench.all(HeadsReceived("a", [key(4)])))


# Rule 9: blame


def test_who_pushes_an_invalid_message_is_disconnected() -> None:
    """Broadcast, 9."""
    bench = Bench("a", "b")
    outs = bench.judged("a", 1, Verdict.INVALID, reason="no signature")
    assert outs == [Disconnect("a", "it pushed an invalid message: no signature")]
    assert bench.tell(PeerDisconnected("a")) == []
    assert bench.tell(Appended([(key(2), b"")])) == [SendInsert(("b",), key(2), b""), Publish(key(2), b"")]


def test_invalid_gossip_is_rejected() -> None:
    """Broadcast, 9."""
    assert Bench(gossiping=["g"]).judged("g", 1, Verdict.INVALID, "ticket", reason="no signature") == [
        Validated("g", "ticket", Gossip.REJECT)
    ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (SyncBrought(1, [], 0, invalid="bad signature"), "its log has an invalid message: bad signature"),
        (SyncBrought(1, [], 0, orphans=[(key(5), [key(4)])]), "its log has message 0{31}5, but not its parent 0{31}4"),
    ],
)
def test_a_source_with_a_broken_log_is_disconnected(event: SyncBrought, reason: str) -> None:
    """Broadcast, 9."""
    bench = Bench("a", "b")
    bench.sync("a", 1)
    disconnect, stop = bench.tell(event)
    assert isinstance(disconnect, Disconnect)
    assert disconnect.peer == "a"
    assert disconnect.reason.startswith(reason.split("0{31}")[0])
    assert stop == StopSync(1)
    assert bench.tell(SyncEnded(1, SyncResult.ABORTED)) == []


def test_each_parent_of_a_message_has_to_be_there_or_explained() -> None:
    """Broadcast, 9: the second, too."""
    bench = Bench("a")
    bench.judged("a", 1, Verdict.REFUSED)
    sync = bench.sync("a", 9)
    outs = bench.tell(SyncBrought(sync, [], 0, orphans=[(key(5), [key(1), key(4)])]))
    assert [type(out) for out in outs] == [Disconnect, StopSync]


@pytest.mark.parametrize("result", [SyncResult.FAILED, SyncResult.ABORTED, SyncResult.FINISHED])
def test_a_source_whose_sync_fails_otherwise_is_not_blamed(result: SyncResult) -> None:
    """Broadcast, 9."""
    bench = Bench("a")
    assert bench.tell(SyncEnded(bench.sync("a", 1), result, reason="no connection")) == []


def test_a_source_that_breaks_the_protocol_is_disconnected_and_what_came_before_is_told() -> None:
    """Broadcast, 9."""
    bench = Bench("a", "b")
    sync = bench.sync("a", 1)
    bench.tell(SyncBrought(sync, [key(2)], 1))
    outs = bench.tell(SyncEnded(sync, SyncResult.VIOLATION, reason="levels do not fall"))
    assert outs == [SendUpdate(("b",)), Disconnect("a", "it broke the sync protocol: levels do not fall")]


def test_who_tells_again_and_again_of_what_it_has_not_got_is_disconnected() -> None:
    """Broadcast, 9."""
    bench = Bench("a", config=Config(broken_promises=3))
    outs: list[OutEvent] = []
    for number in range(3):
        bench.now += 1000.0
        sync = bench.sync("a", number)
        outs = bench.tell(SyncEnded(sync, SyncResult.FINISHED))
    assert outs == [Disconnect("a", "it told of messages that it has not got, 3 times")]


def test_who_keeps_a_promise_begins_anew() -> None:
    """Broadcast, 9: only those in a row count."""
    bench = Bench("a", config=Config(broken_promises=3))
    for number in range(9):
        bench.now += 1000.0
        sync = bench.sync("a", number)
        held = [key(number)] if number % 3 == 2 else []
        assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, held)) == []


def test_what_was_refused_and_forgotten_is_no_broken_promise() -> None:
    """Broadcast, 9."""
    bench = Bench("a", config=Config(left_out=2, broken_promises=1))
    sync = bench.sync("a", 9)
    bench.tell(SyncBrought(sync, [], 0, [key(number) for number in range(5)]))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == []


def test_gossip_of_strangers_is_as_good_as_any() -> None:
    """Broadcast, 2 and 12."""
    bench = Bench(gossiping=["g"])
    assert bench.judged("x", 1, Verdict.INSERTED, "valid") == [Validated("x", "valid", Gossip.ACCEPT)]
    assert bench.judged("x", 2, Verdict.INVALID, "invalid") == [Validated("x", "invalid", Gossip.REJECT)]
    assert bench.judged("x", 3, Verdict.REFUSED, "refused") == [Validated("x", "refused", Gossip.IGNORE)]
    assert bench.judged("x", 5, Verdict.ORPHAN, "orphan", missing=[key(4)]) == []
    bench.now = Config().orphan_wait
    # There is nobody to sync with.
    assert bench.tell(TimerExpired(OrphansDue())) == [Validated("x", "orphan", Gossip.IGNORE)]


def test_what_strangers_send_is_ignored() -> None:
    """Broadcast, 2."""
    bench = Bench("a")
    for event in (
        Received(Delivery("x", key(1), b"")),
        HeadsReceived("x", [key(1)]),
        PeerDisconnected("x"),
        PeerBehind("x"),
        PeerCaughtUp("x"),
        ServingAborted("x"),
        SyncBrought(7, [], 1),
        SyncAdvanced(7, Statistics()),
        SyncEnded(7, SyncResult.FINISHED),
        TimerExpired(SyncDue("x")),
        TimerExpired(SyncCheck(7)),
        TimerExpired(RetryDue("x")),
    ):
        assert bench.all(event) == []


def test_who_does_not_go_on_after_an_abort_is_told_the_heads() -> None:
    """Broadcast, 1."""
    bench = Bench("a", "b")
    assert bench.tell(ServingAborted("a")) == [SendUpdate(("a",))]
    bench.tell(PeerBehind("a"))
    assert bench.tell(ServingAborted("a")) == []
    assert bench.tell(PeerCaughtUp("a")) == [SendUpdate(("a",))]


# Rules 10 and 11


def test_a_peer_that_is_behind_is_told_the_heads_when_it_caught_up() -> None:
    """Broadcast, 10."""
    bench = Bench("a", "b")
    bench.tell(PeerBehind("a"))
    assert bench.tell(Appended([(key(1), b"")])) == [SendInsert(("b",), key(1), b""), Publish(key(1), b"")]
    assert bench.tell(PeerCaughtUp("a")) == [SendUpdate(("a",))]
    assert bench.tell(PeerCaughtUp("a")) == []
    assert SendInsert(("a", "b"), key(2), b"") in bench.tell(Appended([(key(2), b"")]))


def test_updates_wait_for_a_peer_that_is_behind() -> None:
    """Broadcast, 10."""
    bench = Bench("a", "b")
    bench.tell(PeerBehind("b"))
    sync = bench.sync("a", 1)
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, [key(1)])) == []
    assert bench.tell(PeerCaughtUp("b")) == [SendUpdate(("b",))]


def test_peers_that_gossip_reaches_are_told_the_heads_once_some_seconds_later() -> None:
    """Broadcast, 11."""
    bench = Bench("a", gossiping=["g", "h"], config=Config(announce=5.0))
    assert timers(bench.all(Appended([(key(1), b"")]))) == {AnnounceDue(): 5.0}
    bench.now = 1.0
    assert timers(bench.all(Appended([(key(2), b"")]))) == {}
    bench.now = 5.0
    assert bench.tell(TimerExpired(AnnounceDue())) == [SendUpdate(("g", "h"))]
    # Each time that something goes out.
    bench.now = 7.0
    assert timers(bench.all(Appended([(key(3), b"")]))) == {AnnounceDue(): 12.0}
    assert timers(Bench("a").all(Appended([(key(1), b"")]))) == {}


# Whatever is said, in whatever order

PEERS = ["a", "b", "c"]
KEYS = st.integers(0, 12).map(key)
SOME_KEYS = st.lists(KEYS, max_size=6)
DELIVERIES = st.builds(Delivery, st.sampled_from(PEERS), KEYS, st.just(b""), st.sampled_from([None, "ticket"]))
SYNCS = st.integers(1, 12)
EVENTS = st.one_of(
    st.builds(PeerConnected, st.sampled_from(PEERS), st.booleans()),
    st.builds(PeerDisconnected, st.sampled_from(PEERS)),
    st.builds(PeerBehind, st.sampled_from(PEERS)),
    st.builds(PeerCaughtUp, st.sampled_from(PEERS)),
    st.builds(ServingAborted, st.sampled_from(PEERS)),
    st.builds(Appended, st.lists(st.tuples(KEYS, st.just(b"")), max_size=3)),
    st.builds(Received, DELIVERIES),
    st.builds(HeadsReceived, st.sampled_from(PEERS), SOME_KEYS, st.integers(0, 1)),
    st.builds(Judged, DELIVERIES, st.sampled_from(Verdict), SOME_KEYS),
    st.builds(
        SyncBrought, SYNCS, SOME_KEYS, st.integers(0, 3), SOME_KEYS, st.lists(st.tuples(KEYS, SOME_KEYS), max_size=2)
    ),
    st.builds(SyncEnded, SYNCS, st.sampled_from(SyncResult), SOME_KEYS),
    st.builds(
        TimerExpired,
        st.one_of(
            st.builds(SyncDue, st.sampled_from(PEERS)),
            st.builds(SyncCheck, SYNCS),
            st.builds(RetryDue, st.sampled_from(PEERS)),
            st.just(AnnounceDue()),
        ),
    ),
)


@repeatable(300)
@given(st.lists(EVENTS, max_size=120), st.integers(0, 2**32))
def test_promises_hold_whatever_happens(told: list[events.InEvent], seed: int) -> None:
    config = Config(syncs=2, wanted=3, left_out=3)
    machine = Broadcast(Random(seed), config)
    connected: set[object] = set()
    running: dict[int, object] = {}
    now = 0.0
    for event in told:
        now += 0.7
        match event:
            case PeerConnected(peer):
                if peer in connected:
                    continue
                connected.add(peer)
            case PeerDisconnected(peer):
                connected.discard(peer)
            case SyncEnded(number):
                running.pop(number, None)
        for out in machine.handle(event, now):
            match out:
                case StartSync(number, peer, wanted, skip):
                    assert peer in connected
                    assert peer not in running.values()
                    running[number] = peer
                    assert len(running) <= config.syncs
                    assert len(wanted) <= config.wanted
                    assert len(skip) <= config.left_out * len(PEERS)
                case SendInsert(peers) | SendUpdate(peers):
                    assert peers
                    assert connected.issuperset(peers)
                    allowed = Appended | Judged if isinstance(out, SendInsert) else object
                    assert isinstance(event, allowed)
                    assert not isinstance(event, Judged) or event.verdict is Verdict.INSERTED
                case Disconnect(peer):
                    connected.remove(peer)
                case SetTimer(_, at):
                    assert at > now


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"syncs": 0}, "syncs is 0; expected more than 0"),
        ({"stall": -1.0}, "stall is -1.0"),
        ({"backoff": 10.0, "longest_backoff": 5.0}, "backoff is 10.0, longer than longest_backoff, 5.0"),
    ],
)
def test_impossible_limits(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Config(**wrong)  # type: ignore[arg-type]
