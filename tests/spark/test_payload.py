"""Types that pydantic validates, as types of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from typing_extensions import TypedDict

from gossiplog.spark import parse_payload, read
from gossiplog.spark.payload import spark_type
from tests.spark.shared import frame_of_rows


class Author(TypedDict):
    name: str


@dataclass
class Place:
    x: float


class Note(BaseModel):
    text: str
    stars: int | None = None
    kind: Literal["draft", "final"] = "draft"
    tags: list[str] = []
    counts: dict[str, int] = {}
    author: Author | None = None
    place: Place | None = None
    day: date | None = None
    at: datetime | None = None
    public: bool = Field(default=True, alias="isPublic")


class Thread(BaseModel):
    replies: list[Thread] = []


def test_a_model() -> None:
    assert spark_type(Note).simpleString() == (
        "struct<text:string,stars:bigint,kind:string,tags:array<string>,counts:map<string,bigint>,"
        "author:struct<name:string>,place:struct<x:double>,day:date,at:timestamp,isPublic:boolean>"
    )


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        (Thread, "Thread refers to itself"),
        (TypedDict("Mixed", {"a": int | str}), "payload.a is one of several types"),
        (TypedDict("Raw", {"a": bytes}), "payload.a is bytes"),
        (TypedDict("Loose", {"a": Any}), "payload.a has no type that a column can have"),
        (object(), "has no JSON schema"),
        (Callable, "has no JSON schema"),
    ],
)
def test_what_no_column_can_hold(shape: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        spark_type(shape)


@pytest.mark.parametrize("setting", ["_corrupt_record", "item", "value"])
def test_fields_are_not_those_of_a_setting(spark: SparkSession, setting: str) -> None:
    spark.conf.set("spark.sql.columnNameOfCorruptRecord", setting)
    text = '{"_corrupt_record": "x", "item": "y", "value": "z"}'
    for shape, expected in (
        ("_corrupt_record string, item string, value string", Row(_corrupt_record="x", item="y", value="z")),
        ("_corrupt_record int, item string", Row(_corrupt_record=None, item="y")),
        ("map<string, string>", {"_corrupt_record": "x", "item": "y", "value": "z"}),
        ("array<string>", None),
    ):
        frame = parse_payload(frame_of_rows(spark, [(text,)], "payload string"), shape)
        assert frame.collect() == [(expected,)]


def test_times_without_a_zone_are_of_utc(spark: SparkSession) -> None:
    frame = frame_of_rows(spark, [('{"at": "2026-07-01T12:00:00"}',)], "payload string")
    for zone in ("UTC", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        parsed = parse_payload(frame, "at timestamp").select(F.unix_timestamp("payload.at"))
        assert parsed.collect() == [(int(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()),)]


def test_payloads_as_structs(spark: SparkSession, make_log: Callable[..., Path]) -> None:
    frame = read(spark, str(make_log(messages=2)))
    for shape in (TypedDict("Number", {"number": int}), StructType.fromDDL("number bigint"), "number bigint"):
        numbers = parse_payload(frame, shape).select("payload.number").collect()
        assert [row.number for row in numbers] == [0, 1]
    with pytest.raises(TypeError, match="payloads as bigint"):
        parse_payload(frame, int)
