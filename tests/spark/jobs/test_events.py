"""An application's files and rows, as events that can be signed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
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

from gossiplog.errors import DecodeError, OptionError, SparkError
from gossiplog.spark import worker_errors
from gossiplog.spark.jobs.events import Layout, check_event_files, check_payload, events, read_events

ROWS = [("ann", 1, 'a "quoted",\ntext é'), ("ben", None, "b")]
SCHEMA = "who string, nr bigint, text string"


def test_every_format(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(ROWS, SCHEMA).write.parquet(str(tmp_path / "a.parquet"))
    (tmp_path / "a.csv").write_text('who,nr,text\nann,1,"a ""quoted"",\ntext é"\nben,,b\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(
        '{"who": "ann", "nr": 1, "text": "a \\"quoted\\",\\ntext é"}\n{"who": "ben", "text": "b"}\n', encoding="utf-8"
    )
    assert read_events(spark, [str(tmp_path / "a.parquet")]).collect() == ROWS
    assert read_events(spark, [str(tmp_path / "a.csv")], schema=SCHEMA).collect() == ROWS
    assert read_events(spark, [str(tmp_path / "a.jsonl")], schema=SCHEMA).collect() == ROWS
    assert read_events(spark, [str(tmp_path / "a.csv")]).dtypes == [(name, "string") for name in ("who", "nr", "text")]


@pytest.mark.parametrize(
    ("name", "text", "schema", "record"),
    [
        ("a.csv", "who,nr,text\nben,1,x\nann,one,x\n", SCHEMA, "ann,one,x"),
        ("b.csv", "who,nr,text\nben,1,x\nann,1\n", None, "ann,1"),
        ("a.jsonl", '{"who": "ann", "nr": 1}\n{"who": \n', SCHEMA, '{"who": '),
        ("b.jsonl", '{"who": "ann", "nr": "one"}\n', SCHEMA, '{"who": "ann", "nr": "one"}'),
        ("c.jsonl", '{"who": "ann", "nr": 1}\n{"who": \n', None, '{"who": '),
        ("d.jsonl", "[\n", None, "["),
        ("e.jsonl", '{"who": "ann"}{"who": "ben"}\n', "who string", '{"who": "ann"}{"who": "ben"}'),
        ("c.csv", 'who,nr,text\nann,1,"x\nann,2,x\n', None, 'ann,1,"x'),
    ],
)
def test_what_is_no_row(
    spark: SparkSession, tmp_path: Path, name: str, text: str, schema: str | None, record: str
) -> None:
    """The error has the file and the record, whatever columns a query uses."""
    (tmp_path / name).write_text(text)
    for use in (DataFrame.collect, DataFrame.count):
        with pytest.raises(DecodeError) as caught, worker_errors():
            use(read_events(spark, [str(tmp_path / name)], schema=schema))
        assert str(caught.value).startswith(
            f"file://{tmp_path}/{name} has a record that is malformed or does not fit the schema: {record}"
        )


def test_what_reads_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    """The records that are judged are those that Spark then reads."""
    deep = '{"a": ' * 98 + "[0.5, 1]" + "}" * 98
    (tmp_path / "year=2026").mkdir()
    (tmp_path / "year=2026" / "a.jsonl").write_text(f'\n{{"b": {deep}, "nr": null}}\r\n \n{{"nr": 9007199254740993}}')
    found = read_events(spark, [str(tmp_path)], "jsonl").select("b.a.a", "nr", "year").collect()
    assert [(row.nr, row.year) for row in found] == [(None, 2026), (2**53 + 1, 2026)]
    assert str(found[0]["a"]).endswith("a=[0.5, 1.0]" + ")" * 96)
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfwho,"a ""b"","\r\n"",x\r\n,"x\r\n""y"\r\n\r\nz,""')
    found = read_events(spark, [str(tmp_path / "a.csv")]).collect()
    # Where lines end in CRLF, Spark makes LF of those within a field.
    assert found == [("", "x"), (None, 'x\n"y'), ("z", "")]
    assert found[0].__fields__ == ["who", 'a "b",']
    (tmp_path / "none.csv").touch()
    (tmp_path / "none.jsonl").write_text("\n")
    for name in ("none.csv", "none.jsonl"):
        assert read_events(spark, [str(tmp_path / name)]).collect() == []


def test_other_names_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,text,nr\nann,x,1\n")
    (tmp_path / "b.csv").write_text("who,nr,text\nann,1,x\n")
    with pytest.raises(DecodeError, match=r"a\.csv has the columns who, text, nr where the schema has who, nr, text"):
        read_events(spark, [str(tmp_path / "a.csv")], schema=SCHEMA)
    with pytest.raises(
        DecodeError, match=r"b\.csv has the columns who, nr, text where file:.*a\.csv has who, text, nr"
    ):
        read_events(spark, [str(tmp_path / "*.csv")])


@pytest.mark.parametrize(
    ("paths", "format", "schema", "complaint"),
    [
        (["a.csv", "b.jsonl"], None, None, "the names of the files do not show their format"),
        (["events"], None, None, "the names of the files do not show their format"),
        (["events"], "xml", None, "there is no format 'xml' of events: expected one of parquet, csv, jsonl"),
        (["a.parquet"], None, SCHEMA, "Parquet files have a schema of their own"),
    ],
)
def test_options_that_do_not_fit(
    spark: SparkSession, paths: list[str], format: str | None, schema: str | None, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        read_events(spark, paths, format, schema)


def test_a_file_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"none\.csv"):
        read_events(spark, [str(tmp_path / "none.csv")])


def test_files_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a1.csv").touch()
    check_event_files(["a1.csv", "a[^0].csv", "a[!0].csv", "{a,b}?.csv"])
    # Whether there are any, Spark says.
    check_event_files(["hdfs:/a.csv", "s3a://bucket/a.csv"])
    check_event_files(["file:a1.csv", f"file:{tmp_path}/a1.csv", f"file://{tmp_path}/a?.csv"])
    for pattern in ("a[^1].csv", "b.csv", "{b,c}1.csv", "file:b.csv"):
        with pytest.raises(OptionError, match="there is no file of events"):
            check_event_files([pattern])


def test_files_that_spark_would_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        *("a.csv", "_b.csv", ".c.csv", "x/a.csv", "x/_SUCCESS", "x/.a.csv.crc", "y/year=1/_month=2/a.csv", "_z/a.csv"),
        *("in/a.csv", "in/sub/a.csv", "dot/a.csv", "dot/.b.JSONL", "temporary/_temporary/0/a.parquet"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    # A pattern's "*" fits no dot at the beginning of a name, as in a shell.
    check_event_files(["a.csv", "x", "[ax]*", "x/*", "y", "_z", "_z/*.csv", "in/*.csv"])
    for path, left_out in (
        ("_b.csv", "_b.csv"),
        ("file:.c.csv", ".c.csv"),
        ("*.csv", "_b.csv"),
        ("{a,_b}.csv", "_b.csv"),
        ("in", "in/sub/a.csv"),
        ("dot", "dot/.b.JSONL"),
        (f"{tmp_path}/t*", f"{tmp_path}/temporary/_temporary/0/a.parquet"),
    ):
        with pytest.raises(
            OptionError, match=rf"Spark would leave out {re.escape(left_out)}, as all whose names begin"
        ):
            check_event_files(["a.csv", path])


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


@pytest.mark.parametrize(
    ("layout", "left"),
    [
        (Layout("who", "nr"), {"id", "after", "x", "Size", "a`b.c"}),
        # As Spark does, whatever the case.
        (Layout("WHO", "`nr`"), {"id", "after", "x", "Size", "a`b.c"}),
        (Layout("who", "nr", "id", "split(after, ' ')"), {"x", "Size", "a`b.c"}),
        (Layout("concat(who, '@', `a``b.c`)", "cast(size as int)"), {"id", "nr", "after", "x"}),
        # A name within a text, and one of a function's own variable.
        (
            Layout("concat(who, 'x nr')", id="id", parents="filter(split(after, ' '), x -> x <> '')"),
            {"nr", "x", "Size", "a`b.c"},
        ),
        # A name of a function.
        (Layout("who", "size(split(after, ' '))"), {"nr", "id", "x", "Size", "a`b.c"}),
        # All columns, each of which could be missing.
        (Layout("md5(to_json(struct(*)))", "nr"), {"who", "id", "after", "x", "Size", "a`b.c"}),
        (Layout("who", "nr", payload=("after", "upper(who) AS name", "nr")), {"after", "name", "nr"}),
    ],
)
def test_payloads_have_what_no_expression_about_an_event_uses(
    spark: SparkSession, layout: Layout, left: set[str]
) -> None:
    columns = "who string, nr bigint, id string, after string, x string, Size double, `a``b.c` string"
    found = events(spark.createDataFrame([], columns), layout).schema["payload"].dataType
    assert isinstance(found, StructType)
    assert set(found.names) == left
