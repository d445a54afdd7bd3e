"""`gossiplog.dashboard.feed`: what the page makes of it is in `test_page_state.py`."""

from __future__ import annotations

from collections.abc import Sequence

from gossiplog.dashboard.events import (
    Committed,
    Connected,
    Delivered,
    Disconnected,
    Duplicated,
    Event,
    LinkChanged,
    Noted,
    TrafficCounted,
    as_objects,
)
from gossiplog.dashboard.feed import MOST_PENDING, MOST_PULSES, Feed
from gossiplog.dashboard.state import MOST_SAMPLES
from gossiplog.net.http.event_stream import MOST_BEHIND
from tests.net.http.event_streams import read


def batch(feed: Feed, *events: Event) -> None:
    for event in events:
        feed.publish(event)
    assert feed.flush() == list(events)


def test_a_new_reader_gets_the_state() -> None:
    feed = Feed("s")
    batch(feed, Committed(1, "a", 1, "aa"))
    (sent,) = read(feed.batches.since(None))
    assert (sent.id, sent.kind) == ("s-1", "state")
    assert sent.data["peers"]["a"]["root"] == "aa"
    assert feed.batches.since(feed.batches.position) == b""


def test_the_state_of_a_network_of_nothing() -> None:
    (sent,) = read(Feed("s").batches.since(None))
    assert (sent.id, sent.data["peers"]) == ("s-0", {})


def test_then_what_changes() -> None:
    feed = Feed("s")
    for number in range(3):
        batch(feed, Noted(number, str(number)))
    sent = read(feed.batches.since(1))
    assert [(each.id, each.kind) for each in sent] == [("s-2", "changes"), ("s-3", "changes")]
    assert [event["text"] for each in sent for event in each.data["events"]] == ["1", "2"]
    assert sent[-1].data["figures"]["at"] == 2


def test_without_events_there_is_no_batch() -> None:
    feed = Feed("s")
    assert feed.flush() == []
    assert feed.batches.position == 0


def events_of(feed: Feed, position: int) -> Sequence[dict[str, object]]:
    return [event for each in read(feed.batches.since(position)) for event in each.data["events"]]


def test_a_batch_has_the_last_of_what_is_replaced() -> None:
    feed = Feed("s")
    kept = [
        Connected(1, "a", "b"),
        LinkChanged(2, "b", "a", "mesh"),
        Disconnected(3, "a", "b"),
        Connected(4, "a", "b"),
        Committed(5, "a", 2, "bb"),
        LinkChanged(5, "a", "b", "lazy"),
        TrafficCounted(6, "a", 2, 2),
    ]
    batch(
        feed,
        Committed(0, "a", 1, "aa"),
        TrafficCounted(0, "a", 1, 1),
        kept[0],
        LinkChanged(2, "a", "b", "mesh"),
        *kept[1:],
    )
    assert events_of(feed, 0) == as_objects(kept)
    (sent,) = read(feed.batches.since(0))
    assert sent.data["figures"]["left_out"] == 3


def test_a_batch_has_a_sample_of_the_pulses() -> None:
    feed = Feed("s")
    pulses = [Delivered(1, "a", f"m{number}", "b") for number in range(10 * MOST_PULSES)]
    batch(feed, *pulses, *[Duplicated(1, "a", "m", "b")] * 5, Noted(2, "kept"))
    found = events_of(feed, 0)
    assert MOST_PULSES / 2 <= len(found) <= MOST_PULSES + 1
    assert found[-1]["event"] == "noted"
    figures = read(feed.batches.since(0))[0].data["figures"]
    assert figures["totals"]["gossip"] == 10 * MOST_PULSES
    assert figures["totals"]["duplicated"] == 5


def test_samples_follow_those_that_a_page_has() -> None:
    feed = Feed("s")
    batch(feed, Noted(0.1, "x"))
    batch(feed, Noted(0.7, "x"))
    batch(feed, Noted(1.7, "x"))
    figures = [each.data["figures"] for each in read(feed.batches.since(0))]
    assert [[sample[0] for sample in each["samples"]] for each in figures] == [[], [0.5], [1.0, 1.5]]
    for number in range(4, MOST_SAMPLES + 4):
        batch(feed, Noted(number / 2, "x"))
    thinned = [each.data["figures"] for each in read(feed.batches.since(feed.batches.position - MOST_BEHIND))]
    assert [each["all_samples"] for each in thinned].count(True) <= 1
    assert feed.state.samples[0] == 1.0


def test_events_do_not_wait_without_end() -> None:
    """Where nothing makes batches, as while the loop is busy."""
    feed = Feed("s")
    for number in range(MOST_PENDING + 1):
        feed.publish(Noted(number, "x"))
    assert feed.batches.position == 1
    assert len(feed.flush()) == 1
