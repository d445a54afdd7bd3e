"""`gossiplog.pubsub.episub.passive`."""

from __future__ import annotations

from typing import Any

from gossiplog.pubsub.episub.events import TimeOut, Timer, Wait
from gossiplog.pubsub.episub.messages import GetTopics, Shuffle, ShuffleReply, Topics
from gossiplog.pubsub.events import Connect, ConnectFailed, PeerDisconnected, Ping, RoundTrip
from tests.pubsub.episub.harness import ME, Lone, peers_of, sent


def shuffles(events: list[Any]) -> list[tuple[Any, Shuffle]]:
    return [(peer, message) for peer, message in sent(events) if isinstance(message, Shuffle)]


def test_a_shuffle_offers_oneself_some_neighbours_and_some_passive_peers_to_one_neighbour() -> None:
    """Seed 004, 28."""
    lone = Lone("n1", "n2", "n3", "n4", "n5", shuffle_active=2, shuffle_passive=3, shuffle_ttl=4)
    lone.learn("p1", "p2", "p3", "p4")
    seen = set()
    for _ in range(20):
        [(target, offer)] = shuffles(lone.expire(Timer.SHUFFLE))
        lone.get("n1", ShuffleReply(()))
        assert (offer.peer, offer.ttl) == (ME, 4)
        active = [peer for peer in offer.peers if str(peer).startswith("n")]
        assert len(active) == 2
        assert target not in active
        assert len(set(offer.peers)) == 5
        seen.add(target)
    assert seen == {"n1", "n2", "n3", "n4", "n5"}
    assert shuffles(Lone().expire(Timer.SHUFFLE)) == []


def test_any_of_both_lists_is_offered() -> None:
    """Seed 004, 28: neighbours and passive peers are drawn."""
    active, passive = ([f"{kind}{number}" for number in range(12)] for kind in "np")
    lone = Lone(*active)
    lone.learn(*passive)
    seen: set[object] = set()
    for _ in range(60):
        [(_, offer)] = shuffles(lone.expire(Timer.SHUFFLE))
        lone.get("n1", ShuffleReply(()))
        seen |= set(offer.peers)
    assert seen == {*active, *passive}


def test_an_offer_goes_on_while_its_ttl_lasts_and_there_is_somebody_else() -> None:
    """Seed 004, 29."""
    lone = Lone("n1", "n2", "n3")
    assert {peer for _ in range(20) for peer, _ in sent(lone.get("n1", Shuffle("n2", ("x",), 2)))} == {"n3"}
    # Whatever TTL this node's own offers have; but nobody needs a walk of more than 32 hops.
    assert sent(lone.get("n1", Shuffle("n2", ("x",), 20))) == [("n3", Shuffle("n2", ("x",), 19))]
    assert sent(lone.get("n1", Shuffle("n2", ("x",), 50))) == [("n3", Shuffle("n2", ("x",), 31))]
    assert sent(lone.get("n1", Shuffle("n1", ("x",), 0))) == [("n1", ShuffleReply(()))]
    alone = Lone("n1")
    assert sent(alone.get("n1", Shuffle("n1", ("x",), 2))) == [("n1", ShuffleReply(()))]
    # A single neighbour gets nothing passed on, from any sender.
    alone.connect("far")
    assert sent(alone.get("far", Shuffle("far", ("x",), 2)))[0][0] == "far"


def test_an_answer_gives_passive_peers_which_what_came_replaces() -> None:
    """Seed 004, 30."""
    lone = Lone("n1", "n2", "n3", random_links=1, near_links=1, passive_factor=2)
    lone.learn("p1", "p2", "p3", "p4")
    [(target, reply)] = sent(lone.get("n1", Shuffle("n2", ("x1", ME, "n3"), 0)))
    assert target == "n2"
    assert isinstance(reply, ShuffleReply)
    assert len(reply.peers) == 4
    assert set(reply.peers) == {"p1", "p2", "p3", "p4"}
    # One of four gave way, for x1: the others that came are neighbours, or this node itself.
    assert "x1" in lone.views.passive
    assert len(lone.views.passive.keys() & {"p1", "p2", "p3", "p4"}) == 3


def test_what_was_given_gives_way_although_there_is_room() -> None:
    """Seed 004, 30: so the lists exchange their peers, and do not copy them."""
    lone = Lone("n1")
    lone.learn("p1", "p2", "p3", "p4")
    lone.connect("far")
    [(_, reply)] = sent(lone.get("far", Shuffle("far", ("x1", "x2"), 0)))
    assert isinstance(reply, ShuffleReply)
    assert len(reply.peers) == 3
    assert lone.views.passive.keys() == {"p1", "p2", "p3", "p4", "far", "x1", "x2"} - {*reply.peers}


def test_the_origin_is_neither_given_nor_replaced() -> None:
    """Seed 004, 30: it has just shown that it is there, and knows itself."""
    for seed in range(10):
        lone = Lone("n1", seed=seed)
        lone.learn("p1", "p2", "p3", "far")
        lone.connect("far")
        [(_, reply)] = sent(lone.get("n1", Shuffle("far", ("x1", "p1"), 0)))
        assert isinstance(reply, ShuffleReply)
        assert set(reply.peers) == {"p1", "p2", "p3"}
        assert {"far", "p1", "x1"} <= lone.views.passive.keys()


def test_the_origin_takes_the_answer_likewise() -> None:
    """Seed 004, 30."""
    lone = Lone("n1", "n2", random_links=1, near_links=1, passive_factor=2, shuffle_passive=2)
    lone.learn("p1", "p2", "p3", "p4")
    [(_, offer)] = shuffles(lone.expire(Timer.SHUFFLE))
    offered = {peer for peer in offer.peers if str(peer).startswith("p")}
    lone.connect("far")
    lone.get("far", ShuffleReply(("x1", "x2")))
    assert lone.views.passive.keys() == {"p1", "p2", "p3", "p4"} - offered | {"x1", "x2"}
    lone.get("far", ShuffleReply(("x3",)))
    assert "x3" not in lone.views.passive


def test_an_answer_that_is_too_long_is_cut() -> None:
    """A hostile one could otherwise replace the whole list."""
    lone = Lone("n1")
    lone.expire(Timer.SHUFFLE)
    lone.get("n1", ShuffleReply(tuple(f"x{number}" for number in range(256))))
    assert len(lone.views.passive) == 8
    lone.get("n1", Shuffle("n1", tuple(f"y{number}" for number in range(256)), 0))
    assert sum(str(peer).startswith("y") for peer in lone.views.passive) == 7
    assert len(lone.views.passive) == 8


def test_without_a_connection_to_the_origin_there_is_no_answer_and_no_change() -> None:
    """Seed 004, 31."""
    lone = Lone("n1")
    lone.learn("p1")
    assert peers_of(lone.get("n1", Shuffle("far", ("x",), 0)), Connect) == ["far"]
    assert sent(lone.tell(ConnectFailed("far"))) == []
    assert list(lone.views.passive) == ["p1"]
    lone.get("n1", Shuffle("far", ("x",), 0))
    assert sent(lone.connect("far")) == [("far", ShuffleReply(("p1",)))]
    assert "far" in lone.views.passive


def test_without_an_answer_the_offer_is_made_again_with_a_lower_ttl() -> None:
    """Seed 004, 31: down to 0, which the neighbour answers on the open connection."""
    lone = Lone("n1", shuffle_ttl=6)
    ttls = [offer.ttl for _, offer in shuffles(lone.expire(Timer.SHUFFLE))]
    for _ in range(4):
        ttls += [offer.ttl for _, offer in shuffles(lone.expire(TimeOut(Wait.SHUFFLE)))]
        if ttls[-1] == 0:
            break
    assert ttls == [6, 3, 1, 0]
    assert shuffles(lone.expire(TimeOut(Wait.SHUFFLE))) == []


def test_floods_of_shuffles_leave_bounded_state() -> None:
    lone = Lone("n1", under_way=4)
    events = [event for number in range(100) for event in lone.get("n1", Shuffle(f"x{number}", (), 0))]
    assert len(peers_of(events, Connect)) == 4
    for number in range(4):
        lone.tell(ConnectFailed(f"x{number}"))
    assert not lone.views.passive


# Checks


def test_a_check_asks_for_topics_and_then_measures() -> None:
    """Seed 004, 32."""
    lone = Lone("n1", checked=1)
    lone.learn("p1")
    assert peers_of(lone.expire(Timer.CHECK), Connect) == ["p1"]
    assert sent(lone.connect("p1")) == [("p1", GetTopics())]
    assert lone.get("p1", Topics(("other", ""))) == [Ping("p1")]
    lone.tell(RoundTrip("p1", 0.25))
    assert lone.views.passive == {"p1": 0.25}
    assert sent(lone.expire(Timer.CHECK)) == [("p1", GetTopics())]


def test_who_is_gone_is_removed() -> None:
    """Seed 004, 32: not to be reached, not subscribed, without an answer, or disconnected meanwhile."""
    for number in range(5):
        lone = Lone("n1", checked=1)
        lone.learn("p1")
        lone.expire(Timer.CHECK)
        if number:
            lone.connect("p1")
        match number:
            case 0:
                lone.tell(ConnectFailed("p1"))
            case 1:
                assert lone.get("p1", Topics(("other",))) == []
            case 2:
                lone.expire(TimeOut(Wait.CHECK, "p1"))
            case 3:
                lone.get("p1", Topics(("",)))
                lone.tell(RoundTrip("p1", None))
            case 4:
                lone.tell(PeerDisconnected("p1"))
        assert not lone.views.passive, number


def test_topics_that_nobody_asked_for_count_for_nothing() -> None:
    lone = Lone("n1")
    lone.learn("p1")
    lone.connect("p1")
    assert lone.get("p1", Topics(())) == []
    assert list(lone.views.passive) == ["p1"]


def test_a_check_looks_at_some_by_chance() -> None:
    """Seed 004, 32."""
    lone = Lone("n1", checked=3)
    lone.learn(*(f"p{number}" for number in range(20)))
    asked = peers_of(lone.expire(Timer.CHECK), Connect)
    assert len(set(asked)) == 3
    again = peers_of(lone.expire(Timer.CHECK), Connect)
    assert set(again) != set(asked)


def test_a_check_looks_at_any_of_the_list() -> None:
    """Seed 004, 32: not at the first ones alone."""
    peers = [f"p{number}" for number in range(20)]
    seen: set[object] = set()
    for seed in range(30):
        lone = Lone("n1", checked=3, seed=seed)
        lone.learn(*peers)
        seen |= set(peers_of(lone.expire(Timer.CHECK), Connect))
    assert seen == set(peers)
