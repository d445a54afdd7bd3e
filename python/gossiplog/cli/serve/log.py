"""The log of `gossiplog serve`: lines on stderr with their time and level, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gossiplog.cli.output import printable
from gossiplog.cli.printer import Printer, missing_lines
from gossiplog.net.http import access_log
from gossiplog.net.rate_limited_log import FIELDS, one_line
from gossiplog.net.replicator.telemetry import LOGGER


def utc(seconds: float) -> str:
    """Return a time, in seconds since 1970, in UTC with milliseconds (RFC 3339)."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milliseconds:03d}Z"


class _Formatter(logging.Formatter):
    """Formats records as text that a stranger cannot forge: all lines of a record but the first are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record, which begin with the time in UTC (RFC 3339)."""
        lines = [f"{utc(record.created)} {record.levelname} {one_line(record.getMessage())}"]
        lines += [f"  {one_line(line)}" for line in self._traceback(record)]
        return "\n".join(lines)

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        return self.formatException(record.exc_info).splitlines() if record.exc_info else []


class _JsonFormatter(_Formatter):
    """Formats each record as an object in one line, which has the record's fields (`rate_limited_log.FIELDS`), too."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        found: dict[str, Any] = {
            "time": utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": one_line(record.getMessage()),
            **getattr(record, FIELDS, {}),
        }
        if traceback := self._traceback(record):
            found["traceback"] = [one_line(line) for line in traceback]
        return printable(json.dumps(found, ensure_ascii=False))


class _Handler(logging.Handler):
    """Passes lines to a thread that writes them, so that a slow reader of stderr holds nothing up."""

    def __init__(self, printer: Printer, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._printer.say(_encoded(self.format(record)))
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end what it is about
            self.handleError(record)


@contextmanager
def server_log(level: str, format: str, *, access: bool) -> Iterator[None]:
    """Write the log of this process to stderr for the time of a block.

    Args:
        level: the lowest that is written, as `--log-level` takes it; of other packages, warnings and errors are.
        format: "text" or "json".
        access: whether the access log is written, too, at every level.
    """
    formatter = _JsonFormatter() if format == "json" else _Formatter()

    def dropped(count: int) -> bytes:
        text = missing_lines(count)
        return _encoded(formatter.format(logging.LogRecord(LOGGER.name, logging.WARNING, "", 0, text, None, None)))

    # There is no other place to report that stderr is gone.
    with Printer(sys.stderr.fileno(), dropped, gone=lambda error: None) as printer:
        handler = _Handler(printer, formatter)
        number = logging.getLevelNamesMapping()[level.upper()]
        root = logging.getLogger()
        levels = [(LOGGER, number), (access_log.LOGGER, logging.INFO if access else logging.CRITICAL)]
        before = [(logger, logger.level) for logger, _ in levels]
        root.addHandler(handler)
        for logger, wanted in levels:
            logger.setLevel(wanted)
        try:
            yield
        finally:
            root.removeHandler(handler)
            for logger, earlier in before:
                logger.setLevel(earlier)


def _encoded(lines: str) -> bytes:
    return f"{lines}\n".encode("utf-8", "backslashreplace")
