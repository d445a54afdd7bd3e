"""Figures of logs and of authors, and the expressions in Spark's SQL that users give."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gossiplog.errors import OptionError
from gossiplog.spark.failures import first_line, worker_errors


def expression(frame: DataFrame, name: str, text: str) -> Column:
    """Return an expression over the columns of a frame.

    Args:
        frame: with the columns.
        name: what it is for, in errors.
        text: in SQL.

    Raises:
        OptionError: Spark does not understand it.
    """
    try:
        parsed = F.expr(text)
        # Beside the columns, since an aggregate alone would be one row; and asked for the schema, since over Spark
        # Connect a frame is analysed when it is used.
        _ = frame.select("*", parsed).schema
    except (AnalysisException, ParseException) as error:
        raise OptionError(f"the expression for {name}, {text}, cannot be used: {first_line(error)}") from error
    return parsed


@dataclass(frozen=True, slots=True)
class AuthorShare:
    """What one author has among some messages.

    Attributes:
        author: a did:key URI.
        messages: how many.
        bytes: of their stored values.
        first_clock: the least of their clocks.
        last_clock: the largest.
    """

    author: str
    messages: int
    bytes: int
    first_clock: int
    last_clock: int


def author_figures() -> tuple[Column, ...]:
    """Return what is counted for each author: `messages`, `bytes`, `first_clock` and `last_clock`."""
    return (
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.min("clock").alias("first_clock"),
        F.max("clock").alias("last_clock"),
    )


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
        problem: why it was not read to its end, None where it was.
    """

    log: str
    messages: int
    damaged: int
    authors: int
    bytes: int
    first_clock: int | None
    last_clock: int | None
    problem: str | None = None


def summarize(frame: DataFrame) -> list[LogSummary]:
    """Return the logs of a frame, ascending by location; a log without a message is not among them.

    Args:
        frame: with the columns log, clock, author and size of the data source; with `log_problem`, logs that were
            passed over have one.

    Raises:
        GossipLogError: as reading the logs raises it.
    """
    problem = F.col("log_problem") if "log_problem" in frame.columns else F.lit(None).cast("string")
    is_message = problem.isNull()
    figures = frame.groupBy("log").agg(
        F.count_if(is_message).alias("messages"),
        F.count_if(is_message & F.col("clock").isNull()).alias("damaged"),
        F.countDistinct("author").alias("authors"),
        F.coalesce(F.sum("size"), F.lit(0)).alias("bytes"),
        F.min("clock").alias("first_clock"),
        F.max("clock").alias("last_clock"),
        F.max(problem).alias("problem"),
    )
    with worker_errors():
        return [LogSummary(**row.asDict()) for row in figures.orderBy("log").collect()]
