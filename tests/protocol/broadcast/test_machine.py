"""`gossiplog.protocol.broadcast.machine`: each of its rules, and what strangers may do to it.

What whole networks of it do is in tests/sim.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.protocol.broadcast import events
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    ACCEPTED,
    AnnounceDue,
    Appended,
    Delivery,
    Disconnect,
    GossipAnswer,
    GossipAnswered,
    HeadsReceived,
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
    SyncResult,
    TimerExpired,
    Verdict,
)
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.protocol.sync import SyncStatistics
from tests.protocol.bench import Bench, key, timers
from tests.strategies import repeatable

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


def test_of_many_that_gossip_reaches_a_sync_tells_some_at_once_and_all_later() -> None:
    """Broadcast, 1 and 11."""
    gossiping = [f"g{number}" for number in range(20)]
    bench = Bench("a", "b", gossiping=gossiping, config=BroadcastConfig(fanout=3, announce=5.0))
    told = set[object]()
    for number in range(30):
        sync = bench.sync("a", number)
        bench.tell(SyncBrought(sync, [key(number)], 1))
        outs = bench.all(SyncEnded(sync, SyncResult.FINISHED))
        assert timers(outs) == ({AnnounceDue(): 5.0} if number == 0 else {})
        (update,) = (out for out in outs if isinstance(out, SendUpdate))
        first, *others = update.peers
        assert first == "b"
        assert len(others) == len({*others} & {*gossiping}) == 3
        told |= {*others}
    assert told == {*gossiping}
    assert bench.tell(TimerExpired(AnnounceDue())) == [SendUpdate(tuple(gossiping))]


def test_of_few_that_gossip_reaches_a_sync_tells_all_at_once() -> None:
    """Broadcast, 1."""
    bench = Bench("a", gossiping="ghi", config=BroadcastConfig(fanout=3))
    sync = bench.sync("a", 1)
    bench.tell(SyncBrought(sync, [key(1)], 1))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == [SendUpdate(("g", "h", "i"))]


def test_what_came_by_push_goes_to_all_others_and_to_gossip() -> None:
    """Broadcast, 2."""
    bench = Bench("a", "b", "c")
    outs = bench.judged("a", 1, Verdict.INSERTED)
    assert outs == [SendInsert(("b", "c"), key(1), b"value"), Publish(key(1), b"value")]


def test_what_gossip_accepted_before_is_pushed_but_neither_answered_nor_published() -> None:
    """Broadcast, 3."""
    bench = Bench("a", gossiping=["g"])
    assert bench.judged("g", 1, Verdict.INSERTED, ACCEPTED)[0] == SendInsert(("a",), key(1), b"value")
    assert bench.judged("g", 2, Verdict.DUPLICATE, ACCEPTED) == []
    assert bench.judged("g", 3, Verdict.REFUSED, ACCEPTED)[1:] == []
    assert not [out for out in bench.judged("g", 5, Verdict.ORPHAN, ACCEPTED, missing=[key(4)]) if is_answer(out)]


def is_answer(out: OutEvent) -> bool:
    return isinstance(out, GossipAnswered | Publish)


def test_what_came_by_gossip_is_accepted_and_pushed_but_not_published() -> None:
    """Broadcast, 2."""
    bench = Bench("a", gossiping=["g", "h"])
    outs = bench.judged("g", 1, Verdict.INSERTED, "ticket")
    assert outs == [GossipAnswered("g", "ticket", GossipAnswer.ACCEPT), SendInsert(("a",), key(1), b"value")]


@pytest.mark.parametrize(
    "verdict", [Verdict.DUPLICATE, Verdict.ORPHAN, Verdict.REFUSED, Verdict.UNSTORED, Verdict.INVALID]
)
def test_nothing_else_is_forwarded(verdict: Verdict) -> None:
    """Broadcast, 3."""
    bench = Bench("a", "b", gossiping=["g"])
    outs = bench.judged("a", 1, verdict) + bench.judged("g", 2, verdict, "ticket")
    assert not [out for out in outs if isinstance(out, SendInsert | Publish)]


def test_a_duplicate_by_gossip_is_accepted_because_others_may_lack_it() -> None:
    """Broadcast, 2."""
    assert Bench(gossiping=["g"]).judged("g", 1, Verdict.DUPLICATE, "ticket") == [
        GossipAnswered("g", "ticket", GossipAnswer.ACCEPT)
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
        GossipAnswered("g", "ticket", GossipAnswer.REJECT)
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
    bench = Bench("a", config=BroadcastConfig(broken_promises=3))
    outs: list[OutEvent] = []
    for number in range(3):
        bench.now += 1000.0
        sync = bench.sync("a", number)
        outs = bench.tell(SyncEnded(sync, SyncResult.FINISHED))
    assert outs == [Disconnect("a", "it advertised messages that it does not have, 3 times")]


def test_who_passes_on_gossip_may_store_it_later() -> None:
    """Broadcast, 9: what came by gossip is asked for twice before it counts as a promise."""
    bench = Bench(gossiping=["g"], config=BroadcastConfig(broken_promises=1))
    bench.judged("g", 3, Verdict.ORPHAN, "ticket", missing=[key(2)])
    bench.now += 1000.0
    (started,) = starts(bench.tell(TimerExpired(OrphansDue())))
    assert started.advertised == (key(3),)
    bench.tell(SyncEnded(started.sync, SyncResult.FINISHED))
    bench.now += 1000.0
    (again,) = starts(bench.tell(TimerExpired(SyncDue("g"))))
    assert again.advertised == (key(3),)
    outs = bench.tell(SyncEnded(again.sync, SyncResult.FINISHED))
    assert outs == [Disconnect("g", "it advertised messages that it does not have, 1 times")]


def test_what_came_by_gossip_and_was_advertised_as_well_is_a_promise() -> None:
    """Broadcast, 9."""
    bench = Bench(gossiping=["g"], config=BroadcastConfig(broken_promises=1))
    bench.judged("g", 3, Verdict.ORPHAN, "ticket", missing=[key(2)])
    bench.now += 1000.0
    (started,) = starts(bench.tell(TimerExpired(OrphansDue())))
    bench.tell(HeadsReceived("g", (key(3),)))
    assert any(isinstance(out, Disconnect) for out in bench.tell(SyncEnded(started.sync, SyncResult.FINISHED)))


@pytest.mark.parametrize("inserted", [0, 1])
def test_a_liar_by_gossip_is_disconnected_whenever_it_lies(inserted: int) -> None:
    """Broadcast, 9: that a key is asked for again keeps no promise, and the second time comes after a pause."""
    bench = Bench(gossiping=["g"], config=BroadcastConfig(broken_promises=3))
    outs: list[OutEvent] = []
    for number in range(3):
        bench.judged("g", 10 * number + 5, Verdict.ORPHAN, f"ticket {number}", missing=[key(2)])
        for due in (OrphansDue(), SyncDue("g")):
            bench.now += 1000.0
            (started,) = starts(bench.tell(TimerExpired(due)))
            bench.tell(SyncBrought(started.sync, [key(100 + number)] * inserted, inserted))
            outs = bench.tell(SyncEnded(started.sync, SyncResult.FINISHED))
            assert not starts(outs)
    assert any(isinstance(out, Disconnect) for out in outs)


def starts(outs: Sequence[OutEvent]) -> list[StartSync]:
    return [out for out in outs if isinstance(out, StartSync)]


def test_who_keeps_a_promise_begins_anew() -> None:
    """Broadcast, 9: only those in a row count."""
    bench = Bench("a", config=BroadcastConfig(broken_promises=3))
    for number in range(9):
        bench.now += 1000.0
        sync = bench.sync("a", number)
        held = [key(number)] if number % 3 == 2 else []
        assert bench.tell(SyncEnded(sync, SyncResult.FINISHED, held)) == []


def test_what_was_refused_and_forgotten_is_no_broken_promise() -> None:
    """Broadcast, 9."""
    bench = Bench("a", config=BroadcastConfig(skipped=2, broken_promises=1))
    sync = bench.sync("a", 9)
    bench.tell(SyncBrought(sync, [], 0, [key(number) for number in range(5)]))
    assert bench.tell(SyncEnded(sync, SyncResult.FINISHED)) == []


def test_gossip_of_strangers_is_as_good_as_any() -> None:
    """Broadcast, 2 and 12."""
    bench = Bench(gossiping=["g"])
    assert bench.judged("x", 1, Verdict.INSERTED, "valid") == [GossipAnswered("x", "valid", GossipAnswer.ACCEPT)]
    assert bench.judged("x", 2, Verdict.INVALID, "invalid") == [GossipAnswered("x", "invalid", GossipAnswer.REJECT)]
    assert bench.judged("x", 3, Verdict.REFUSED, "refused") == [GossipAnswered("x", "refused", GossipAnswer.IGNORE)]
    assert bench.judged("x", 5, Verdict.ORPHAN, "orphan", missing=[key(4)]) == []
    bench.now = BroadcastConfig().orphan_wait
    # There is nobody to sync with.
    assert bench.tell(TimerExpired(OrphansDue())) == [GossipAnswered("x", "orphan", GossipAnswer.IGNORE)]


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
        SyncAdvanced(7, SyncStatistics()),
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
    bench = Bench("a", gossiping=["g", "h"], config=BroadcastConfig(announce=5.0))
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
TICKETS = st.sampled_from([None, "ticket", ACCEPTED])
DELIVERIES = st.builds(Delivery, st.sampled_from(PEERS), KEYS, st.just(b""), TICKETS)
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


@pytest.mark.slow
@repeatable(300)
@given(st.lists(EVENTS, max_size=120), st.integers(0, 2**32))
def test_promises_hold_whatever_happens(told: list[events.InEvent], seed: int) -> None:
    config = BroadcastConfig(syncs=2, advertised=3, skipped=3)
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
                    assert len(wanted) <= config.advertised
                    assert len(skip) <= config.skipped * len(PEERS)
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
        (
            {"backoff": 10.0, "longest_backoff": 5.0},
            "backoff is 10.0, longest_backoff 5.0; expected 0 <= backoff <=",
        ),
    ],
)
def test_impossible_limits(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        BroadcastConfig(**wrong)  # type: ignore[arg-type]
