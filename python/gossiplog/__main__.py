"""The program `gossiplog`, also as `python -m gossiplog`."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    # Nothing is served yet, and a transaction that is under way is rolled back at the next start, as after a crash. An
    # exception might be raised, and lost, in a callback of the interpreter's.
    os._exit(0)


class _Interrupt:
    """Handle SIGTERM and SIGHUP as Ctrl-C, so that connections are closed and temporary files removed.

    Attributes:
        received: the number of the last such signal; 0 for none.
    """

    def __init__(self) -> None:
        self.received = 0
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and hasattr(signal, "pthread_sigmask"):
            # A script has started the command in the background. It stays deaf to Ctrl-C, but an event loop handles
            # SIGINT only where nothing else does, and would be left by an exception from between its callbacks.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for name in ("SIGTERM", "SIGHUP"):
            # Windows lacks SIGHUP, nohup ignores it, and the start of `serve` handles SIGTERM.
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        # An event loop replaces the handler of SIGINT while it runs: call that one.
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)


def main() -> int:
    """Run the command line, where there is a core to run it on.

    Returns:
        The exit code, as `gossiplog.cli.main` says.
    """
    for name in ("stdout", "stderr"):
        # A shell has closed it, as by >&-.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    try:
        return _run()
    except KeyboardInterrupt:
        # While the modules of commands are loaded; those of the package come before this one.
        return 128 + signal.SIGINT


def _run() -> int:
    if sys.argv[1:2] == ["serve"]:
        # From the first moment: its modules take a while to load. `serve` handles signals itself once it runs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
    # What is imported stays until the end, and looking through it takes a tenth of a command's start or more.
    # `gossiplog.cli.main` switches collection on again once it has loaded the command.
    gc.disable()
    try:
        importlib.import_module("gossiplog.core")
    except ImportError as error:
        sys.stderr.write(f"gossiplog: {error}\n")
        return 1
    from gossiplog.extras import CORE, explain_core, explain_extra

    try:
        from gossiplog.cli.main import INTERRUPTED
        from gossiplog.cli.main import main as run

        # Not before: a command that has not begun has nothing to close.
        interrupt = _Interrupt()
        code = run()
        return 128 + interrupt.received if code == INTERRUPTED and interrupt.received else code
    except ImportError as error:
        # Of a name, or a package, that commands alone need.
        found = explain_core(error) if error.name == CORE else explain_extra(error, "this command", "cli")
        if found is error:
            raise
        sys.stderr.write(f"gossiplog: {found}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
