"""`gossiplog export`: a log as JSON Lines for `gossiplog import`."""

from __future__ import annotations

import sys

from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.messages.json_lines import first_line, last_line, message_line
from gossiplog.cli.output import printable


def export(path: LogPath) -> None:
    """Write all messages of a log to standard output, as JSON Lines.

    Each line has the id, the signature and the message in dag-json. The first one has the topic and the last one the
    number of messages, so that an export that was cut off is noticed. gossiplog import verifies the messages, and makes
    the same log of them.
    """
    on_terminal = sys.stdout.isatty()

    def write(line: bytes) -> None:
        if on_terminal:
            line = printable(line.decode("utf-8")).encode("utf-8")
        sys.stdout.buffer.write(line + b"\n")

    count = 0
    with open_log(path, unlocked=True) as log:
        write(first_line(log.topic))
        for message in log.messages():
            write(message_line(message))
            count += 1
    write(last_line(count))
