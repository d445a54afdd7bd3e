"""`gossiplog.pubsub.log_routers`."""

from __future__ import annotations

import hashlib
from random import Random

import pytest

from gossiplog.pubsub.events import Join, Publish
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.pubsub.log_routers import (
    FORGIVENESS_SECONDS,
    REJECTIONS,
    Penalties,
    content_id,
    content_name,
    make_episub,
    make_floodsub,
    make_gossipsub,
)
from gossiplog.pubsub.rpc import Message


def test_ids_are_the_hash_of_the_data() -> None:
    assert content_id(Message(("t",), b"data")) == hashlib.sha256(b"data").digest()
    assert content_name(b"data") == (hashlib.sha256(b"data").digest(), 0)


def test_nobody_signs_and_a_message_has_one_topic() -> None:
    for router in (make_gossipsub("me", Random(1), GossipConfig()), make_floodsub(Random(1))):
        router.handle(Join("t"), 0.0)
        (delivery,) = router.handle(Publish(("t",), b"data"), 0.0)
        assert delivery.id == hashlib.sha256(b"data").digest()
    with pytest.raises(ValueError, match="this router's limit is 1"):
        make_floodsub(Random(1)).handle(Publish(("t", "u"), b"data"), 0.0)
    router = make_episub(b"me", Random(1), "t")
    router.handle(Join("t"), 0.0)
    assert router.handle(Publish(("t",), b"data"), 0.0)[0].id == content_name(b"data")


def test_a_peer_is_dropped_once_at_the_last_rejection() -> None:
    penalties = Penalties()
    assert [penalties.add("a", float(at)) for at in range(REJECTIONS + 2)] == [
        *[False] * (REJECTIONS - 1),
        True,
        False,
        False,
    ]
    assert not penalties.add("b", 0.0)


def test_rejections_are_forgiven_after_a_while() -> None:
    penalties = Penalties()
    for _ in range(REJECTIONS - 1):
        penalties.add("a", 0.0)
    assert penalties.score("a", FORGIVENESS_SECONDS - 1) == -10.0 * (REJECTIONS - 1) ** 2
    assert penalties.score("a", FORGIVENESS_SECONDS) == penalties.score("b", 0.0) == 0.0
    assert not penalties.add("a", FORGIVENESS_SECONDS)


def test_peers_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.pubsub.log_routers._REMEMBERED", 2)
    penalties = Penalties()
    for peer in "abc":
        penalties.add(peer, 0.0)
    assert [penalties.score(peer, 0.0) for peer in "abc"] == [0.0, -10.0, -10.0]
