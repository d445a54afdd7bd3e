"""`gossiplog.net.log_page.activity`: the last syncs, and what went wrong."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from gossiplog.core import Node
from gossiplog.errors import RefusedMessage
from gossiplog.net import events
from gossiplog.net.log_page.activity import MOST_OF_EVENT, MOST_SYNCS, MOST_TEXT, MOST_TROUBLES, Activity, nonzero
from gossiplog.protocol.sync import SyncStatistics


@pytest.fixture
def activity() -> Activity:
    numbers = itertools.count(1)
    return Activity(lambda: float(next(numbers)))


def ended(peer: str, inserted: int, *, refused: int = 0, error: str = "") -> events.SyncEnded:
    return events.SyncEnded(peer, not error, inserted, refused, SyncStatistics(), error)


def test_a_sync_from_its_start_to_its_end(activity: Activity) -> None:
    sync = {"at": 1.0, "peer": "a", "direction": "in", "messages": 0, "state": "running", "error": ""}
    activity.note(events.SyncStarted("a"))
    assert activity.syncs == [sync]
    activity.note(events.SyncProgressed("a", 5, SyncStatistics()))
    assert activity.syncs == [sync | {"at": 2.0, "messages": 5}]
    activity.note(ended("a", 7))
    assert activity.syncs == [sync | {"at": 3.0, "messages": 7, "state": "complete"}]
    assert activity.troubles == []
    activity.note(events.SyncStarted("a"))
    assert [each["state"] for each in activity.syncs] == ["running", "complete"]


def test_a_sync_that_fails_is_a_trouble(activity: Activity) -> None:
    activity.note(ended("a", 0, error="the line is gone"))
    (sync,), (trouble,) = activity.syncs, activity.troubles
    assert (sync["state"], sync["error"]) == ("incomplete", "the line is gone")
    assert trouble == {"at": 2.0, "kind": "sync", "peer": "a", "what": "", "reason": "the line is gone"}
    activity.note(ended("a", 1, refused=3))
    assert activity.troubles[0]["reason"].startswith("3 messages of it are refused")


def test_answers_of_one_sync_are_counted_together() -> None:
    """Also those by several streams; the syncs are in the order of their last answers."""
    now = 100.0
    activity = Activity(lambda: now)
    for peer, messages, number, at in (
        ("a", 2, 1, 100.0),
        ("b", 7, 1, 100.5),
        ("a", 0, 2, 101.0),
        ("a", 3, 1, 102.5),
        ("b", 1, 2, 102.6),
        ("a", 4, 3, 110.0),
        ("b", 0, 2, 102.7),
    ):
        now = at
        activity.note(events.Served(peer, messages, 100, number))
    assert [(each["at"], each["peer"], each["messages"], each["direction"]) for each in activity.syncs] == [
        (110.0, "a", 4, "out"),
        (102.7, "b", 1, "out"),
        (102.5, "a", 5, "out"),
        (100.5, "b", 7, "out"),
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.Rejected("a", "no topic"), ("peer", "a", "", "no topic")),
        (events.Disconnected("a", "it lied", True), ("peer", "a", "", "it lied")),
        (events.Failed("storing", OSError("full")), ("failure", "", "storing", "full")),
        (events.Defect("a", "reading", KeyError("k"), 1), ("defect", "a", "reading", "KeyError: 'k'")),
        (events.MessagesRefused((("id", RefusedMessage("too long", "id")),), "a"), ("message", "a", "id", "too long")),
        (events.RefusalsReported("a", (("id", "no"),), 0), ("reported", "a", "id", "no")),
    ],
)
def test_troubles(activity: Activity, event: events.Event, expected: tuple[str, ...]) -> None:
    activity.note(event)
    (found,) = activity.troubles
    assert (found["kind"], found["peer"], found["what"], found["reason"]) == expected


@pytest.mark.parametrize(
    "event",
    [events.Disconnected("a", "it left", False), events.Connected("a"), events.Committed(1, Node(0, None, bytes(16)))],
)
def test_what_is_no_trouble(activity: Activity, event: events.Event) -> None:
    activity.note(event)
    assert (activity.syncs, activity.troubles) == ([], [])


def test_many_messages_of_one_event_are_counted(activity: Activity) -> None:
    named = tuple((f"id{number}", "no") for number in range(MOST_OF_EVENT + 5))
    activity.note(events.RefusalsReported("a", named, 20))
    first, *others = activity.troubles
    assert (first["what"], first["reason"]) == ("", "25 more messages like these")
    assert [each["what"] for each in others] == [f"id{number}" for number in reversed(range(MOST_OF_EVENT))]


@pytest.mark.slow
def test_everything_is_bounded(activity: Activity) -> None:
    hostile = "<script>\x1b[2J\ud800" + "\u202e" * 10_000
    for number in range(500):
        activity.note(events.SyncStarted(f"{number} {hostile}"))
        activity.note(events.Served(f"{number} {hostile}", 1, 1, number))
        activity.note(events.Rejected(hostile, hostile))
    assert (len(activity.syncs), len(activity.troubles)) == (MOST_SYNCS, MOST_TROUBLES)
    text = json.dumps([activity.syncs, activity.troubles], ensure_ascii=False)
    # An escape has up to ten characters.
    assert len(text.encode()) < 10 * MOST_TEXT * (MOST_SYNCS + 2 * MOST_TROUBLES)
    assert "\x1b" not in text
    assert "<script>" in text
    activity.note(ended(f"0 {hostile}", 3))
    assert (len(activity.syncs), activity.syncs[0]["messages"]) == (MOST_SYNCS, 3)


def test_what_has_not_happened_is_left_out() -> None:
    counts: dict[str, Any] = {"b": 1, "a": 2, "c": 0}
    assert list(nonzero(counts).items()) == [("a", 2), ("b", 1)]
