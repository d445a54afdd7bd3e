"""The columns that a user may ask for."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from gossiplog.errors import OptionError
from gossiplog.spark.source.schema import SCHEMA, STORED, check_schema, pruned


def test_pruned_in_the_order_of_the_names() -> None:
    assert pruned(["value", "key"]).simpleString() == "struct<value:binary,key:binary>"
    assert pruned(SCHEMA.fieldNames()) == SCHEMA


def test_what_is_stored_are_columns() -> None:
    assert set(SCHEMA.fieldNames()) > STORED


def test_a_schema_of_the_users() -> None:
    fields = [StructField("key", BinaryType(), nullable=False), StructField("parents", ArrayType(StringType()))]
    check_schema(StructType(fields))


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("kee", BinaryType()), "there is no column 'kee'"),
        (StructField("key", StringType()), "'key' the type string: expected binary"),
    ],
)
def test_a_schema_that_is_none_of_ours(field: StructField, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        check_schema(StructType([field]))
