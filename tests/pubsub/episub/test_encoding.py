"""`gossiplog.pubsub.episub.encoding`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.core import cbor_encode
from gossiplog.errors import DecodeError, EncodeError
from gossiplog.pubsub.episub import encoding
from gossiplog.pubsub.episub.messages import (
    Disconnect,
    Envelope,
    ForwardJoin,
    GetNodes,
    GetTopics,
    Gossip,
    Graft,
    IHave,
    Join,
    Leave,
    Neighbor,
    Nodes,
    Prune,
    Shuffle,
    ShuffleReply,
    Topics,
)
from tests.strategies import repeatable

peers = st.binary(min_size=1, max_size=8)
lists = st.lists(peers, max_size=4).map(tuple)
ttls = st.integers(0, encoding.MAX_HOPS)
hops = st.integers(1, encoding.MAX_HOPS)
numbers = st.integers(0, encoding.MAX_NUMBER)
ids = st.tuples(peers, numbers)
contents = st.one_of(
    st.sampled_from([GetNodes(), GetTopics(), Disconnect(), Prune()]),
    st.builds(Nodes, lists, ttls),
    st.builds(Topics, st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=3).map(tuple)),
    st.builds(Join, peers, ttls),
    st.builds(ForwardJoin, peers, ttls),
    st.builds(Neighbor, lists),
    st.builds(Leave, peers, ttls),
    st.builds(Shuffle, peers, lists, ttls),
    st.builds(ShuffleReply, lists),
    st.builds(Gossip, peers, hops, numbers, st.binary(max_size=8)),
    st.builds(IHave, st.lists(st.tuples(ids, hops), max_size=3).map(tuple)),
    st.builds(Graft, st.lists(ids, max_size=3).map(tuple)),
)
envelopes = st.builds(Envelope, peers, numbers, contents)


@pytest.mark.slow
@repeatable(400)
@given(envelopes)
def test_what_is_written_is_read(envelope: Envelope) -> None:
    """Seed 004, 3 and 4."""
    assert encoding.decode(encoding.encode(envelope)) == envelope


@pytest.mark.slow
@repeatable(400)
@given(envelopes, st.data())
def test_damaged_bytes_are_refused_or_mean_what_they_say(envelope: Envelope, data: st.DataObject) -> None:
    """Seed 004, 3: whatever is read is written as the same bytes."""
    written = bytearray(encoding.encode(envelope))
    for _ in range(data.draw(st.integers(1, 3))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(written[: data.draw(st.integers(0, len(written)))])
    try:
        read = encoding.decode(damaged)
    except DecodeError:
        return
    assert encoding.encode(read) == damaged


@repeatable(200)
@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read = encoding.decode(data)
    except DecodeError:
        return
    assert encoding.encode(read) == data


PEER = b"a"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "no list of kind"),
        ([2, PEER], "no list of kind"),
        ([15, PEER, 0], "the kind is 15: expected 0 to 14"),
        ([True, PEER, 0], "the kind is bool: expected 0 to 14"),
        ([2, "a", 0], "a peer is str of length 1: expected 1 to 128 bytes"),
        ([2, b"", 0], "a peer is bytes of length 0: expected 1 to 128 bytes"),
        ([2, bytes(129), 0], "a peer is bytes of length 129: expected 1 to 128 bytes"),
        ([2, PEER, -1], "a sequence id is -1"),
        ([2, PEER, 2**63], "a sequence id is 9223372036854775808"),
        ([2, PEER, 0, 0], "GetTopics with 1 fields: expected 0"),
        ([4, PEER, 0, PEER], "Join with 1 fields: expected 2"),
        ([4, PEER, 0, PEER, -1], "a TTL is -1"),
        ([4, PEER, 0, PEER, 2**16], "a TTL is 65536"),
        ([4, PEER, 0, PEER, True], "a TTL is bool: expected 0 to 65535"),
        ([6, PEER, 0, PEER], "peers are bytes of length 1: expected a list"),
        ([6, PEER, 0, [PEER] * 257], "257 peers: expected 256 at most"),
        ([3, PEER, 0, ["t"] * 257], "257 topics: expected 256 at most"),
        ([3, PEER, 0, ["t", "é" * 129]], "no text of up to 256 bytes: str of length 129"),
        ([3, PEER, 0, [b"t"]], "no text of up to 256 bytes: bytes of length 1"),
        ([11, PEER, 0, PEER, 0, 0, b""], "a number of hops is 0"),
        ([11, PEER, 0, PEER, 1, 0, "x"], "data is str of length 1: expected bytes"),
        ([12, PEER, 0, [[PEER, 1]]], "an announcement that is no list"),
        ([12, PEER, 0, [[PEER, 1, 1]] * 4097], "4097 announcements: expected 4096 at most"),
        ([14, PEER, 0, [[PEER, 1, 1]]], "a message id that is no list"),
        ([14, PEER, 0, [[PEER, 1]] * 4097], "4097 message ids: expected 4096 at most"),
    ],
)
def test_what_is_no_packet_is_refused(value: Any, reason: str) -> None:
    """Seed 004, 3."""
    with pytest.raises(DecodeError, match=re.escape(reason)):
        encoding.decode(cbor_encode(value))


@pytest.mark.parametrize("value", ["\x00" * 10**6, b"\x00" * 10**6, [0] * 10**5, 1.5, None])
def test_reasons_have_nothing_of_a_strangers_values(value: Any) -> None:
    """They are written to the log: a packet could fill a line with a million zeros."""
    for packet in ([value, PEER, 0], [2, value, 0], [2, PEER, value], [6, PEER, 0, [value]], [3, PEER, 0, [value]]):
        with pytest.raises(DecodeError) as raised:
            encoding.decode(cbor_encode(packet))
        assert len(str(raised.value)) < 100


def test_packets_have_one_form_and_a_limit() -> None:
    """Seed 004, 3."""
    packet = encoding.encode(Envelope(PEER, 3, Prune()))
    assert packet == bytes.fromhex("830d416103")
    for other in (packet + b"\x00", bytes.fromhex("830d41611803"), bytes.fromhex("9f0d416103ff")):
        with pytest.raises(DecodeError):
            encoding.decode(other)
    with pytest.raises(DecodeError, match="expected 1049600 at most"):
        encoding.decode(bytes(encoding.MAX_PACKET + 1))


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (Envelope(7, 0, Prune()), "Prune: a peer is 7: expected 1 to 128 bytes"),
        (Envelope(PEER, 0, Join(7, 1)), "Join: a peer"),
        (Envelope(PEER, 0, Neighbor((PEER,) * 257)), "Neighbor: 257 peers"),
        (Envelope(PEER, 0, Topics(("é" * 129,))), "Topics: a topic that is no text of up to 256 bytes"),
        (Envelope(PEER, 0, Topics(("\ud800",))), "Topics: a topic that is no text of up to 256 bytes"),
        (Envelope(PEER, 0, IHave((((PEER, 1), 0),))), "IHave: a number of hops is 0"),
        (Envelope(PEER, 0, Gossip(PEER, 1, 0, bytes(2**20 + 1))), "Gossip: data of .* bytes: expected 1048576 at most"),
    ],
)
def test_what_would_be_refused_is_not_written(envelope: Envelope, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        encoding.encode(envelope)


def test_the_longest_topic_is_written_and_read() -> None:
    envelope = Envelope(PEER, 0, Topics(("é" * 128, "t" * 256)))
    assert encoding.decode(encoding.encode(envelope)) == envelope
