"""`gossiplog.pubsub.episub.messages`."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from gossiplog.pubsub.episub import messages

# What the seed lists; GOSSIP's `msg` is the number and the data of the message.
FIELDS = {
    messages.GetNodes: (),
    messages.Nodes: ("peers", "ttl"),
    messages.GetTopics: (),
    messages.Topics: ("topics",),
    messages.Join: ("peer", "ttl"),
    messages.ForwardJoin: ("peer", "ttl"),
    messages.Neighbor: ("peers",),
    messages.Disconnect: (),
    messages.Leave: ("source", "ttl"),
    messages.Shuffle: ("peer", "peers", "ttl"),
    messages.ShuffleReply: ("peers",),
    messages.Gossip: ("source", "hops", "number", "data"),
    messages.IHave: ("summary",),
    messages.Prune: (),
    messages.Graft: ("msgs",),
}


def test_there_are_the_fifteen_messages_of_the_seed() -> None:
    """Seed 004, 3."""
    assert set(FIELDS) == {*get_args(messages.Membership), *get_args(messages.Broadcast)}
    assert {kind: tuple(field.name for field in fields(kind)) for kind in FIELDS} == FIELDS
    assert len(FIELDS) == 15


def test_messages_are_frozen_and_differ_by_kind() -> None:
    assert messages.GetNodes() == messages.GetNodes() != messages.Prune()
    with pytest.raises(FrozenInstanceError):
        messages.Join("a", 1).ttl = 2  # type: ignore[misc]
