"""`gossiplog.dashboard.state`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given

from gossiplog.dashboard import state
from gossiplog.dashboard.events import (
    Committed,
    Connected,
    Delivered,
    Disconnected,
    Duplicated,
    Event,
    Healed,
    LinkChanged,
    Noted,
    Partitioned,
    PeerAdded,
    PeerRemoved,
    PeerStarted,
    PeerStopped,
    Published,
    RateChanged,
    Refused,
    SyncEnded,
    TrafficCounted,
    from_json,
    to_json,
)
from gossiplog.dashboard.state import NetworkState
from tests.dashboard.strategies import histories
from tests.strategies import repeatable


def after(*events: Event) -> NetworkState:
    found = NetworkState()
    for event in events:
        found.apply(event)
    return found


def test_peers_and_their_logs() -> None:
    found = after(
        PeerAdded(0, "a", "1", "hub"),
        Committed(1, "a", 3, "ab", ("m1", "m2"), 4, 3),
        TrafficCounted(2, "a", 10, 20),
        PeerStopped(3, "a"),
    )
    assert found.snapshot()["peers"] == {
        "a": {
            "label": "1",
            "kind": "hub",
            "agent": "",
            "running": False,
            "messages": 3,
            "root": "ab",
            "heads": ["m1", "m2"],
            "clock": 4,
            "bytes_sent": 10,
            "bytes_received": 20,
        }
    }
    found.apply(PeerStarted(4, "a"))
    assert found.peers["a"].running
    found.apply(PeerRemoved(5, "a"))
    assert found.snapshot()["peers"] == {}


def test_edges_are_the_same_from_either_end() -> None:
    found = after(Connected(0, "b", "a"), Connected(0, "a", "b"), LinkChanged(1, "b", "a", "mesh"))
    assert found.edges == {("a", "b"): (True, "none", "mesh")}
    found.apply(Disconnected(2, "a", "b"))
    found.apply(Disconnected(2, "b", "a"))
    assert found.edges == {}
    assert set(found.peers) == {"a", "b"}


def test_a_link_without_a_connection() -> None:
    """Where routers send to whom they like."""
    found = after(LinkChanged(0, "a", "b", "fanout"))
    assert found.edges == {("a", "b"): (False, "fanout", "none")}
    found.apply(LinkChanged(1, "a", "b", "none"))
    assert found.edges == {}


def test_edges_end_with_a_peer() -> None:
    for end in (PeerStopped(1, "a"), PeerRemoved(1, "a")):
        found = after(Connected(0, "a", "b"), Connected(0, "c", "a"), Connected(0, "c", "b"), end)
        assert found.edges == {("b", "c"): (True, "none", "none")}


def test_distinct_roots_are_those_of_logs_that_run() -> None:
    found = after(
        PeerAdded(0, "boot", "0", "bootstrap"),
        Committed(0, "boot", 0, "00"),
        PeerAdded(0, "fresh", "1"),
        Committed(0, "a", 1, "aa"),
        Committed(0, "b", 1, "bb"),
        Committed(0, "c", 1, "cc"),
    )
    assert found.distinct_roots == 3
    found.apply(PeerStopped(1, "c"))
    assert found.distinct_roots == 2
    found.apply(PeerStarted(1, "c"))
    assert found.distinct_roots == 3
    for peer in ("a", "c"):
        found.apply(Committed(2, peer, 2, "bb"))
    assert found.distinct_roots == 1


def test_lag_is_counted_from_when_the_logs_were_equal_last() -> None:
    found = after(
        Committed(0, "a", 1, "aa"),
        Committed(0, "b", 1, "aa"),
        Committed(1.2, "a", 2, "bb"),
        Committed(1.9, "b", 2, "cc"),  # they differ still, and did in between
        Committed(3.1, "b", 2, "bb"),
        Noted(4.0, "later"),
    )
    samples = {sample[0]: dict(zip(state.SAMPLE_FIELDS, sample, strict=True)) for sample in found.samples[1]}
    assert [samples[at]["lag"] for at in (1.0, 1.5, 3.0, 3.5)] == [0, 1.5 - 1.2, 3.0 - 1.2, 0]
    assert [samples[at]["roots"] for at in (1.0, 1.5, 3.5)] == [1, 2, 1]
    assert [samples[at]["messages"] for at in (1.0, 1.5)] == [1, 2]


def test_latencies_are_those_of_an_interval() -> None:
    deliveries = [Delivered(0.1, "a", f"m{number}", "b", "gossip", number / 100) for number in range(100)]
    found = after(*deliveries, Delivered(0.6, "a", "m", "b", "sync", None), Noted(1.1, "later"))
    assert [sample[4:6] for sample in found.samples[1]] == [(0.5, 0.95), (None, None)]
    assert (found.totals["gossip"], found.totals["sync"]) == (100, 1)


def test_bytes_go_on_where_a_peer_begins_anew() -> None:
    counts = [TrafficCounted(0.1, "a", 100, 0), TrafficCounted(0.2, "a", 150, 0), TrafficCounted(0.3, "a", 20, 0)]
    found = after(*counts, TrafficCounted(0.3, "b", 5, 0), PeerRemoved(0.4, "b"), Noted(1, "later"))
    assert found.samples[1][0][6] == 150 + 20 + 5


def test_samples_become_sparser() -> None:
    found = NetworkState()
    for number in range(4 * state.MOST_SAMPLES):
        found.apply(Noted(number / 2, "on"))
    interval, samples = found.samples
    assert interval == 4 * state.SAMPLE_SECONDS
    assert state.MOST_SAMPLES / 2 <= len(samples) <= state.MOST_SAMPLES
    times = [sample[0] or 0 for sample in samples]
    assert times == sorted(set(times))
    assert times[-1] > times[0] + state.MOST_SAMPLES


def test_a_long_time_without_events_has_two_samples() -> None:
    found = after(Noted(0.1, "first"), Noted(10_000.1, "much later"))
    assert [sample[0] for sample in found.samples[1]] == [0.5, 10_000.0]


def test_partitions_rates_and_counts() -> None:
    found = after(
        Partitioned(0, (("a", "b"), ("c",))),
        RateChanged(0, 5.0),
        Published(0, "a", "m1", "hi"),
        Duplicated(0, "b", "m1", "a"),
        SyncEnded(0, "b", "a", 3),
        Refused(0, "b", "no", "m1", "a"),
    )
    assert found.snapshot()["groups"] == [["a", "b"], ["c"]]
    assert found.rate == 5.0
    assert {name for name, count in found.totals.items() if count} == {"published", "duplicated", "syncs", "refused"}
    assert after(Partitioned(0, ()), Healed(1)).groups is None


def test_recent_events_are_bounded_and_leave_out_what_comes_by_the_thousand() -> None:
    noise = [Committed(0, "a", 1, "aa"), Delivered(0, "a", "m", "b"), TrafficCounted(0, "a", 1, 1)]
    found = after(*[Noted(0, str(number)) for number in range(2 * state.MOST_RECENT)], *noise)
    recent = found.snapshot()["recent"]
    assert [event["text"] for event in recent] == [str(number) for number in range(100, 200)]
    assert from_json(json.dumps(recent[0])) == Noted(0, "100")


def test_what_both_ends_report_is_remembered_once() -> None:
    once = [Connected(1, "a", "b"), Disconnected(2, "a", "b"), PeerStopped(3, "a"), PeerStarted(4, "a")]
    twice = [Connected(1, "b", "a"), Disconnected(2, "b", "a"), PeerStopped(3, "a"), PeerStarted(4, "a")]
    both = [event for pair in zip(once, twice, strict=True) for event in pair]
    assert after(*both).snapshot() == after(*once).snapshot()
    assert len(after(*both).snapshot()["recent"]) == 4


def test_too_many_peers_and_edges_are_counted() -> None:
    found = NetworkState()
    for number in range(state.MOST_PEERS + 10):
        found.apply(PeerAdded(0, f"p{number}", "p"))
    assert (len(found.peers), found.totals["omitted"]) == (state.MOST_PEERS, 10)
    found.apply(Connected(0, "p0", "stranger"))
    found.apply(Connected(0, "p0", "p0"))
    assert (found.edges, found.totals["omitted"]) == ({}, 12)
    for number in range(state.MOST_EDGES + 5):
        found.apply(Connected(0, f"p{number % 150}", f"p{151 + number // 150}"))
    assert (len(found.edges), found.totals["omitted"]) == (state.MOST_EDGES, 17)


def test_time_does_not_go_back() -> None:
    found = after(Noted(5, "x"), Committed(1, "a", 1, "aa"))
    assert found.now == 5
    assert found.peers["a"].messages == 1


@pytest.mark.slow
@given(history=histories())
@repeatable(300)
def test_the_state_is_sound_after_any_history(history: Sequence[Event]) -> None:
    found = after(*history)
    snapshot = json.loads(json.dumps(found.snapshot()))
    running = {
        peer["root"] for peer in snapshot["peers"].values() if peer["running"] and peer["kind"] != "bootstrap"
    } - {""}
    assert found.distinct_roots == len(running)
    assert (snapshot["diverged"] is None) == (len(running) <= 1)
    for pair, (connected, *links) in found.edges.items():
        assert set(pair) <= set(snapshot["peers"])
        assert pair[0] < pair[1]
        assert connected or links != ["none", "none"]
        assert all(found.peers[peer].running or not connected for peer in pair) or reconnected(history, pair)
    times = [sample[0] or 0 for sample in found.samples[1]]
    assert times == sorted(times)
    assert all(time <= found.now for time in times)


def reconnected(history: Sequence[Event], pair: tuple[str, str]) -> bool:
    """Whether something reported a connection of a peer after it had stopped, which is then believed."""
    stops = [at for at, event in enumerate(history) if isinstance(event, PeerStopped) and event.peer in pair]
    links = (
        at for at, event in enumerate(history) if isinstance(event, Connected) and {event.peer, event.other} == {*pair}
    )
    return max(links) > min(stops)


@pytest.mark.slow
@given(history=histories())
@repeatable(100)
def test_events_that_are_read_from_json_make_the_same_state(history: Sequence[Event]) -> None:
    again = after(*(from_json(to_json(event)) for event in history))
    assert again.snapshot() == after(*history).snapshot()
