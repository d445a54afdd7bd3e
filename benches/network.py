"""Processes of the benchmarks of the network, as the benchmarks use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

_PROGRAM = Path(__file__).with_name("network_peer.py")


class Process:
    """A process with a role of `network_peer.py`. Leaving its context ends it.

    Args:
        role: which.
        arguments: of the role.

    Attributes:
        url: where it listens, if it does.
    """

    def __init__(self, role: str, *arguments: object) -> None:
        command = [sys.executable, str(_PROGRAM), role, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pipes = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self.url = str(self.answer())

    def tell(self, command: str, **arguments: object) -> None:
        """Has it do something."""
        to, _ = self._pipes
        to.write(json.dumps({"command": command, "arguments": arguments}) + "\n")
        to.flush()

    def answer(self) -> Any:
        """What it answers; waits for it."""
        line = self._pipes[1].readline()
        if not line:
            self._process.communicate()
            raise RuntimeError(f"the process {self._process.args!r} ended; it says why above")
        return json.loads(line)

    def call(self, command: str, **arguments: object) -> Any:
        """Has it do something, and waits for the answer."""
        self.tell(command, **arguments)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()
