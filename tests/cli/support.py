"""Results of the program, servers as processes, and Git repositories to import, for the tests of the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.forked import Forked, run_gossiplog


@dataclass(frozen=True, slots=True)
class Result:
    """How the program ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        (record,) = self.records
        return record


Program = Callable[..., Result]
PATIENCE = 120
"""Seconds that a process may take to exit on a busy machine."""


class Server:
    """`gossiplog serve` in a process of its own, which ends with the context.

    Attributes:
        ready: what it said when it began.
    """

    def __init__(self, path: Path | str, *options: str | Path) -> None:
        self.process = Forked(run_gossiplog, ["serve", str(path), *map(str, options)])
        self.ready = self.record()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def out(self) -> IO[bytes]:
        return self.process.stdout

    def record(self, event: str | None = None) -> dict[str, Any]:
        """The next record that it writes; the next of an event."""
        for line in self.out:
            record: dict[str, Any] = json.loads(line)
            if event is None or record.get("event") == event:
                return record
        raise AssertionError(f"the server ended: {self.process.stderr.read()!r}")

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ends it with a signal; its exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE)
        return self.process.wait()


def following(path: Path | str, url: str, *options: str) -> Forked:
    """Start `gossiplog sync --follow` in a process of its own, which ends with the block."""
    return Forked(run_gossiplog, ["sync", str(path), url, "--follow", *options])


class Repository:
    """A Git repository that is written without its work tree: `git commit-tree` takes any parents and any bytes.

    Attributes:
        path: its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._git("init", "--quiet", "--initial-branch=main", str(path))
        self._tree = self._git("-C", str(path), "mktree").strip()
        self._time = 1_700_000_000

    def commit(
        self, message: bytes, *parents: str, author: bytes = b"Ada <ada@example.org>", encoding: str = "UTF-8"
    ) -> str:
        """Makes a commit and returns its name. Its author is taken as it is, whatever bytes it has."""
        self._time += 60
        lines = [b"tree " + self._tree.encode(), *(b"parent " + parent.encode() for parent in parents)]
        lines += [b"%s %s %d +0000" % (role, author, self._time) for role in (b"author", b"committer")]
        if encoding != "UTF-8":
            lines.append(b"encoding " + encoding.encode())
        content = b"\n".join(lines) + b"\n\n" + message
        return self._git("-C", str(self.path), "hash-object", "-t", "commit", "-w", "--stdin", stdin=content).strip()

    def branch(self, name: str, commit: str) -> None:
        """Points a branch at a commit."""
        self._git("-C", str(self.path), "update-ref", f"refs/heads/{name}", commit)

    @staticmethod
    def _git(*arguments: str, stdin: bytes = b"") -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        run = subprocess.run(["git", *arguments], input=stdin, capture_output=True, check=True, env=environment)
        return run.stdout.decode()
