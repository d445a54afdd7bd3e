"""`gossiplog.pubsub.episub.broadcast`."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.episub.broadcast import MOST_IDS, Broadcast
from gossiplog.pubsub.episub.config import Config, Repair
from gossiplog.pubsub.episub.events import NeighborDown, NeighborUp, Timer
from gossiplog.pubsub.episub.messages import Broadcast as Message
from gossiplog.pubsub.episub.messages import Gossip, Graft, IHave, Prune
from gossiplog.pubsub.events import Deliver, GossipAnswered, Publish, Rejected, Send, SetTimer, TimerExpired
from gossiplog.pubsub.unanswered import UnansweredMessages
from tests.strategies import repeatable

ME = "me"


class Layer:
    """The broadcast layer of ME, driven by hand."""

    def __init__(self, *neighbours: str, lazy: str = "", validation: bool = False, **options: Any) -> None:
        numbers = count(100)
        self.layer = Broadcast(ME, "t", lambda data: (ME, next(numbers)), Config(**options), validation)
        self.now = 0.0
        self.timers: dict[Any, float] = {}
        for peer in neighbours:
            assert self.tell(NeighborUp(peer)) == []
        for peer in lazy:
            self.get(peer, Prune())

    @property
    def eager(self) -> str:
        return "".join(sorted(map(str, self.layer.eager)))

    @property
    def lazy(self) -> str:
        return "".join(sorted(map(str, self.layer.lazy)))

    def tell(self, event: Any) -> list[Any]:
        return self._take(self.layer.handle(event, self.now))

    def get(self, peer: str, message: Message) -> list[Any]:
        return self._take(self.layer.receive(peer, message, self.now))

    def expire(self, timer: Timer) -> list[Any]:
        self.now = max(self.now, self.timers.pop(timer))
        return self.tell(TimerExpired(timer))

    def _take(self, events: list[Any]) -> list[Any]:
        self.timers |= {event.timer: event.at for event in events if isinstance(event, SetTimer)}
        return [event for event in events if not isinstance(event, SetTimer)]


def gossip(number: int, hops: int = 1, source: str = "s") -> Gossip:
    return Gossip(source, hops, number, b"%d" % number)


def deliver(number: int, peer: str) -> Deliver:
    return Deliver(("t",), ("s", number), b"%d" % number, peer)


def ihave(*numbers: int, hops: int = 1) -> IHave:
    return IHave(tuple((("s", number), hops) for number in numbers))


def graft(*numbers: int) -> Graft:
    return Graft(tuple(("s", number) for number in numbers))


# State


def test_neighbours_are_eager_at_first_and_nothing_is_sent() -> None:
    """Seed 004, 33 and 43."""
    layer = Layer("a", "b")
    assert (layer.eager, layer.lazy) == ("ab", "")
    layer.get("b", Prune())
    layer.tell(NeighborUp("c"))
    assert (layer.eager, layer.lazy) == ("ac", "b")
    layer.get("b", gossip(1))
    assert (layer.eager, layer.lazy) == ("abc", "")


PEERS = st.sampled_from("abcd")
NUMBERS = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("up"), PEERS),
    st.tuples(st.just("down"), PEERS),
    st.tuples(st.just("publish")),
    st.tuples(st.just("tick"), st.sampled_from([Timer.FLUSH, Timer.MISSING, Timer.EXPIRE])),
    st.tuples(st.just("gossip"), PEERS, NUMBERS, st.integers(1, 12)),
    st.tuples(st.just("ihave"), PEERS, st.lists(NUMBERS, max_size=3), st.integers(1, 12)),
    st.tuples(st.just("graft"), PEERS, st.lists(NUMBERS, max_size=3)),
    st.tuples(st.just("prune"), PEERS),
)


@repeatable(200)
@given(st.lists(STEPS, max_size=40), st.sampled_from(Repair))
def test_whatever_comes_each_message_is_delivered_once_and_links_are_eager_or_lazy(
    steps: list[tuple[Any, ...]], repair: Repair
) -> None:
    """Seed 004, 33 and 35."""
    layer = Layer("a", "b", "c", "d", repair=repair, hop_threshold=2)
    neighbours = set("abcd")
    delivered: list[Any] = []
    for step in steps:
        layer.now += 0.05
        match step:
            case "up", peer if peer not in neighbours:
                neighbours.add(peer)
                events = layer.tell(NeighborUp(peer))
            case "down", peer:
                neighbours.discard(peer)
                events = layer.tell(NeighborDown(peer))
            case ("publish",):
                events = layer.tell(Publish(("t",), b"own"))
            case "tick", timer if timer in layer.timers:
                events = layer.expire(timer)
            case "gossip", peer, number, hops:
                events = layer.get(peer, gossip(number, hops))
            case "ihave", peer, numbers, hops:
                events = layer.get(peer, ihave(*numbers, hops=hops))
            case "graft", peer, numbers:
                events = layer.get(peer, graft(*numbers))
            case "prune", peer:
                events = layer.get(peer, Prune())
            case _:
                continue
        delivered += [event.id for event in events if isinstance(event, Deliver)]
        assert len(delivered) == len(set(delivered))
        assert not set(layer.eager) & set(layer.lazy)
        assert {*layer.eager, *layer.lazy} == neighbours
        assert all(set(event.peers) <= neighbours for event in events if isinstance(event, Send))


# Messages


def test_what_is_published_goes_to_all_eager_neighbours() -> None:
    """Seed 004, 34."""
    layer = Layer("a", "b", "c", lazy="b")
    message = Gossip(ME, 1, 100, b"x")
    assert layer.tell(Publish(("t",), b"x")) == [
        Deliver(("t",), (ME, 100), b"x", None),
        Send(("a", "c"), message),
    ]
    assert layer.expire(Timer.FLUSH) == [Send(("b",), IHave((((ME, 100), 1),)))]
    assert layer.get("b", Graft(((ME, 100),))) == [Send(("b",), message)]
    assert layer.tell(Publish(("t",), b"x"))[0].id == (ME, 101)


MANY = tuple(f"peer {number:02}" for number in range(40))


def test_any_number_of_neighbours_get_what_they_are_to_get() -> None:
    """Seed 004, 34, 35, 37 and 44: more than any parameter says."""
    layer = Layer(*MANY, repair=Repair.PROMOTE)
    assert layer.tell(Publish(("t",), b"x"))[1].peers == MANY
    assert layer.get(MANY[0], gossip(1)) == [deliver(1, MANY[0]), Send(MANY[1:], gossip(1, hops=2))]
    layer.expire(Timer.FLUSH)
    for peer in MANY[1:]:
        layer.get(peer, Prune())
    layer.get(MANY[0], gossip(2))
    assert layer.expire(Timer.FLUSH) == [Send(MANY[1:], ihave(2, hops=2))]
    assert layer.tell(NeighborDown(MANY[0])) == [Send((peer,), graft()) for peer in MANY[1:]]


def test_a_copy_is_not_delivered() -> None:
    """Seed 004, 35: from whom it may come."""
    layer = Layer("a", "b", "c")
    assert layer.get("a", gossip(1))[0] == deliver(1, "a")
    assert [event for peer in "abc" for event in layer.get(peer, gossip(1)) if isinstance(event, Deliver)] == []


def test_the_first_copy_is_delivered_and_goes_on_with_one_hop_more() -> None:
    """Seed 004, 35."""
    layer = Layer("a", "b", "c", "d", lazy="bd")
    assert layer.get("b", gossip(1, hops=3)) == [deliver(1, "b"), Send(("a", "c"), gossip(1, hops=4))]
    assert (layer.eager, layer.lazy) == ("abc", "d")
    assert layer.expire(Timer.FLUSH) == [Send(("d",), ihave(1, hops=4))]
    assert layer.get("d", graft(1)) == [Send(("d",), gossip(1, hops=4))]


def test_a_message_does_not_go_back_to_its_source() -> None:
    layer = Layer("a", "s")
    assert layer.get("a", gossip(1, hops=2)) == [deliver(1, "a")]


def test_a_copy_prunes_its_sender() -> None:
    """Seed 004, 36."""
    layer = Layer("a", "b")
    layer.get("a", gossip(1))
    assert layer.get("b", gossip(1)) == [Send(("b",), Prune())]
    assert (layer.eager, layer.lazy) == ("a", "b")
    assert layer.get("a", Prune()) == []
    assert (layer.eager, layer.lazy) == ("", "ab")
    statistics = layer.layer.statistics
    assert (statistics.delivered, statistics.duplicates, statistics.prunes) == (1, 1, 1)


def test_the_queue_goes_out_as_one_announcement_to_all_lazy_neighbours() -> None:
    """Seed 004, 37."""
    layer = Layer("a", "b", "c", lazy="bc")
    layer.get("a", gossip(1))
    layer.now = 0.06
    layer.get("a", gossip(2, hops=5))
    assert layer.timers[Timer.FLUSH] == 0.1
    assert layer.expire(Timer.FLUSH) == [Send(("b", "c"), IHave(((("s", 1), 2), (("s", 2), 6))))]
    assert Timer.FLUSH not in layer.timers
    assert layer.tell(TimerExpired(Timer.FLUSH)) == []
    layer.get("a", gossip(3))
    assert layer.timers[Timer.FLUSH] == 0.2
    for peer in "bc":
        layer.tell(NeighborDown(peer))
    assert layer.expire(Timer.FLUSH) == []


def test_the_queue_is_emptied_where_nobody_is_lazy() -> None:
    """Seed 004, 37: else the timer would not be set again."""
    layer = Layer("a", "b")
    layer.get("a", gossip(1))
    assert layer.expire(Timer.FLUSH) == []
    layer.get("b", Prune())
    layer.get("a", gossip(2))
    assert layer.expire(Timer.FLUSH) == [Send(("b",), ihave(2, hops=2))]


def test_long_queues_go_out_in_parts() -> None:
    """Seed 004, 37: all of the ids."""
    layer = Layer("a", "b", lazy="b")
    for number in range(MOST_IDS + 1):
        layer.get("a", gossip(number))
    sizes = [len(send.packet.summary) for send in layer.expire(Timer.FLUSH)]
    assert sizes == [MOST_IDS, 1]


# Repair


def test_an_announced_message_is_marked_by_one_tick_and_grafted_for_at_the_second() -> None:
    """Seed 004, 38 and 39: of the first announcer, with what else it announced; the link becomes eager."""
    layer = Layer("a", "b", "c", lazy="abc")
    assert layer.get("a", ihave(1, 2)) == []
    layer.now = 0.1
    layer.get("b", ihave(1, 3))
    assert layer.timers[Timer.MISSING] == 0.25
    assert layer.expire(Timer.MISSING) == []
    assert layer.expire(Timer.MISSING) == [Send(("a",), graft(1, 2)), Send(("b",), graft(3))]
    assert (layer.eager, layer.lazy) == ("ab", "c")
    assert layer.layer.statistics.grafts == 2


def test_what_comes_in_time_is_not_grafted_for() -> None:
    """Seed 004, 38."""
    layer = Layer("a", "b", lazy="b")
    layer.get("b", ihave(1))
    layer.expire(Timer.MISSING)
    layer.get("a", gossip(1, hops=2))
    assert layer.expire(Timer.MISSING) == []
    assert Timer.MISSING not in layer.timers
    layer.get("b", ihave(1))
    assert Timer.MISSING not in layer.timers


def test_a_graft_makes_the_link_eager_and_gets_what_the_cache_has() -> None:
    """Seed 004, 39 and 40."""
    layer = Layer("a", "b", "c", lazy="bc")
    layer.get("a", gossip(1))
    layer.get("a", gossip(2))
    sent = layer.get("b", graft(2, 7, 1))
    assert sent == [Send(("b",), gossip(2, hops=2)), Send(("b",), gossip(1, hops=2))]
    assert (layer.eager, layer.lazy) == ("ab", "c")
    assert layer.get("c", graft()) == []
    assert layer.eager == "abc"


def test_each_later_tick_asks_the_next_announcer_until_the_message_is_lost() -> None:
    """Seed 004, 41."""
    layer = Layer("a", "b", "c", lazy="abc", lost_ticks=4)
    for peer in "abc":
        layer.get(peer, ihave(1))
    asked = [[send.peers[0] for send in layer.expire(Timer.MISSING)] for _ in range(5)]
    assert asked == [[], ["a"], ["b"], ["c"], ["a"]]
    assert layer.layer.statistics.lost == 0
    assert layer.expire(Timer.MISSING) == []
    assert layer.layer.statistics.lost == 1
    assert Timer.MISSING not in layer.timers
    assert layer.get("b", gossip(1)) == [deliver(1, "b"), Send(("a", "c"), gossip(1, hops=2))]


def test_an_announcer_without_the_message_does_not_hold_up_others() -> None:
    """Seed 004, 39 and 41: what goes along with another message does so once."""
    layer = Layer("a", "b", lazy="ab")
    layer.get("a", ihave(1, 2))
    layer.get("b", ihave(2))
    layer.expire(Timer.MISSING)
    assert layer.expire(Timer.MISSING) == [Send(("a",), graft(1, 2))]
    assert layer.expire(Timer.MISSING) == [Send(("a",), graft(1)), Send(("b",), graft(2))]


def test_a_graft_takes_along_what_others_announced_first() -> None:
    """Seed 004, 39: if its receiver has announced that, too."""
    layer = Layer("a", "b", lazy="ab")
    layer.get("a", ihave(1))
    layer.get("b", ihave(2))
    layer.get("a", ihave(2))
    layer.expire(Timer.MISSING)
    assert layer.expire(Timer.MISSING) == [Send(("a",), graft(1, 2))]


def test_who_is_gone_is_not_asked() -> None:
    layer = Layer("a", "b", lazy="ab")
    layer.get("a", ihave(1))
    layer.get("b", ihave(1))
    layer.tell(NeighborDown("a"))
    layer.expire(Timer.MISSING)
    assert layer.expire(Timer.MISSING) == [Send(("b",), graft(1))]
    layer.tell(NeighborDown("b"))
    assert layer.expire(Timer.MISSING) == []
    assert Timer.MISSING in layer.timers


def test_for_a_while_after_a_graft_for_messages_copies_prune_nothing() -> None:
    layer = Layer("a", "b", "c", lazy="b", graft_grace=0.5)
    layer.get("b", ihave(1))
    layer.expire(Timer.MISSING)
    layer.expire(Timer.MISSING)
    layer.get("a", gossip(1))
    assert layer.get("b", gossip(1)) == []
    assert layer.eager == "abc"
    # At the other end of the link likewise.
    layer.get("c", graft(1))
    assert layer.get("c", gossip(1)) == []
    layer.now += 0.5
    assert layer.get("b", gossip(1)) == [Send(("b",), Prune())]
    assert layer.get("c", gossip(1)) == [Send(("c",), Prune())]


# Optimization


def test_an_announcer_that_is_nearer_by_more_than_the_threshold_takes_the_senders_place() -> None:
    """Seed 004, 42: whether the announcement or the message came first."""
    for announced_first in (True, False):
        layer = Layer("a", "b", lazy="b", hop_threshold=3)
        events = []
        for step in (0, 1) if announced_first else (1, 0):
            events += layer.get("b", ihave(1, hops=2)) if step == 0 else layer.get("a", gossip(1, hops=6))
        assert events == [deliver(1, "a"), Send(("b",), graft()), Send(("a",), Prune())]
        assert (layer.eager, layer.lazy) == ("b", "a")


def test_the_announcer_with_the_fewest_hops_is_grafted() -> None:
    """Seed 004, 42."""
    layer = Layer("a", "b", "c", lazy="bc", hop_threshold=3)
    layer.get("c", ihave(1, hops=5))
    layer.get("b", ihave(1, hops=2))
    assert layer.get("a", gossip(1, hops=6)) == [deliver(1, "a"), Send(("b",), graft()), Send(("a",), Prune())]


def test_at_the_threshold_nothing_happens() -> None:
    """Seed 004, 42."""
    layer = Layer("a", "b", "c", lazy="b", hop_threshold=3)
    layer.get("b", ihave(1, 2, hops=2))
    assert layer.get("a", gossip(1, hops=5)) == [deliver(1, "a"), Send(("c",), gossip(1, hops=6))]
    # Nor if the announcer is eager already.
    assert layer.get("b", ihave(1, hops=2)) == []
    layer.get("c", gossip(2, hops=6))
    assert (layer.eager, layer.lazy) == ("ab", "c")
    assert layer.get("b", ihave(2, hops=1)) == []


def test_two_alternating_sources_do_not_make_the_links_flutter() -> None:
    """Seed 004, 42: with the default threshold; with one of a single hop they do."""
    changes = {}
    for threshold in (Config().hop_threshold, 1):
        layer = Layer("a", "b", lazy="b", hop_threshold=threshold)
        changes[threshold] = 0
        for number in range(20):
            near, far = ("a", "b") if number % 2 else ("b", "a")
            sender = layer.eager
            hops = 2 if sender == near else 6
            other = far if sender == near else near
            layer.get(sender, gossip(number, hops))
            layer.get(other, ihave(number, hops=8 - hops))
            changes[threshold] += layer.eager != sender
    assert changes == {7: 0, 1: 20}


# Neighbours that go


def test_the_loss_of_a_lazy_neighbour_costs_nothing() -> None:
    """Seed 004, 43."""
    for repair in Repair:
        layer = Layer("a", "b", "c", lazy="bc", repair=repair)
        assert layer.tell(NeighborDown("b")) == []
        assert (layer.eager, layer.lazy) == ("a", "c")


def test_the_loss_of_an_eager_neighbour_is_waited_out_or_repaired_at_once() -> None:
    """Seed 004, 44."""
    waiting = Layer("a", "b", "c", lazy="bc", repair=Repair.WAIT)
    assert waiting.tell(NeighborDown("a")) == []
    assert (waiting.eager, waiting.lazy) == ("", "bc")
    promoting = Layer("a", "b", "c", lazy="bc", repair=Repair.PROMOTE)
    assert promoting.tell(NeighborDown("a")) == [Send(("b",), graft()), Send(("c",), graft())]
    assert (promoting.eager, promoting.lazy) == ("bc", "")
    # The next message's copies prune what is too much.
    promoting.get("b", gossip(1))
    assert promoting.get("c", gossip(1)) == [Send(("c",), Prune())]


# Limits


def test_the_cache_is_timed_and_so_are_the_ids() -> None:
    """Seed 004, 33 and 40."""
    layer = Layer("a", "b", "c", lazy="b", cache_time=10.0, seen_time=20.0)
    layer.get("a", gossip(1))
    assert layer.timers[Timer.EXPIRE] == 10.0
    layer.now = 5.0
    layer.get("a", gossip(2))
    layer.expire(Timer.EXPIRE)
    assert layer.get("b", graft(1, 2)) == [Send(("b",), gossip(2, hops=2))]
    layer.now = 16.0
    assert layer.get("c", gossip(1)) == [Send(("c",), Prune())]
    layer.expire(Timer.EXPIRE)
    while Timer.EXPIRE in layer.timers:
        layer.expire(Timer.EXPIRE)
    assert layer.now == pytest.approx(26.0)
    assert layer.get("a", gossip(1))[0] == deliver(1, "a")


def test_cache_and_ids_are_bounded_in_size() -> None:
    layer = Layer("a", "b", lazy="b", cache_bytes=10, seen=4)
    for number in range(10, 16):
        layer.get("a", gossip(number))
    held = layer.get("b", graft(*range(10, 16)))
    assert [send.packet.number for send in held] == [12, 13, 14, 15]
    layer.get("a", Gossip("s", 1, 20, b"more than ten bytes"))
    assert layer.get("b", graft(*range(10, 21))) == []
    assert layer.get("a", gossip(10))[0] == deliver(10, "a")


def test_floods_of_announcements_are_bounded_by_neighbour() -> None:
    layer = Layer("a", "b", lazy="ab", missing=5, lost_ticks=2)
    layer.get("a", ihave(*range(1000)))
    layer.get("b", ihave(*range(2000, 2003)))
    layer.expire(Timer.MISSING)
    asked = {send.peers[0]: len(send.packet.msgs) for send in layer.expire(Timer.MISSING)}
    assert asked == {"a": 5, "b": 3}
    layer.get("a", gossip(0))
    layer.get("a", ihave(500, 501))
    layer.expire(Timer.MISSING)
    layer.expire(Timer.MISSING)
    assert layer.layer.statistics.lost == 7
    layer.get("a", ihave(600))
    assert layer.timers[Timer.MISSING] > layer.now


def test_floods_of_grafts_are_answered_up_to_a_limit_a_second() -> None:
    layer = Layer("a", "b", "c", lazy="bc", grafted=3)
    layer.get("a", gossip(1))
    assert len(layer.get("b", graft(1, 1, 1, 1, 1))) == 3
    assert layer.get("b", graft(1)) == []
    assert len(layer.get("c", graft(1))) == 1
    layer.now = 1.0
    assert len(layer.get("b", graft(1))) == 1


def test_strangers_and_forgeries_are_ignored() -> None:
    layer = Layer("a", "b")
    for message in (gossip(1), ihave(1), graft(1), Prune()):
        assert layer.get("stranger", message) == []
    assert (layer.eager, layer.lazy) == ("ab", "")
    assert layer.get("a", Gossip(ME, 3, 7, b"forged")) == []
    layer.get("a", IHave((((ME, 8), 1),)))
    assert Timer.MISSING not in layer.timers
    assert layer.tell(NeighborDown("stranger")) == []


def test_hops_do_not_grow_beyond_what_can_be_written() -> None:
    layer = Layer("a", "b")
    [_, send] = layer.get("a", gossip(1, hops=2**16 - 1))
    assert send.packet.hops == 2**16 - 1


def test_who_leaves_forgets() -> None:
    layer = Layer("a", "b", lazy="b")
    layer.get("a", gossip(1))
    layer.get("b", ihave(2))
    layer.layer.forget()
    assert (layer.eager, layer.lazy) == ("", "")
    layer.tell(NeighborUp("a"))
    assert layer.expire(Timer.FLUSH) == []
    assert layer.expire(Timer.MISSING) == []
    assert layer.expire(Timer.EXPIRE) == []
    assert layer.get("a", gossip(1))[0] == deliver(1, "a")


# Validation


def answered(number: int, answer: GossipAnswer) -> GossipAnswered:
    return GossipAnswered(("s", number), answer)


def test_a_message_waits_for_the_answer_and_then_goes_to_those_who_did_not_send_it() -> None:
    """Seed 004, 46."""
    layer = Layer("a", "b", "c", "d", validation=True)
    assert layer.get("a", gossip(1)) == [deliver(1, "a")]
    # A copy prunes its link at once; its sender has the message.
    assert layer.get("b", gossip(1)) == [Send(("b",), Prune())]
    assert layer.get("d", graft(1)) == []
    layer.get("b", graft())
    assert Timer.FLUSH not in layer.timers
    assert layer.eager == "abcd"
    assert layer.tell(answered(1, GossipAnswer.ACCEPT)) == [Send(("c", "d"), gossip(1, 2))]
    assert layer.get("d", graft(1)) == [Send(("d",), gossip(1, 2))]
    layer.get("b", Prune())
    assert layer.expire(Timer.FLUSH) == [Send(("b",), ihave(1, hops=2))]
    assert layer.tell(answered(1, GossipAnswer.ACCEPT)) == []
    assert layer.get("c", gossip(1)) == [Send(("c",), Prune())]


@pytest.mark.parametrize("answer", [GossipAnswer.IGNORE, GossipAnswer.REJECT])
def test_what_is_not_accepted_goes_nowhere_and_is_held_against_all_who_sent_it(answer: GossipAnswer) -> None:
    """Seed 004, 46."""
    layer = Layer("a", "b", "c", lazy="d", validation=True)
    layer.get("a", gossip(1))
    layer.get("b", gossip(1))
    expected = [Rejected(("a", "b"))] if answer is GossipAnswer.REJECT else []
    assert layer.tell(answered(1, answer)) == expected
    assert layer.get("c", graft(1)) == []
    assert Timer.FLUSH not in layer.timers
    # It is not new again.
    layer.now += 1.0
    assert layer.get("c", gossip(1)) == [Send(("c",), Prune())]
    assert layer.tell(answered(1, answer)) == []


def test_what_is_forgotten_before_its_answer_goes_nowhere() -> None:
    """Seed 004, 46."""
    layer = Layer("a", "b", validation=True, seen=2)
    for number in (1, 2, 3):
        layer.get("a", gossip(number))
    assert layer.tell(answered(1, GossipAnswer.ACCEPT)) == []
    assert layer.tell(answered(2, GossipAnswer.ACCEPT)) == [Send(("b",), gossip(2, 2))]


def test_a_message_that_finds_no_room_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 004, 46."""
    monkeypatch.setattr("gossiplog.pubsub.episub.broadcast.UnansweredMessages", lambda: UnansweredMessages(1))
    layer = Layer("a", "b", validation=True)
    assert layer.get("a", gossip(1)) == [deliver(1, "a")]
    assert layer.get("a", gossip(2)) == []
    assert layer.layer.statistics.delivered == 1
    layer.tell(answered(1, GossipAnswer.ACCEPT))
    assert layer.get("b", gossip(2)) == [Send(("b",), Prune())]
    assert layer.get("a", gossip(3)) == [deliver(3, "a")]


def test_own_messages_wait_for_nobody() -> None:
    """Seed 004, 46."""
    layer = Layer("a", validation=True)
    (delivery, sent) = layer.tell(Publish(("t",), b"own"))
    assert isinstance(delivery, Deliver)
    assert sent == Send(("a",), Gossip(ME, 1, 100, b"own"))
