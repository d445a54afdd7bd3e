"""The program `gossiplog`, also as `python -m gossiplog`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    # Nothing is served yet, and a transaction that is under way is rolled back at the next start, as after a crash. An
    # exception might be raised, and lost, in a callback of the interpreter's.
    os._exit(0)


def main() -> int:
    """Run the command line, where there is a core to run it on.

    Returns:
        The exit code, as `gossiplog.cli.main` says.
    """
    if sys.argv[1:2] == ["serve"]:
        # From the first moment: its modules take a while to load. `serve` handles signals itself once it runs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
    try:
        importlib.import_module("gossiplog.core")
    except ImportError as error:
        sys.stderr.write(f"gossiplog: {error}\n")
        return 1
    from gossiplog.errors import CORE, explain_core

    try:
        from gossiplog.cli.main import main as run

        return run()
    except ImportError as error:
        # Of a name that commands alone need.
        if error.name != CORE:
            raise
        sys.stderr.write(f"gossiplog: {explain_core(error)}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
