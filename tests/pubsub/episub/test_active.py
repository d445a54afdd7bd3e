"""`gossiplog.pubsub.episub.active`."""

from __future__ import annotations

from typing import Any

import pytest

from gossiplog.pubsub.episub.events import TimeOut, Timer, Wait
from gossiplog.pubsub.episub.messages import Disconnect, Leave, Neighbor
from gossiplog.pubsub.events import Connect, ConnectFailed, PeerDisconnected, Ping, RoundTrip, Send
from gossiplog.pubsub.events import Leave as LeaveTopic
from tests.pubsub.episub.harness import ME, Lone, Net, peers_of, sent

FULL = ("n1", "n2", "n3", "n4", "n5", "n6", "n7")
OTHERS = ("x1", "x2", "x3", "x4", "x5")


def full(**options: Any) -> Lone:
    """With A neighbours: n1 is 0.1 s away, n2 0.2 s, and so on; each has A links."""
    lone = Lone(*FULL, **options)
    lone.tell_lists(**dict.fromkeys(FULL, 7))
    lone.measure(**{peer: number / 10 for number, peer in enumerate(FULL, 1)})
    return lone


def dropped(events: list[Any]) -> list[Any]:
    return [peer for peer, message in sent(events) if message == Disconnect()]


# Accepting


def test_a_request_below_a_is_accepted() -> None:
    """Seed 004, 14."""
    lone = Lone("n1")
    lone.connect("new")
    assert sent(lone.get("new", Neighbor(OTHERS))) == [("new", Neighbor(("n1", "new")))]
    assert list(lone.views.active) == ["n1", "new"]


def test_requests_are_accepted_up_to_a() -> None:
    """Seed 004, 14 and 16: the one after the last is measured."""
    lone = Lone()
    for number, peer in enumerate(FULL, 1):
        lone.connect(peer)
        assert sent(lone.get(peer, Neighbor(OTHERS))) == [(peer, Neighbor(FULL[:number]))]
    lone.connect("new")
    assert peers_of(lone.get("new", Neighbor(OTHERS)), Ping) == ["new"]
    assert list(lone.views.active) == list(FULL)


def test_a_request_with_few_links_is_accepted_by_a_full_node() -> None:
    """Seed 004, 15 and 17: as a random neighbour, and nobody is dropped for it."""
    lone = full()
    lone.connect("new", "other")
    assert sent(lone.get("new", Neighbor(OTHERS[:3]))) == [("new", Neighbor((*FULL, "new")))]
    assert peers_of(lone.get("other", Neighbor(OTHERS[:4])), Ping) == ["other"]
    assert list(lone.views.active) == [*FULL, "new"]


def test_a_request_of_one_who_is_nearer_by_alpha_replaces_a_near_neighbour() -> None:
    """Seed 004, 16: the near ones are n1, n2 and n3."""
    lone = full()
    lone.connect("new")
    assert lone.get("new", Neighbor(OTHERS))[0] == Ping("new")
    events = sent(lone.tell(RoundTrip("new", 0.149)))
    assert events == [("n3", Disconnect()), ("new", Neighbor(("n1", "n2", "n4", "n5", "n6", "n7", "new")))]
    assert lone.views.near() == ["n2", "new", "n1"]
    assert "n3" in lone.views.passive


@pytest.mark.parametrize(("seconds", "alpha", "links"), [(0.151, 2.0, 7), (0.01, float("inf"), 7), (0.099, 2.0, 4)])
def test_other_requests_are_rejected_by_a_full_node(seconds: float, alpha: float, links: int) -> None:
    """Seed 004, 16: too far away, proximity turned off, near neighbours with too few links."""
    lone = full(alpha=alpha)
    lone.tell_lists(n1=links, n2=links, n3=links)
    lone.connect("new")
    lone.get("new", Neighbor(OTHERS))
    assert sent(lone.tell(RoundTrip("new", seconds))) == [("new", Disconnect())]
    assert list(lone.views.active) == list(FULL)


def test_a_request_whose_round_trip_is_not_known_in_time_is_rejected() -> None:
    lone = full()
    lone.connect("new")
    lone.get("new", Neighbor(OTHERS))
    assert sent(lone.expire(TimeOut(Wait.JUDGING, "new"))) == [("new", Disconnect())]
    assert sent(lone.tell(RoundTrip("new", 0.01))) == []


def test_a_peer_that_states_a_link_that_is_not_wanted_is_disconnected() -> None:
    lone = full()
    lone.connect("new")
    assert sent(lone.get("new", Neighbor(("x", ME)))) == [("new", Disconnect())]
    few = Lone("n1")
    few.connect("new")
    assert sent(few.get("new", Neighbor(("x", ME)))) == []
    assert list(few.views.active) == ["n1", "new"]


def test_a_neighbour_that_asks_gets_the_list_and_one_that_states_gets_nothing() -> None:
    """Seed 004, 22: the second role of NEIGHBOR."""
    lone = Lone("n1", "n2")
    assert sent(lone.get("n1", Neighbor(OTHERS))) == [("n1", Neighbor(("n1", "n2")))]
    assert lone.views.active["n1"].peers == {ME, *OTHERS}
    assert sent(lone.get("n1", Neighbor((ME, "x1")))) == []
    assert lone.views.active["n1"].peers == {ME, "x1"}


def test_two_that_ask_each_other_have_both_accepted() -> None:
    lone = Lone("n1", "n2")
    lone.learn("p1")
    lone.tell(PeerDisconnected("n2"))
    lone.connect("p1")
    events = sent(lone.get("p1", Neighbor(OTHERS)))
    assert events == [("p1", Neighbor(("n1", "p1")))]
    assert sent(lone.get("p1", Neighbor((ME, *OTHERS)))) == []


def test_nobody_is_accepted_beyond_the_limit_and_few_are_judged_at_a_time() -> None:
    """Floods of NEIGHBOR leave bounded state."""
    lone = full(most_links=8, under_way=3)
    for number in range(20):
        lone.connect(f"x{number}", f"y{number}")
    pinged = [peer for number in range(20) for peer in peers_of(lone.get(f"x{number}", Neighbor(OTHERS)), Ping)]
    assert len(pinged) == 3
    answers = [sent(lone.get(f"y{number}", Neighbor(()))) for number in range(20)]
    assert [answer for [(_, answer)] in answers].count(Disconnect()) == 19
    assert len(lone.views.active) == 8


# Filling


def test_passive_peers_are_asked_when_neighbours_are_lacking() -> None:
    """Seed 004, 25 and 13: as many as are lacking, nearest first."""
    lone = Lone("n1", random_links=1, near_links=2)
    lone.learn("p1", "p2", "p3")
    lone.connect("p1", "p2", "p3")
    for peer, rtt in {"p1": 0.3, "p2": 0.1, "p3": 0.2}.items():
        lone.views.measured(peer, rtt)
    assert sent(lone.expire(Timer.STABILIZE)) == [("p2", Neighbor(("n1",))), ("p3", Neighbor(("n1",)))]
    # Rejected by one, the next is asked, and this one not again for a while; accepted by the other, nobody is.
    assert sent(lone.get("p2", Disconnect())) == [("p1", Neighbor(("n1",)))]
    assert sent(lone.get("p3", Neighbor((ME,)))) == []
    assert list(lone.views.active) == ["n1", "p3"]
    assert sent(lone.expire(TimeOut(Wait.NEIGHBOR, "p1"))) == []
    lone.now += 60.0
    asked = dict(sent(lone.expire(Timer.STABILIZE)))
    assert asked["p2"] == Neighbor(("n1", "p3"))


def test_who_was_asked_counts_as_if_it_had_accepted() -> None:
    """Seed 004, 25: until it has answered, nobody else is asked in its place."""
    lone = Lone("n1", random_links=1, near_links=1)
    nearest_known(lone, 0.1)
    assert sent(lone.expire(Timer.STABILIZE)) == [("p1", Neighbor(("n1",)))]
    assert sent(lone.expire(Timer.STABILIZE)) == []
    assert sent(lone.get("p1", Disconnect())) == [("p2", Neighbor(("n1",)))]


def test_rejections_are_remembered_for_a_limited_number_of_peers() -> None:
    """Floods of DISCONNECT leave bounded state: as many as the passive list has peers."""
    lone = Lone("n1", random_links=1, near_links=1, passive_factor=2)
    lone.learn("p1")
    lone.views.measured("p1", 0.1)
    lone.connect("p1")
    request = ("p1", Neighbor(("n1",)))
    assert sent(lone.expire(Timer.STABILIZE)) == [request]
    lone.get("p1", Disconnect())
    for number in range(4):
        lone.link(f"x{number}")
        assert (request in sent(lone.get(f"x{number}", Disconnect()))) == (number == 3)
        lone.get("n1", Leave(f"x{number}", 0))


def test_a_passive_peer_that_cannot_be_reached_is_forgotten_and_the_next_is_asked() -> None:
    lone = Lone("n1", "n2", random_links=1, near_links=1)
    lone.learn("p1", "p2")
    [first] = peers_of(lone.tell(PeerDisconnected("n2")), Connect)
    [second] = peers_of(lone.tell(ConnectFailed(first)), Connect)
    assert {first, second} == {"p1", "p2"}
    assert list(lone.views.passive) == [second]


# Leaving and failures


def test_a_neighbour_that_disconnects_is_dropped_at_once() -> None:
    """Seed 004, 18: it stays in the passive list, whose checks find out."""
    lone = Lone("n1", "n2", random_links=1, near_links=1)
    lone.learn("p1")
    events = lone.get("n2", Disconnect())
    assert list(lone.views.active) == ["n1"]
    assert lone.router.eager == ("n1",)
    assert "n2" in lone.views.passive
    assert peers_of(events, Connect) == ["p1"]


def test_leaving_is_told_by_leave_or_by_disconnect() -> None:
    """Seed 004, 18 and 19."""
    for eager, farewell in ((True, Leave(ME, 2)), (False, Disconnect())):
        lone = Lone("n1", "n2", eager_leave=eager, leave_ttl=2)
        assert sent(lone.tell(LeaveTopic(""))) == [("n1", farewell), ("n2", farewell)]
        assert not lone.views.active
        assert not lone.views.passive
        assert lone.router.eager == ()


def test_leave_is_passed_on_where_it_removed_somebody_or_while_its_ttl_lasts() -> None:
    """Seed 004, 19."""
    lone = Lone("n1", "n2", "n3", leave_ttl=2)
    lone.learn("p1")
    everybody = {("n2", Leave("p1", 0)), ("n3", Leave("p1", 0))}
    assert set(sent(lone.get("n1", Leave("p1", 0)))) == everybody
    assert not lone.views.passive
    assert sent(lone.get("n1", Leave("p1", 0))) == []
    assert set(sent(lone.get("n1", Leave("p1", 1)))) == everybody
    assert sent(lone.get("n2", Leave("n2", 0))) == [("n1", Leave("n2", 0)), ("n3", Leave("n2", 0))]
    assert list(lone.views.active) == ["n1", "n3"]
    assert sent(lone.get("n1", Leave(ME, 2))) == []


def test_only_a_neighbour_itself_says_that_it_leaves() -> None:
    """Seed 004, 19: anybody could have any other node dropped for ever."""
    lone = Lone("n1", "n2", "n3")
    # However often it is said, there is one ping at a time.
    assert peers_of(lone.get("n1", Leave("n2", 65535)), Ping) == ["n2"]
    assert lone.get("n1", Leave("n2", 65535)) == []
    lone.tell(RoundTrip("n2", 0.1))
    assert list(lone.views.active) == ["n1", "n2", "n3"]
    assert lone.router.eager == ("n1", "n2", "n3")
    # One that is gone does not answer.
    assert peers_of(lone.get("n3", Leave("n2", 0)), Ping) == ["n2"]
    lone.tell(RoundTrip("n2", None))
    assert list(lone.views.active) == ["n1", "n3"]
    # Who comes again is doubted anew.
    assert peers_of(lone.get("n1", Leave("n3", 0)), Ping) == ["n3"]
    lone.get("n3", Disconnect())
    lone.link("n3")
    assert peers_of(lone.get("n1", Leave("n3", 0)), Ping) == ["n3"]


def test_forged_leaves_part_nobody() -> None:
    """Seed 004, 19: a node tells all its neighbours that all others have left."""
    net = Net(16)
    net.run(20.0)
    before, forger = net.active, 3
    for victim in net.routers.keys() - {forger}:
        [order] = net.routers[forger]._wrap([Send(before[forger], Leave(victim, 65535))], net.kernel.now)
        for peer in order.peers:
            net.kernel.after(0.02, net._arrive, forger, peer, order.packet)
    net.run(0.2)
    assert {node: set(peers) for node, peers in net.active.items()} == {
        node: set(peers) for node, peers in before.items()
    }


def test_the_ttl_of_leave_is_its_senders_up_to_a_bound() -> None:
    """Seed 004, 19: 3 is more than this node's own LEAVE has; what is more than 3 counts as 3."""
    lone = Lone("n1", "n2")
    for ttl, passed in ((1, 0), (2, 1), (3, 2), (4, 2), (65535, 2)):
        assert sent(lone.get("n1", Leave("nobody", ttl))) == [("n2", Leave("nobody", passed))]
    lone = Lone("n1", "n2", most_leave=9)
    assert sent(lone.get("n1", Leave("nobody", 5))) == [("n2", Leave("nobody", 4))]


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.integration
def test_a_node_that_left_is_forgotten(eager: bool) -> None:
    """Seed 004, 18 and 19: by LEAVE at once in nearly all active lists, by DISCONNECT in time."""
    net = Net(40, eager_leave=eager, check=(1.0, 2.0), idle=5.0)
    net.run(20.0)
    net.tell(5, LeaveTopic(""))
    net.run(0.5)
    assert not any(5 in peers for peers in net.active.values())
    before = sum(5 in router.views.passive for router in net.routers.values())
    net.run(60.0)
    after = sum(5 in router.views.passive for router in net.routers.values())
    assert eager or before > 0
    assert after == 0
    assert sum(isinstance(message, Leave) for _, _, _, message in net.log) < 40 * 8


@pytest.mark.parametrize("event", [PeerDisconnected("n2"), RoundTrip("n2", None)])
def test_a_failed_neighbour_is_removed_at_once_and_a_passive_one_tried(event: Any) -> None:
    """Seed 004, 20 and 21: a closed connection, and a ping that nobody answered."""
    lone = Lone("n1", "n2", random_links=1, near_links=1)
    lone.learn("p1")
    assert peers_of(lone.tell(event), Connect) == ["p1"]
    assert list(lone.views.active) == ["n1"]
    assert "n2" not in lone.views.passive
    assert lone.router.eager == ("n1",)


# Stabilization


def stabilized(lone: Lone, **sizes: int) -> list[Any]:
    """Stabilizes, and has the neighbours answer with lists of these sizes, or by name with these lists."""
    events = lone.expire(Timer.STABILIZE)
    assert {peer for peer, message in sent(events) if isinstance(message, Neighbor)} == lone.views.active.keys()
    return [event for peer, size in sizes.items() for event in lone.get(peer, _list(peer, size))]


def test_a_neighbour_that_disconnects_is_not_asked_again_at_once() -> None:
    """Seed 004, 18: although nobody else is known."""
    lone = Lone("n1", "n2", random_links=1, near_links=1)
    assert sent(lone.get("n2", Disconnect())) == []
    assert list(lone.views.passive) == ["n2"]


def _list(peer: str, size: int) -> Neighbor:
    return Neighbor((ME, *(f"{peer}-{number}" for number in range(size - 1))))


def test_stabilization_pings_all_neighbours() -> None:
    """Seed 004, 21."""
    assert peers_of(full().expire(Timer.STABILIZE), Ping) == list(FULL)
    many = [f"n{number}" for number in range(20)]
    assert peers_of(Lone(*many).expire(Timer.STABILIZE), Ping) == many


def test_at_a_no_lists_are_fetched() -> None:
    """Seed 004, 22: nobody is to be dropped."""
    assert sent(full().expire(Timer.STABILIZE)) == []


def test_above_a_those_with_too_many_random_neighbours_are_dropped_down_to_a() -> None:
    """Seed 004, 22: more than C_rand of them are random where there are more than A links in all."""
    lone = Lone(*FULL, "n8", "n9")
    events = stabilized(lone, n1=8, n2=7, n3=9, n4=8, n5=7, n6=7, n7=7, n8=7, n9=7)
    assert dropped(events) == ["n3", "n1"]
    assert len(lone.views.active) == 7


def test_above_a_nobody_is_dropped_who_would_keep_too_few() -> None:
    """Seed 004, 22 and 24: the list stays too long, and the next period tries again."""
    lone = Lone(*FULL, "n8", "n9")
    everybody = dict.fromkeys([*FULL, "n8", "n9"], 7)
    assert dropped(stabilized(lone, **everybody)) == []
    assert len(lone.views.active) == 9
    assert dropped(stabilized(lone, **(everybody | {"n2": 8}))) == ["n2"]
    assert len(lone.views.active) == 8


def test_above_a_one_link_of_two_neighbours_that_are_linked_is_dropped() -> None:
    """Seed 004, 23: of the one that has more links, if it keeps C_rand."""
    lone = Lone(*FULL, "n8", "n9")
    lone.expire(Timer.STABILIZE)
    events = []
    for peer in [*FULL[1:], "n8", "n9"]:
        events += lone.get(peer, _list(peer, 4))
    events += lone.get("n1", Neighbor((ME, "n2", "n3", "x", "y")))
    assert dropped(events) == ["n1"]
    assert len(lone.views.active) == 8


def test_above_a_by_one_one_link_is_dropped() -> None:
    """Seed 004, 23: although two more neighbours are linked to each other."""
    lone = Lone(*FULL, "n8")
    lone.expire(Timer.STABILIZE)
    events = []
    for one, other in (("n1", "n2"), ("n2", "n1"), ("n3", "n4"), ("n4", "n3")):
        events += lone.get(one, Neighbor((ME, other, *(f"{one}-{number}" for number in range(3)))))
    for peer in [*FULL[4:], "n8"]:
        events += lone.get(peer, _list(peer, 4))
    assert len(dropped(events)) == 1
    assert len(lone.views.active) == 7


def test_above_a_one_who_would_not_keep_c_rand_stays_linked() -> None:
    """Seed 004, 23: n1 and n2 are linked, and have C_rand links each."""
    lone = Lone(*FULL, "n8")
    lone.expire(Timer.STABILIZE)
    events = lone.get("n1", Neighbor((ME, "n2", "x", "y"))) + lone.get("n2", Neighbor((ME, "n1", "x", "y")))
    for peer in [*FULL[2:], "n8"]:
        events += lone.get(peer, _list(peer, 4))
    assert dropped(events) == []
    assert len(lone.views.active) == 8


def test_a_list_that_does_not_come_holds_nothing_up() -> None:
    """Seed 004, 22."""
    lone = Lone(*FULL, "n8")
    assert dropped(stabilized(lone, n1=8)) == []
    assert dropped(lone.expire(TimeOut(Wait.LISTS))) == ["n1"]


# Optimization


def nearest_known(lone: Lone, rtt: float) -> None:
    lone.learn("p1", "p2")
    lone.connect("p1", "p2")
    lone.views.measured("p1", rtt)
    lone.views.measured("p2", 0.9)


def test_the_nearest_passive_peer_takes_a_near_neighbours_place() -> None:
    """Seed 004, 27."""
    lone = full()
    nearest_known(lone, 0.149)
    events = sent(lone.expire(Timer.OPTIMIZE))
    assert events[0] == ("p1", Neighbor(FULL))
    assert dropped(lone.get("p1", Neighbor((ME, *OTHERS)))) == ["n3"]
    assert list(lone.views.active) == ["n1", "n2", "n4", "n5", "n6", "n7", "p1"]


def test_who_rejects_costs_no_link() -> None:
    """Seed 004, 27: the old neighbour is dropped when the new one has accepted."""
    lone = full()
    nearest_known(lone, 0.149)
    lone.expire(Timer.OPTIMIZE)
    assert sent(lone.get("p1", Disconnect())) == []
    assert list(lone.views.active) == list(FULL)
    assert all(peer in FULL for peer, _ in sent(lone.expire(Timer.OPTIMIZE)))


@pytest.mark.parametrize(
    ("rtt", "alpha", "links", "neighbours"),
    [(0.151, 2.0, 7, 7), (0.01, float("inf"), 7, 7), (0.01, 2.0, 4, 7), (0.01, 2.0, 7, 6)],
)
def test_nobody_is_replaced_otherwise(rtt: float, alpha: float, links: int, neighbours: int) -> None:
    """Seed 004, 27: not nearer by alpha, proximity off, the old one's or this one's links too few."""
    lone = full(alpha=alpha)
    lone.tell_lists(n1=links, n2=links, n3=links)
    for peer in FULL[neighbours:]:
        lone.get(peer, Disconnect())
    nearest_known(lone, rtt)
    assert all(peer in FULL for peer, _ in sent(lone.expire(Timer.OPTIMIZE)))


def test_optimization_fetches_the_lists_that_the_next_one_goes_by() -> None:
    """Seed 004, 27."""
    asked = dict(sent(full().expire(Timer.OPTIMIZE)))
    assert asked == {peer: Neighbor(tuple(other for other in FULL if other != peer)) for peer in FULL}


def test_a_neighbour_stays_where_the_list_is_not_above_a() -> None:
    """Seed 004, 27: another has gone while the one that was to take its place was asked."""
    lone = full()
    nearest_known(lone, 0.149)
    lone.expire(Timer.OPTIMIZE)
    lone.get("n7", Disconnect())
    assert dropped(lone.get("p1", Neighbor((ME, *OTHERS)))) == []
    assert list(lone.views.active) == [*FULL[:6], "p1"]


def test_one_neighbour_is_replaced_at_a_time() -> None:
    """Seed 004, 27."""
    lone = full()
    lone.learn("p1", "p2")
    lone.connect("p1", "p2")
    lone.views.measured("p1", 0.1)
    lone.views.measured("p2", 0.11)
    asked = [peer for _ in range(2) for peer, _ in sent(lone.expire(Timer.OPTIMIZE)) if peer not in FULL]
    assert asked == ["p1"]
