"""The parameters of gossipsub: their defaults, what each changes, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from random import Random
from typing import Any

import pytest

from gossiplog.pubsub.authorship import Named
from gossiplog.pubsub.events import Join, Leave, PeerConnected, Publish, Received, SetTimer, TimerExpired
from gossiplog.pubsub.gossipsub import Config, GossipConfig, GossipSub
from gossiplog.pubsub.gossipsub.config import read_gossip
from gossiplog.pubsub.rpc import GOSSIPSUB, Control, IHave, Rpc, Subscription
from tests.pubsub.gossipsub.node import OWN, TOPIC, id_of, message, names

# Each differs from the default.
OTHERS = {
    "d": 7,
    "d_low": 6,
    "d_high": 9,
    "d_lazy": 3,
    "heartbeat_interval": 0.7,
    "fanout_ttl": 120.0,
    "mcache_len": 6,
    "mcache_gossip": 2,
    "seen_ttl": 60.0,
    "graft_after": 1,
    "max_data": 10,
    "max_recipients": 1,
    "max_seen": 2,
    "max_cached": 20,
    "max_topics": 1,
    "max_topic": 3,
    "max_ids": 4,
    "max_repeats": 1,
    "max_unanswered": 1,
    "max_unanswered_bytes": 10,
}


def test_the_defaults_are_those_of_the_specification() -> None:
    """Seed 001, 1: the specification's parameters, and its defaults."""
    config = Config()
    assert (config.d, config.d_low, config.d_high, config.lazy) == (6, 4, 12, 6)
    assert (config.heartbeat_interval, config.fanout_ttl, config.seen_ttl) == (1.0, 60.0, 120.0)
    assert (config.mcache_len, config.mcache_gossip) == (5, 3)
    assert Config(d=8).lazy == 8
    assert Config(d_lazy=0).lazy == 0


def test_there_is_another_value_for_each_parameter() -> None:
    assert OTHERS.keys() == {field.name for field in fields(Config)}


@pytest.mark.parametrize("name", OTHERS)
def test_each_parameter_changes_what_is_done(name: str) -> None:
    """Seed 001, 1: all can be set, and changing any one shows."""
    validation = "unanswered" in name
    assert story(Config(**{name: OTHERS[name]}), validation) != story(Config(), validation)


def graft(peer: bytes) -> Received:
    return Received(peer, Rpc(control=Control(graft=(TOPIC,))))


def prune(peer: bytes) -> Received:
    return Received(peer, Rpc(control=Control(prune=(TOPIC,))))


def story(config: Config, validation: bool = False) -> list[Any]:
    """All that a router asks for in two and a half minutes that have a bit of everything."""
    router = GossipSub(OWN, Random(3), Named(OWN, Random(1)), config, validation=validation)
    orders = [*router.start(0.0)]
    script: list[tuple[float, Any]] = []
    for number, peer in enumerate(names(30)):
        script.append((0.0, PeerConnected(peer, GOSSIPSUB)))
        topics = (TOPIC, "outside") if number < 20 else ("late",)
        script += [(0.0, Received(peer, Rpc(subscriptions=(Subscription(topic, True),)))) for topic in topics]
    script.append((0.0, Join(TOPIC)))
    # Eleven, once some have joined that were not drawn.
    script.append((4.0, lambda: [graft(peer) for peer in names(20) if peer not in router.mesh(TOPIC)][:5]))
    asker, teller = names(30)[18:20]
    for number in range(6):
        at = 5.0 + number * 3.0
        script.append((at, Received(names(30)[number], Rpc((message(number),)))))
        for later in (0.1, 0.2, 4.9, 5.5):
            wanted = Rpc(control=Control(iwant=(id_of(message(number)),)))
            script.append((at + later, Received(asker, wanted)))
    unknown = tuple(b"%d" % number for number in range(9))
    script.append((30.0, Received(teller, Rpc(control=Control(ihave=(IHave(TOPIC, unknown),))))))
    script.append((31.0, Publish(("outside",), b"short")))
    script.append((32.0, Publish(("outside",), b"too long for one")))
    script.append((32.5, Publish((TOPIC, "outside"), b"two")))
    script.append((33.0, Join("late")))
    # One less than are to be drawn is left.
    script.append((60.0, lambda: [prune(peer) for peer in router.mesh(TOPIC)[5:]]))
    # Fan-out is gone by one of the two times to live, seen ids by the other.
    script.append((100.0, Received(names(1)[0], Rpc((message(0),)))))
    script.append((100.0, Join("outside")))
    script.append((150.0, Leave("late")))
    timers = [order for order in orders if isinstance(order, SetTimer)]
    for at, event in sorted(script, key=lambda pair: pair[0]):
        while timers and timers[0].at <= at:
            timer = timers.pop(0)
            done = router.handle(TimerExpired(timer.timer), timer.at)
            timers += [order for order in done if isinstance(order, SetTimer)]
            orders += done
        for each in event() if callable(event) else [event]:
            try:
                orders += router.handle(each, at)
            except ValueError as error:
                orders.append(str(error))
    return orders


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"d_low": 7}, "d_low is 7, d 6, d_high 12"),
        ({"d": 13}, "d_low is 4, d 13, d_high 12"),
        ({"d_high": 5}, "d_low is 4, d 6, d_high 5"),
        ({"d_low": -1}, "d_low is -1"),
        ({"d_lazy": -1}, "d_lazy is -1; expected 0 <= d_lazy"),
        ({"mcache_gossip": 6}, "mcache_gossip is 6, mcache_len 5"),
        ({"mcache_gossip": -1}, "mcache_gossip is -1"),
        ({"mcache_len": 0, "mcache_gossip": 0}, "mcache_len is 0; expected more than 0"),
        ({"heartbeat_interval": 0}, "heartbeat_interval is 0; expected more than 0"),
        ({"heartbeat_interval": -1.0}, "heartbeat_interval is -1.0; expected more than 0"),
        ({"heartbeat_interval": float("nan")}, "heartbeat_interval is nan"),
        ({"fanout_ttl": 0}, "fanout_ttl is 0"),
        ({"seen_ttl": 0}, "seen_ttl is 0"),
        ({"graft_after": 0}, "graft_after is 0"),
        ({"seen_ttl": 9.9}, "seen_ttl is 9.9, mcache_len 5, heartbeat_interval 1.0; expected seen_ttl >= 2 [*] mcache"),
        ({"heartbeat_interval": 12.1}, "seen_ttl is 120.0, mcache_len 5, heartbeat_interval 12.1"),
        ({"max_seen": 0}, "max_seen is 0"),
        ({"max_repeats": 0}, "max_repeats is 0"),
    ],
)
def test_impossible_parameters_are_refused(changes: dict[str, Any], reason: str) -> None:
    """Seed 001, 2: before anything runs."""
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")):
        Config(**changes)


@pytest.mark.parametrize(
    "changes", [{"d": 0, "d_low": 0, "d_high": 0}, {"d_low": 6, "d_high": 6}, {"mcache_gossip": 0}, {"seen_ttl": 10.0}]
)
def test_odd_parameters_that_make_sense_are_accepted(changes: dict[str, Any]) -> None:
    """Seed 001, 2: both sides of the bounds."""
    assert Config(**changes) != Config()


def test_parameters_as_users_write_them() -> None:
    """Seed 001, 1: all can be set, each by its name."""
    for name in (field.name for field in fields(GossipConfig)):
        value = OTHERS[name]
        assert read_gossip([f"{name}={value}"]) == GossipConfig(**{name: value})
    assert read_gossip([]) == GossipConfig()
    assert read_gossip(["d=8", "d=9"], GossipConfig(d_lazy=2)) == GossipConfig(d=9, d_lazy=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("degree=8", "'degree=8' names no parameter; expected one of d, d_low, d_high, d_lazy, heartbeat_interval,"),
        ("max_data=8", "'max_data=8' names no parameter"),
        ("d", "d is ''; expected a whole number"),
        ("d=8.0", "d is '8.0'; expected a whole number"),
        ("d_lazy=None", "d_lazy is 'None'; expected a whole number"),
        ("seen_ttl=long", "seen_ttl is 'long'; expected a number"),
        ("heartbeat_interval=nan", "heartbeat_interval is nan"),
        ("d=2", "expected 0 <= d_low <= d <= d_high"),
    ],
)
def test_what_is_no_parameter_is_refused_in_words(text: str, said: str) -> None:
    """Seed 001, 2."""
    with pytest.raises(ValueError, match=re.escape(said)):
        read_gossip([text])


def test_a_router_has_the_parameters_of_a_peer_and_limits_of_its_own() -> None:
    """Seed 001, 1."""
    parameters = GossipConfig(d=8, d_lazy=3, seen_ttl=60.0)
    config = Config.of(parameters)
    assert config == Config(d=8, d_lazy=3, seen_ttl=60.0)
    assert Config.of(GossipConfig()) == Config()
