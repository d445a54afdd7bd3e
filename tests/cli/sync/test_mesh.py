"""What `gossiplog sync` says of addresses where no peer of a mesh answers."""

from __future__ import annotations

import pytest

from gossiplog.cli.sync.mesh import _advise


@pytest.mark.parametrize(
    ("address", "hub"),
    [
        ("/ip4/127.0.0.1/tcp/8000", "ws://127.0.0.1:8000"),
        ("/ip6/::1/tcp/8000/ws", "ws://[::1]:8000"),
        ("/dns4/example.org/tcp/80/ws/p2p/12D3KooW", "ws://example.org:80"),
    ],
)
def test_a_hub_is_suggested_where_something_else_answers(address: str, hub: str) -> None:
    said = _advise(address, "the peer cannot be reached: Received an invalid message.")
    assert said.startswith("the peer cannot be reached: Received an invalid message. No peer of a mesh answers there.")
    assert f"its address is {hub} (or wss://)" in said


@pytest.mark.parametrize(
    ("address", "reason"),
    [("/ip4/127.0.0.1/tcp/1", "Connection refused"), ("/ip4/127.0.0.1/udp/1/quic-v1", "not enough input bytes")],
)
def test_nothing_is_suggested_where_nobody_answers(address: str, reason: str) -> None:
    assert _advise(address, reason) == reason
