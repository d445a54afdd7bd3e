"""`gossiplog.pubsub.episub.links`."""

from __future__ import annotations

from random import Random
from typing import Any

from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.episub.events import TimeOut, Wait
from gossiplog.pubsub.episub.links import Node
from gossiplog.pubsub.episub.messages import GetNodes
from gossiplog.pubsub.events import Connect, Disconnect, Send, SetTimer


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
