"""Logs in figures."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gossiplog.spark.failures import worker_errors


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What was read of one log.

    Attributes:
        log: its location.
        messages: how many were read.
        damaged: how many of them have a stored value that is not theirs.
        authors: how many different ones there are.
        bytes: of all stored values together.
        first_clock: the least clock, None where no message is sound.
        last_clock: the largest clock, None where no message is sound.
    """

    log: str
    messages: int
    damaged: int
    authors: int
    bytes: int
    first_clock: int | None
    last_clock: int | None


def summarize(frame: DataFrame) -> list[LogSummary]:
    """Return the logs of a frame, ascending by location; a log without a message is not among them.

    Args:
        frame: with the columns log, clock, author and size of the data source.

    Raises:
        GossipLogError: as reading the logs raises it.
    """
    figures = frame.groupBy("log").agg(
        F.count("*").alias("messages"),
        F.sum(F.col("clock").isNull().cast("long")).alias("damaged"),
        F.countDistinct("author").alias("authors"),
        F.sum("size").alias("bytes"),
        F.min("clock").alias("first_clock"),
        F.max("clock").alias("last_clock"),
    )
    with worker_errors():
        return [LogSummary(**row.asDict()) for row in figures.orderBy("log").collect()]
