"""`gossiplog.pubsub.episub.membership`."""

from __future__ import annotations

import pytest

from gossiplog.pubsub.episub.events import Timer
from gossiplog.pubsub.episub.messages import (
    Disconnect,
    ForwardJoin,
    GetNodes,
    GetTopics,
    Gossip,
    IHave,
    Join,
    Leave,
    Message,
    Neighbor,
    Prune,
    Shuffle,
    Topics,
)
from gossiplog.pubsub.events import Connect, PeerDisconnected, Received
from gossiplog.pubsub.events import Disconnect as DisconnectPeer
from gossiplog.pubsub.events import Join as JoinTopic
from gossiplog.pubsub.events import Leave as LeaveTopic
from tests.pubsub.episub.harness import Lone, peers_of, sent

RANGES = {"stabilize": (1.0, 2.0), "optimize": (3.0, 4.0), "shuffle": (5.0, 6.0), "check": (7.0, 8.0)}


@pytest.mark.parametrize("timer", [Timer.STABILIZE, Timer.OPTIMIZE, Timer.SHUFFLE, Timer.CHECK])
def test_timers_are_randomized_each_time_anew(timer: Timer) -> None:
    """Seed 004, 21, 28 and 32: nodes do not act in step."""
    low, high = RANGES[timer.name.lower()]
    delays = []
    for seed in range(3):
        lone = Lone(seed=seed, **RANGES)
        for _ in range(10):
            delays.append(lone.timers[timer] - lone.now)
            lone.expire(timer)
    assert all(low <= delay <= high for delay in delays)
    assert len(set(delays)) == len(delays)


def test_who_has_not_joined_has_no_topic_and_no_neighbours() -> None:
    lone = Lone(joined=False)
    lone.connect("a")
    assert lone.timers == {}
    assert sent(lone.get("a", GetTopics())) == [("a", Topics(()))]
    assert sent(lone.get("a", Neighbor(()))) == [("a", Disconnect())]
    messages: list[Message] = [GetNodes(), Join("b", 0), ForwardJoin("b", 3), Leave("b", 3), Shuffle("b", ("c",), 3)]
    assert [lone.get("a", message) for message in messages] == [[]] * len(messages)
    assert not lone.views.passive


def test_who_has_joined_says_so() -> None:
    """Seed 004, 32: so that it stays in others' passive lists."""
    lone = Lone()
    lone.connect("a")
    assert sent(lone.get("a", GetTopics())) == [("a", Topics(("",)))]


def test_who_joins_again_begins_anew_and_joining_twice_is_joining_once() -> None:
    lone = Lone("n1")
    assert lone.tell(JoinTopic("")) == []
    assert lone.tell(LeaveTopic(""))[-1] == DisconnectPeer("n1")
    assert lone.tell(LeaveTopic("")) == []
    assert sent(lone.expire(Timer.STABILIZE)) == []
    assert sent(lone.tell(JoinTopic(""))) == [("n1", GetNodes())]


def test_what_waits_for_a_connection_is_given_up_by_leaving() -> None:
    lone = Lone("n1")
    lone.learn("p1")
    messages: list[Message] = [Join("new", 0), Shuffle("far", ("x1", "x2"), 0)]
    assert [peers_of(lone.get("n1", message), Connect) for message in messages] == [["new"], ["far"]]
    assert peers_of(lone.expire(Timer.CHECK), Connect) == ["p1"]
    lone.tell(LeaveTopic(""))
    for peer in ("new", "far", "p1"):
        assert lone.connect(peer) == [DisconnectPeer(peer)]
    assert not lone.views.active
    assert not lone.views.passive
    assert lone.get("new", Gossip("s", 1, 1, b"x")) == []


def test_broadcasts_of_one_who_is_no_neighbour_are_answered_by_disconnect() -> None:
    """So a link that only one side has comes to its end, and the relation is symmetric at rest: Seed 004, 5."""
    lone = Lone("n1")
    lone.connect("stranger")
    assert sent(lone.get("stranger", IHave(()))) == [("stranger", Disconnect())]
    assert sent(lone.get("stranger", Prune())) == [("stranger", Disconnect())]
    assert lone.router.lazy == ()


def test_messages_of_unknown_peers_are_ignored() -> None:
    lone = Lone("n1")
    assert lone.get("unknown", Join("unknown", 0)) == []
    assert lone.get("unknown", Leave("n1", 0)) == []
    assert list(lone.views.active) == ["n1"]
    lone.tell(PeerDisconnected("unknown"))
    assert lone.tell(Received("unknown", None)) == []
