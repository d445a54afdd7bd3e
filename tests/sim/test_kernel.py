"""`gossiplog.sim.kernel`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.sim.kernel import Kernel, TraceHash

# Many at the same time, in the same millisecond, and in the next one.
delays = st.one_of(st.sampled_from([0.0, 0.0002, 0.0009, 0.001]), st.floats(0.0, 2.0))
plans = st.lists(st.tuples(delays, st.lists(delays, max_size=3)), max_size=20)


def test_events_happen_in_the_order_of_their_times_and_then_of_their_scheduling() -> None:
    kernel = Kernel(0)
    happened: list[tuple[str, float]] = []

    def note(name: str) -> None:
        happened.append((name, kernel.now))

    kernel.after(2.0, note, "b")
    kernel.at(1.0, note, "a")
    kernel.after(2.0, note, "c")
    kernel.at(3.0, lambda: kernel.at(0.0, note, "late"))
    kernel.after(9.0, note, "never")
    kernel.run(5.0)
    assert happened == [("a", 1.0), ("b", 2.0), ("c", 2.0), ("late", 3.0)]
    assert (kernel.now, kernel.events) == (5.0, 5)


def test_random_numbers_are_the_seeds() -> None:
    assert Kernel(1).random.random() == Kernel(1).random.random() != Kernel(2).random.random()


def test_the_trace_is_read_line_by_line() -> None:
    lines: list[str] = []
    kernel = Kernel(0, lines.append)
    kernel.at(1.5, kernel.log, 7, "appends")
    kernel.run(2.0)
    assert [line.split() for line in lines] == [["1.500000", "7", "appends"]]
    assert kernel.tracing
    silent = Kernel(0)
    silent.log(7, "appends")
    assert not silent.tracing


def test_a_traces_digest_depends_on_its_lines_and_their_order() -> None:
    digests = []
    for lines in (["a", "b"], ["b", "a"], ["ab"], []):
        summary = TraceHash()
        for line in lines:
            summary(line)
        digests.append(summary.digest())
    assert len(set(digests)) == 4


def test_a_call_for_each_of_several_delays() -> None:
    kernel = Kernel(0)
    happened: list[tuple[str, str, float]] = []

    def note(name: str, argument: str) -> None:
        happened.append((name, argument, kernel.now))

    kernel.after(1.0, note, "before", "-")
    kernel.spread(note, [(2.0, "b"), (1.0, "a"), (1.0, "also a")], "same")
    kernel.after(1.0, note, "after", "-")
    kernel.at_with(2.0, note, "at_with", "-")
    kernel.run(5.0)
    times = [("before", "-", 1.0), ("a", "same", 1.0), ("also a", "same", 1.0), ("after", "-", 1.0), ("b", "same", 2.0)]
    times += [("at_with", "-", 2.0)]
    assert happened == times


@given(plans, st.lists(st.floats(0.0, 4.0), max_size=4))
def test_the_order_is_that_of_a_sorted_list(plan: list[tuple[float, list[float]]], pauses: list[float]) -> None:
    """Also where events make others at once, and where the run is interrupted at any time."""
    kernel = Kernel(0)
    scheduled: list[tuple[float, int]] = []
    happened: list[tuple[float, int]] = []

    def schedule(delay: float, following: list[float]) -> None:
        number = len(scheduled)
        scheduled.append((kernel.now + delay, number))
        kernel.spread(happen, [(delay, number)], following)

    def happen(number: int, following: list[float]) -> None:
        happened.append((kernel.now, number))
        for delay in following:
            schedule(delay, [])

    for delay, following in plan:
        schedule(delay, following)
    for pause in sorted(pauses):
        kernel.run(pause)
        assert kernel.now == pause
        assert happened == sorted(event for event in scheduled if event[0] <= pause)
        schedule(0.0005, [])
    kernel.run(9.0)
    assert happened == sorted(scheduled)
    assert kernel.events == len(scheduled)


def test_what_failed_has_happened_and_the_rest_has_not() -> None:
    kernel = Kernel(0)
    happened: list[str] = []

    def fail() -> None:
        raise LookupError("nothing there")

    kernel.at(1.0, fail)
    kernel.at(1.0, happened.append, "after")
    with pytest.raises(LookupError):
        kernel.run(2.0)
    kernel.run(2.0)
    assert (happened, kernel.events) == (["after"], 2)


def test_what_is_to_happen_before_now_happens_at_once_and_what_is_infinitely_far_never() -> None:
    kernel = Kernel(0)
    happened: list[str] = []
    kernel.at(1.0, kernel.after, -0.5, happened.append, "after")
    kernel.at(1.0, kernel.at, 0.5, happened.append, "at")
    kernel.after(math.inf, happened.append, "never")
    kernel.at(math.inf, happened.append, "never")
    kernel.at_with(math.inf, lambda what, _: happened.append(what), "never", None)
    kernel.run(2.0)
    assert (happened, kernel.events) == (["after", "at"], 4)
