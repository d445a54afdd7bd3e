"""`gossiplog.pubsub.episub.config`."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from gossiplog.pubsub.episub.config import Config, Repair


def test_sizes_are_the_seeds() -> None:
    """Seed 004, 1: A(N) = log N + c and P(N) = k A(N), as in HyParView, for 10,000 nodes with c = 3 and k = 6."""
    config = Config()
    assert (config.random_links, config.near_links, config.active, config.passive) == (4, 3, 7, 42)
    assert config.random_links == math.log10(10_000)
    assert config.active == config.random_links + config.near_links
    assert config.passive == 6 * config.active


def test_what_the_seed_leaves_open_is_marked_and_can_be_set() -> None:
    """Seed 004, 2."""
    described = dict(re.findall(r"^        (\w+): (.*?)(?=^        \w+:|\Z)", Config.__doc__ or "", re.M | re.S))
    assert described.keys() == {field.name for field in fields(Config)}
    free = {name for name, text in described.items() if text.startswith("[free]")}
    assert {name for name, text in described.items() if text.startswith("[ours]")} == {"most_walk", "most_leave"}
    assert described.keys() - free == {
        *("random_links", "near_links", "passive_factor", "flush", "most_walk", "most_leave")
    }
    assert {
        *("join_ttl", "forward_join_ttl", "leave_ttl", "shuffle_ttl", "shuffle_active", "shuffle_passive", "alpha"),
        *("stabilize", "optimize", "shuffle", "check", "rtt_weight", "shuffle_timeout", "cache_time", "lost_ticks"),
        "hop_threshold",
    } <= free
    changed = {
        "alpha": 1.5,
        "stabilize": (1.0, 2.0),
        "eager_leave": False,
        "repair": Repair.PROMOTE,
        "most_links": 9,
        "idle": 20.0,
        "seen_time": 100.0,
    }
    assert all(getattr(replace(Config(), **{name: value}), name) == value for name, value in changed.items())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("random_links", 0, "1 or more"),
        ("near_links", -1, "0 or more"),
        ("join_ttl", -1, "0 or more"),
        ("alpha", 0.5, "1 or more"),
        ("rtt_weight", 0.0, "more than 0"),
        ("stabilize", (2.0, 1.0), "as many seconds or more"),
        ("shuffle", (0.0, 1.0), "more than 0"),
        ("most_links", 6, "A, 7, or more"),
        ("flush", 0.0, "more than 0 seconds"),
        ("request_timeout", 0.0, "more than 0 seconds"),
        ("idle", 4.0, "the longest time-out"),
        ("cache_time", 0.1, "more seconds than flush"),
        ("seen_time", 29.0, "cache_time"),
        ("missing", 0, "1 or more"),
        ("most_links", 257, "256 at most"),
        ("nodes", 257, "256 at most"),
        ("shuffle_passive", 253, "252 at most"),
        ("most_walk", 65536, "65535 at most"),
        ("most_leave", 65536, "65535 at most"),
        ("join_ttl", 33, "most_walk, 32, at most"),
        ("forward_join_ttl", 33, "most_walk, 32, at most"),
        ("shuffle_ttl", 33, "most_walk, 32, at most"),
        ("leave_ttl", 4, "most_leave, 3, at most"),
        ("hop_threshold", -1, "0 or more"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is {re.escape(str(value))}: expected .*{expected}"):
        Config(**{name: value})
