"""`gossiplog.pubsub.episub.joining`."""

from __future__ import annotations

from gossiplog.pubsub.episub.events import TimeOut, Timer, Wait
from gossiplog.pubsub.episub.messages import ForwardJoin, GetNodes, GetTopics, Join, Neighbor, Nodes, Topics
from gossiplog.pubsub.events import Connect, ConnectFailed, PeerDisconnected, Ping, RoundTrip
from tests.pubsub.episub.harness import ME, Lone, Net, peers_of, sent

CONTACTS = ("c1", "c2", "c3", "c4", "c5", "c6")
FULL = ("n1", "n2", "n3", "n4", "n5", "n6", "n7")


def joins(events: list[object]) -> dict[object, int]:
    return {peer: message.ttl for peer, message in sent(events) if isinstance(message, Join)}


def join_by(lone: Lone, *passive: str) -> list[object]:
    """The contacts answer with these peers; what then happens, once all that is asked for is connected."""
    events: list[object] = []
    for contact in peers_of(lone.first, Connect):
        lone.connect(str(contact))
        events += lone.get(contact, Nodes(passive, 6))
    return events + lone.connect(*map(str, peers_of(events, Connect)))


def test_random_contacts_are_asked_and_their_nodes_are_the_passive_list_before_any_join() -> None:
    """Seed 004, 6."""
    lone = Lone(contacts=CONTACTS)
    asked = peers_of(lone.first, Connect)
    assert len(asked) == 4
    assert set(asked) < set(CONTACTS)
    assert {*peers_of(Lone(contacts=CONTACTS, seed=1).first, Connect)} != {*asked}
    for number, contact in enumerate(asked):
        assert sent(lone.connect(str(contact))) == [(contact, GetNodes())]
        assert not joins(lone.get(contact, Nodes((f"p{number}", ME), 6))) or number == 3
        assert {contact, f"p{number}"} <= lone.views.passive.keys()
    assert len(lone.views.passive) == 8


def test_all_peers_of_an_answer_become_passive_ones() -> None:
    """Seed 004, 6: as many as a NODES may have."""
    lone = Lone(contacts=("c1",))
    nodes = [f"p{number}" for number in range(21)]
    lone.connect("c1")
    lone.get("c1", Nodes(tuple(nodes), 6))
    assert set(lone.views.passive) == {"c1", *nodes}


def test_nodes_are_asked_for_and_answered_out_of_the_passive_list() -> None:
    """Seed 004, 6."""
    lone = Lone("n1", nodes=3)
    lone.learn("a", "b", "c", "d", "asker")
    lone.connect("asker")
    [(peer, answer)] = sent(lone.get("asker", GetNodes()))
    assert peer == "asker"
    assert isinstance(answer, Nodes)
    assert 2 <= len(answer.peers) <= 3
    assert set(answer.peers) <= {"a", "b", "c", "d"}
    assert answer.ttl == 6


def test_nodes_that_were_not_asked_for_count_for_nothing() -> None:
    lone = Lone("n1")
    lone.get("n1", Nodes(("a",), 6))
    assert not lone.views.passive
    other = Lone(contacts=("c1",), nodes=2)
    other.connect("c1")
    other.get("c1", Nodes(("p1", "p2", "p3", "p4"), 6))
    assert set(other.views.passive) == {"c1", "p1", "p2"}


def test_join_goes_to_c_rand_random_nodes_with_the_initial_ttl() -> None:
    """Seed 004, 7."""
    lone = Lone(contacts=CONTACTS, join_ttl=5)
    events = join_by(lone, "p1", "p2", "p3", "p4", "p5")
    assert len(joins(events)) == 4
    assert set(joins(events).values()) == {5}
    assert all(message.peer == ME for _, message in sent(events) if isinstance(message, Join))


def test_join_goes_to_any_of_the_passive_list() -> None:
    """Seed 004, 7: at random, and to contacts only where there are too few."""
    nodes = [f"p{number}" for number in range(20)]
    seen: set[object] = set()
    for seed in range(20):
        lone = Lone(contacts=("c1", "silent"), seed=seed)
        lone.connect("c1")
        lone.get("c1", Nodes(tuple(nodes), 6))
        targets = peers_of(lone.expire(TimeOut(Wait.NODES)), Connect)
        lone.connect(*map(str, targets))
        assert len(targets) in (3, 4)  # c1 is connected, and may be one
        assert set(targets) <= set(nodes)
        seen |= set(targets)
    assert seen == set(nodes)


def test_a_join_that_was_answered_is_not_tried_again() -> None:
    """Seed 004, 9: it is over, and so is the place that is kept for its neighbour."""
    lone = Lone(contacts=("c1",), random_links=1, near_links=1)
    join_by(lone, "p1")
    [asked] = [peer for peer in ("c1", "p1") if TimeOut(Wait.JOINED, peer) in lone.timers]
    lone.get(asked, Neighbor((ME,)))
    lone.connect("c1", "p1")
    assert joins(lone.expire(TimeOut(Wait.JOINED, asked))) == {}
    [other] = {"c1", "p1"} - {asked}
    lone.get(other, Topics(("",)))
    assert sent(lone.tell(RoundTrip(other, 0.1))) == [(other, Neighbor((asked,)))]


def test_contacts_that_do_not_answer_hold_nothing_up() -> None:
    lone = Lone(contacts=("c1", "c2"))
    lone.tell(ConnectFailed("c1"))
    events = lone.expire(TimeOut(Wait.NODES))
    assert peers_of(events, Connect) == ["c1"]
    # The connection to the other is still on its way.
    assert sent(lone.connect("c2")) == [("c2", GetNodes()), ("c2", Join(ME, 6))]


def test_who_cannot_connect_passes_a_join_on_until_its_ttl_is_0() -> None:
    """Seed 004, 8."""
    lone = Lone("n1", "n2")
    assert peers_of(lone.get("n1", Join("hidden", 2)), Connect) == ["hidden"]
    assert sent(lone.tell(ConnectFailed("hidden"))) == [("n2", Join("hidden", 1))]
    lone.get("n1", Join("hidden", 0))
    assert sent(lone.tell(ConnectFailed("hidden"))) == []
    assert "hidden" not in lone.views.active


def test_who_has_room_accepts_a_join_and_tells_the_newcomer() -> None:
    """Seed 004, 9 and 11."""
    lone = Lone("n1", "n2")
    lone.get("n1", Join("new", 3))
    events = sent(lone.connect("new"))
    assert events[0] == ("new", Neighbor(("n1", "n2", "new")))
    assert "new" in lone.views.active
    assert len(events) == 2
    assert events[1][0] in ("n1", "n2")
    assert events[1][1] == ForwardJoin("new", 3)


def test_who_is_full_accepts_a_join_at_ttl_0_alone() -> None:
    """Seed 004, 9, 10 and 17: nobody is evicted for it."""
    lone = Lone(*FULL)
    [(target, message)] = sent(lone.get("n1", Join("new", 2)))
    assert target in FULL[1:]
    assert message == Join("new", 1)
    lone.get("n1", Join("new", 0))
    lone.connect("new")
    assert list(lone.views.active) == [*FULL, "new"]


def test_the_newcomer_adds_who_accepts_its_join() -> None:
    """Seed 004, 9: it need not be the one that was asked."""
    lone = Lone(contacts=("c1",))
    join_by(lone)
    lone.connect("q")
    assert ("q", Neighbor((ME,))) not in sent(lone.get("q", Neighbor(("x", ME))))
    assert list(lone.views.active) == ["q"]


def test_no_walk_goes_on_beyond_its_ttl_or_returns() -> None:
    """Seed 004, 10: 20 is more than this node's own walks have."""
    lone = Lone(*FULL)
    for _ in range(20):
        [(target, message)] = sent(lone.get("n1", Join("n2", 20)))
        assert target not in ("n1", "n2")
        assert message == Join("n2", 19)
    assert sent(lone.get("n1", Join("n2", 0))) == []
    assert sent(lone.get("n1", Join(ME, 0))) == []
    assert [message for _, message in sent(lone.get("n1", Join(ME, 1)))] == [Join(ME, 0)]


def test_forwarded_joins_fill_passive_lists_until_their_ttl_is_0() -> None:
    """Seed 004, 11."""
    lone = Lone("n1", "n2", "n3")
    [(target, message)] = sent(lone.get("n1", ForwardJoin("new", 9)))
    assert target in ("n2", "n3")
    assert message == ForwardJoin("new", 8)
    assert sent(lone.get("n1", ForwardJoin("other", 0))) == []
    assert sent(lone.get("n1", ForwardJoin("n2", 0))) == []
    assert list(lone.views.passive) == ["new", "other"]


def test_a_walk_that_nobody_would_ask_for_is_cut() -> None:
    """Seed 004, 10 and 11: 32 hops by default, or as many as the configuration says."""
    for most, options in ((32, {}), (9, {"most_walk": 9})):
        lone = Lone(*FULL, **options)
        for message in (Join("new", 65535), ForwardJoin("new", 65535), Join("new", most + 1)):
            [(_, passed)] = sent(lone.get("n1", message))
            assert passed == type(message)("new", most - 1)
        [(_, passed)] = sent(lone.get("n1", Join("new", most)))
        assert passed == Join("new", most - 1)


def test_a_join_without_an_answer_is_tried_elsewhere_with_a_lower_ttl() -> None:
    """Seed 004, 12."""
    lone = Lone(contacts=("c1", "c2"), random_links=1, join_ttl=2)
    [first] = joins(join_by(lone))
    [second] = {"c1", "c2"} - {first}
    assert peers_of(lone.expire(TimeOut(Wait.JOINED, first)), Connect) == [second]
    assert joins(lone.connect(second)) == {second: 1}
    # There is no other, so the connection that is open serves down to the TTL at which it is accepted.
    assert joins(lone.expire(TimeOut(Wait.JOINED, second))) == {second: 0}
    assert joins(lone.expire(TimeOut(Wait.JOINED, second))) == {}


def test_a_contact_that_cannot_be_reached_counts_as_a_join_that_failed() -> None:
    """Seed 004, 12."""
    lone = Lone(contacts=("c1", "c2"), random_links=2, join_ttl=2)
    lone.connect("c1")
    lone.tell(ConnectFailed("c2"))
    events = lone.get("c1", Nodes(("p1",), 2))
    assert joins(events) == {"c1": 2}
    assert peers_of(events, Connect) == ["p1"]
    assert peers_of(lone.tell(ConnectFailed("p1")), Connect) == ["c2"]
    assert joins(lone.connect("c2")) == {"c2": 1}


def test_a_hidden_newcomer_is_accepted_on_the_connection_that_it_opened() -> None:
    """Seed 004, 12."""
    net = Net(20, hidden=(19,), seed=3)
    net.run(40.0)
    assert net.active[19]
    assert net.symmetric()


def test_with_the_first_link_the_passive_list_is_measured_and_the_nearest_are_asked() -> None:
    """Seed 004, 13."""
    lone = Lone(contacts=("c1",), random_links=1, near_links=2)
    join_by(lone, "p1", "p2", "p3", "p4")
    lone.connect("q")
    events = lone.get("q", Neighbor((ME,)))
    wanted = [*peers_of(events, Connect), *(peer for peer, message in sent(events) if message == GetTopics())]
    assert set(wanted) == {"c1", "p1", "p2", "p3", "p4"}
    rtts = {"c1": 0.5, "p1": 0.4, "p2": 0.1, "p3": 0.3, "p4": 0.2}
    for peer in rtts:
        if peer in peers_of(events, Connect):
            assert sent(lone.connect(peer)) == [(peer, GetTopics())]
        assert lone.get(peer, Topics(("",))) == [Ping(peer)]
    asked: list[object] = []
    for peer, rtt in rtts.items():
        asked += lone.tell(RoundTrip(peer, rtt))
    assert sent(asked) == [("p2", Neighbor(("q",))), ("p4", Neighbor(("q",)))]


def test_who_has_lost_all_neighbours_joins_anew() -> None:
    lone = Lone("n1")
    lone.connect("c1")
    lone.tell(PeerDisconnected("n1"))
    assert not lone.views.active
    assert sent(lone.expire(Timer.STABILIZE)) == [("c1", GetNodes())]


def test_floods_of_joins_leave_bounded_state() -> None:
    """Beyond the limits they are passed on, as if the newcomers could not be reached."""
    lone = Lone("n1", "n2", under_way=4, most_links=9)
    events = [event for number in range(100) for event in lone.get("n1", Join(f"x{number}", 0))]
    assert len(peers_of(events, Connect)) == 4
    assert sent(events) == []
    for number in range(100):
        lone.connect(f"y{number}")
        lone.get(f"y{number}", Join(f"y{number}", 0))
    assert len(lone.views.active) == 9
