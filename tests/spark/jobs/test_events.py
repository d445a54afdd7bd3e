"""The types of payloads, as Spark has them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gossiplog.errors import OptionError
from gossiplog.spark.jobs.events import check_payload


def columns(name: str, kind: DataType) -> StructType:
    return StructType([StructField("item", StringType()), StructField(name, kind)])


@pytest.mark.parametrize(
    "kind",
    [BinaryType(), DoubleType(), ArrayType(LongType()), StructType([StructField("a", ArrayType(StringType()))])],
)
def test_types_of_payloads(kind: DataType) -> None:
    check_payload(columns("at", kind))


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [
        ("at", TimestampType(), "payload.at has the type timestamp, which no payload can have"),
        ("at", TimestampType(), "--payload 'cast(at as string) as at', and --payload NAME for each other column"),
        ("day", DateType(), "--payload 'cast(day as string) as day'"),
        ("the price", DecimalType(10, 2), "--payload 'cast(`the price` as string) as `the price`'"),
        ("names", MapType(StringType(), StringType()), "--payload 'to_json(names) as names'"),
        ("line", StructType([StructField("at", DateType())]), "payload.line.at has the type date"),
        ("line", StructType([StructField("at", DateType())]), "--payload 'to_json(line) as line'"),
        ("days", ArrayType(DateType()), "payload.days[] has the type date"),
        ("x", NullType(), "payload.x is null in every row: leave the column out, by --payload NAME for each other"),
    ],
)
def test_types_that_no_payload_can_have(name: str, kind: DataType, complaint: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_payload(columns(name, kind))
    assert complaint in str(caught.value)
