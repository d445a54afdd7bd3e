from __future__ import annotations

import pytest

from gossiplog import core
from gossiplog.cli.bench.histories import TOPIC, history


@pytest.mark.parametrize("name", ["mixed", "chain", "braid", "gossip", "roots"])
def test_histories_are_valid_causal_and_always_the_same(name: str) -> None:
    values = list(history(name, 100))
    assert values == list(history(name, 100))
    batch = core.verify_batch(values, TOPIC)
    assert (len(batch), batch.fresh) == (100, 100)
    seen: set[str] = set()
    for message in batch:
        assert isinstance(message, core.SignedMessage)
        assert seen.issuperset(message.parents)
        seen.add(message.id)


def test_a_longer_history_goes_on_where_a_shorter_one_ends() -> None:
    assert list(history("chain", 30))[:20] == list(history("chain", 20))
