"""What the benchmarks stand on: histories, files for logs, and floors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import gossiplog.log
from gossiplog.cli.bench.histories import TOPIC
from gossiplog.cli.bench.turns import Turns


class Floors(Protocol):
    """What the arithmetic costs without everything around it; seconds."""

    def signatures(self, count: int, authors: int, signed: int, stored: int) -> float:
        """To verify signatures in batches of the best size, and to hash the values.

        Args:
            count: of messages.
            authors: with so many keys.
            signed: bytes in each message that are signed.
            stored: bytes in each value.
        """

    def leaves(self, count: int, key: int, value: int) -> float:
        """To hash leaves with so many bytes of key and value each."""


class Logs:
    """Logs in files, made once and copied for who changes them.

    Args:
        folder: where those are that may be changed.
        kept: where the others are.
    """

    def __init__(self, folder: Path, kept: Path) -> None:
        self._folder = folder
        self._kept = kept
        self._count = 0

    def path(self) -> Path:
        """Return where a new log may be made."""
        self._count += 1
        return self._folder / f"{self._count}.db"

    def full(self, name: str, values: list[bytes]) -> Path:
        """Return the path of a log of these values that nobody may change."""
        path = self._kept / f"{name}-{len(values)}.db"
        if not path.exists():
            partial = self.path()
            with gossiplog.log.open(partial, topic=TOPIC) as log:
                log.insert_many(values)
            shutil.move(partial, path)
        return path

    def extended(self, original: Path, name: str, values: list[bytes]) -> Path:
        """Return the path of a log with these values as well, that nobody may change either."""
        path = original.with_suffix(f".{name}")
        if not path.exists():
            partial = self.copy(original)
            with gossiplog.log.open(partial) as log:
                log.insert_many(values)
            shutil.move(partial, path)
        return path

    def copy(self, original: Path) -> Path:
        """Return the path of a copy of a log, to be changed; earlier copies are removed."""
        for old in self._folder.glob("*.db*"):
            old.unlink()
        path = self.path()
        shutil.copyfile(original, path)
        return path


@dataclass(frozen=True, slots=True)
class Stage:
    """What one benchmark runs on.

    Attributes:
        size: messages in the large logs.
        history: the values of a history by its name and length.
        logs: places for logs.
        turns: runs the work.
        floors: of the arithmetic, or None where there is no program to measure them.
    """

    size: int
    history: Callable[[str, int], list[bytes]]
    logs: Logs
    turns: Turns
    floors: Floors | None = None

    @property
    def mixed(self) -> list[bytes]:
        """The history of the large logs."""
        return self.history("mixed", self.size)
