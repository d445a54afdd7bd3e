"""The routers as peers of a log run them: on a network, and in simulations of whole peers.

Nobody signs, a message's id is the SHA-256 of its data, and the log judges each message before it goes on: what the
hosts of `rust/net` and canvas-js do (wire format, "Gossip"), so that all of them are in one mesh.
"""

from __future__ import annotations

import hashlib
from random import Random

from gossiplog.pubsub import floodsub
from gossiplog.pubsub.authorship import Anonymous
from gossiplog.pubsub.episub.config import Config as EpisubConfig
from gossiplog.pubsub.episub.messages import MessageId
from gossiplog.pubsub.episub.router import Episub
from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.floodsub import FloodSub
from gossiplog.pubsub.gossipsub import Config, GossipConfig, GossipSub
from gossiplog.pubsub.rpc import Message

REJECTIONS = 7
"""Rejected messages after which a peer is dropped, as by the score of a host's (rust/net/src/mesh/gossip.rs)."""
FORGIVENESS_SECONDS = 600.0
"""After which a rejected message is forgiven, likewise."""
_REMEMBERED = 4096


def content_id(message: Message) -> bytes:
    """Return the id of a message."""
    return hashlib.sha256(message.data).digest()


def content_name(data: bytes) -> MessageId:
    """Return the id of a message of episub's, which has a source and a number: the hash and 0."""
    return hashlib.sha256(data).digest(), 0


def make_gossipsub(peer: PeerId, random: Random, config: GossipConfig) -> GossipSub:
    """Return gossipsub 1.0. Others write one topic into a message, and read the last."""
    return GossipSub(peer, random, Anonymous(), Config.of(config), id_of=content_id, validation=True)


def make_floodsub(random: Random) -> FloodSub:
    """Return floodsub, which sends all to all."""
    return FloodSub(Anonymous(), floodsub.Config(max_recipients=1), id_of=content_id, validation=True)


def make_episub(peer: bytes, random: Random, topic: str, config: EpisubConfig | None = None) -> Episub:
    """Return episub. What several peers publish is one message, since ids are made of the content."""
    return Episub(peer, (), random, config, topic, name=content_name, validation=True)


class Penalties:
    """Counts the rejected messages of each peer; the oldest are forgiven."""

    def __init__(self) -> None:
        self._times: dict[PeerId, list[float]] = {}

    def add(self, peer: PeerId, now: float) -> bool:
        """Count one; return whether the peer has to be dropped, which it is not a second time."""
        times = [*self._recent(peer, now), now]
        self._times.pop(peer, None)
        self._times[peer] = times
        if len(self._times) > _REMEMBERED:
            del self._times[next(iter(self._times))]
        return len(times) == REJECTIONS

    def score(self, peer: PeerId, now: float) -> float:
        """Return what a host's score would be: 0, less ten times the square of the rejected messages."""
        return -10.0 * len(self._recent(peer, now)) ** 2

    def _recent(self, peer: PeerId, now: float) -> list[float]:
        return [time for time in self._times.get(peer, ()) if now - time < FORGIVENESS_SECONDS]
