"""Figures of who is connected to whom."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest

from gossiplog.reference.multiformats import base58_encode
from gossiplog.testnet.connection_graph import measure_graph


def peer_ids(count: int) -> list[str]:
    return [base58_encode(b"\0\x20" + sha256(bytes([number])).digest()) for number in range(count)]


@pytest.mark.slow
def test_a_bucket_is_that_of_the_first_bit_in_which_hashes_differ() -> None:
    """Half of all peers are in the farthest bucket of a peer, a quarter in the next one."""
    peers = peer_ids(200)
    buckets = measure_graph(dict.fromkeys(peers, peers)).buckets
    assert 80 <= buckets[0].peers <= 120
    assert 35 <= buckets[1].peers <= 65
    assert buckets[3].peers < buckets[1].peers


def test_a_line_of_peers() -> None:
    peers = peer_ids(6)
    # Each connection is seen by one of both, and one leads to a stranger.
    found = measure_graph({one: [other] for one, other in pairwise(peers)} | {peers[-1]: [peer_ids(7)[-1]]})
    assert (found.least, found.median, found.most) == (1, 2, 2)
    assert found.diameter == 5
    # 5 pairs at distance 1, 4 at 2, and so on: 35 / 15.
    assert found.distance == 2.33


def test_two_parts() -> None:
    peers = peer_ids(10)
    found = measure_graph({peer: peers[:5] if peer in peers[:5] else peers[5:] for peer in peers})
    assert (found.least, found.most, found.diameter, found.distance) == (4, 4, None, 1.0)
    # Of five that are left, three are of one part at least.
    assert found.left == 0.6


def test_without_the_one_that_all_know() -> None:
    peers = peer_ids(9)
    star = dict.fromkeys(peers, peers[:1])
    assert measure_graph(star).diameter == 2
    without = measure_graph(star, without=peers[0])
    assert (without.most, without.diameter, without.distance) == (0, None, 0.0)
    # All have it in one bucket or another.
    assert sum(bucket.most for bucket in without.buckets) <= len(without.buckets)
    assert 0 < without.buckets[0].connections < 1
    assert without.left == 0.25


def test_all_are_connected_to_all() -> None:
    peers = peer_ids(40)
    found = measure_graph(dict.fromkeys(peers, peers))
    assert (found.least, found.most, found.diameter, found.left) == (39, 39, 1, 1.0)
    for bucket in found.buckets:
        assert bucket.tenth <= bucket.connections <= bucket.most
        assert abs(bucket.connections - bucket.peers) < 0.06
        assert bucket.empty == 0.0
