"""Orphans that wait for their parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import Delivery
from gossiplog.protocol.broadcast.orphans import Orphans
from tests.strategies import repeatable

CONFIG = BroadcastConfig(orphans=6, orphan_bytes=60, orphan_wait=3.0)

_keys = st.integers(0, 9).map(lambda number: bytes([number]))
_steps = st.one_of(
    st.tuples(st.just("add"), _keys, st.lists(_keys, max_size=4)),
    st.tuples(st.just("resolve"), st.lists(_keys, max_size=4)),
    st.tuples(st.just("expire"), st.integers(0, 4)),
)


@pytest.mark.slow
@repeatable(300)
@given(steps=st.lists(_steps, max_size=40))
def test_whatever_messages_name_as_parents(steps: Sequence[tuple[Any, ...]]) -> None:
    """A parent may be named more than once, be its child's child, or come when nobody waits."""
    orphans = Orphans(CONFIG, lambda event: None)
    now = 0.0
    expected: dict[bytes, tuple[set[bytes], float]] = {}
    for step in steps:
        match step:
            case ("add", bytes() as key, list() as missing):
                room = len(expected) < 6
                kept = orphans.add(Delivery(1, key, key * 10), missing, now)
                assert kept == (bool(missing) and room and key not in expected)
                if kept:
                    expected[key] = (set(missing), now + 3.0)
            case ("resolve", list() as keys):
                ready = {delivery.key for delivery in orphans.resolve(keys)}
                for missing, _ in expected.values():
                    missing.difference_update(keys)
                assert ready == {key for key, (missing, _) in expected.items() if not missing}
                for key in ready:
                    del expected[key]
            case ("expire", int() as seconds):
                now += seconds
                given_up = {delivery.key: set(missing) for delivery, missing in orphans.expire(now)}
                assert given_up == {key: missing for key, (missing, until) in expected.items() if until <= now}
                for key in given_up:
                    del expected[key]
    now += 10
    orphans.expire(now)
    assert (orphans._orphans, orphans._children, orphans._size) == ({}, {}, 0)
