"""What a driver's work is known by: counters, lines of the log, calls of the application's function."""

from __future__ import annotations

import logging

import anyio
import pytest

from gossiplog._core import PanicException
from gossiplog.core import encode_id
from gossiplog.errors import CorruptLog, RefusedMessage, StorageError
from gossiplog.net import events
from gossiplog.net.event_stream import EventStream
from gossiplog.net.rate_limited_log import LINES
from gossiplog.net.replicator.telemetry import BOUNDS, Histogram, Latency, NetworkCounters, Telemetry, log_level_of
from gossiplog.protocol.sync import SyncStatistics
from tests.net.support import Heard

pytestmark = pytest.mark.anyio


async def test_counters_are_those_of_one_moment() -> None:
    telemetry = Telemetry(None)
    before = telemetry.counters
    telemetry.emit(events.Connected("a peer"))
    telemetry.emit(events.Connected("another"))
    telemetry.emit(events.Disconnected("a peer", "it left", False))
    telemetry.emit(events.SyncEnded("another", False, 3, 0, SyncStatistics(), "it broke off"))
    telemetry.emit(events.Failed("storing", StorageError("the disk is full")))
    telemetry.inserted("push", 2)
    telemetry.count(invalid=1)
    assert before == NetworkCounters()
    assert telemetry.counters == NetworkCounters(
        connections=1,
        connected=2,
        inserted={"push": 2},
        syncs={"failed": 1},
        invalid=1,
        errors={"StorageError": 1},
    )


async def test_failures_are_counted_and_make_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(None)
    for number in range(LINES + 5):
        telemetry.emit(events.Failed("serving a peer", CorruptLog([f"a value{'' if number == 0 else number}"])))
    telemetry.emit(events.Failed("storing", StorageError("the disk is full")))
    assert telemetry.counters.errors == {"CorruptLog": LINES + 5, "StorageError": 1}
    assert {line.levelname for line in caplog.records} == {"ERROR"}
    assert len(caplog.messages) == LINES + 1
    assert caplog.messages[0].startswith("serving a peer: the log is damaged: a value; ")
    assert caplog.messages[-1] == "storing: the disk is full"


async def test_what_fails_again_and_again_makes_one_line_of_each_text(caplog: pytest.LogCaptureFixture) -> None:
    """A hub that cannot store filled its log with one text, and with the same of each sync."""
    telemetry = Telemetry(None)
    for _ in range(30):
        for doing in ("storing", "answering a request"):
            telemetry.emit(events.Failed(doing, StorageError("the disk is full")))
        for peer in ("a peer", "another"):
            telemetry.emit(events.SyncEnded(peer, False, 0, 0, SyncStatistics(), "the disk is full"))
    assert caplog.messages == [
        "storing: the disk is full",
        "answering a request: the disk is full",
        "a peer: a sync brought 0 messages: the disk is full",
        "another: a sync brought 0 messages: the disk is full",
    ]
    assert telemetry.counters.errors == {"StorageError": 60}
    assert telemetry.counters.syncs == {"failed": 60}


async def test_a_defect_has_one_line_with_its_traceback_for_each_kind_and_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard()
    telemetry = Telemetry(heard)
    found = [
        ("push", events.Defect("a\npeer", "testing", KeyError("a key"), 1)),
        ("push", events.Defect("a\npeer", "testing", KeyError("another"), 2)),
        ("push", events.Defect("a\npeer", "testing", PanicException("a panic"), 3)),
        ("storing", events.Defect("", "testing", KeyError("a key"), 0)),
    ]
    for kind, defect in found:
        telemetry.defect(kind, defect)
    telemetry.flush()
    assert heard.events == [defect for _, defect in found]
    assert telemetry.counters.defects == {"push": 3, "storing": 1}
    text = "a defect of gossiplog, please report it: testing raised"
    assert caplog.messages == [
        f"a\\npeer: {text} KeyError: 'a key'",
        f"a\\npeer: {text} PanicException: a panic",
        f"no peer: {text} KeyError: 'a key'",
    ]
    assert [line.exc_info[1] for line in caplog.records if line.exc_info] == [found[n][1].error for n in (0, 2, 3)]


async def test_what_a_stranger_wrote_stays_in_one_line_of_bounded_length(caplog: pytest.LogCaptureFixture) -> None:
    Telemetry(None).dropped("a\npeer", "\x1b[2Jx" * 1000)
    (line,) = caplog.messages
    assert line.startswith("a\\npeer: dropped: \\x1b[2Jx\\x1b[2Jx")
    assert line.isprintable()
    assert len(line) < 2000


async def test_lines_about_dropped_peers_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(None)
    for _ in range(1000):
        telemetry.dropped("a peer", "it broke a rule")
    assert telemetry.counters.dropped == 1000
    assert caplog.messages == ["a peer: dropped: it broke a rule"] * LINES


async def test_a_refused_message_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossiplog.net.replicator.telemetry.REFUSED_REMEMBERED", 3)
    heard = Heard()
    telemetry = Telemetry(heard)
    error = RefusedMessage("not here")
    a, b, c, d = (bytes(19) + name for name in (b"a", b"b", b"c", b"d"))
    for _ in range(5):
        telemetry.refused_messages({a: error, b: error}, "a peer")
    telemetry.refused_messages({b: error, c: error}, "")
    telemetry.flush()
    assert heard.events == [
        events.MessagesRefused(((encode_id(a), error), (encode_id(b), error)), "a peer"),
        events.MessagesRefused(((encode_id(c), error),)),
    ]
    assert telemetry.counters.refused == 3
    assert caplog.messages == [
        f"a peer: the application refuses 2 messages that it sent: message {encode_id(a)}: not here;"
        f" message {encode_id(b)}: not here",
        f"a peer that is gone: the application refuses 1 message that it sent: message {encode_id(c)}: not here",
    ]
    # The latest are remembered, and no more.
    telemetry.refused_messages({a: error, d: error}, "")
    telemetry.refused_messages({c: error}, "")
    assert telemetry.counters.refused == 4
    telemetry.refused_messages({b: error}, "")
    assert telemetry.counters.refused == 5


async def test_a_function_that_raises_is_not_called_again() -> None:
    calls: list[events.Event] = []

    def fail(event: events.Event) -> None:
        calls.append(event)
        raise ZeroDivisionError

    telemetry = Telemetry(fail)
    for name in "ab":
        telemetry.emit(events.Connected(name))
    with pytest.raises(ZeroDivisionError):
        await telemetry.run()
    telemetry.flush()
    assert calls == [events.Connected("a")]
    assert telemetry.counters.connections == 2


def test_the_more_peers_there_are_the_fewer_messages_are_passed_on_at_once() -> None:
    telemetry = Telemetry(None)
    found = []
    for connections in (0, 1, 32, 96, 2**15):
        telemetry.count(connections=connections - telemetry.connections)
        found.append(telemetry.most_at_once)
    assert found == [256, 256, 256, 85, 1]


@pytest.mark.parametrize(
    "event",
    [
        events.Connected("a"),
        events.Disconnected("a", "it left", False),
        events.SyncEnded("a", False, 3, 0, SyncStatistics(), "it broke off"),
        events.SyncEnded("a", True, 3, 0, SyncStatistics(), ""),
        events.SyncStarted("a"),
        events.Failed("storing", StorageError("the disk is full")),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_the_level_of_the_line_about_an_event_is_known(
    event: events.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    Telemetry(None).emit(event)
    assert [found.levelno for found in caplog.records] == [level for level in (log_level_of(event),) if level]


async def test_what_a_peer_is_dropped_for_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    telemetry = Telemetry(None)
    reason = "it broke the sync protocol: a frame of 5 MiB"
    telemetry.emit(events.SyncEnded("a", False, 3, 0, SyncStatistics(), "a frame of 5 MiB"), logged=True)
    telemetry.dropped("a", reason)
    dropped = (events.Disconnected("a", reason, True), events.Rejected("a", reason))
    for event in dropped:
        telemetry.emit(event)
    assert caplog.messages == [f"a: dropped: {reason}"]
    assert {log_level_of(event) for event in dropped} == {caplog.records[0].levelno}


def test_counts_add_up_from_bound_to_bound() -> None:
    histogram = Histogram()
    assert histogram.latency == Latency()
    for seconds in (0.0, BOUNDS[0], 0.002, 3600.0):
        histogram.observe(seconds)
    found = histogram.latency
    assert found.counts[:3] == (2, 3, 3)
    assert found.counts[-2:] == (3, 4)
    assert found.seconds == 3600.0 + 0.002 + BOUNDS[0]


def test_a_network_s_counts_are_added() -> None:
    own = NetworkCounters(bytes_sent=1, bytes_received=2, held=3, network={"streams": 4, "defects": 0})
    found = own._with_network({"streams": 1, "violations": 0, "bytes_sent": 10, "bytes_received": 20}, 30)
    assert (found.bytes_sent, found.bytes_received, found.held) == (11, 22, 33)
    assert found.network == {"streams": 5, "defects": 0, "violations": 0}


async def test_a_stream_is_an_application_for_as_long_as_somebody_holds_it() -> None:
    telemetry = Telemetry(None)
    stream = EventStream(2)
    assert not telemetry.is_heard
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(telemetry.until_heard)
        await anyio.wait_all_tasks_blocked()
        telemetry.register(stream)
    telemetry.emit(events.Connected("a"))
    assert await anext(stream) == events.Connected("a")
    assert telemetry.is_heard
    del stream
    assert not telemetry.is_heard


async def test_who_listens_gets_events_at_once_for_the_time_of_a_block() -> None:
    """Beside an application's function, which is called from a task."""
    application, first, second = Heard(), Heard(), Heard()
    telemetry = Telemetry(application)
    with telemetry.listening(first), telemetry.listening(second):
        telemetry.emit(events.Connected("a"))
        assert (first.events, second.events, application.events) == ([events.Connected("a")],) * 2 + ([],)
    telemetry.emit(events.Connected("b"))
    telemetry.flush()
    assert first.events == second.events == [events.Connected("a")]
    assert application.events == [events.Connected("a"), events.Connected("b")]
    alone = Telemetry(None)
    with alone.listening(first):
        assert not alone.is_heard
        alone.emit(events.Connected("c"))
    assert first.events[-1] == events.Connected("c")
