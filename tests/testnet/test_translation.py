"""What members report, in the words of a dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest

import gossiplog
from gossiplog import Log, MemoryStorage, SignedMessage, Signer
from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError, RefusedMessage
from gossiplog.net import events
from gossiplog.protocol.sync import SyncStatistics
from gossiplog.testnet.translation import MOST_MESSAGES, Translator, payload_of

NAME, OTHER = "12D3KooWone", "12D3KooWother"
OWN, OTHERS = Signer(bytes([1] * 32)), Signer(bytes([2] * 32))


class Clock:
    """The seconds since a network began, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log() -> Iterator[Log]:
    with gossiplog.open(MemoryStorage(), topic="org.example.test") as log:
        yield log


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def translator(log: Log, clock: Clock) -> Translator:
    return Translator(NAME, OWN.did, log, clock)


def committed(inserted: int = 1, **sources: int) -> events.Committed:
    root = gossiplog.core.Tree().root
    return events.Committed(inserted, root, inserted, MappingProxyType(sources))


def appended(log: Log, payload: Any, signer: Signer = OTHERS) -> SignedMessage:
    return log.append(payload, signer=signer)


def taken(translator: Translator, kind: type[Any]) -> list[Any]:
    return [event for event in translator.take()[0] if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.Connected(OTHER), dashboard_events.Connected(1.0, NAME, OTHER)),
        (events.Disconnected(OTHER, "gone", False), dashboard_events.Disconnected(1.0, NAME, OTHER)),
        (events.Grafted(OTHER), dashboard_events.LinkChanged(1.0, NAME, OTHER, "mesh")),
        (events.Pruned(OTHER), dashboard_events.LinkChanged(1.0, NAME, OTHER, "none")),
        (events.SyncStarted(OTHER), dashboard_events.SyncStarted(1.0, NAME, OTHER)),
        (
            events.SyncEnded(OTHER, False, 3, 0, SyncStatistics(), "it was cut off"),
            dashboard_events.SyncEnded(1.0, NAME, OTHER, 3, "it was cut off"),
        ),
        (events.Rejected(OTHER, "it lies"), dashboard_events.Refused(1.0, NAME, "it lies", source=OTHER)),
        (events.Failed("storing", NetworkError("no")), dashboard_events.Noted(1.0, "storing: no", NAME)),
        (
            events.Defect(OTHER, "reading", KeyError("x"), 1),
            dashboard_events.Noted(1.0, "a defect of gossiplog while reading: KeyError('x')", NAME),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)
def test_events_at_once(translator: Translator, event: events.Event, expected: dashboard_events.Event) -> None:
    translator.handle_event(event)
    assert translator.take() == ([expected], [])
    assert translator.take() == ([], [])


def test_events_that_nobody_shows(translator: Translator) -> None:
    translator.handle_event(events.Subscribed(OTHER))
    translator.handle_event(events.Served(OTHER, 1, 10, 1))
    assert translator.take() == ([], [])


def test_links_of_episub(translator: Translator) -> None:
    translator.router = "episub"
    for event in (events.Subscribed, events.Grafted, events.Pruned, events.Unsubscribed):
        translator.handle_event(event(OTHER))
    assert translator.take()[0] == [
        dashboard_events.LinkChanged(1.0, NAME, OTHER, link) for link in ("lazy", "mesh", "lazy", "none")
    ]


def test_bytes_are_reported_where_somebody_looks_and_they_have_changed(translator: Translator) -> None:
    translator.count_traffic(10, 20)
    translator.observed = True
    for _ in range(2):
        translator.count_traffic(30, 20)
    assert translator.take()[0] == [dashboard_events.TrafficCounted(1.0, NAME, 30, 20)]


def test_a_client_knows_its_hub_by_its_name(log: Log, clock: Clock) -> None:
    translator = Translator(NAME, OWN.did, log, clock, hub="did:key:hub")
    translator.handle_event(events.Connected("ws://127.0.0.1:1"))
    assert taken(translator, dashboard_events.Connected) == [dashboard_events.Connected(1.0, NAME, "did:key:hub")]


def test_refused_messages(translator: Translator) -> None:
    refused = (("abc", RefusedMessage("abc", "too loud")),)
    translator.handle_event(events.MessagesRefused(refused, OTHER, 0))
    (event,) = taken(translator, dashboard_events.Refused)
    assert (event.message, event.source) == ("abc", OTHER)
    assert "too loud" in event.reason


def test_commits_between_two_looks_are_one(translator: Translator, log: Log) -> None:
    message = appended(log, "one")
    translator.handle_event(committed(1))
    translator.handle_event(committed(2))
    root = log.root.hash.hex()
    assert taken(translator, dashboard_events.Committed) == [dashboard_events.Committed(1.0, NAME, 1, root, inserted=3)]
    translator.observed = True
    translator.changed()
    assert taken(translator, dashboard_events.Committed) == [
        dashboard_events.Committed(1.0, NAME, 1, root, (message.id,), 2)
    ]


def test_messages_that_came_have_a_source_a_way_and_a_latency(translator: Translator, log: Log, clock: Clock) -> None:
    translator.observed = True
    message = appended(log, payload_of(0, "hi", sent=0.25))
    translator.take_message(message)
    clock.now = 2.0
    translator.handle_event(committed(1, **{OTHER: 1}))
    assert taken(translator, dashboard_events.Delivered) == [
        dashboard_events.Delivered(1.0, NAME, message.id, OTHER, "gossip", 0.75)
    ]


def test_sources_are_waited_for_until_the_member_stops(translator: Translator, log: Log) -> None:
    translator.observed = True
    first, second, third = (appended(log, payload_of(number, "hi", sent=0.0)) for number in range(3))
    translator.take_message(first)
    assert translator.is_waiting
    translator.handle_event(committed(1, **{OTHER: 1}))
    assert not translator.is_waiting
    translator.take_message(second)
    translator.stopped()
    assert not translator.is_waiting
    # Its next start: the source is the third's.
    translator.take_message(third)
    translator.handle_event(committed(1, **{OTHER: 1}))
    assert [event.message for event in taken(translator, dashboard_events.Delivered)] == [first.id, third.id]


def test_messages_of_a_sync(translator: Translator, log: Log) -> None:
    translator.observed = True
    translator.handle_event(events.SyncStarted(OTHER))
    translator.take_message(appended(log, "nothing that a member would write"))
    translator.handle_event(committed(1, **{OTHER: 1}))
    (event,) = taken(translator, dashboard_events.Delivered)
    assert (event.by, event.latency) == ("sync", None)


def test_messages_of_clients_are_pushed(translator: Translator, log: Log) -> None:
    translator.observed = True
    translator.take_message(appended(log, "hi"))
    translator.handle_event(committed(1, **{"did:key:client": 1}))
    (event,) = taken(translator, dashboard_events.Delivered)
    assert (event.by, event.source) == ("push", "did:key:client")


def test_own_messages_are_published_and_not_delivered(translator: Translator, log: Log) -> None:
    translator.observed = True
    message = appended(log, payload_of(0, "hi", sent=0.5), OWN)
    translator.append(0.5, [message.id])
    translator.take_message(message)
    translator.handle_event(committed(1))
    found, _ = translator.take()
    assert found[0] == dashboard_events.Published(0.5, NAME, message.id)
    assert [type(event) for event in found[1:]] == [dashboard_events.Committed]


def test_nobody_looks(translator: Translator, log: Log) -> None:
    translator.append(0.5, ["abc"])
    translator.take_message(appended(log, payload_of(0, "hi", sent=0.5)))
    translator.handle_event(committed(1, **{OTHER: 1}))
    found, latencies = translator.take()
    assert [type(event) for event in found] == [dashboard_events.Committed]
    assert latencies == []


def test_so_many_messages_are_shown_at_a_time(translator: Translator, log: Log) -> None:
    translator.observed = True
    messages = log.append_many([payload_of(number, "", 0.0) for number in range(3 * MOST_MESSAGES)], signer=OTHERS)
    for message in messages:
        translator.take_message(message)
    translator.handle_event(committed(len(messages), **{OTHER: len(messages)}))
    assert len(taken(translator, dashboard_events.Delivered)) == MOST_MESSAGES
    # From the next look on, more.
    translator.take_message(messages[0])
    translator.handle_event(committed(1, **{OTHER: 1}))
    assert len(taken(translator, dashboard_events.Delivered)) == 1


def test_sources_are_said_before_the_messages_or_after(translator: Translator, log: Log) -> None:
    translator.observed = True
    translator.handle_event(committed(2, **{OTHER: 1, "third": 2}))
    assert taken(translator, dashboard_events.Delivered) == []
    for number in range(2):
        translator.take_message(appended(log, number))
    assert [event.source for event in taken(translator, dashboard_events.Delivered)] == [OTHER, "third"]
    translator.take_message(appended(log, 2))
    translator.take_message(appended(log, 3))
    assert [event.source for event in taken(translator, dashboard_events.Delivered)] == ["third"]
    translator.handle_event(committed(1, **{OTHER: 1}))
    assert [event.source for event in taken(translator, dashboard_events.Delivered)] == [OTHER]


def test_messages_that_are_not_shown_have_sources_too(translator: Translator, log: Log) -> None:
    translator.observed = True
    messages = log.append_many(range(MOST_MESSAGES + 5), signer=OTHERS)
    for message in messages:
        translator.take_message(message)
    translator.handle_event(committed(MOST_MESSAGES + 2, **{OTHER: MOST_MESSAGES + 2}))
    assert len(taken(translator, dashboard_events.Delivered)) == MOST_MESSAGES
    translator.take_message(appended(log, "one more"))
    translator.handle_event(committed(4, third=3, fourth=1))
    assert [event.source for event in taken(translator, dashboard_events.Delivered)] == ["fourth"]


def test_latencies_of_a_flow_are_kept(translator: Translator, log: Log, clock: Clock) -> None:
    translator.flow = 2
    clock.now = 3.0
    for sent, flow, signer in ((1.0, 2, OTHERS), (1.5, 1, OTHERS), (2.0, 0, OTHERS), (2.5, 2, OWN), (2.75, 2, OTHERS)):
        translator.take_message(appended(log, payload_of(0, "", sent, flow), signer))
    assert translator.take() == ([], [2.0, 0.25])


def test_latencies_of_a_flow_that_was_given_up_are_not_anothers(translator: Translator, log: Log, clock: Clock) -> None:
    translator.measure(1)
    translator.take_message(appended(log, payload_of(0, "", 0.5, 1)))
    translator.measure(2)
    translator.take_message(appended(log, payload_of(1, "", 0.75, 2)))
    translator.take_message(appended(log, payload_of(2, "", 0.5, 1)))
    assert translator.take() == ([], [0.25])


@pytest.mark.parametrize("payload", ["text", 7, None, [], {}, {"sent": "now", "flow": "x"}, {"sent": True, "flow": 2}])
def test_payloads_of_strangers(translator: Translator, log: Log, payload: Any) -> None:
    translator.flow, translator.observed = 2, True
    translator.take_message(appended(log, payload))
    translator.handle_event(committed(1, **{OTHER: 1}))
    found, latencies = translator.take()
    assert [event.latency for event in found if isinstance(event, dashboard_events.Delivered)] == [None]
    assert latencies == []
