from __future__ import annotations

from typing import Any

import pytest

from gossiplog.net.transport.limits import SMALLEST_PEER_BYTES, Limits


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"connections": 0}, "0 connections"),
        ({"connections_per_address": 0}, "0 connections an address"),
        ({"streams": 0}, "0 streams"),
        ({"streams": 2**15 + 1}, "1 to 32768"),
        ({"peer_bytes": SMALLEST_PEER_BYTES - 1}, "8388608 or more"),
        ({"peer_bytes": 2**24, "total_bytes": 2**24 - 1}, "those of one peer or more"),
        ({"negotiation_seconds": 0.0}, "negotiation_seconds of 0.0"),
        ({"closing_seconds": float("inf")}, "closing_seconds of inf"),
        ({"closing_seconds": float("nan")}, "closing_seconds of nan"),
    ],
)
def test_limits_that_nothing_works_with_are_refused(limits: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Limits(**limits)


@pytest.mark.parametrize("name", ["connections", "connections_per_address", "streams", "peer_bytes", "total_bytes"])
@pytest.mark.parametrize("value", [2.0**24 + 0.5, float("inf")])
def test_what_is_counted_is_whole(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} is {value!r}: expected a whole number"):
        Limits(**{name: value})


def test_the_smallest_limits() -> None:
    smallest = Limits(
        connections=1, streams=1, peer_bytes=SMALLEST_PEER_BYTES, total_bytes=SMALLEST_PEER_BYTES, closing_seconds=1e-3
    )
    assert smallest != Limits()


def test_requests_may_keep_a_fourth() -> None:
    assert Limits(total_bytes=64 * 2**20).request_bytes == 16 * 2**20
