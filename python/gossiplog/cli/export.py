"""`gossiplog export`: a log as JSON Lines for `gossiplog import`."""

from __future__ import annotations

import sys

from gossiplog.cli.json_lines import message_line
from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import printable


def export(path: LogPath) -> None:
    """Write all messages of a log to standard output, as JSON Lines.

    Each line has the id, the signature and the message in dag-json. gossiplog import verifies them, and makes the same
    log of them.
    """
    on_terminal = sys.stdout.isatty()
    with open_log(path) as log:
        for message in log.messages():
            line = message_line(message)
            if on_terminal:
                line = printable(line.decode("utf-8")).encode("utf-8")
            sys.stdout.buffer.write(line + b"\n")
