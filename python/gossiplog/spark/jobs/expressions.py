"""Expressions in Spark's SQL: those that users give, and those that several jobs have in common."""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gossiplog.errors import OptionError


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
        frame.select(parsed)
    except (AnalysisException, ParseException) as error:
        said = str(error).strip().splitlines()[0]
        raise OptionError(f"the expression for {name}, {text}, cannot be used: {said}") from error
    return parsed


def author_figures() -> tuple[Column, ...]:
    """Return what is counted for each author: `messages`, `bytes`, `first_clock` and `last_clock`."""
    return (
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.min("clock").alias("first_clock"),
        F.max("clock").alias("last_clock"),
    )
