"""`gossiplog.protocol.gossip`."""

from __future__ import annotations

import pytest

from gossiplog import Signer, core
from gossiplog.errors import EncodeError, ProtocolError
from gossiplog.protocol import gossip, wire

KEY, VALUE = Signer(bytes(32)).sign("org.example.test", 1, [], "hi")


def test_a_message_comes_back() -> None:
    data = gossip.encode(KEY, VALUE)
    assert gossip.decode(data) == (KEY, VALUE)
    # As on a push stream, but for the length before it.
    assert wire.encode_push(wire.Insert(KEY, VALUE)).endswith(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "holds nothing"),
        (b"\xff" * 30, "no protobuf event"),
        (wire.encode_event(wire.Update([KEY])), "an Update was published"),
        (wire.encode_event(wire.Insert(KEY[:19], VALUE)), "a key of 19 bytes"),
        (wire.encode_event(wire.Insert(KEY, VALUE + b"!")), "not that of its key"),
        (wire.encode_event(wire.Insert(b"\xff" + KEY[1:], VALUE)), "does not start with a clock"),
        (bytes(wire.MAX_FRAME + 1), "at most 4194304"),
    ],
)
def test_what_no_honest_peer_publishes_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        gossip.decode(data)


def test_what_is_too_large_is_not_published() -> None:
    assert len(gossip.encode(KEY, bytes(gossip.MAX_DATA - 100))) <= gossip.MAX_DATA
    with pytest.raises(EncodeError, match=f"message {core.encode_id(KEY)} has"):
        gossip.encode(KEY, bytes(gossip.MAX_DATA))
