"""`gossiplog.sim.routers`: what it says of packets."""

from __future__ import annotations

import pytest

from gossiplog.pubsub.episub import encoding
from gossiplog.pubsub.episub.messages import (
    Envelope,
    Gossip,
    Graft,
    IHave,
    Join,
    Message,
    Neighbor,
    Nodes,
    Prune,
    Shuffle,
)
from gossiplog.sim.plan import Plan
from gossiplog.sim.routers import episub
from gossiplog.sim.simulation import simulate

PEER = bytes(38)
ID = (PEER, 2**40)


@pytest.mark.parametrize(
    "message",
    [
        Prune(),
        Join(PEER, 3),
        Nodes((PEER,) * 20, 6),
        Neighbor((PEER,) * 7),
        Shuffle(PEER, (PEER,) * 7, 6),
        Gossip(PEER, 5, 2**40, bytes(64)),
        IHave(((ID, 5),) * 10),
        Graft((ID,) * 10),
    ],
    ids=lambda message: type(message).__name__,
)
def test_packets_of_episub_have_about_the_size_of_what_is_written(message: Message) -> None:
    envelope = Envelope(PEER, 2**40, message)
    size = episub().size(envelope)
    written = len(encoding.encode(envelope))
    assert written <= size <= 1.3 * written + 20


def test_a_message_that_several_nodes_are_given_is_one_to_episub() -> None:
    summary = simulate(episub(), Plan(nodes=30, messages=3, fanout=3, connections=5), trace=None).summary()
    assert (summary.publish, summary.deliver) == (9, 90)
