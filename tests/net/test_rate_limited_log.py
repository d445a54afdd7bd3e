"""Failed attempts of peers: lines, counts, and how much of them is remembered."""

from __future__ import annotations

import logging

import pytest

from gossiplog.net.rate_limited_log import (
    FIELDS,
    LINES,
    MOST_REMEMBERED,
    SECONDS,
    RateLimitedLog,
    client_name,
    keep_latest,
)


def test_the_oldest_is_forgotten_first() -> None:
    kept: dict[int, str] = {}
    for key in range(MOST_REMEMBERED):
        keep_latest(kept, key, "")
    keep_latest(kept, 0, "again")
    keep_latest(kept, MOST_REMEMBERED, "")
    assert len(kept) == MOST_REMEMBERED
    assert 1 not in kept
    assert kept[0] == "again"
    assert [*kept][-2:] == [0, MOST_REMEMBERED]


def test_a_caller_may_have_fewer_kept() -> None:
    kept: dict[int, None] = {}
    for key in range(5):
        keep_latest(kept, key, None, 2)
    assert [*kept] == [3, 4]


LOGGER = logging.getLogger("gossiplog.test")


def test_all_are_counted_and_some_told(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limited_log = RateLimitedLog(LOGGER, clock=lambda: now[0])
    for _ in range(LINES + 1):
        limited_log.note("refused", "a peer", "it asked in vain")
    limited_log.note("refused", "a peer", "it asked in vain", 3)
    limited_log.note("late", "a peer", "it was late", 2)
    assert limited_log.counts == {"refused": LINES + 4, "late": 2}
    assert caplog.messages == ["a peer: it asked in vain"] * LINES + ["a peer: it was late (2 times)"]
    caplog.clear()
    now[0] = SECONDS
    for _ in range(2):
        limited_log.note("refused", "another", "it asked, too")
    assert caplog.messages == ["another: it asked, too; 4 similar suppressed", "another: it asked, too"]


def test_a_line_is_one(caplog: pytest.LogCaptureFixture) -> None:
    RateLimitedLog(LOGGER).note("odd", "a\npeer", "did\x1b[2J" * 1000)
    (line,) = caplog.messages
    assert line.startswith("a\\npeer: did\\x1b[2J")
    assert line.isprintable()
    assert len(line) < 2000


def test_a_record_has_what_its_line_says_for_programs(caplog: pytest.LogCaptureFixture) -> None:
    limited_log = RateLimitedLog(LOGGER)
    for _ in range(LINES + 2):
        limited_log.note("late", "a\npeer", "it was late")
    limited_log.note("odd", "a peer", "it was odd", 3)
    found = [getattr(record, FIELDS) for record in caplog.records]
    assert found[0] == {"kind": "late", "peer": "a\\npeer", "count": 1, "suppressed": 0}
    assert found[-1] == {"kind": "odd", "peer": "a peer", "count": 3, "suppressed": 0}


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::1", 80), "[::1]:80"),
        # As ASGI servers give it in a scope, and Unix sockets have none.
        (["::1", 80], "[::1]:80"),
        (None, "unknown:0"),
    ],
)
def test_clients_are_named_by_their_address(client: list[str | int] | None, name: str) -> None:
    assert client_name(client) == name


def test_a_line_that_is_not_to_repeat_comes_again_in_the_next_period(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limited_log = RateLimitedLog(LOGGER, clock=lambda: now[0])
    for now[0] in (0.0, 1.0, 2.0, SECONDS, SECONDS + 1):
        for text in ("the disk is full", "it is closed"):
            limited_log.note("odd", "storing", text, repeats=False)
    assert caplog.messages == [
        "storing: the disk is full",
        "storing: it is closed",
        "storing: the disk is full; 4 similar suppressed",
        "storing: it is closed",
    ]
    assert limited_log.counts == {"odd": 10}
