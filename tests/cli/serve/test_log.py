"""The log of `gossiplog serve`."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from gossiplog.cli.serve.log import server_log
from gossiplog.net.http import access_log
from gossiplog.net.rate_limited_log import RateLimitedLog
from gossiplog.net.replicator.telemetry import LOGGER

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
LEVELS = ["debug", "info", "warning", "error"]
OTHER = logging.getLogger("another.package")


def fail() -> Exception:
    try:
        raise KeyError("a key\n2026-01-01T00:00:00.000Z INFO forged \x1b[2J")
    except KeyError as error:
        return error


@pytest.mark.parametrize("level", LEVELS)
def test_lines_have_a_time_and_a_level(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = LOGGER.level
    with server_log(level, "text", access=False):
        for number, name in enumerate(LEVELS):
            LOGGER.log(logging.getLevelNamesMapping()[name.upper()], "line %d", number)
        access_log.LOGGER.info("GET /")
        OTHER.info("nothing of ours")
        OTHER.error("ours to know")
    assert LOGGER.level == before
    LOGGER.error("nobody writes it any more")
    lines = capfd.readouterr().err.splitlines()
    expected = [f"{name.upper()} line {number}" for number, name in enumerate(LEVELS)][LEVELS.index(level) :]
    assert [re.sub(f"^{TIME} ", "", line) for line in lines] == [*expected, "ERROR ours to know"]
    assert all(re.match(TIME, line) for line in lines)


@pytest.mark.parametrize("level", ["info", "error"])
def test_the_access_log_has_no_level(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    with server_log(level, "text", access=True):
        access_log.LOGGER.info("GET /")
    assert re.fullmatch(f"{TIME} INFO GET /\n", capfd.readouterr().err)


def test_what_a_stranger_wrote_forges_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    limited_log = RateLimitedLog(LOGGER)
    with server_log("warning", "text", access=False):
        OTHER.warning("one\nand another \u202e\udcff")
        limited_log.note("defects", "[::1]:9", "a defect of\ngossiplog", error=fail())
    first, second, *rest = capfd.readouterr().err.splitlines()
    assert re.fullmatch(TIME + r" WARNING one\\nand another \\u202e\\udcff", first)
    assert re.fullmatch(TIME + r" ERROR \[::1\]:9: a defect of\\ngossiplog", second)
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
    assert "forged" in rest[-1]


def test_json_has_an_object_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    limited_log = RateLimitedLog(LOGGER)
    with server_log("warning", "json", access=True):
        limited_log.note("token", "1.2.3.4:5", 'refused "it"\x7f', 2)
        limited_log.note("defects", "[::1]:9", "a defect", error=fail())
        access_log.LOGGER.info("GET /")
    found: list[dict[str, Any]] = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert all(re.fullmatch(TIME, record.pop("time")) for record in found)
    assert found[0] == {
        "level": "warning",
        "logger": "gossiplog",
        "message": '1.2.3.4:5: refused "it"\\x7f (2 times)',
        "kind": "token",
        "peer": "1.2.3.4:5",
        "count": 2,
        "suppressed": 0,
    }
    assert found[1]["traceback"][0] == "Traceback (most recent call last):"
    assert (found[2]["logger"], found[2]["message"]) == ("gossiplog.access", "GET /")


@pytest.mark.parametrize("format", ["text", "json"])
def test_lines_that_nobody_reads_are_counted(
    format: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossiplog.cli.printer.MOST_BYTES", 10)
    with server_log("warning", format, access=False):
        LOGGER.warning("longer than ten bytes")
    (line,) = capfd.readouterr().err.splitlines()
    text = json.loads(line)["message"] if format == "json" else line
    assert text.endswith("1 line is missing here: it was not read in time")
