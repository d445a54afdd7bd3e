from __future__ import annotations

import pytest

from gossiplog.cli.bench import stage
from gossiplog.cli.bench.stage import ROUNDS, Turns


def test_work_and_floor_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    seconds = iter([6.0, 4.0, 9.0])
    floors = iter([2.0, 2.0, 1.0])
    monkeypatch.setattr(stage, "timed", lambda work: (work(), next(seconds))[1])

    def floor() -> float:
        calls.append("floor")
        return next(floors)

    measured = Turns()
    measured.run(calls.append, floor, lambda: ("work",))
    assert calls == ["floor", "work"] * ROUNDS
    assert (measured.seconds, measured.floor_seconds) == (6.0, 2.0)
    assert (measured.ratio, measured.over) == (3.0, 4.0)


def test_work_without_a_floor() -> None:
    calls: list[int] = []
    measured = Turns()
    measured.run(lambda: calls.append(1))
    assert len(calls) == ROUNDS
    assert measured.seconds >= 0
