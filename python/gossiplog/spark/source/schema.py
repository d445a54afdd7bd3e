"""The columns of the data source."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from gossiplog.errors import OptionError

SCHEMA = StructType(
    [
        StructField("log", StringType()),
        StructField("seq", LongType()),
        StructField("id", StringType()),
        StructField("key", BinaryType()),
        StructField("clock", LongType()),
        StructField("topic", StringType()),
        StructField("author", StringType()),
        StructField("codec", StringType()),
        StructField("parents", ArrayType(StringType())),
        StructField("payload", StringType()),
        StructField("value", BinaryType()),
        StructField("size", LongType()),
        StructField("canonical", BooleanType()),
        StructField("content_id", StringType()),
    ]
)
"""Every column. `log` is the location, `seq` the arrival sequence, `key` (20 bytes) and `value` what is stored, `size`
the value's bytes. The others are decoded from the value: `payload` is dag-json, `author` a did:key URI, `parents` ids.
All encodings of a message have one `content_id`, the id of the canonical one; `canonical` says whether the row is it.
"""

STORED = frozenset({"log", "seq", "key", "value", "size"})
"""Columns that need no look into the value."""

_TYPES = {field.name: field.dataType for field in SCHEMA}


def pruned(names: Iterable[str]) -> StructType:
    """Return the schema with some of the columns, in the order in which they are named.

    Raises:
        OptionError: a name that no column has, or that comes twice.
    """
    fields: list[StructField] = []
    for name in names:
        if name in {field.name for field in fields}:
            raise OptionError(f"the option columns names {name!r} twice")
        fields.append(StructField(name, _type_of(name)))
    if not fields:
        raise OptionError("the option columns names no column")
    return StructType(fields)


def check_schema(schema: StructType) -> None:
    """Check a schema that a user gave against the columns that there are.

    Raises:
        OptionError: a column that there is not, or that has another type.
    """
    for field in schema:
        if field.dataType != (expected := _type_of(field.name)):
            raise OptionError(
                f"the schema gives the column {field.name!r} the type {field.dataType.simpleString()}: expected"
                f" {expected.simpleString()}"
            )


def _type_of(name: str) -> DataType:
    if name not in _TYPES:
        raise OptionError(f"there is no column {name!r}: expected one of {', '.join(_TYPES)}")
    return _TYPES[name]
