"""`gossiplog.pubsub.episub.views`: the two lists, and connections."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.episub.events import TimeOut, Wait
from gossiplog.pubsub.episub.messages import GetNodes
from gossiplog.pubsub.episub.views import Node, Views
from gossiplog.pubsub.events import Connect, Disconnect, Send, SetTimer
from tests.strategies import repeatable

ME = 0
PEERS = st.integers(0, 20)


def views_with(active: dict[str, float | None], **options: Any) -> Views:
    """Views with neighbours at these round trips, each with links enough."""
    views = Views("me", Random(0), Config(**options))
    for peer, rtt in active.items():
        link = views.add_active(peer)
        link.rtt = rtt
        link.peers = frozenset(map(str, range(7)))
    return views


@repeatable(200)
@given(st.lists(st.tuples(st.sampled_from(["learn", "exchange", "add", "keep", "drop", "measure"]), PEERS, PEERS)))
def test_the_lists_stay_disjoint_and_bounded(steps: list[tuple[str, int, int]]) -> None:
    """Seed 004, 5."""
    config = Config(random_links=1, near_links=1, passive_factor=3, most_links=5)
    views = Views(ME, Random(0), config)
    for step, one, other in steps:
        match step:
            case "learn":
                views.learn([one, other])
            case "exchange":
                views.learn([one, other], instead=list(views.passive)[:1])
            case "add" if one != ME and one not in views.active:
                views.add_active(one)
            case "keep" | "drop" if one in views.active:
                views.remove_active(one, keep=step == "keep")
            case "measure":
                views.measured(one, other / 100)
        assert ME not in views.active
        assert ME not in views.passive
        assert not views.active.keys() & views.passive.keys()
        assert len(views.passive) <= config.passive == 6


def test_what_came_replaces_what_was_given_one_by_one() -> None:
    """Seed 004, 30."""
    views = Views(ME, Random(0), Config(random_links=1, near_links=1, passive_factor=3))
    views.learn(range(1, 7))
    views.learn([7, 8, 3, ME], instead=[1, 2, 9])
    assert set(views.passive) == {7, 8, 3, 4, 5, 6}
    views.learn([9], instead=[1])
    assert len(views.passive) == 6
    assert 9 in views.passive


def test_what_was_given_and_came_as_well_stays() -> None:
    """Seed 004, 30."""
    views = Views(ME, Random(0), Config(random_links=1, near_links=1, passive_factor=3))
    views.learn(range(1, 7))
    views.learn(iter([2, 7]), instead=[1, 2])
    assert set(views.passive) == {2, 3, 4, 5, 6, 7}


def test_round_trips_move_with_a_peer_and_are_smoothed_for_neighbours() -> None:
    """Seed 004, 26: the smoothed average gives a new sample an eighth."""
    views = views_with({})
    views.learn(["a"])
    views.measured("a", 0.4)
    views.measured("a", 0.2)
    assert views.passive == {"a": 0.2}
    views.add_active("a")
    views.measured("a", 1.0)
    assert views.active["a"].rtt == 0.2 * 7 / 8 + 1.0 / 8
    views.remove_active("a", keep=True)
    assert views.passive == {"a": 0.2 * 7 / 8 + 1.0 / 8}
    views.measured("stranger", 1.0)
    assert "stranger" not in views.passive


def test_the_nearest_neighbours_are_the_near_ones() -> None:
    """Seed 004, 26."""
    views = views_with({"a": 0.5, "b": 0.1, "c": None, "d": 0.2, "e": 0.3, "f": 0.4})
    assert views.near() == ["e", "d", "b"]


def test_a_near_neighbour_gives_way_to_one_nearer_by_alpha() -> None:
    """Seed 004, 16 and 27: the farthest near one that is farther by the factor, and has links enough."""
    views = views_with({"a": 0.5, "b": 0.1, "d": 0.2, "e": 0.3})
    assert views.farther(0.149) == "e"
    assert views.farther(0.15) is None
    views.active["e"].peers = frozenset("wxyz")
    assert views.farther(0.149) is None
    assert views.farther(0.099) == "d"
    for peer in "bd":
        views.active[peer].peers = None
    assert views.farther(0.001) is None
    assert views_with({"a": 0.5}, alpha=float("inf")).farther(0.0001) is None


def test_passive_peers_come_nearest_first_and_unknown_last() -> None:
    """Seed 004, 13."""
    views = views_with({})
    views.learn("abcdef")
    for peer, rtt in {"a": 0.3, "b": 0.1, "c": 0.2, "f": 0.01}.items():
        views.measured(peer, rtt)
    ordered = views.passive_by_distance(without={"f"})
    assert ordered[:3] == ["b", "c", "a"]
    assert set(ordered[3:]) == {"d", "e"}


def test_random_choices_leave_out_and_do_not_repeat() -> None:
    views = views_with(dict.fromkeys("abc"))
    assert {views.any_active("a", "b") for _ in range(9)} == {"c"}
    assert views.any_active(*"abc") is None
    assert {views.any_active() for _ in range(99)} == set("abc")
    assert sorted(views.some_active(5)) == list("abc")
    assert len(set(views.some_active(2))) == 2
    assert views.some_passive(3) == []
    views.learn("de")
    assert {peer for _ in range(9) for peer in views.some_passive(1, "d")} == {"e"}


def test_the_first_round_trip_of_a_neighbour_is_its_average() -> None:
    """Seed 004, 26."""
    views = views_with({"a": None})
    views.measured("a", 1.0)
    assert views.active["a"].rtt == 1.0


class Purposes:
    """What became of each purpose, by name."""

    def __init__(self, **options: Any) -> None:
        self.node = Node("me", "", Random(0), Config(**options))
        self.node.joined = True
        self.found: list[tuple[str, bool]] = []

    def reach(self, peer: str, name: str, foreign: bool = False) -> list[Any]:
        self.node.reach(peer, lambda connected, now: self.found.append((name, connected)), 1.0, foreign)
        return self.node.take_out()


def test_a_purpose_goes_on_when_the_connection_is_there() -> None:
    purposes = Purposes()
    assert purposes.reach("a", "first") == [Connect("a")]
    assert purposes.reach("a", "second") == []
    assert purposes.found == []
    purposes.node.opened("a", 2.0)
    assert purposes.found == [("first", True), ("second", True)]
    assert purposes.reach("a", "third") == []
    assert purposes.found[-1] == ("third", True)


def test_a_purpose_fails_with_the_connection() -> None:
    purposes = Purposes()
    purposes.reach("a", "first")
    purposes.node.failed("a", 2.0)
    assert purposes.found == [("first", False)]
    assert purposes.reach("a", "again") == [Connect("a")]
    assert purposes.reach("me", "oneself") == []
    assert purposes.found[-1] == ("oneself", False)


def test_what_others_want_is_limited_and_what_the_node_wants_is_not() -> None:
    purposes = Purposes(under_way=2)
    assert purposes.reach("a", "a", foreign=True) == [Connect("a")]
    assert purposes.reach("b", "b", foreign=True) == [Connect("b")]
    assert purposes.reach("c", "c", foreign=True) == []
    assert purposes.found == [("c", False)]
    assert purposes.reach("d", "own") == [Connect("d")]
    purposes.reach("a", "a2", foreign=True)
    purposes.reach("a", "a3", foreign=True)
    assert purposes.found == [("c", False), ("a3", False)]
    purposes.node.failed("a", 2.0)
    assert purposes.reach("c", "c", foreign=True) == [Connect("c")]


def test_messages_go_to_the_connected_alone() -> None:
    node = Purposes().node
    node.opened("a", 0.0)
    node.opened("b", 0.0)
    node.closed("b")
    node.send(["a", "b", "c"], GetNodes())
    node.send(["c"], GetNodes())
    assert node.take_out() == [Send(("a",), GetNodes())]
    assert node.take_out() == []
    assert node.connections == ["a"]


def test_connections_that_nobody_uses_are_closed() -> None:
    node = Purposes(idle=5.0).node
    for peer in "abc":
        node.opened(peer, 0.0)
    node.views.add_active("a")
    node.used("b", 1.0)
    node.close_idle(5.0)
    assert node.take_out() == [Disconnect("c")]


def test_all_connections_are_closed_neighbours_too() -> None:
    node = Purposes().node
    for peer in "ab":
        node.opened(peer, 0.0)
    node.views.add_active("a")
    node.close_all()
    assert node.take_out() == [Disconnect("a"), Disconnect("b")]


def test_who_has_left_closes_what_was_being_connected() -> None:
    purposes = Purposes(under_way=1)
    node = purposes.node
    for peer in "abc":
        purposes.reach(peer, peer, foreign=peer == "a")
    node.close_all()
    node.joined = False
    node.opened("a", 2.0)
    node.failed("b", 2.0)
    # Nobody had asked for this one.
    node.opened("stranger", 2.0)
    assert node.take_out() == [Disconnect("a")]
    # A node that joins again meanwhile finds the connection on its way, and nothing that others want under way.
    node.joined = True
    assert purposes.reach("c", "again", foreign=True) == []
    node.opened("c", 3.0)
    assert purposes.found == [("again", True)]
    assert node.take_out() == []


def test_waits_are_timers() -> None:
    node = Purposes().node
    node.wait(Wait.CHECK, "a", 2.0, 3.0)
    assert node.take_out() == [SetTimer(TimeOut(Wait.CHECK, "a"), 5.0)]
