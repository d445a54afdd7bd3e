"""Logs in figures, and expressions that users give."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import NotALog, Signer
from gossiplog.errors import OptionError
from gossiplog.spark import LogSummary, read, summarize
from gossiplog.spark.jobs.summary import expression


def test_a_damaged_log_and_one_of_two_authors(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path
) -> None:
    damaged, shared = make_log("a.db", 5), make_log("b.db", 4)
    with gossiplog.open(shared) as log:
        log.append("another's", signer=Signer(bytes(32)))
    with closing(sqlite3.connect(damaged)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 5")
    sizes = []
    for path in (damaged, shared):
        with closing(sqlite3.connect(path)) as connection:
            sizes += connection.execute("SELECT sum(length(value)) FROM gossiplog_messages").fetchone()
    assert summarize(read(spark, str(tmp_path / "*.db"))) == [
        LogSummary(str(damaged), 5, 1, 1, sizes[0], 1, 4),
        LogSummary(str(shared), 5, 0, 2, sizes[1], 1, 5),
    ]


def test_what_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotALog):
        summarize(read(spark, str(tmp_path / "none.db")))


def test_an_expression_over_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("ann", 2), ("ben", 3)], "name string, number int")
    doubled = expression(frame, "value", "number * 2")
    assert [row[0] for row in frame.select(doubled).collect()] == [4, 6]


@pytest.mark.parametrize("text", ["nowhere", "number +", "nothing(number)", "name.first"])
def test_what_spark_does_not_understand(spark: SparkSession, text: str) -> None:
    frame = spark.createDataFrame([("ann", 2)], "name string, number int")
    with pytest.raises(OptionError) as caught:
        expression(frame, "value", text)
    said = str(caught.value)
    assert said.startswith(f"the expression for value, {text}, cannot be used: ")
    assert "\n" not in said
