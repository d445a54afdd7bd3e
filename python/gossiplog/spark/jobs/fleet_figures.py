"""What an analysis of many logs gives: figures of each log and of all together, analyses of those that stand out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from gossiplog.spark.jobs.analyze import LIMIT, AnalyzeResult
from gossiplog.spark.source.problems import Problem

DETAILED = 20
"""Logs that stand out of which the analysis is kept as a whole."""


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One log of a fleet.

    Attributes:
        log: its location.
        topic: None where it was left out.
        problem: why it was left out; None where it was read.
        messages: how many it has, without damaged ones.
        damaged: how many have a stored value that is not theirs; nothing else covers them.
        bytes: of stored values.
        authors: how many there are.
        largest_author: messages of the author with the most.
        longest_chain: messages in the longest chain.
        first: messages without parents.
        heads: messages without children.
        branches: messages with several children.
        merges: messages with several parents.
        widest: the most messages with one clock.
        not_canonical: stored values that are not the canonical encoding of their message.
        reencoded: messages that have such a value.
        suspects: authors who are outliers in the log.
        forked: authors that forked.
        messages_score: how unusual the number of its messages is in the fleet: the modified z-score, as that of authors
            in a log. None where all logs are alike.
        bytes_score: the same by bytes.
    """

    log: str
    topic: str | None = None
    problem: Problem | None = None
    messages: int = 0
    damaged: int = 0
    bytes: int = 0
    authors: int = 0
    largest_author: int = 0
    longest_chain: int = 0
    first: int = 0
    heads: int = 0
    branches: int = 0
    merges: int = 0
    widest: int = 0
    not_canonical: int = 0
    reencoded: int = 0
    suspects: int = 0
    forked: int = 0
    messages_score: float | None = None
    bytes_score: float | None = None

    @property
    def score(self) -> float:
        """The larger of both scores."""
        return max(self.messages_score or 0.0, self.bytes_score or 0.0)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is conspicuous in it, as words; empty where nothing is."""
        found = (
            (self.problem is not None, str(self.problem)),
            (self.damaged > 0, f"{self.damaged:,} damaged"),
            (self.forked > 0, f"{self.forked:,} forked"),
            (self.reencoded > 0, f"{self.reencoded:,} re-encoded"),
            (self.score > LIMIT, f"unusual size, score {self.score:.1f}"),
        )
        return tuple(text for applies, text in found if applies)


@dataclass(frozen=True, slots=True)
class FleetTotals:
    """All logs of a fleet.

    Attributes:
        logs: how many there are, those that were left out included.
        problems: how many of them were left out.
        topics: how many the others have.
        messages: of all logs; a message counts once for each replica.
        damaged: likewise.
        bytes: of stored values.
        authors: how many different ones there are.
        forked: logs with authors that forked.
        reencoded: logs with alternative encodings.
        suspects: logs with far more messages or bytes than the others.
        conspicuous: logs that stand out by any of these, by damage or by a problem.
    """

    logs: int
    problems: int
    topics: int
    messages: int
    damaged: int
    bytes: int
    authors: int
    forked: int
    reencoded: int
    suspects: int
    conspicuous: int


@dataclass(frozen=True, slots=True)
class FleetAnalyzeResult:
    """Many logs in figures.

    Attributes:
        totals: of all of them.
        logs: the most conspicuous first: those that were left out, then those with the most damaged messages, the most
            authors that forked, the most messages in several encodings, then those with the highest score, then by
            location.
        details: the analyses of those that stand out, by location, DETAILED at most, without frames.
        frames: `authors`, `forks` and `alternative_encodings` of all logs, by these names, each with the column `log`
            before those that `AnalyzeResult.frames` has; what they are computed from is on disk.
    """

    totals: FleetTotals
    logs: tuple[LogFigures, ...]
    details: Mapping[str, AnalyzeResult]
    frames: Mapping[str, DataFrame]
    _kept: tuple[DataFrame, ...] = field(default=(), repr=False)

    def unpersist(self) -> None:
        """Remove from disk what the frames are computed from."""
        for frame in self._kept:
            frame.unpersist()
