"""What the benchmarks stand on: work and its floor in turns, histories, files for logs.

The machine may be shared, so only what ran side by side can be compared. Keys, payloads and parents of the histories
follow from the seed alone: they are the same everywhere.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import gossiplog.log
from gossiplog import core

TOPIC = "org.gossiplog.bench"
AUTHORS = 100
_BRAID = 16


def private_key(author: int) -> bytes:
    """Return the seed of an author's key pair: 32 bytes."""
    return hashlib.sha256(b"gossiplog bench %d" % author).digest()


def payload(number: int) -> dict[str, object]:
    """Return what a message of the benchmarks says."""
    return {"number": number, "text": f"message {number} of a benchmark, of about the usual length"}


def history(name: str, count: int) -> Iterator[bytes]:
    """Return the stored values of a history, in causal order.

    Args:
        name: `mixed` (one to three messages at once), `chain`, `braid` (sixteen at once, in step), `gossip` (sixteen
            authors, not in step), or `roots` (messages without parents).
        count: how many messages.
    """
    return _HISTORIES[name](count)


def _rounds(count: int, widths: Iterator[int]) -> Iterator[bytes]:
    """Yield a history in which the messages of a round name all messages of the round before as parents."""
    heads: list[str] = []
    made = 0
    clock = 0
    while made < count:
        clock += 1
        following = []
        for _ in range(min(next(widths), count - made)):
            key, value = core.sign(TOPIC, clock, heads, payload(made), private_key(made % AUTHORS))
            following.append(core.encode_id(key))
            made += 1
            yield value
        heads = following


def _mixed_widths() -> Iterator[int]:
    """Yield one to three, the messages at once: concurrent authors who see one another after each."""
    choice = random.Random(1)
    while True:
        yield choice.choice((1, 1, 2, 3))


def _constant_widths(width: int) -> Iterator[int]:
    while True:
        yield width


def _gossip(count: int) -> Iterator[bytes]:
    """Yield a history of authors out of step: each message names its author's last one, and that of another."""
    choice = random.Random(4)
    tips: dict[int, tuple[int, str]] = {}
    for number in range(count):
        author = choice.randrange(_BRAID)
        parents = {tips[other] for other in (author, choice.randrange(_BRAID)) if other in tips}
        clock = 1 + max((clock for clock, _ in parents), default=0)
        ids = sorted(id for _, id in parents)
        key, value = core.sign(TOPIC, clock, ids, payload(number), private_key(author))
        tips[author] = clock, core.encode_id(key)
        yield value


_HISTORIES: dict[str, Callable[[int], Iterator[bytes]]] = {
    "mixed": lambda count: _rounds(count, _mixed_widths()),
    "chain": lambda count: _rounds(count, _constant_widths(1)),
    "braid": lambda count: _rounds(count, _constant_widths(_BRAID)),
    "gossip": _gossip,
    "roots": lambda count: _rounds(count, _constant_widths(count)),
}


ROUNDS = 3

Prepare: TypeAlias = Callable[[], tuple[object, ...]]
Repeat: TypeAlias = Callable[[Callable[..., None], Prepare], None]
"""Calls, ROUNDS times, the second and then the first with what the second returned."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the results.

    Attributes:
        work: what was done.
        must: what it must reach, on logs of a million messages.
        reached: what it reached, in the same terms.
        met: whether that is enough; None where that takes a floor that was not measured.
        seconds: that the work took, all of it.
        floor_seconds: that its floor took, None where it has none.
        detail: the figures behind it.
    """

    work: str
    must: str
    reached: str
    met: bool | None
    seconds: float
    floor_seconds: float | None = None
    detail: str = ""


def repeat(work: Callable[..., None], prepare: Prepare) -> None:
    """Do the work ROUNDS times, each time with what `prepare` returns: the plain `Repeat`."""
    for _ in range(ROUNDS):
        work(*prepare())


class Turns:
    """The seconds that some work and its floor take.

    Args:
        repeat: runs the rounds.
    """

    def __init__(self, repeat: Repeat = repeat) -> None:
        self._repeat = repeat
        self._work: list[float] = []
        self._floor: list[float] = []

    def run(
        self,
        work: Callable[..., object],
        floor: Callable[[], float] | None = None,
        prepare: Prepare = tuple,
    ) -> None:
        """In each round: the floor, what the work needs (not counted), the work.

        Args:
            work: called with what `prepare` returned.
            floor: returns its seconds; None where there is nothing to compare with.
            prepare: what comes before each run of the work.
        """

        def before() -> tuple[object, ...]:
            if floor is not None:
                self._floor.append(floor())
            return prepare()

        def counted(*arguments: object) -> None:
            self._work.append(timed(lambda: work(*arguments)))

        self._repeat(counted, before)

    @property
    def middle(self) -> int:
        """The number, from 0, of the median round: by the ratio to the floor, or by the work where it has no floor.

        All figures are of this round, so that they agree with each other.
        """
        measured = [w / f for w, f in zip(self._work, self._floor, strict=True)] if self._floor else self._work
        return measured.index(statistics.median_low(measured))

    @property
    def seconds(self) -> float:
        """What the work took."""
        return self._work[self.middle]

    @property
    def floor_seconds(self) -> float:
        """What its floor took."""
        return self._floor[self.middle]

    @property
    def ratio(self) -> float:
        """The work over its floor."""
        return self.seconds / self.floor_seconds


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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
