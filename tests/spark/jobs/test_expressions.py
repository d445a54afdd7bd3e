"""Expressions that users give."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from gossiplog.errors import OptionError
from gossiplog.spark.jobs.expressions import expression


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
