"""`gossiplog.checks`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

import pytest

from gossiplog import BroadcastConfig, GossipConfig, Limits, SyncServerConfig
from gossiplog.checks import check_order, check_positive
from gossiplog.pubsub import floodsub, gossipsub


@dataclass
class Three:
    low: int = 1
    middle: float = 2.5
    high: int = 3
    top: float | None = None


@pytest.mark.parametrize("config", [Three(), Three(0, 0, 0), Three(1, 3, 3)])
def test_fields_in_order(config: Three) -> None:
    check_order(config, 0, "low", "middle", "high")


@pytest.mark.parametrize(
    ("config", "least", "said"),
    [
        (Three(), 2, "low is 1, middle 2.5, high 3; expected 2 <= low <= middle <= high"),
        (Three(3), 0, "low is 3, middle 2.5, high 3; expected 0 <="),
        (Three(middle=4), 0, "low is 1, middle 4, high 3; expected 0 <="),
        (Three(middle=float("nan")), 0, "low is 1, middle nan, high 3; expected 0 <="),
    ],
)
def test_fields_out_of_order(config: Three, least: int, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        check_order(config, least, "low", "middle", "high")


@pytest.mark.parametrize("config", [Three(), Three(top=4), Three(-1, 0.5, 1)])
def test_positive_fields(config: Three) -> None:
    check_positive(config, "low")


@pytest.mark.parametrize(("name", "value"), [("low", 1.5), ("high", 2.0), ("high", float("inf"))])
def test_counts_are_whole_numbers(name: str, value: float) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{name} is {value!r}: expected a whole number")):
        check_positive(Three(**{name: value}), "low")
    with pytest.raises(TypeError, match=re.escape("fanout is 2.5: expected a whole number")):
        BroadcastConfig(fanout=2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Three(middle=0), "middle is 0; expected more than 0"),
        (Three(middle=float("nan")), "middle is nan; expected more than 0"),
        (Three(high=-2), "high is -2; expected more than 0"),
        (Three(top=0.0), "top is 0.0; expected more than 0"),
    ],
)
def test_fields_that_are_not_positive(config: Three, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        check_positive(config, "low")


@pytest.mark.parametrize("given", ["1", b"1", [1], True])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, each.name)
        for kind in (BroadcastConfig, GossipConfig, Limits, SyncServerConfig, floodsub.Config, gossipsub.Config)
        for each in fields(kind)
        if "int" in str(each.type) or "float" in str(each.type)
    ],
)
def test_a_setting_that_is_no_number_is_named(kind: Any, name: str, given: object) -> None:
    with pytest.raises(TypeError, match=rf"^{name} is .*: expected a number$"):
        kind(**{name: given})
