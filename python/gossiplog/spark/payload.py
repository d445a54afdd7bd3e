"""Payloads as structs: columns of a schema, or of a type that pydantic validates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_SIMPLE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "integer": LongType(),
    "number": DoubleType(),
    "string": StringType(),
}
_FORMATS: dict[str, DataType] = {"date": DateType(), "date-time": TimestampType()}


def parse_payload(frame: DataFrame, shape: DataType | Any, *, column: str = "payload") -> DataFrame:
    """Return the frame with its payloads as structs instead of dag-json.

    A payload that does not have the shape gives null, or null in the fields that do not, as `from_json` has it. A time
    without a zone is one of UTC.

    Args:
        frame: with payloads as dag-json.
        shape: a Spark type; its DDL, as "item string, stock int"; or a type that pydantic validates, as a model, a
            TypedDict or a dataclass.
        column: the name of the payloads' column.

    Raises:
        TypeError: a type that no columns can hold.
        ParseException: Spark's, of text that is no DDL.
    """
    if isinstance(shape, str):
        shape = DataType.fromDDL(shape)
    kind = shape if isinstance(shape, DataType) else spark_type(shape)
    if not isinstance(kind, (StructType, ArrayType, MapType)):
        raise TypeError(f"payloads as {kind.simpleString()}: expected a type with fields, items or keys")
    return frame.withColumn(column, F.from_json(F.col(column), kind, _options(kind)))


def _options(kind: StructType | ArrayType | MapType) -> dict[str, str]:
    """Return what `from_json` would take from the session's settings: one log has one result in every session."""
    # The field of that name would get nothing but text of payloads that are no JSON. Spark calls the one of a type that
    # is no struct "value".
    names = kind.names if isinstance(kind, StructType) else ["value"]
    return {"columnNameOfCorruptRecord": f"{max(names, key=len, default='')}_", "timeZone": "UTC"}


def spark_type(shape: Any) -> DataType:
    """Return the Spark type of what pydantic validates, by way of its JSON schema.

    Raises:
        TypeError: a type that pydantic does not know, that refers to itself, or that is one of several; bytes and
            links, for which dag-json has a form of its own (https://ipld.io/specs/codecs/dag-json/spec).
    """
    try:
        schema = TypeAdapter(shape).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"{shape!r} has no JSON schema: {error}") from error
    return _converted(schema, schema.get("$defs", {}), "payload", ())


def _converted(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], place: str, within: tuple[str, ...]
) -> DataType:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in within:
            raise TypeError(f"{place}: {name} refers to itself, which no column can")
        return _converted(definitions[name], definitions, place, (*within, name))
    if "anyOf" in schema:
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        if len(choices) != 1:
            raise TypeError(f"{place} is one of several types, which no column can be")
        return _converted(choices[0], definitions, place, within)
    form = schema.get("format")
    match schema.get("type"):
        case "object" if "properties" in schema:
            return StructType(
                [
                    StructField(name, _converted(field, definitions, f"{place}.{name}", within))
                    for name, field in schema["properties"].items()
                ]
            )
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            values = _converted(schema["additionalProperties"], definitions, f"{place}.*", within)
            return MapType(StringType(), values)
        case "array" if "items" in schema:
            return ArrayType(_converted(schema["items"], definitions, f"{place}[]", within))
        case "string" if form == "binary":
            raise TypeError(f"{place} is bytes, which dag-json writes as an object: keep payloads as text for it")
        case "string" if form in _FORMATS:
            return _FORMATS[form]
        case str(kind) if kind in _SIMPLE:
            return _SIMPLE[kind]
    raise TypeError(f"{place} has no type that a column can have: {dict(schema)}")
