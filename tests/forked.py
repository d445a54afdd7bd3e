"""Programs in processes of their own that are forks of one, which has imported what they need.

Importing takes most of the processor time of a short program: half a second of that of `gossiplog serve`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import IO, Any, Self
from unittest.mock import patch

_FORKS = multiprocessing.get_context("forkserver")
# Each fork runs the script of pytest again, which imports it. The others are imported where they are used alone, and a
# name that cannot be imported is passed over without a word.
_FORKS.set_forkserver_preload(
    [
        "pytest",
        "benches.attacks",
        "gossiplog.cli.main",
        "gossiplog.cli.serve.run",
        "gossiplog.cli.sync.hub",
        "gossiplog.cli.sync.mesh",
        "anyio._backends._asyncio",
        "pydantic.json_schema",
        "pydantic.type_adapter",
        "starlette.middleware.cors",
        "uvicorn.lifespan.off",
    ]
)


class Forked:
    """A function in such a process, with the working folder and the environment of this one.

    Args:
        run: the function; it returns the exit status, and the process imports its module.
        arguments: its arguments.

    Attributes:
        stdin: what the process reads.
        stdout: what it writes.
        stderr: what it writes of errors.
    """

    def __init__(self, run: Callable[..., int | None], *arguments: Any) -> None:
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
        self.stdin: IO[bytes] = os.fdopen(our_in, "wb")
        self.stdout: IO[bytes] = os.fdopen(our_out, "rb")
        self.stderr: IO[bytes] = os.fdopen(our_err, "rb")
        ends = [Connection(their_in), Connection(their_out), Connection(their_err)]
        self._process = _FORKS.Process(target=_run, args=(ends, dict(os.environ), run, arguments), daemon=True)
        with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
            forkserver.ensure_running()
        self._process.start()
        for end in ends:
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.communicate()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or the negative number of the signal that ended the process; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once, if it runs."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended; return `returncode`."""
        self._process.join(timeout)
        assert self.returncode is not None, f"the process runs after {timeout} s"
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Close its input, and wait until the process has ended; return what of its output and errors was not read.

        A process that runs for longer than `timeout` seconds is killed, and an AssertionError raised.
        """
        with suppress(BrokenPipeError):
            self.stdin.close()
        # It may wait for either to be read.
        with ThreadPoolExecutor(2) as pool:
            output, errors = (pool.submit(_rest, pipe) for pipe in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except AssertionError:
                self.kill()
                raise
        return output.result(), errors.result()


def _rest(pipe: IO[bytes]) -> bytes:
    if pipe.closed:
        return b""
    with pipe:
        return pipe.read()


def run_gossiplog(arguments: Sequence[str]) -> int:
    """Run the program `gossiplog`; return its exit status."""
    from gossiplog.__main__ import main

    sys.argv = ["gossiplog", *arguments]
    return main()


def _run(
    ends: Sequence[Connection],
    environment: Mapping[str, str],
    run: Callable[..., int | None],
    arguments: Sequence[Any],
) -> None:
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    # Those of the first process had its pipes.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ |= environment
    sys.exit(run(*arguments))
