"""What benchmarks stand on: histories, and work in turns with its floor."""

from __future__ import annotations

import pytest

from gossiplog import core
from gossiplog.cli.bench import stage
from gossiplog.cli.bench.stage import ROUNDS, TOPIC, Turns, history


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


def test_work_and_floor_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    seconds = iter([6.0, 4.0, 9.0])
    floors = iter([2.0, 1.0, 1.0])
    monkeypatch.setattr(stage, "timed", lambda work: (work(), next(seconds))[1])

    def floor() -> float:
        calls.append("floor")
        return next(floors)

    measured = Turns()
    measured.run(calls.append, floor, lambda: ("work",))
    assert calls == ["floor", "work"] * ROUNDS
    # All are those of the second round, whose ratio is the median.
    assert (measured.middle, measured.seconds, measured.floor_seconds, measured.ratio) == (1, 4.0, 1.0, 4.0)


def test_work_without_a_floor() -> None:
    calls: list[int] = []
    measured = Turns()
    measured.run(lambda: calls.append(1))
    assert len(calls) == ROUNDS
    assert measured.seconds >= 0
