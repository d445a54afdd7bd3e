"""Rebasing a log."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def rebase_command(place: str, target: str, drop: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return the command that rebases a log without some messages, for a shell; "" where the log is in no file.

    Args:
        place: of the log.
        target: to rebase onto.
        drop: ids of the messages.
        options: more arguments.
    """
    if not drop or place in (":memory:", "memory") or place.startswith("file:"):
        return ""
    drops = [part for id in drop for part in ("--drop", id)]
    return shlex.join(["gossiplog", "rebase", place, "--onto", target, *options, *drops])
